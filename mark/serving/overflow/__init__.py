"""Functions that answer what no instance can answer in time."""
