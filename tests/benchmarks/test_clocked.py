"""A sample of benchmarks/planner/clocked.py, jobs by the clock: `mark` keeps what the best fixed fleet keeps."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from tests.samples import first

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "benchmarks" / "planner"))

import clocked

CASES = [
    {"period_min": 10, "burst_s": 10, "jitter_s": 180, "service": "one type"},
    {"period_min": 30, "burst_s": 10, "jitter_s": 0, "service": "two types"},
    {"period_min": 10, "burst_s": 10, "jitter_s": 180, "service": "function"},
]


@pytest.mark.usefixtures("coarse_late_shares")
@pytest.mark.parametrize(
    "case", first(0, CASES, slow=1), ids=lambda case: "-".join(str(value) for value in case.values())
)
def test_jobs_by_the_clock_are_kept(case: dict[str, object]) -> None:
    assert clocked.judged(case, 2.0, 0)["verdict"] == "kept"
