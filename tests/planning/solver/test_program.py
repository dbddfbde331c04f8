from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mark.domain.errors import BadInput
from mark.planning.demand.served_load import Lateness, served_load
from mark.planning.solver.program import Program, Solution, held, overflow_usd, price, prune, violation, wanted_now
from tests.planning.build import forecast
from tests.planning.solver.programs import drawn, least_usd, program

FEW = settings(max_examples=25)
seeds = st.integers(0, 10_000)


def priced_slowly(of: Program, counts: np.ndarray) -> float:
    """Return the price, summed over instances and steps."""
    usd = 0.0
    for t in range(of.steps):
        capacity = 0.0
        for j in range(of.offers):
            n = int(counts[j, t])
            before = int(counts[j, t - 1]) if t else (n if of.first else int(of.running[j]))
            late_usd = 0.0 if of.late_usd is None else of.late_usd[j, t]
            usd += n * of.usd_per_step[j] + max(0, n - before) * (of.launch_usd[j] + late_usd)
            capacity += n * of.capacity_rps[j]
        usd += np.interp(capacity, np.arange(of.levels + 1) * of.spacing_rps, of.overflow_usd[t])
    return float(usd)


@FEW
@given(seed=seeds, first=st.booleans())
def test_a_plan_costs_what_its_instances_launches_and_overflow_cost(seed: int, first: bool) -> None:
    of = drawn(seed, offers=3, steps=4, most=3, first=first)
    counts = np.random.default_rng(seed).integers(0, 3, (3, 4))
    counts = np.minimum(counts, of.most[:, None])
    assert price(of, counts) == pytest.approx(priced_slowly(of, counts), rel=1e-12)


def test_capacity_that_costs_nothing_lowers_the_overflow_only() -> None:
    of = program(load_rps=(4.0, 4.0))
    assert price(of, np.array([[1, 1]])) == 2.0 + 2.0 + 2.0
    assert price(of, np.array([[1, 1]]), np.array([0.0, 1.5])) == 2.0 + 2.0 + 0.5


def test_overflow_is_linear_between_levels_and_constant_beyond_the_last() -> None:
    of = program(load_rps=(4.0, 12.0))
    capacity = np.array([[0.5, 0.5], [3.5, 9.5], [99.0, 99.0]])
    assert of.overflow_at(capacity).tolist() == [[3.5, 11.5], [0.5, 2.5], [0.0, 2.0]]


def test_an_instance_is_held_while_it_boots() -> None:
    """A new instance boots for two steps and serves in step 2, and one of three is given up: both are wanted now."""
    of = program(usd=(1.0, 1.0), rps=(2.0, 1.0), boot=2, running=(0, 3))
    counts = np.array([[0, 0, 1, 2], [2, 2, 2, 1]])
    assert held(of, counts).tolist() == [[1, 2, 2, 2], [2, 2, 2, 1]]
    assert wanted_now(of, counts).tolist() == [1, 2]


@FEW
@given(seed=seeds, first=st.booleans())
def test_instances_wanted_now_are_those_held_in_the_first_step(seed: int, first: bool) -> None:
    of = drawn(seed, offers=3, steps=5, most=3, first=first)
    counts = np.random.default_rng(seed).integers(0, 3, (3, 5))
    assert wanted_now(of, counts).tolist() == held(of, counts)[:, 0].tolist()


def test_an_instance_is_held_from_its_launch_on() -> None:
    """One is launched two steps ahead of step 2, another one step ahead of step 3."""
    of = program(boot=1, lead_steps=np.array([[1, 1, 2, 1]]), late_usd=np.array([[9.0, 9.0, 0.5, 0.25]]))
    counts = np.array([[0, 0, 1, 2]])
    assert held(of, counts).tolist() == [[1, 1, 2, 2]]
    assert wanted_now(of, counts).tolist() == [1]
    assert not violation(of, counts)
    assert violation(replace(of, max_instances=1), counts) == "more instances than the limit"
    assert price(of, counts) == 3.0 + 0.5 + 0.25 + (4.0 + 4.0 + 2.0)


def test_a_first_fleet_is_there_at_once_and_free() -> None:
    """Later launches cost, and boot."""
    of = program(launch=3.0, boot=2, running=1, most=4, first=True)
    assert price(of, np.array([[2, 2, 2, 2]])) == 8.0
    assert price(of, np.array([[1, 1, 2, 2]])) == 6.0 + 3.0 + 2.0 * 2.0
    assert not violation(of, np.array([[2, 2, 2, 2]]))
    assert violation(of, np.array([[1, 2, 2, 2]])) == "an instance serves before it has booted"


@pytest.mark.parametrize(
    ("counts", "why"),
    [
        ([[1, 1, 1]], "counts must be one per offer and step, not negative"),
        ([[1, 1, -1, 1]], "counts must be one per offer and step, not negative"),
        ([[1, 1, 5, 5]], "more instances than can be had"),
        ([[2, 1, 1, 1]], "an instance serves before it has booted"),
        ([[0, 1, 1, 1]], "an instance serves before it has booted"),
        ([[1, 1, 1, 4]], "more instances than the limit"),
        ([[1, 1, 3, 3]], "more dollars than the limit"),
        ([[1, 1, 2, 2]], ""),
        ([[0, 0, 0, 0]], ""),
    ],
)
def test_what_cannot_be_carried_out_is_said(counts: list[list[int]], why: str) -> None:
    """One instance runs, boots take two steps, at most 4 exist, 3 may be held, for 2.5 $ a step."""
    of = program(boot=2, running=1, most=4, max_instances=3, max_usd_per_step=2.5)
    assert violation(of, np.array(counts)) == why


@FEW
@given(seed=seeds, scaled=st.booleans(), first=st.booleans())
def test_pruning_changes_no_optimum(seed: int, scaled: bool, first: bool) -> None:
    """Limits are only given if no offer replaces a larger one."""
    of = drawn(seed, offers=3, steps=2, most=2, limits=not scaled, first=first)
    leads = None if of.lead_steps is None else np.minimum(of.lead_steps, np.arange(2))
    of = replace(of, capacity_rps=np.maximum(2.0, of.capacity_rps), boot_steps=of.boot_steps % 2, lead_steps=leads)
    # Plenty of the first, so that it may stand in for others.
    of = replace(of, most=np.array([int(of.useful()[0]), 2, 1]))
    part, left = prune(of, scaled)
    assert least_usd(part) == pytest.approx(least_usd(of), rel=1e-9)
    assert list(part.capacity_rps) == list(of.capacity_rps[left])


def test_pruning_keeps_what_runs_but_launches_no_more_of_it() -> None:
    """It is half as large, dearer, and as slow: only its two running instances are kept."""
    of = program(usd=(2.0, 1.0), rps=(1.0, 2.0), boot=1, running=(2, 0))
    part, left = prune(of, scaled=False)
    assert left.tolist() == [0, 1]
    assert part.most.tolist() == [2, 5]
    assert part.boot_steps.tolist() == [of.steps, 1]
    assert prune(replace(of, running=np.zeros(2, dtype=np.int64)), scaled=False)[1].tolist() == [1]


def test_of_equal_offers_the_first_stays() -> None:
    assert prune(program(usd=(1.0, 1.0, 1.0), rps=(2.0, 2.0, 2.0)), scaled=False)[1].tolist() == [0]


def test_two_small_instances_may_replace_a_large_one() -> None:
    """If only one instance is allowed, the large one serves twice the load."""
    of = program(usd=(1.0, 2.0), rps=(2.0, 4.0), max_instances=1)
    assert prune(of, scaled=True)[1].tolist() == [0]
    assert prune(of, scaled=False)[1].tolist() == [0, 1]


def test_what_there_is_too_little_of_stands_in_for_nothing() -> None:
    """Two of the cheap one can be had, the load wants five."""
    assert prune(program(usd=(0.5, 1.0), rps=(2.0, 2.0), most=(2, 9)), scaled=True)[1].tolist() == [0, 1]


@FEW
@given(seed=seeds)
def test_which_offers_are_left_does_not_depend_on_their_order(seed: int) -> None:
    of = drawn(seed, offers=6, most=9)
    order = np.random.default_rng(seed).permutation(6)
    assert sorted(order[prune(of.only(order), scaled=True)[1]]) == sorted(prune(of, scaled=True)[1])


def hull(row: np.ndarray) -> np.ndarray:
    """Return the largest convex function below the points, by their lower hull."""
    corners: list[tuple[float, float]] = []
    for x, y in enumerate(row):
        while len(corners) > 1 and (corners[-1][1] - corners[-2][1]) * (x - corners[-2][0]) >= (y - corners[-2][1]) * (
            corners[-1][0] - corners[-2][0]
        ):
            corners.pop()
        corners.append((x, y))
    return np.interp(np.arange(len(row)), [x for x, _ in corners], [y for _, y in corners])


@FEW
@given(seed=seeds, levels=st.integers(1, 20))
def test_overflow_is_made_convex_from_below(seed: int, levels: int) -> None:
    """It is lowered to the hull of its points, and no further."""
    rng = np.random.default_rng(seed)
    by_step = np.concatenate([np.zeros((1, 5)), np.cumsum(rng.uniform(0.0, 1.0, (levels, 5)), axis=0)])
    served = np.concatenate([np.zeros((levels + 1, 1)), np.cumsum(by_step, axis=1)], axis=1)
    found = overflow_usd(served, None, 0.1, 60.0)
    for t in range(5):
        assert found[t] == pytest.approx(hull(6.0 * (by_step[-1, t] - by_step[:, t])), abs=1e-9)
    assert (np.diff(found, 2, axis=1) > -1e-9).all()


def test_what_even_the_last_level_leaves_is_paid_for() -> None:
    served = np.array([[0.0, 0.0], [0.0, 3.0], [0.0, 4.0]])
    assert overflow_usd(served, np.array([5.0]), 0.1, 10.0).tolist() == [[5.0, 2.0, 1.0]]
    assert overflow_usd(served, None, 0.1, 10.0).tolist() == [[4.0, 1.0, 0.0]]


@pytest.mark.parametrize("rate", [0.0, 0.1, 20.0, 9000.0])
def test_the_planners_savings_make_a_program(rate: float) -> None:
    """This holds for any load; without capacity all of it overflows."""
    saved = served_load(forecast(rate, 0.4, 1.3), Lateness(0.3))
    found = overflow_usd(saved.served, None, 1.0, 60.0)
    of = replace(program(load_rps=(1.0,)), overflow_usd=found, spacing_rps=saved.spacing_rps)
    assert of.overflow_usd[:, 0] == pytest.approx(60.0 * rate, rel=1e-2, abs=1e-6)
    assert of.overflow_usd[:, -1] == pytest.approx(0.0, abs=1e-9 * (1.0 + rate))


@pytest.mark.parametrize(
    "changes",
    [
        {"usd_per_step": np.array([1.0, 2.0])},
        {"usd_per_step": np.array([-1.0])},
        {"launch_usd": np.array([np.nan])},
        {"late_usd": np.full((1, 4), np.nan)},
        {"late_usd": np.full((1, 4), -1.0)},
        {"late_usd": np.zeros((1, 3))},
        {"lead_steps": np.zeros((2, 4), dtype=np.int64)},
        {"capacity_rps": np.array([0.0])},
        {"running": np.array([-1])},
        {"overflow_usd": np.zeros((0, 3))},
        {"overflow_usd": np.zeros((3, 1))},
        {"overflow_usd": np.array([[np.inf, 0.0]])},
        {"overflow_usd": np.array([[1.0, -1.0]])},
        {"overflow_usd": np.array([[1.0, 2.0]])},
        {"overflow_usd": np.array([[3.0, 2.0, 0.0]])},
        {"spacing_rps": 0.0},
        {"max_instances": -1},
        {"max_usd_per_step": float("nan")},
    ],
)
def test_impossible_programs_are_refused(changes: dict[str, object]) -> None:
    with pytest.raises(BadInput):
        replace(program(), **changes)  # type: ignore[arg-type]


def test_the_gap_is_relative_to_the_price() -> None:
    counts = np.zeros((1, 1), dtype=np.int64)
    assert Solution(counts, 4.0, 3.0, "fast", "feasible").gap == 0.25
    assert Solution(counts, 0.0, 0.0, "fast", "proven").gap == 0.0
