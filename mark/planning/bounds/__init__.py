"""Proven lower bounds of a bill, and the reasons for the gap between a bill and its bound."""
