from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mark.domain.errors import BadInput
from mark.planning.solver.integer_program import SOLVERS, relax, solve_integer
from mark.planning.solver.program import price, violation
from tests.planning.solver.programs import cloud, drawn, least_usd, program

FEW = settings(max_examples=20)
seeds = st.integers(0, 10_000)


@FEW
@given(seed=seeds, limits=st.booleans(), first=st.booleans(), least=st.integers(0, 3))
def test_no_plan_is_cheaper_than_the_linear_program(seed: int, limits: bool, first: bool, least: int) -> None:
    of = drawn(seed, limits=limits, first=first, least=least)
    found = relax(of, limits)
    assert found.bound_usd <= least_usd(of) * (1.0 + 1e-9)
    assert (found.launch_price >= 0.0).all()
    if not limits:
        assert (found.launch_price <= of.launches_usd() + 1e-6).all()


def test_the_linear_program_takes_halves() -> None:
    """Load of 3 and instances of 2: one and a half of them, for 1.5 $ in each of four steps."""
    of = program(load_rps=(3.0,) * 4)
    found = relax(of, limits=False)
    assert found.bound_usd == pytest.approx(6.0, rel=1e-5)
    assert found.capacity_price == pytest.approx(0.5)
    assert relax(replace(of, max_instances=1), limits=True).bound_usd == pytest.approx(8.0, rel=1e-5)
    assert relax(replace(of, max_usd_per_step=0.5), limits=True).bound_usd == pytest.approx(10.0, rel=1e-5)


def test_what_boots_counts_against_the_limit() -> None:
    """The small instance must leave a step before the large one serves, because the booting one counts."""
    of = program(usd=(1.0, 1.0), rps=(1.0, 4.0), boot=1, running=(1, 0), most=1, max_instances=1, usd_per_rps=9.0)
    found = solve_integer(of, np.zeros((2, 4), dtype=np.int64), 0.0, 10.0, "highs")
    assert found.counts is not None
    assert found.counts.tolist() == [[0, 0, 0, 0], [0, 1, 1, 1]]
    assert price(of, found.counts) == least_usd(of)


@pytest.mark.parametrize("solver", SOLVERS)
@settings(max_examples=12)
@given(seed=seeds, limits=st.booleans(), first=st.booleans(), least=st.integers(0, 3))
def test_the_integer_program_finds_the_best_of_all_plans(
    solver: str, seed: int, limits: bool, first: bool, least: int
) -> None:
    """Either solver finds and proves it."""
    of = drawn(seed, limits=limits, first=first, least=least)
    best = least_usd(of)
    found = solve_integer(of, np.zeros((2, 3), dtype=np.int64), 1e-6, 20.0, solver)
    assert found.finished
    assert found.counts is not None
    assert not violation(of, found.counts)
    assert price(of, found.counts) == pytest.approx(best, rel=1e-5)
    assert best * (1.0 - 1e-4) <= found.bound_usd <= best * (1.0 + 1e-9)


@pytest.mark.parametrize("solver", SOLVERS)
def test_without_time_the_start_is_all_there_is(solver: str) -> None:
    """A solver out of time calls itself optimal; that is not believed, and nothing worse than the start comes back."""
    of = cloud(0, offers=10)
    start = np.repeat(of.running[:, None], of.steps, axis=1)
    found = solve_integer(of, start, 0.0, 0.01, solver)
    assert not found.finished
    if found.counts is not None:
        assert not violation(of, found.counts)
    assert found.bound_usd <= price(of, start)


def test_other_solvers_are_unknown() -> None:
    with pytest.raises(BadInput, match="unknown"):
        solve_integer(program(), np.zeros((1, 4), dtype=np.int64), 0.01, 1.0, "glpk")
