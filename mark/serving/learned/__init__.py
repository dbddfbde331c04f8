"""Learning from feedback, with the same state in all processes that serve a model."""
