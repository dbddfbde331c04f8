"""Graphs of models: traced, estimated, configured."""
