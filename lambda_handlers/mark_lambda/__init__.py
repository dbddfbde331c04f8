"""The code that runs inside a function: overflow inference and warm-up."""
