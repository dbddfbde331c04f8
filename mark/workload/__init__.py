"""Traces: read, generate, scale and cut them; draw their arrivals."""

from mark.workload.info import trace_info
from mark.workload.reader import open_trace
from mark.workload.trace import Part, Trace, drawn_load

__all__ = ["Part", "Trace", "drawn_load", "open_trace", "trace_info"]
