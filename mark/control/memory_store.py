"""The store in memory: the simulator's store, and the fake that ships with the port."""

from __future__ import annotations

from typing import Any

from mark.control.ports import Recorded, Result, Store
from mark.domain.command import Command


class MemoryStore:
    """Keeps state and journal as long as the process lives. `journal` holds (time, command, outcome), in order.

    `results` holds, for each line, the result and the number of started instances.
    """

    def __init__(self) -> None:
        self.journal: list[tuple[float, Command, str]] = []
        self.results: list[tuple[Result, int]] = []
        self._values: dict[str, Any] = {}
        self._lines: dict[int, Recorded] = {}  # lines of the journal that were read, because the newest are read often

    def get(self, key: str) -> Any | None:
        return self._values.get(key)

    def put(self, key: str, value: Any) -> None:
        self._values[key] = value

    def record(self, at_s: float, command: Command, outcome: str, result: Result, started: int) -> None:
        self.journal.append((at_s, command, outcome))
        self.results.append((result, started))

    def recorded(self, before_id: int | None, count: int) -> list[Recorded]:
        last = len(self.journal) if before_id is None else min(before_id - 1, len(self.journal))
        return [self._lines.get(id) or self._line(id) for id in range(last, max(0, last - count), -1)]

    def _line(self, id: int) -> Recorded:
        at_s, command, outcome = self.journal[id - 1]
        line = Recorded(id, at_s, command.verb, str(command), outcome, command.usd_per_hour, *self.results[id - 1])
        self._lines[id] = line
        return line


_: type[Store] = MemoryStore
