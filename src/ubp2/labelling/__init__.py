"""People as teachers: clips of the questions of a run, and the page on which they are answered."""
