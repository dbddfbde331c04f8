"""Runs of a pipeline: laws that hold for any draws."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from mark.simulation.request import RunRequest
from mark.studies.pipeline_bound_study import bound_pipeline
from mark.studies.pipeline_run import simulate_pipeline
from tests.cli.test_plan_pipeline import FILE, PROFILE
from tests.samples import first

PART_S = 60.0
OVERFLOW = """
[overflow]
function = "lambda:*"
"""
GROWING = "synthetic:gamma?rate=60&rate2=240&transition_at_s=230&transition_s=5"
USD_PER_HOUR = {"c7i.large": 0.08925, "c7i.xlarge": 0.1785}


def call_usd(billed_ms: float) -> float:
    """Return the price of a call of 1,769 MB, with the fee."""
    return billed_ms / 1e3 * 1769 / 1024 * 1.66667e-5 + 2e-7


@pytest.fixture
def request_(tmp_path: Path) -> RunRequest:
    """Return a request for a pipeline of two stages, in which half of the queries visit the second."""
    (tmp_path / "two.toml").write_text(FILE)
    (tmp_path / "two.csv").write_text(PROFILE)
    service = str(tmp_path / "two.toml")
    return RunRequest("synthetic:mmpp?rates=10,60&dwell_s=30", service, start_s=200.0, duration_s=PART_S)


@pytest.mark.parametrize("seed", first(1, [1, 2, 3]))
def test_what_holds_of_every_run(request_: RunRequest, seed: int) -> None:
    """No run undercuts the bound that `mark bound` says; stages sum to the bill; all have the same queries."""
    request = replace(request_, seed=seed)
    bounded = bound_pipeline(request)
    runs = simulate_pipeline(request, ("mark", "inferline", "coarse-mean"))
    for run in runs.values():
        assert run.queries == bounded.queries == run.stages[0].calls
        assert run.attainment * run.queries + run.misses == pytest.approx(run.queries)
        assert run.bound_usd == bounded.within_slo.usd
        assert run.usd == pytest.approx(sum(stage.usd for stage in run.stages))
        assert run.usd >= run.bound_usd or not run.kept
        assert run.instances == pytest.approx(sum(stage.instances for stage in run.stages))
        assert all(0.0 <= stage.busy <= 1.0 and stage.instances <= stage.most_instances for stage in run.stages)
    # A call that the first stage refuses makes no call of the second.
    assert runs["mark"].stages[1].calls <= runs["inferline"].stages[1].calls == runs["coarse-mean"].stages[1].calls


@pytest.fixture
def with_functions(request_: RunRequest) -> RunRequest:
    """Return a request with a function for each stage; the load becomes fourfold faster than an instance boots."""
    service = Path(request_.service)
    service.with_name("functions.toml").write_text(FILE.replace("two.csv", "functions.csv") + OVERFLOW)
    head, *rows = PROFILE.splitlines()
    functions = "one,lambda:1769,1,20,1,400", "other,lambda:1769,1,40,1,400"
    lines = [f"{head},cold_ms", *(f"{row}," for row in rows), *functions]
    service.with_name("functions.csv").write_text("\n".join(lines) + "\n")
    return replace(request_, service=str(service.with_name("functions.toml")), trace=GROWING)


@pytest.mark.parametrize("seed", first(1, [1, 2, 3]))
def test_what_holds_of_every_run_with_functions(with_functions: RunRequest, seed: int) -> None:
    """No call is lost or counted twice, the bill is that of instances and functions, and no bound exceeds it."""
    request = replace(with_functions, seed=seed)
    runs = simulate_pipeline(request, ("tuned", "coarse-mean"))
    ours, theirs = runs["tuned"], runs["coarse-mean"]
    assert [stage.calls for stage in ours.stages] == [stage.calls for stage in theirs.stages]
    assert (theirs.function_usd, theirs.by_function.calls) == (0.0, 0)
    assert 0.0 < ours.function_usd < ours.usd
    assert ours.by_function.calls == sum(stage.by_function.calls for stage in ours.stages) > 0
    for stage, warm_ms in zip(ours.stages, (20.0, 40.0), strict=True):
        called = stage.by_function
        of_cold = called.cold * call_usd(400.0 + warm_ms)
        assert stage.function_usd == pytest.approx((called.calls - called.cold) * call_usd(warm_ms) + of_cold)
        hours = stage.instances * PART_S / 3600.0
        assert stage.usd - stage.function_usd == pytest.approx(USD_PER_HOUR[stage.hardware] * hours)
    assert ours.usd == pytest.approx(sum(stage.usd for stage in ours.stages))
    assert ours.kept
    assert ours.bound_usd is not None
    assert ours.bound_usd <= ours.usd
    assert simulate_pipeline(request, ("tuned",))["tuned"] == ours


def test_functions_that_are_named_change_nothing_of_policies_without(
    request_: RunRequest, with_functions: RunRequest
) -> None:
    for policy in ("inferline", "coarse-mean", "coarse-peak", "fixed"):
        plain, named = (
            simulate_pipeline(replace(one, trace=GROWING, with_bound=False), (policy,))[policy]
            for one in (request_, with_functions)
        )
        assert sorted(named.notes) == sorted(("functions are left out: only mark and tuned use them", *plain.notes))
        assert replace(named, notes=plain.notes, names_functions=False) == plain


@pytest.mark.parametrize(
    ("policy", "start_s"), first(2, [("mark", 200.0), ("tuned", 0.0), ("mark", 0.0), ("tuned", 200.0)])
)
def test_stages_of_few_queries_may_have_no_instance(with_functions: RunRequest, policy: str, start_s: float) -> None:
    """At six queries a second their calls cost less than an instance each."""
    request = replace(with_functions, trace="synthetic:poisson?rate=6", start_s=start_s)
    least_one = simulate_pipeline(request, (policy,))[policy]
    service = Path(request.service)
    service.write_text(service.read_text().replace("[fleet]", "[fleet]\nmin_instances = 0"))
    alone = simulate_pipeline(request, (policy,))[policy]
    assert [stage.most_instances for stage in least_one.stages] == [1, 1]
    assert [stage.most_instances for stage in alone.stages] == [0, 0]
    assert [stage.function_share for stage in alone.stages] == [1.0, 1.0]
    assert alone.stages[0].calls == least_one.stages[0].calls
    if policy == "tuned":
        # A query that a cold start made late finds no replica at the second stage, and is never answered.
        cold = alone.stages[0].by_function.cold
        assert least_one.stages[1].calls - cold <= alone.stages[1].calls < least_one.stages[1].calls
        assert any("queries have no answer" in note for note in alone.notes)
    assert alone.kept
    assert alone.bound_usd is not None
    assert alone.bound_usd <= alone.usd < 0.5 * least_one.usd


def test_stages_that_name_functions_share_what_these_may_cost(with_functions: RunRequest) -> None:
    """At $0.2 an hour each of the two may have one environment at work, which does not bear the growth."""
    limited = Path(with_functions.service)
    ample = simulate_pipeline(replace(with_functions, with_bound=False), ("tuned",))["tuned"]
    limited.write_text(limited.read_text() + "max_usd_per_hour = 0.2\n")
    tight = simulate_pipeline(replace(with_functions, with_bound=False), ("tuned",))["tuned"]
    assert tight.function_usd < ample.function_usd
    assert tight.function_usd <= 2.0 * 0.26 * PART_S / 3600.0


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
    """A thousand queries and two minutes are enough; otherwise the part's own beginning is used.

    `planned` is its start and its length.
    """
    trace = f"synthetic:poisson?rate={rate}"
    request = replace(request_, trace=trace, start_s=start_s, train_s=train_s, with_bound=False)
    window = simulate_pipeline(request, ("coarse-mean",))["coarse-mean"].planned_on
    assert (window.start_s, window.duration_s) == pytest.approx(planned)


@pytest.mark.parametrize(("start_s", "planned"), [(200.0, (0.0, 200.0)), (90.0, (90.0, 60.0))])
def test_controllers_split_rt_max_for_all_that_came_before(
    request_: RunRequest, start_s: float, planned: tuple[float, float]
) -> None:
    """Too little of that and it is the part itself."""
    request = replace(request_, trace="synthetic:poisson?rate=20", start_s=start_s, with_bound=False)
    window = simulate_pipeline(request, ("mark",))["mark"].planned_on
    assert (window.start_s, window.duration_s) == pytest.approx(planned)
