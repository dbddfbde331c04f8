"""The controller's HTTP API and its live page."""
