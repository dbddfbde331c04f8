"""The listener for progress of counting late shares, which takes seconds a type the first time."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextvars import ContextVar

Told = Callable[[int, Sequence[str]], None]
"""Receives the number of types counted so far, and the names of all types to count."""

counting_watched: ContextVar[Told | None] = ContextVar("counting_watched", default=None)
