"""A thread that repeats its work until its owner closes."""

from __future__ import annotations

import threading
from collections.abc import Callable


class Background:
    """Runs `work` in a thread between `start` and `close`; both may be repeated. `work` returns once `_ends` is set."""

    def __init__(self, work: Callable[[], None], name: str) -> None:
        self._ends = threading.Event()
        self._thread = threading.Thread(target=work, name=name, daemon=True)

    def start(self) -> None:
        if self._thread.ident is None:
            self._thread.start()

    def close(self) -> None:
        """End the thread after its current step, and wait for it."""
        self._ends.set()
        if self._thread.ident is not None:
            self._thread.join()
