"""Fig. 8 of the paper: the bursts have the paper's mean, and every policy serves the same requests."""

from __future__ import annotations

import pytest
from mark_papers.paper.fig8 import POLICIES, mmpp_spec, run_fig8
from mark_papers.paper.replay import MEAN_RPS

from mark.traffic.traces.reader import open_trace
from tests.simulation.laws import check_laws


@pytest.mark.parametrize("model", list(MEAN_RPS))
def test_bursts_have_two_rates_and_the_right_mean(model: str) -> None:
    days = 100.0  # some 29,000 changes of state: the mean is within a percent or so
    trace = open_trace(mmpp_spec(model) + "&bin_s=60", duration_s=days * 86400.0)
    rates = trace.series.counts / 60.0
    assert rates.max() / rates.min() == pytest.approx(4.0)
    assert rates.mean() == pytest.approx(MEAN_RPS[model], rel=0.02)


@pytest.mark.slow
@pytest.mark.usefixtures("brief_training")
def test_one_model_on_short_parts_of_both() -> None:
    told: list[float] = []
    found = run_fig8(start_s=7200.0, duration_s=600.0, mmpp_duration_s=600.0, models=("nasnet",), progress=told.append)
    (row,) = found.rows
    assert (row.model, found.start_s, told) == ("nasnet", 7200.0, [1.0])
    for runs in (row.stream, row.mmpp):
        assert list(runs) == list(POLICIES)
        assert len({run.requests.total for run in runs.values()}) == 1
        for run in runs.values():
            check_laws(run)
    assert row.stream["mark"].trace.duration_s == row.mmpp["mark"].trace.duration_s == 600.0
    assert row.stream["mark"].requests.total == pytest.approx(25.0 * 600.0, rel=0.03)
    assert set(row.mmpp["sagemaker"].fleet.instance_hours) == {"ml.c5.xlarge/sagemaker"}
