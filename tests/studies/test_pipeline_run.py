"""Runs of a pipeline: what holds of each, whatever was drawn."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from mark.simulation.request import RunRequest
from mark.studies.pipeline_bound import bound_pipeline
from mark.studies.pipeline_run import simulate_pipeline
from tests.cli.test_plan_pipeline import FILE, PROFILE

PART_S = 60.0


@pytest.fixture
def request_(tmp_path: Path) -> RunRequest:
    """Of a pipeline of two stages, of which half the queries visit the second."""
    (tmp_path / "two.toml").write_text(FILE)
    (tmp_path / "two.csv").write_text(PROFILE)
    service = str(tmp_path / "two.toml")
    return RunRequest("synthetic:mmpp?rates=10,60&dwell_s=30", service, start_s=200.0, duration_s=PART_S)


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_what_holds_of_every_run(request_: RunRequest, seed: int) -> None:
    """No run undercuts the bound that `mark bound` says; stages sum to the bill; all have the same queries."""
    request = replace(request_, seed=seed)
    bounded = bound_pipeline(request)
    runs = simulate_pipeline(request, ("inferline", "coarse-mean"))
    for run in runs.values():
        assert run.queries == bounded.queries == run.stages[0].calls
        assert run.attainment * run.queries + run.misses == pytest.approx(run.queries)
        assert run.bound_usd == bounded.within_slo.usd
        assert run.usd == pytest.approx(sum(stage.usd for stage in run.stages))
        assert run.usd >= run.bound_usd or not run.kept
        assert run.instances == pytest.approx(sum(stage.instances for stage in run.stages))
        assert all(0.0 <= stage.busy <= 1.0 and stage.instances <= stage.most_instances for stage in run.stages)
    assert len({run.stages[1].calls for run in runs.values()}) == 1


@pytest.mark.parametrize(
    ("rate", "train_s", "start_s", "planned"),
    [
        (20, None, 200.0, (0.0, 120.0)),  # steady: the first of the busiest
        (20, 130.0, 200.0, (70.0, 120.0)),
        (6, None, 200.0, (0.0, 200.0)),  # less than a thousand queries in two minutes
        (20, 60.0, 200.0, (200.0, 60.0)),  # too short, so the part itself
        (4, None, 200.0, (200.0, 60.0)),  # too few
        (20, 0.0, 200.0, (200.0, 60.0)),
        (20, None, 0.0, (0.0, 60.0)),
    ],
)
def test_what_came_before_is_planned_on_where_it_is_enough(
    request_: RunRequest, rate: int, train_s: float | None, start_s: float, planned: tuple[float, float]
) -> None:
    """A thousand queries and two minutes: else the part's own beginning. `planned` is its start and its length."""
    trace = f"synthetic:poisson?rate={rate}"
    request = replace(request_, trace=trace, start_s=start_s, train_s=train_s, with_bound=False)
    window = simulate_pipeline(request, ("coarse-mean",))["coarse-mean"].planned_on
    assert (window.start_s, window.duration_s) == pytest.approx(planned)
