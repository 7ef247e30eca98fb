"""Studies: open questions, the runs that answer them, and how they fit into an hour of GPU (`benchmarks/study.py`)."""

__all__: list[str] = []
