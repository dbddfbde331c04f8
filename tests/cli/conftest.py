"""Runs stay in the process of the test."""

from __future__ import annotations

import os
import sys

import pytest


@pytest.fixture(autouse=True)
def one_core(monkeypatch: pytest.MonkeyPatch) -> None:
    """As on a computer with one core: a process more imports for seconds what a short run needs for a moment.

    tests/studies/test_compare.py has the runs on several.
    """
    if sys.platform == "linux":
        monkeypatch.setattr(os, "sched_getaffinity", lambda _: {0})
    else:
        monkeypatch.setattr(os, "cpu_count", lambda: 1)
