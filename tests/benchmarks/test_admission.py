"""The table of the benchmark of admission by value counts what is better and what is worse."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import pytest

sys.path.insert(0, str(Path(__file__).parents[2] / "benchmarks" / "planner"))
import admission


def test_a_table_counts_clear_differences_only() -> None:
    """Two services at every load: 0.95 saves half of the misses of one, and passes on half of the other one."""
    found = np.zeros((2, len(admission.LOADS), len(admission.LEAST), 2))
    found[..., 0] = 0.02
    at = admission.LEAST.index(0.95)
    found[0, :, at, 0] = 0.01
    found[1, :, at] = 0.0, 0.5
    found[:, :, at - 1, 0] = 0.0203  # by less than 2 %: no difference
    rows, worse = admission.table(found, 10.0)
    loads = len(admission.LOADS)
    assert rows[0].startswith("| 0 | 0.200 |")
    assert rows[at].endswith(f"| {loads} | {loads} |")
    assert rows[at - 1].endswith("| 0 | 0 |")
    assert worse == pytest.approx(0.5)


def test_a_stricter_rule_passes_on_more_and_misses_less() -> None:
    kind = admission.kind_of(24.0, 75.0, admission.Slo(0.08, 0.98), batches=False)
    arrivals_s = np.cumsum(np.random.default_rng(1).exponential(1.0 / (0.6 * 4 * kind.ceiling_rps), 5_000))
    late, calls = zip(
        *(admission.shares(kind, 0.08, arrivals_s, 4, least, 1) for least in (0.0, 0.9, 0.98)), strict=True
    )
    assert late[0] > late[1] > late[2]
    assert calls[0] < calls[1] < calls[2]
