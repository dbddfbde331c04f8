"""A sample of benchmarks/planner/tails.py, heavy tails: `mark` keeps what the best fixed fleet keeps."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from tests.samples import first

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "benchmarks" / "planner"))

import tails

CASES = [
    {"tail": 1.5, "slack": 3.0, "traffic": "constant", "rps": 10.0, "types": 1, "function": "none"},
    {"tail": 3.0, "slack": 3.0, "traffic": "constant", "rps": 50.0, "types": 1, "function": "none"},
    {"tail": 3.0, "slack": 5.0, "traffic": "diurnal", "rps": 50.0, "types": 2, "function": "late"},
    {"tail": 2.0, "slack": 3.0, "traffic": "constant", "rps": 50.0, "types": 1, "function": "in time"},
    {"tail": 2.0, "slack": 2.0, "traffic": "constant", "rps": 1.0, "types": "sizes", "function": "none"},
]


@pytest.mark.usefixtures("coarse_late_shares")
@pytest.mark.parametrize(
    "case", first(0, CASES, slow=2), ids=lambda case: "-".join(str(value) for value in case.values())
)
def test_mark_keeps_what_the_best_fixed_fleet_keeps(case: dict[str, object]) -> None:
    assert tails.judged(case, 1.5, 0)["verdict"] in {"kept", "not asked"}
