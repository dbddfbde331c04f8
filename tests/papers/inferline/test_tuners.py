"""Tuners on one load: laws of every run."""

from __future__ import annotations

import pytest
from mark_papers.inferline.pipelines import PIPELINES
from mark_papers.inferline.tuners import SLO, Followers, run_inferline_fig6, run_inferline_fig7
from mark_papers.inferline.workloads import AUTOSCALE_LIKE, transition

from tests.samples import first

NAMES = ("plan only", "plan of all", "coarse plan", "coarse", "coarse tuner", "inferline", "mark", "mark lean")


@pytest.fixture(scope="module")
def followers() -> Followers:
    """Return the tuners' runs on a small load, which doubles in one step."""
    load = transition(
        "doubles",
        PIPELINES["cascade"][1],
        rates=(40.0, 80.0),
        transition_s=0.0,
        seed=0,
        planned_s=120.0,
        before_s=60.0,
        served_s=240.0,
    )
    return Followers("cascade", load)


def test_following_keeps_more_of_the_promise_than_standing_still(followers: Followers) -> None:
    runs = followers.follow(NAMES, 5.0)
    missed = {name: run.miss_share(SLO.rt_max_s) for name, run in runs.items()}
    assert missed["inferline"] < 0.5 * missed["plan only"]
    assert missed["mark"] <= 0.01
    assert missed["plan of all"] <= 0.01
    assert runs["mark lean"].usd <= runs["mark"].usd
    assert missed["coarse tuner"] >= missed["inferline"]
    assert runs["plan only"].usd < runs["inferline"].usd
    for name in ("plan only", "plan of all", "coarse plan"):
        assert (runs[name].paid == runs[name].paid[0]).all()
    queries = {len(run.arrivals_s) for run in runs.values()}
    assert len(queries) == 1


def test_a_longer_activation_costs_and_misses(followers: Followers) -> None:
    quick, slow = (followers.follow(("inferline",), activation_s)["inferline"] for activation_s in (5.0, 90.0))
    assert slow.miss_share(SLO.rt_max_s) > quick.miss_share(SLO.rt_max_s)
    assert (slow.active <= slow.paid).all()


def test_functions_cost_less_than_margins_no_run_beats_the_bound(followers: Followers) -> None:
    """Only the first stage of the cascade has one: a ResNet152 on processors takes longer than 150 ms."""
    (found,) = followers.followed(("mark", "mark lean", "mark functions"), (90.0,), bounded=True)
    assert found.bound_usd is not None
    ours = found.runs["mark functions"]
    assert [calls.calls > 0 for calls in ours.by_function] == [True, False]
    assert ours.total_usd == pytest.approx(ours.usd + ours.function_usd)
    assert ours.usd < found.runs["mark"].usd
    assert ours.miss_share(SLO.rt_max_s) <= found.runs["mark lean"].miss_share(SLO.rt_max_s)
    for run in found.runs.values():
        if run.miss_share(SLO.rt_max_s) <= 0.01:
            assert run.total_usd >= found.bound_usd > 0.0


def test_a_run_is_the_same_again(followers: Followers) -> None:
    one, other = (followers.follow(("mark",), 30.0)["mark"] for _ in range(2))
    assert one.latency_s.tolist() == other.latency_s.tolist()
    assert one.usd == other.usd


@pytest.mark.parametrize("name", first(0, AUTOSCALE_LIKE, slow=0))
def test_load_like_autoscales_is_followed_within_the_papers_misses(name: str) -> None:
    """0.2 and 0.7 % there; at no more dollars than InferLine's on the same profiles."""
    (load,) = run_inferline_fig6(loads=(name,)).loads
    ours, theirs = load.runs["mark"], load.runs["inferline"]
    assert 1.0 - ours.miss_share(SLO.rt_max_s) >= load.paper["inferline"][1]
    assert ours.usd <= theirs.usd


@pytest.mark.acceptance
def test_envelopes_see_a_growing_rate_before_its_mean_does() -> None:
    """On one plan: InferLine's tuner keeps the promise, coarse-grained tuning of the same replicas breaks it."""
    found = run_inferline_fig7(rises_to=(300.0,))
    (load,) = found.loads
    missed = {name: run.miss_share(SLO.rt_max_s) for name, run in load.runs.items()}
    assert found.figure == "inferline-fig7"
    assert missed["inferline"] <= 0.01 < 0.1 < missed["coarse tuner"]
    assert missed["mark"] <= missed["inferline"]
