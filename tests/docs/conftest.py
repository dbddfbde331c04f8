"""A reader of the documentation."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.docs.pages import ROOT, Reader
from tests.docs.warm import warm


@pytest.fixture(scope="session")
def warm_start() -> Iterator[list[str]]:
    with warm() as start:
        yield start


@pytest.fixture
def reader(tmp_path: Path, warm_start: list[str]) -> Iterator[Reader]:
    """Yield a reader with a fresh checkout."""
    for folder in ("examples", "traces"):
        shutil.copytree(ROOT / folder, tmp_path / folder, ignore=shutil.ignore_patterns("__pycache__"))
    reader = Reader(tmp_path, warm_start)
    try:
        yield reader
    finally:
        reader.close()
