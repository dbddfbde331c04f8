"""Pipelines of models behind one promise: what a configuration does to latencies, and what it costs."""
