"""Functions that answer requests that no instance can answer in time."""
