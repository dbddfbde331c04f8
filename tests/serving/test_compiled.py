"""`make test-compiled` means the extension; the same files without it run in `make test`."""

from __future__ import annotations

import os
import subprocess
import sys
from importlib.machinery import EXTENSION_SUFFIXES
from pathlib import Path

import pytest

from mark.serving.frontend import http

MODULES = (
    "mark.models.oip",
    "mark.serving.worker.shared_memory",
    "mark.serving.backend.bouncer",
    "mark.serving.backend.cache",
    "mark.serving.frontend.http",
    "mark.serving.frontend.server",
)


def test_processes_that_are_started_have_it_too() -> None:
    if ".compiled" not in os.environ.get("PYTHONPATH", ""):
        pytest.skip("not compiled here: make test-compiled")
    assert Path(http.__file__).name.endswith(EXTENSION_SUFFIXES[0])
    code = f"import {', '.join(MODULES)}, sys; print(*(sys.modules[m].__file__ for m in {MODULES!r}), sep=chr(10))"
    found = subprocess.run([sys.executable, "-P", "-c", code], capture_output=True, text=True, check=True).stdout
    assert all(Path(file).name.endswith(EXTENSION_SUFFIXES[0]) for file in found.splitlines()), found
    assert len(found.splitlines()) == len(MODULES)
