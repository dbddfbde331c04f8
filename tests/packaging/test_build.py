"""The wheel works by itself: in a fresh environment, outside of the checkout, with the base install alone."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from mark.kernel.compiled import CACHE_DIR

ROOT = Path(__file__).parents[2]


@pytest.mark.acceptance
@pytest.mark.parametrize("machine_code", [False, True])
def test_wheel_compares_without_the_checkout(tmp_path: Path, machine_code: bool) -> None:
    """Compiling machine code takes most of a build. Without any, the wheel runs with the tests' own."""
    pytest.importorskip("hatchling", reason="the wheel is built by hatchling: install mark with [dev]")
    environment = {**os.environ, "BIN": str(Path(sys.executable).parent), "POLICIES": "reactive", "PIP_COMPILE": "0"}
    if not machine_code and CACHE_DIR is not None:
        environment["KERNEL"] = str(Path(CACHE_DIR).parent)
    built = subprocess.run(
        [ROOT / "packaging/build.sh", tmp_path], env=environment, capture_output=True, text=True, check=False
    )
    assert built.returncode == 0, built.stderr
    assert "without the checkout" in built.stdout
    assert sorted(path.suffix for path in tmp_path.iterdir()) == [".gz", ".whl"]
