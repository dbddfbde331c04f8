"""The store in memory."""

from __future__ import annotations

from mark.control.memory_store import MemoryStore
from mark.domain.command import Terminate


def test_it_keeps_values_and_the_journal_in_order() -> None:
    """What was put last is got; unknown keys are None; the journal only grows."""
    store = MemoryStore()
    assert store.get("plan") is None
    store.put("plan", 1)
    store.put("plan", 2)
    assert store.get("plan") == 2
    command = Terminate("its queue is empty", 0.0, "c5.large/on-demand", 1)
    store.record(5.0, command, "done")
    store.record(5.0, command, "not found")
    assert store.journal == [(5.0, command, "done"), (5.0, command, "not found")]
