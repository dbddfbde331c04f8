"""An event loop for code under test: it runs until nothing is ready, and its clock stands still."""

from __future__ import annotations

import asyncio
import selectors
from collections.abc import Callable
from typing import Any

# A loop that has been busy for this many rounds is polling (`sleep(0)`).
_BUSY_ROUNDS = 10_000


class IdleLoop(asyncio.SelectorEventLoop):
    """A loop that runs all ready callbacks; timers run out only by `advance`.

    Nothing depends on the wall clock: time is virtual, and work given to a thread is done immediately, before the code
    goes on. Code that waits for the network waits forever.
    """

    def __init__(self) -> None:
        self._now_s = 0.0
        self._next_timer_s: float | None = None
        super().__init__(_NeverReady(self._idle))

    def time(self) -> float:
        """Return the virtual seconds since the loop was made."""
        return self._now_s

    def run_until_idle(self) -> None:
        """Run all callbacks that are ready, and those that become ready meanwhile."""
        self._next_timer_s = None
        self.run_forever()

    def advance(self) -> bool:
        """Move the clock to the next timer, as of the last `run_until_idle`; False without a timer."""
        if self._next_timer_s is None:
            return False
        self._now_s += self._next_timer_s
        return True

    def run_in_executor(self, executor: Any, func: Callable[..., Any], *args: Any) -> asyncio.Future[Any]:  # type: ignore[override]
        done: asyncio.Future[Any] = self.create_future()
        try:
            done.set_result(func(*args))
        except Exception as error:
            done.set_exception(error)
        return done

    def _idle(self, timeout_s: float | None) -> None:
        self._next_timer_s = timeout_s
        self.stop()


class _NeverReady(selectors.SelectSelector):
    """A selector that reports nothing. It calls `idle` with the timeout where the loop would sleep."""

    def __init__(self, idle: Callable[[float | None], None]) -> None:
        super().__init__()
        self._idle, self._rounds = idle, 0

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        self._rounds += 1
        if timeout is None or timeout > 0.0:
            self._rounds = 0
            self._idle(timeout)
        elif self._rounds > _BUSY_ROUNDS:
            self._rounds = 0
            self._idle(None)
        return []
