from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mark.domain.errors import BadInput
from mark.planning.solver.program import Program, price, violation, with_least
from mark.planning.solver.solve import HOWS, solve
from tests.planning.solver.programs import cloud, drawn, least_usd, program

FEW = settings(max_examples=25)
seeds = st.integers(0, 10_000)

# Extreme services, forecasts and catalogues.
EDGES: dict[str, Program] = {
    "no load at all": cloud(0, overflow_usd=np.zeros((20, 49))),
    "no load, and nothing runs": cloud(0, overflow_usd=np.zeros((20, 49)), running=np.zeros(8, dtype=np.int64)),
    "no price of overflow": program(usd_per_rps=0.0, running=3),
    "a jump of a hundred": program(load_rps=(0.1,) * 6 + (10.0,) * 6, boot=3, launch=2.0),
    "one offer": cloud(1, offers=1),
    "one step": cloud(2, steps=1),
    "no offer": program(usd=(), rps=()),
    "none to be had": program(most=0),
    "none allowed": cloud(3, max_instances=0),
    "no dollars allowed": cloud(3, max_usd_per_step=0.0),
    "limits below need": cloud(4, load_rps=600.0, max_instances=7, max_usd_per_step=0.1),
    "more running than allowed": cloud(5, running=np.full(8, 9), max_instances=20),
    "more running than can be had": program(running=5, most=2),
    "boots beyond the horizon": program(boot=99, running=1),
    "committed, paid anyway": program(usd=(0.0, 1.0), rps=(2.0, 2.0), most=(1, 9), running=(1, 0)),
    "free to launch": program(launch=0.0, load_rps=(8.0, 0.0) * 4),
    "huge": cloud(6, load_rps=1e6),
    "tiny": cloud(7, load_rps=1e-6),
}


@pytest.mark.untraced
@pytest.mark.parametrize("how", HOWS)
@pytest.mark.parametrize("edge", EDGES)
def test_there_always_is_a_plan(edge: str, how: str) -> None:
    """The plan is feasible, costs its stated price, at most the empty plan's and at least its bound; and it repeats."""
    of = EDGES[edge]
    found = solve(of, how)
    assert not violation(of, found.counts)
    assert found.usd == pytest.approx(price(of, found.counts), rel=1e-12)
    assert found.usd <= price(of, np.zeros_like(found.counts)) * (1.0 + 1e-9)
    assert 0.0 <= found.bound_usd <= found.usd
    assert found.status == ("proven" if found.gap <= 0.01 else "feasible")
    again = solve(of, how)
    assert (again.counts == found.counts).all()
    assert again.bound_usd == found.bound_usd


@pytest.mark.parametrize(
    "edge", ["no load at all", "no offer", "none to be had", "none allowed", "no dollars allowed", "tiny"]
)
def test_an_empty_plan_is_proven_where_nothing_pays(edge: str) -> None:
    found = solve(EDGES[edge], "auto")
    assert not found.counts.any()
    assert found.status == "proven"


def test_a_jump_is_prepared_for() -> None:
    """Launched three steps before it, so as to serve from its first step on; not earlier."""
    found = solve(EDGES["a jump of a hundred"])
    assert found.counts.tolist() == [[0] * 6 + [5] * 6]
    assert found.status == "proven"


def test_what_is_paid_anyway_serves_first() -> None:
    assert solve(EDGES["committed, paid anyway"]).counts.tolist() == [[1] * 4, [1] * 4]


@FEW
@given(seed=seeds, limits=st.booleans(), first=st.booleans(), least=st.integers(0, 3))
def test_what_is_proven_is_within_a_hundredth_of_the_best(seed: int, limits: bool, first: bool, least: int) -> None:
    """If limits do not bind, every plan is proven, because counts are few."""
    of = drawn(seed, limits=limits, first=first, least=least)
    best = least_usd(of)
    found = solve(of)
    assert found.bound_usd <= best * (1.0 + 1e-9)
    if not limits:
        assert found.status == "proven"
    if found.status == "proven":
        assert found.usd * 0.99 <= best * (1.0 + 1e-9)


def test_least_number_of_instances_is_of_the_offer_that_costs_least_with_its_overflow() -> None:
    """None pays for a load of 1 whose calls cost 0.3 $. Small for 1 $ leaves half of it, large for 1.1 $ nothing."""
    of = program(usd=(1.0, 1.1), rps=(0.5, 1.0), load_rps=(1.0,) * 4, usd_per_rps=0.3)
    assert not solve(of).counts.any()
    assert solve(with_least(of, 1)).counts.tolist() == [[0] * 4, [1] * 4]
    assert solve(with_least(of, 2)).counts.tolist() == [[2] * 4, [0] * 4]


def test_least_number_of_instances_waits_for_boots() -> None:
    """The running instance stays until two new ones serve, two steps later; a third one cannot be had."""
    of = program(usd=(1.0, 0.4), rps=(2.0, 2.0), boot=(1, 2), running=(1, 0), most=(1, 2), usd_per_rps=0.0)
    assert solve(with_least(of, 2)).counts.tolist() == [[1, 1, 0, 0], [0, 0, 2, 2]]
    idle = replace(of, first=True, overflow_usd=0.0 * of.overflow_usd, spacing_rps=1e-12)
    assert solve(with_least(idle, 2)).counts.tolist() == [[0] * 4, [2] * 4]  # all are ready at once


@pytest.mark.parametrize("how", HOWS)
@given(seed=seeds, least=st.integers(1, 40))
@settings(max_examples=10)
def test_least_number_of_instances_is_there_in_large_programs(how: str, seed: int, least: int) -> None:
    """Eight offers, too many counts to try, and a load that pays for a few instances only."""
    of = with_least(cloud(seed, load_rps=3.0), least)
    found = solve(of, how)
    assert not of.missing(found.counts.sum(axis=0)).any()
    assert found.bound_usd <= found.usd == pytest.approx(price(of, found.counts), rel=1e-12)
    for j in range(of.offers):  # no better than the least number of any one offer
        one = np.zeros_like(found.counts)
        one[j] = np.where(of.can_launch[j], of.least, of.running[j])
        assert found.usd <= price(of, one) * (1.0 + 1e-9)


@given(seed=seeds, held=st.integers(1, 7), more=st.sampled_from([0, 1, 20]))
@settings(max_examples=20)
def test_budget_below_the_least_number_buys_as_many_as_it_holds(seed: int, held: int, more: int) -> None:
    """Without the budget in `least`, plans came out at up to 1.35 times this price, or without any instance."""
    of = cloud(seed, running=np.zeros(8, dtype=np.int64))
    of = replace(of, max_usd_per_step=float(of.usd_per_step.min()) * (held + 0.3))
    found = solve(with_least(of, held + more))
    serving = of.can_launch.any(axis=0)
    assert not violation(of, found.counts)
    assert (found.counts.sum(axis=0)[serving] >= held).all()
    assert found.usd == pytest.approx(solve(with_least(of, held)).usd, rel=1e-12)


def test_least_number_that_the_plan_has_anyway_changes_nothing() -> None:
    of = cloud(11)
    free = solve(of)
    bound = solve(with_least(of, int(free.counts.sum(axis=0).min())))
    assert (bound.counts == free.counts).all()
    assert (bound.usd, bound.bound_usd) == (free.usd, free.bound_usd)


@pytest.mark.parametrize("solver", ["highs", "cbc"])
def test_the_integer_program_is_asked_where_nothing_else_proves(solver: str) -> None:
    """Limits on a fleet of five offers: the search alone leaves more than a hundredth open."""
    of = cloud(8, offers=5, steps=6, max_instances=4, running=np.array([1, 2, 0, 0, 1]))
    alone = solve(of, "ilp", gap=1e-4)
    found = solve(of, "ilp", time_budget_s=30.0, gap=1e-4, solver=solver)
    assert alone.status == "feasible"
    assert found.status == "proven"
    assert found.usd <= alone.usd
    assert not violation(of, found.counts)


def test_a_time_out_says_so_and_costs_no_more() -> None:
    of = cloud(9, offers=14)
    quick = solve(of, "fast")
    found = solve(of, "ilp", time_budget_s=0.01, gap=1e-4)
    assert (quick.solver, quick.status) == ("fast", "feasible")
    assert found.status == "time-out"
    assert quick.bound_usd <= found.bound_usd <= found.usd <= quick.usd


def test_with_few_counts_the_fast_path_is_a_proof() -> None:
    found = solve(program(usd=(1.0, 0.7), rps=(2.0, 1.0)), "fast")
    assert (found.solver, found.status) == ("dp", "proven")


def test_a_plan_has_a_row_for_each_offer() -> None:
    found = solve(program(usd=(9.0, 1.0, 9.0), rps=(1.0, 2.0, 1.0)))
    assert found.counts.tolist() == [[0] * 4, [2] * 4, [0] * 4]


@pytest.mark.parametrize(("how", "solver"), [("best", "highs"), ("auto", "glpk")])
def test_unknown_ways_are_refused(how: str, solver: str) -> None:
    with pytest.raises(BadInput, match="unknown"):
        solve(program(), how, solver=solver)


def test_limits_that_do_not_bind_change_nothing() -> None:
    of = cloud(10, offers=6)
    free = solve(of)
    roomy = replace(of, max_instances=10_000, max_usd_per_step=1e6)
    assert (solve(roomy).counts == free.counts).all()
    assert math.isinf(of.max_usd_per_step)
