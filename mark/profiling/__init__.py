"""Measure how long a model takes on each instance type, and derive the batch policy that the SLO allows."""
