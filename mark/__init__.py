"""mark: serve models at the lowest bill that still keeps a latency promise."""

__version__ = "0.1.0"
