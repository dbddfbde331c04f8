"""The SDK's model side: register, load, and answer undecoded calls with a model, wherever it runs."""
