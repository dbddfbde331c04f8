"""Service files and settings, as users write them."""
