"""What `fidelity_straggling` sends, and the numbers that it puts beside each other."""

from __future__ import annotations

import sys
from argparse import Namespace
from pathlib import Path

import pytest

sys.path.append(str(Path(__file__).parents[2] / "benchmarks" / "fidelity"))
import fidelity_straggling

from mark.traffic.traces.reader import open_trace


def test_the_load_comes_after_a_gap_at_one_rate(tmp_path: Path) -> None:
    part = fidelity_straggling.cut(Namespace(lead=60.0, calm=30.0, rate=8.0), tmp_path)
    assert part.begin_s == fidelity_straggling.HISTORY_S + 60.0
    history, sent = (open_trace(str(file)) for file in (part.history, part.file))
    assert history.duration_s == fidelity_straggling.HISTORY_S
    assert sent.total_counts(part.begin_s, part.begin_s + 30.0, 1.0) == pytest.approx(8.0 * 30.0)


def test_late_and_refused_are_told_apart() -> None:
    latency_ms = {"p50": 200.0, "p95": 1200.0, "p99": 1600.0, "mean": 1.0}
    one = fidelity_straggling.row(latency_ms, 0.9, {"total": 200, "rejected": 4}, 2)
    assert (one["late %"], one["refused %"]) == (pytest.approx(8.0), pytest.approx(2.0))
    other = fidelity_straggling.row(latency_ms | {"p99": 900.0}, 0.98, {"total": 200, "rejected": 0}, 0)
    assert fidelity_straggling.span([one, other], 0.0)["p99 ms"] == 900.0
    assert fidelity_straggling.span([one, other], 1.0)["crashes"] == 2.0
    assert fidelity_straggling.table({"testbed": one}).splitlines() == [
        "| | p50 ms | p95 ms | p99 ms | late % | refused % | crashes |",
        "|---|--:|--:|--:|--:|--:|--:|",
        "| testbed | 200 | 1,200 | 1,600 | 8.0 | 2.0 | 2 |",
    ]
