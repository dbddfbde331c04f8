"""Learned facts in the fake object store and in a folder."""

from __future__ import annotations

from pathlib import Path

import pytest

from mark.models.registry_folder import FolderObjects
from mark.serving.learned.facts import Vector
from mark.serving.learned.stored import LearnedStore
from mark.testing.fakes import FakeObjects
from tests.models.registry_contract import Open
from tests.serving.learned.made import fact
from tests.serving.learned.stored_contract import LearnedStoreContract


class TestFakeStore(LearnedStoreContract):
    @pytest.fixture
    def opened(self) -> Open:
        objects = FakeObjects()
        return lambda: objects


class TestFolderStore(LearnedStoreContract):
    @pytest.fixture
    def opened(self, tmp_path: Path) -> Open:
        return lambda: FolderObjects(tmp_path / "store")


def test_keys_name_model_writer_and_numbers() -> None:
    objects = FakeObjects()
    store = LearnedStore(objects, "m")
    store.put([fact("5fca", 7), fact("5fca", 12)])
    store.put_snapshot(b"", "5fca", 1.5)
    assert objects.created == ["learned/m/5fca/000000000007-000000000012", "learned/m/snapshots/000000000001500-5fca"]


def test_object_that_holds_no_facts_is_refused() -> None:
    objects = FakeObjects()
    objects.create("learned/m/a/1-2", b"[]\n")
    objects.create("learned/m/readme", b"not of mark")
    store = LearnedStore(objects, "m")
    (key,) = store.there().lacked_by(Vector())
    with pytest.raises(ValueError, match="five parts"):
        store.facts(key)
