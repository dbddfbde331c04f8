"""The load that has to be served, and what is left of the SLO."""
