"""Conductors take queries through the stages of a pipeline. Each is a backend with further backends for the stages."""
