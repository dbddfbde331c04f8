"""A loader of workers on a machine that stands in for another one, which boots more slowly."""

from __future__ import annotations

import os
import time
from pathlib import Path

from mark.serving.worker import worker
from mark.serving.worker.worker_loop import Loaded

# When the other machine's boot is over, in Unix seconds; without it, at once.
READY_AT = "MARK_READY_AT"


def load(reference: str, search: Path, name: str, version: str) -> Loaded:
    """`mark.serving.worker.worker.load`, and no worker is ready before that moment."""
    loaded = worker.load(reference, search, name, version)
    time.sleep(max(0.0, float(os.environ.get(READY_AT, "0")) - time.time()))
    return loaded
