"""Garbage of other tests."""

from __future__ import annotations

import gc

import pytest


@pytest.fixture(scope="module", autouse=True)
def _earlier_objects() -> None:
    """Exempt objects of other files from the collections of these tests, each of which would take half a second."""
    gc.collect()
    gc.freeze()
