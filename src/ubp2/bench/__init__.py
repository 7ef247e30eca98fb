"""`ubp2 bench`: how fast this machine plans, learns, trains, steps environments and starts.

`options` is what the command line reads and imports nothing heavy; each bench is a module of its own with a function
`measure` that takes its options and returns a `report.Report`.
"""
