"""How long a model takes on what can be bought, and the batch policy that follows from it and the SLO."""
