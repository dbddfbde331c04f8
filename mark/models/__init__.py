"""The model side of the SDK: register and load models, and answer undecoded calls with them."""
