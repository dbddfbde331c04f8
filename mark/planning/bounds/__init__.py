"""Proven lower bounds of a bill, and what lies between a bill and its bound."""
