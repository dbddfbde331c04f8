"""Layers: backends before the model, which a service file adds."""
