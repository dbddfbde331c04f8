"""Metrics of running bouncers, read and summed."""
