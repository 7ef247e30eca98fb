"""The version, in the one place that the package, the build and the run folders read."""

__all__ = ["__version__"]

__version__ = "0.2.0.dev0"
