"""Clipper's figures as tables, JSON and pages."""
