"""The paper's program against all plans there are, its two solvers against each other."""

from __future__ import annotations

import itertools
import math
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from mark_papers.paper.optimal import rolled
from mark_papers.paper_program import PaperProgram, paper_cost_usd, solve_paper

from mark.domain.errors import BadInput
from mark.domain.service import ControlSettings

SEEDS = st.integers(0, 10_000)


def drawn(seed: int, offers: int = 2, steps: int = 3, peak_rps: float = 4.0) -> PaperProgram:
    """Draw a program: some offers run, others are for sale at better prices, loads range from zero to `peak_rps`."""
    rng = np.random.default_rng(seed)
    rps = rng.uniform(0.8, 3.0, offers)
    usd = rps * rng.uniform(0.5, 1.0, offers)
    return PaperProgram(
        usd_per_step=usd,
        launch_usd=usd * rng.choice([0.0, 0.5, 3.0]),
        capacity_rps=rps,
        running=rng.integers(0, 3, offers),
        demand_rps=peak_rps * rng.uniform(0.0, 1.0, steps) * rng.integers(0, 2, steps),
        first=bool(rng.integers(0, 2)),
    )


def least_usd(program: PaperProgram, most: int = 5) -> float:
    """Return the price of the cheapest plan with up to `most` instances of each offer.

    The plan covers every step within the limits.
    """
    counts = np.array(list(itertools.product(range(most + 1), repeat=len(program.usd_per_step))))
    usd = counts @ program.usd_per_step
    able = (counts.sum(axis=1) <= program.max_instances) & (usd <= program.max_usd_per_step + 1e-9)
    fleets = [counts[able & (counts @ program.capacity_rps >= load - 1e-9)] for load in program.demand_rps]
    plans = np.indices([len(step) for step in fleets]).reshape(len(fleets), -1)
    usd_of_all = np.zeros(plans.shape[1])
    before = fleets[0][plans[0]] if program.first else program.running
    for step, chosen in zip(fleets, plans, strict=True):
        running = step[chosen]
        usd_of_all += running @ program.usd_per_step + np.maximum(running - before, 0) @ program.launch_usd
        before = running
    return float(usd_of_all.min(initial=math.inf))


@settings(max_examples=12, deadline=None)
@given(seed=SEEDS)
def test_counting_finds_the_best_of_all_plans(seed: int) -> None:
    program = drawn(seed)
    found = solve_paper(program, "dp")
    assert found.usd == pytest.approx(least_usd(program))
    assert found.usd == paper_cost_usd(program, found.counts)
    assert (program.capacity_rps @ found.counts >= program.demand_rps * (1.0 - 1e-8)).all()


@pytest.mark.parametrize("solver", ["highs", "cbc"])
@settings(max_examples=10, deadline=None)
@given(seed=SEEDS)
def test_the_integer_program_finds_what_counting_finds(solver: str, seed: int) -> None:
    program = drawn(seed, offers=3, steps=6, peak_rps=9.0)
    exact, found = (solve_paper(program, how, gap=1e-6, time_budget_s=20.0) for how in ("dp", solver))
    assert found.finished
    assert found.usd == pytest.approx(exact.usd, rel=1e-5)
    assert found.bound_usd <= exact.usd * (1.0 + 1e-9)


@settings(max_examples=30, deadline=None)
@given(seed=SEEDS, most=st.integers(0, 4), usd=st.sampled_from([2.0, 4.0, math.inf]))
def test_limits_are_kept_and_what_they_leave_is_covered(seed: int, most: int, usd: float) -> None:
    """If no fleet within the limits covers a step, the step has the largest possible fleet."""
    program = replace(drawn(seed), max_instances=most, max_usd_per_step=usd)
    found = solve_paper(program)
    assert all(program.within_limits(step) for step in found.counts.T)
    fleets = [np.array(fleet) for fleet in itertools.product(range(most + 1), repeat=2)]
    largest = max(float(program.capacity_rps @ fleet) for fleet in fleets if program.within_limits(fleet))
    coverable = np.minimum(program.demand_rps, largest)
    assert (program.capacity_rps @ found.counts >= coverable * (1.0 - 1e-8)).all()
    assert found.limited == bool(program.demand_rps.max() > largest * (1.0 + 1e-8))
    if not found.limited:
        assert found.usd == pytest.approx(least_usd(program, most))


@settings(max_examples=25, deadline=None)
@given(seed=SEEDS, cool_down_s=st.sampled_from([0.0, 360.0]))
def test_the_optimum_is_never_dearer_than_algorithm_1(seed: int, cool_down_s: float) -> None:
    program = drawn(seed, offers=3, steps=40, peak_rps=12.0)
    greedy = rolled(program, ControlSettings(cool_down_s=cool_down_s))
    assert (program.capacity_rps @ greedy >= program.demand_rps * (1.0 - 1e-8)).all()
    assert solve_paper(program).usd <= paper_cost_usd(program, greedy) * (1.0 + 1e-9)


@settings(max_examples=20, deadline=None)
@given(seed=SEEDS, factor=st.sampled_from([1e-4, 0.25, 8.0]))
def test_scaling_prices_scales_the_cost(seed: int, factor: float) -> None:
    program = drawn(seed, offers=3, steps=10)
    scaled = replace(program, usd_per_step=factor * program.usd_per_step, launch_usd=factor * program.launch_usd)
    assert solve_paper(scaled).usd == pytest.approx(factor * solve_paper(program).usd)


def test_a_launch_is_paid_and_what_runs_is_not() -> None:
    """1 $ a step, 5 $ a launch: kept through a step without load, and launched once."""
    one = np.ones(1)
    program = PaperProgram(one, 5.0 * one, one, np.zeros(1, dtype=np.int64), np.array([1.0, 0.0, 1.0]))
    assert solve_paper(program).counts.tolist() == [[1, 1, 1]]
    assert solve_paper(program).usd == 8.0
    assert solve_paper(replace(program, running=np.array([1]))).usd == 3.0
    assert solve_paper(replace(program, first=True)).usd == 3.0
    assert solve_paper(replace(program, launch_usd=0.5 * one)).counts.tolist() == [[1, 0, 1]]


def test_what_runs_is_used_even_if_it_were_not_launched() -> None:
    """Two small instances replace the large one at a lower price; but the large one runs, and they need a launch."""
    program = PaperProgram(
        np.array([1.0, 0.4]), np.array([9.0, 3.6]), np.array([2.0, 1.0]), np.array([1, 0]), np.array([2.0, 2.0])
    )
    assert solve_paper(program).counts.tolist() == [[1, 1], [0, 0]]
    assert solve_paper(replace(program, demand_rps=np.full(60, 2.0))).counts[:, -1].tolist() == [0, 2]


def test_too_many_counts_go_to_the_integer_program() -> None:
    """Three sizes, no two of which replace a third, and a load of thousands."""
    usd = np.array([1.0, 2.9, 8.0])
    program = PaperProgram(
        usd, 3.0 * usd, np.array([1.0, 3.0, 8.5]), np.zeros(3, dtype=np.int64), np.array([900.0, 905.0, 700.0])
    )
    found = solve_paper(program, gap=0.01, time_budget_s=20.0)
    assert found.solver == "highs"
    assert found.gap <= 0.011
    assert (program.capacity_rps @ found.counts >= program.demand_rps * (1.0 - 1e-8)).all()


def test_a_plan_that_covers_demand_is_found_without_time() -> None:
    program = drawn(3, offers=3, steps=60, peak_rps=40.0)
    found = solve_paper(program, "highs", gap=0.0, time_budget_s=1e-3)
    assert (program.capacity_rps @ found.counts >= program.demand_rps * (1.0 - 1e-8)).all()
    assert found.bound_usd <= solve_paper(program).usd <= found.usd * (1.0 + 1e-9)


def test_without_offers_or_load_nothing_is_bought() -> None:
    none = np.zeros(0)
    program = PaperProgram(none, none, none, np.zeros(0, dtype=np.int64), np.ones(2))
    assert (solve_paper(program).counts.shape, solve_paper(program).limited) == ((0, 2), True)
    assert not solve_paper(replace(drawn(1), demand_rps=np.zeros(3))).counts.any()


@pytest.mark.parametrize(
    "wrong", [{"usd_per_step": -np.ones(2)}, {"capacity_rps": np.zeros(2)}, {"demand_rps": np.zeros(0)}]
)
def test_a_program_checks_itself(wrong: dict) -> None:
    with pytest.raises(BadInput):
        replace(drawn(0), **wrong)


def test_other_ways_are_unknown() -> None:
    with pytest.raises(BadInput, match="unknown"):
        solve_paper(drawn(0), "glpk")


def test_a_limit_of_instances_that_does_not_bind_changes_nothing() -> None:
    """Alone 13 small ones would be needed; the best plan never has more than a few."""
    program = PaperProgram(
        np.array([1.0, 9.0]),
        np.array([3.0, 27.0]),
        np.array([1.0, 12.0]),
        np.zeros(2, dtype=np.int64),
        np.full(9, 13.0),
    )
    assert solve_paper(replace(program, max_instances=2)).counts[:, 0].tolist() == [1, 1]
    assert solve_paper(program).usd == solve_paper(replace(program, max_instances=2)).usd
    assert solve_paper(replace(program, max_instances=1)).limited
