"""Protect a service against slow and lost instances by parity models: the codes, and the groups of queries.

Everything here is pure. `mark.serving` groups and decodes live queries with it, `mark.simulation` simulated ones.
"""
