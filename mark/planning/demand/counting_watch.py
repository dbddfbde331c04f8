"""The listener for progress of counting late shares, which takes seconds a type the first time."""

from __future__ import annotations

from collections.abc import Callable
from contextvars import ContextVar

Told = Callable[[int, int], None]
"""Takes how many types are counted, of how many that are to be."""

counting_watched: ContextVar[Told | None] = ContextVar("counting_watched", default=None)
