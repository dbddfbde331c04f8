"""The load that has to be served, and the rest of the SLO's budget."""
