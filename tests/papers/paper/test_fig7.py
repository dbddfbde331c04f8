"""Fig. 7 of the paper: the same requests served on demand, on spot, by the paper's algorithm and by SageMaker."""

from __future__ import annotations

from pathlib import Path

import pytest
from mark_papers.paper.fig7 import run_fig7

from mark.domain.errors import BadInput
from tests.simulation.laws import check_laws

SHORT = {"start_s": 7200.0, "duration_s": 900.0, "models": ("inception-v3",)}


def test_a_preemption_series_is_one_more_run(tmp_path: Path) -> None:
    """The market is up and down by turns: its instances are interrupted, and every request is answered."""
    series = tmp_path / "series.csv"
    series.write_text("t_seconds,nodes\n0,4\n300,0\n600,4\n")
    told: list[float] = []
    found = run_fig7(spot_trace=str(series), progress=told.append, **SHORT)  # type: ignore[arg-type]
    (row,) = found.rows
    assert (row.model, found.start_s, told) == ("inception-v3", 7200.0, [1.0])
    assert list(row.runs) == ["mark", "mark-spot", "mark-spot-series", "mark-paper", "mark-paper:artefact", "sagemaker"]
    assert len({run.requests.total for run in row.runs.values()}) == 1
    for run in row.runs.values():
        check_laws(run)
    bills = {name: run.bill for name, run in row.runs.items()}
    assert bills["mark"].spot == bills["mark-paper"].spot == bills["sagemaker"].spot == 0.0
    assert bills["mark-spot"].spot > 0.0
    assert bills["mark-spot"].total < bills["mark"].total
    assert row.runs["mark-spot-series"].fleet.interrupted > 0
    assert row.runs["mark-spot-series"].requests.rejected == 0


def test_a_missing_or_bad_series_is_refused(tmp_path: Path) -> None:
    broken = tmp_path / "series.csv"
    broken.write_text("t_seconds,boxes\n0,4\n")
    with pytest.raises(BadInput, match="header"):
        run_fig7(spot_trace=str(broken), **SHORT)  # type: ignore[arg-type]
    (row,) = run_fig7(**SHORT).rows  # type: ignore[arg-type]
    assert list(row.runs) == ["mark", "mark-spot", "mark-paper", "mark-paper:artefact", "sagemaker"]
