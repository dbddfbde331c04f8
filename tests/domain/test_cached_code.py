"""Cached machine code runs without numba's compiler."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

PROGRAM = """
import sys
import numpy as np
from mark.traffic.traces.draw import add_windows
times = np.zeros(2)
add_windows(times, 5.0, 1.0, np.array([1, 1]))
print(times.tolist(), "numba.cpython.setobj" in sys.modules)
"""


def run(cache: Path) -> str:
    environment = {**os.environ, "NUMBA_CACHE_DIR": str(cache)}
    return subprocess.run(
        [sys.executable, "-c", PROGRAM], env=environment, capture_output=True, text=True, check=True
    ).stdout


def test_cached_function_loads_no_compiler_and_answers_the_same(tmp_path: Path) -> None:
    first, second = run(tmp_path), run(tmp_path)
    assert first.endswith("True\n")
    assert second == first.replace("True", "False")
