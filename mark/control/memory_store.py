"""The store in memory: what the simulator uses, and the fake that ships with the port."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from mark.domain.command import Command


class MemoryStore:
    """Keeps state and journal as long as the process lives. `journal` holds (time, command, outcome), in order."""

    def __init__(self) -> None:
        self.journal: list[tuple[float, Command, str]] = []
        self._values: dict[str, Any] = {}

    def get(self, key: str) -> Any | None:
        return self._values.get(key)

    def put(self, key: str, value: Any) -> None:
        self._values[key] = value

    def record(self, at_s: float, command: Command, outcome: str) -> None:
        self.journal.append((at_s, command, outcome))


if TYPE_CHECKING:
    from mark.control.ports import Store

    _fits: type[Store] = MemoryStore
