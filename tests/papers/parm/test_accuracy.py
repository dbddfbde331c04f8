"""Accuracy of reconstructions on digits, with few epochs."""

from __future__ import annotations

import pytest
from mark_papers.clipper.classifiers import DIGITS
from mark_papers.parm.accuracy import run_parm_accuracy


@pytest.mark.acceptance
def test_reconstructions_are_far_better_than_a_default() -> None:
    told: list[float] = []
    (panel,) = run_parm_accuracy(data=(DIGITS,), groups=(2,), epochs=5, progress=told.append).panels
    assert [row["code"] for row in panel.rows] == ["sum, k = 2", "concat, k = 2"]
    for row in panel.rows:
        default, degraded, all_answers, available = (float(row[key]) for key in ("default", "A_d", "A_o 10 %", "A_a"))
        assert default + 0.5 < degraded
        assert all_answers == pytest.approx(0.9 * available + 0.1 * degraded)
        assert available > 0.9
    assert told[-1] == pytest.approx(1.0)
