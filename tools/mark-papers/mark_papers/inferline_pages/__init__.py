"""Tables and pages of InferLine's experiments."""
