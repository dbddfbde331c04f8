"""Service files and settings: what a user writes down."""
