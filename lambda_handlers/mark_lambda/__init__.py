"""What runs inside a function: overflow inference and warm-up."""
