"""Traces: read, generate, scale and cut them; draw their arrivals."""

from mark.traffic.traces.info import trace_info
from mark.traffic.traces.reader import open_trace
from mark.traffic.traces.trace import Part, Trace, drawn_load

__all__ = ["Part", "Trace", "drawn_load", "open_trace", "trace_info"]
