"""The shipped profiles of 2026 follow from the paper's rows by the factors that docs/profiles.md states."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from mark.domain.profile import Basis
from mark.profiling.table import load_profiles

sys.path.insert(0, str(Path(__file__).parents[2] / "benchmarks" / "planner"))

import derived_profiles


def test_the_shipped_file_is_what_the_script_writes() -> None:
    paper = derived_profiles.read("paper.csv")
    assert derived_profiles.read("derived-2026.csv") == derived_profiles.derived_rows(paper)


@pytest.mark.parametrize(
    ("was", "now", "batch", "factor"),
    [
        ("c5.large", "c7i.large", 1, 1 + (1.15 * 1.15 * 1.05 - 1) / 2),
        ("c5.4xlarge", "c8g.4xlarge", 1, 1 + (1.12 * 1.25 * 1.30 - 1) / 2),
        ("p2.xlarge", "g4dn.xlarge", 8, 1 + (8.1 / 4.365 - 1) / 2),
        ("p2.xlarge", "g6.xlarge", 8, 1 + (30.3 / 4.365 - 1) / 2),
    ],
)
def test_half_of_an_advertised_gain_is_believed(was: str, now: str, batch: int, factor: float) -> None:
    shipped = load_profiles()
    before_s = shipped["inception-v3"][was].latency_s(batch)
    after_s = shipped["inception-v3-2026"][now].latency_s(batch)
    assert before_s / after_s == pytest.approx(factor, rel=2e-3)


def test_functions_are_faster_by_memory_and_keep_their_basis() -> None:
    today = load_profiles()
    of_inception = today["inception-v3-2026"]
    by_memory = [of_inception[f"lambda:{memory_mb}"].latency_s(1) for memory_mb in (3008, 5120, 10240)]
    assert by_memory[0] == 0.38
    assert by_memory == sorted(by_memory, reverse=True)
    assert {row.basis for profile in of_inception.values() for row in profile.rows} == {Basis.DERIVED}
    assert today["nasnet-2026"]["lambda:10240"].rows[0].basis is Basis.ASSUMED
