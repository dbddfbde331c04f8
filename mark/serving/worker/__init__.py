"""Processes that run the model, and the memory shared with them."""
