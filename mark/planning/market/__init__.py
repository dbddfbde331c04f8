"""Spot and committed capacity."""
