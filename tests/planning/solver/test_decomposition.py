from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mark.planning.solver.decomposition import fluid_bound, prove
from mark.planning.solver.integer_program import relax
from mark.planning.solver.local_search import fast
from mark.planning.solver.program import price, prune, violation, with_least
from tests.planning.solver.programs import cloud, drawn, least_usd, program

FEW = settings(max_examples=40)
seeds = st.integers(0, 10_000)


@FEW
@given(
    seed=seeds,
    offers=st.integers(1, 3),
    states=st.sampled_from([1, 3, 6, 99]),
    first=st.booleans(),
    least=st.integers(0, 3),
)
def test_no_plan_is_cheaper_than_the_bound(seed: int, offers: int, states: int, first: bool, least: int) -> None:
    """This holds for any number of whole offers, whether or not they suffice."""
    of = drawn(seed, offers, steps=3 if offers < 3 else 2, first=first, least=least)
    best = least_usd(of)
    start = np.zeros((offers, of.steps), dtype=np.int64)
    counts, bound_usd = prove(of, start, gap=0.0, rounds=6, states=states, alone=0)
    assert fluid_bound(of) <= best * (1.0 + 1e-9)
    assert bound_usd <= best * (1.0 + 1e-9)
    assert not violation(of, counts)
    assert best * (1.0 - 1e-9) <= price(of, counts) <= price(of, start)


@FEW
@given(seed=seeds)
def test_where_all_offers_are_whole_the_bound_is_the_optimum(seed: int) -> None:
    of = drawn(seed)
    counts, bound_usd = prove(of, np.zeros((2, 3), dtype=np.int64), gap=0.0)
    assert price(of, counts) == pytest.approx(least_usd(of), rel=1e-9)
    assert bound_usd == pytest.approx(least_usd(of), rel=1e-8)


def test_a_large_instance_is_whole() -> None:
    """Load of 7: three fifths of a large one for 3 $ and a small one, says the linear program; no half costs 7 x 0.9 $.

    The large one serves 5 for 2.5 $, small ones 1 for 0.9 $ each: one large and two small are 4.3 $ a step.
    """
    of = program(usd=(2.5, 0.9), rps=(5.0, 1.0), load_rps=(7.0,) * 6, usd_per_rps=4.0, first=True)
    start = np.repeat([[0], [7]], 6, axis=1)
    counts, bound_usd = prove(of, start, gap=0.0, states=5, alone=0)
    assert relax(of, limits=False).bound_usd == pytest.approx(6 * 3.5, rel=1e-5)
    assert counts.tolist() == [[1] * 6, [2] * 6]
    assert bound_usd == pytest.approx(6 * 4.3, rel=1e-5)


def test_small_instances_count_toward_the_least_number_beside_large_ones() -> None:
    """One large instance serves the load of 5; the second instance is a small one, which saves nothing."""
    of = with_least(program(usd=(2.5, 0.9), rps=(5.0, 1.0), load_rps=(5.0,) * 6, usd_per_rps=4.0, first=True), 2)
    counts, bound_usd = prove(of, np.repeat([[2], [0]], 6, axis=1), gap=0.0, states=5, alone=0)
    assert counts.tolist() == [[1] * 6, [1] * 6]
    assert bound_usd <= 6 * 3.4 * (1.0 + 1e-9)


def test_it_proves_more_than_the_linear_program() -> None:
    """On a small fleet of 12 offers, some already running, it closes a quarter of the linear program's gap."""
    closer = []
    for seed in range(4):
        of, _ = prune(cloud(seed, offers=12), scaled=True)
        counts, _ = fast(of)
        linear = relax(of, limits=False).bound_usd
        found = prove(of, counts, gap=1e-3, rounds=10)
        again = prove(of, counts, gap=1e-3, rounds=10)
        assert found[1] == again[1]
        assert (found[0] == again[0]).all()
        assert linear <= found[1] <= price(of, found[0]) <= price(of, counts)
        closer.append((found[1] - linear) / (price(of, found[0]) - linear))
    assert np.mean(closer) > 0.25


def test_plans_that_break_a_limit_are_not_taken() -> None:
    """The bound may be that without the limit."""
    of = replace(cloud(1, offers=6), max_instances=3)
    start = np.zeros((6, of.steps), dtype=np.int64)
    counts, bound_usd = prove(of, start, gap=0.0, rounds=3)
    assert not violation(of, counts)
    assert bound_usd <= price(of, counts)
