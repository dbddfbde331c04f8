"""The store in memory."""

from __future__ import annotations

from mark.control.memory_store import MemoryStore
from mark.control.ports import Result
from mark.domain.command import Terminate


def test_it_keeps_values_and_the_journal_in_order() -> None:
    """A get returns the last put, unknown keys are None, and the journal only grows."""
    store = MemoryStore()
    assert store.get("plan") is None
    store.put("plan", 1)
    store.put("plan", 2)
    assert store.get("plan") == 2
    command = Terminate("its queue is empty", 0.0, "c5.large/on-demand", 1)
    store.record(5.0, command, "done", Result.DONE, 0)
    store.record(5.0, command, "not found", Result.FAILED, 0)
    assert store.journal == [(5.0, command, "done"), (5.0, command, "not found")]
    assert store.results == [(Result.DONE, 0), (Result.FAILED, 0)]
