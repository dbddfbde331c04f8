"""The work of every server: the same arithmetic, the same batch sizes, for the workload named in WORKLOAD."""

from __future__ import annotations

import os
import time
from collections.abc import Sequence
from typing import Any

import numpy as np

# It is an environment variable, because servers start their workers in different ways and few pass arguments on.
WORKLOAD = os.environ.get("WORKLOAD", "echo")
# Most requests in a batch. A batch of b of "sleep" takes 5 ms + 0.2 ms x b, so that 32 allow 2,807 requests/s.
LARGEST = {"echo": 64, "binary": 64, "sleep": 32}
MAX_BATCH = LARGEST[WORKLOAD]
CEILING_RPS = 32 / (5e-3 + 0.2e-3 * 32)
WIDTH, RESULTS = 1024, 64
# Whole numbers, so that each sum is exact in float32 and the answer has the same bytes in a batch of any size.
MATRIX = (np.arange(WIDTH * RESULTS, dtype=np.int64).reshape(WIDTH, RESULTS) * 7919 % 13 - 6).astype(np.float32)


def echo(values: Sequence[Any]) -> list[Any]:
    """Return a batch unchanged, after its time if the workload is "sleep"."""
    if WORKLOAD == "sleep":
        time.sleep(5e-3 + 0.2e-3 * len(values))
    return list(values)


def product(rows: np.ndarray) -> np.ndarray:
    """Return rows (b, 1024) times the fixed matrix: (b, 64)."""
    return rows @ MATRIX


def products(bodies: Sequence[bytes]) -> list[bytes]:
    """Return the product from and to octets."""
    result = product(np.frombuffer(b"".join(bodies), np.float32).reshape(len(bodies), WIDTH))
    return [row.tobytes() for row in result]
