"""Traces and logs."""
