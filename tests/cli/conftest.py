"""Fixtures for tests of commands."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from mark.cli.output import progress_clock
from tests.cli.two_stages import CODE, DRIVER_FILE, FILE, PROFILE, TRACE


@pytest.fixture(autouse=True)
def no_progress() -> Iterator[None]:
    """Stop the clock of progress, so that a command's output does not depend on the machine."""
    before = progress_clock.set(lambda: 0.0)
    yield
    progress_clock.reset(before)


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Make a folder with two pipelines, one with a driver; forget the imported modules afterwards."""
    before = list(sys.path)
    monkeypatch.chdir(tmp_path)
    (tmp_path / "two.toml").write_text(FILE)
    (tmp_path / "two.csv").write_text(PROFILE)
    (tmp_path / "traced.toml").write_text(DRIVER_FILE)
    (tmp_path / "two_of_test.py").write_text(CODE)
    (tmp_path / "q.jsonl").write_text("1\n2\n3\n4\n")
    (tmp_path / "lineage.csv").write_text("queries,second,first\n3,0,1\n1,1,1\n")
    (tmp_path / "t.csv").write_text(TRACE)
    yield tmp_path
    sys.path[:] = before
    sys.modules.pop("two_of_test", None)
