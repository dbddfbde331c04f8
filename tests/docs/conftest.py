"""Somebody who reads the documentation."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.docs.pages import ROOT, Reader


@pytest.fixture
def reader(tmp_path: Path) -> Iterator[Reader]:
    """With a fresh checkout."""
    for folder in ("examples", "traces"):
        shutil.copytree(ROOT / folder, tmp_path / folder, ignore=shutil.ignore_patterns("__pycache__"))
    somebody = Reader(tmp_path)
    try:
        yield somebody
    finally:
        somebody.close()
