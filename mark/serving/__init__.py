"""The data plane: a bouncer in front of a model. Imports no numba; decisions are state machines, shells are thin."""
