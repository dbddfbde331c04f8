"""The testbed: AWS on one machine, with real processes as instances and functions."""
