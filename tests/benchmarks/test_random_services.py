"""A sample of benchmarks/planner/random_services.py: `mark` keeps what the best fixed fleet keeps, for no more."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from tests.samples import first

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "benchmarks" / "planner"))

import random_services


@pytest.mark.usefixtures("coarse_late_shares")
@pytest.mark.parametrize("case", first(0, (22, 0, 8, 16), slow=1))
def test_mark_keeps_what_the_best_fixed_fleet_keeps(case: int) -> None:
    """Before small fleets were judged by the table of each type, case 22 cost 1.4 times the best fixed fleet."""
    assert random_services.judged(case, 6.0)["verdict"] == "kept"


@pytest.mark.slow
def test_mark_keeps_what_the_best_fixed_fleet_keeps_on_wide_cases() -> None:
    """Before committed instances ran all the time, wide case 2 cost 1.2 times the best fixed fleet."""
    assert random_services.judged(2, 6.0, widely=True)["verdict"] == "kept"
