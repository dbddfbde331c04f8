"""The contract of an object store for learned facts: over the fake, a folder and S3."""

from __future__ import annotations

import pytest

from mark.serving.learned.facts import Vector
from mark.serving.learned.shared import Shared
from mark.serving.learned.stored import LearnedStore
from tests.models.registry_contract import Open
from tests.serving.learned.made import Tally, fact


class LearnedStoreContract:
    """Derive from it, and give it a fixture `opened` of type `Open` with an empty place."""

    def test_another_process_reads_the_facts_that_it_lacks(self, opened: Open) -> None:
        store, other = LearnedStore(opened(), "m"), LearnedStore(opened(), "m")
        store.put([fact("a", number) for number in (1, 2, 3)])
        store.put([fact("a", 4)])
        store.put([fact("b", 1)])
        LearnedStore(opened(), "another").put([fact("c", 1)])
        shared = Shared(Tally(), 10**6, 10**6)
        shared.take([fact("b", 1)])
        for key in other.there().lacked_by(shared.vector):
            shared.take(other.facts(key))
        assert shared.vector.writers["a"].through == 4
        assert set(shared.vector.writers) == {"a", "b"}
        assert other.there().lacked_by(shared.vector) == []

    def test_facts_that_are_put_again_with_more_count_once(self, opened: Open) -> None:
        """This happens after an answer of the store was lost."""
        store = LearnedStore(opened(), "m")
        for last in (2, 2, 3):
            store.put([fact("a", number) for number in range(1, last + 1)])
        shared = Shared(Tally(), 10**6, 10**6)
        for key in store.there().lacked_by(Vector()):
            shared.take(store.facts(key))
        assert shared.vector.writers["a"].through == 3

    def test_facts_that_are_not_there_are_found_in_runs(self, opened: Open) -> None:
        store = LearnedStore(opened(), "m")
        store.put([fact("a", number) for number in (3, 4)])
        store.put([fact("a", 7)])
        left = [fact("b", 1), *(fact("a", number) for number in (8, 2, 3, 4, 5, 6, 9))]
        runs = [[(one.writer, one.number) for one in run] for run in store.there().lacks(left)]
        assert sorted(runs) == [[("a", 2)], [("a", 5), ("a", 6)], [("a", 8), ("a", 9)], [("b", 1)]]

    def test_the_newest_snapshot_comes_first(self, opened: Open) -> None:
        store = LearnedStore(opened(), "m")
        shared = Shared(Tally(), 10**6, 10**6)
        for number in (1, 2, 3):
            shared.take([fact("a", number)])
            store.put_snapshot(shared.snapshot().to_bytes(), "a", 9.0 * number)
        keys = store.snapshots()
        assert [store.snapshot(key).vector.writers["a"].through for key in keys] == [3, 2, 1]
        assert store.there().lacked_by(Vector()) == []  # a snapshot does not count as facts
        with pytest.raises(ValueError, match="empty document"):
            store.snapshot("learned/m/snapshots/gone")

    def test_data_aside_are_stored_once_an_hour(self, opened: Open) -> None:
        store, other = LearnedStore(opened(), "m"), LearnedStore(opened(), "m")
        assert store.aside() is None
        store.put_aside(b"first", "b", 1000.0)
        other.put_aside(b"too soon", "a", 4599.0)
        assert other.aside() == b"first"
        other.put_aside(b"later", "a", 4600.0)
        assert store.aside() == b"later"
        assert store.there().lacked_by(Vector()) == []  # they do not count as facts
