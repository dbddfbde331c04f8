from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mark.planning.solver.decomposition import prove
from mark.planning.solver.local_search import fast, improve, switch, tight, within_limits
from mark.planning.solver.program import price, prune, violation
from tests.planning.solver.programs import cloud, covering, drawn, least_usd, program

FEW = settings(max_examples=30)
seeds = st.integers(0, 10_000)


def nothing(of: Any) -> np.ndarray:
    return np.zeros((of.offers, of.steps), dtype=np.int64)


@FEW
@given(seed=seeds, steps=st.integers(1, 7), runs=st.booleans(), boot=st.integers(0, 4))
def test_the_schedule_is_the_best_of_all(seed: int, steps: int, runs: bool, boot: int) -> None:
    """For one instance: every row of on and off that does not begin before it can."""
    rng = np.random.default_rng(seed)
    on_usd, launch_usd = rng.normal(0.0, 1.0, steps), rng.uniform(0.0, 2.0, steps)
    launch_usd[:boot] = np.inf
    found = np.empty(steps, dtype=np.bool_)
    gain = switch(on_usd.copy(), launch_usd / 3.0, 3, runs, found)

    def gained(on: np.ndarray) -> float:
        starts = np.diff(on.astype(int), prepend=int(runs)) > 0
        return float(on @ on_usd - launch_usd[starts].sum())

    every = [np.array([code >> t & 1 for t in range(steps)], dtype=bool) for code in range(2**steps)]
    assert gained(found) == pytest.approx(max(gained(on) for on in every), abs=1e-12)
    assert gain == pytest.approx(gained(found), abs=1e-12)


@FEW
@given(seed=seeds, first=st.booleans())
def test_with_one_offer_the_first_answer_is_the_best_plan(seed: int, first: bool) -> None:
    of = drawn(seed, offers=1, steps=4, most=4, first=first)
    assert price(of, improve(of, nothing(of))) == pytest.approx(least_usd(of), rel=1e-9)


@FEW
@given(seed=seeds, offers=st.integers(1, 3), first=st.booleans())
def test_few_counts_are_gone_through(seed: int, offers: int, first: bool) -> None:
    of = drawn(seed, offers, steps=2, first=first)
    counts, exact = fast(of)
    assert exact
    assert price(of, counts) == pytest.approx(least_usd(of), rel=1e-9)


@FEW
@given(seed=seeds, load=st.floats(0.0, 500.0))
def test_a_plan_never_costs_more_than_no_change(seed: int, load: float) -> None:
    of = cloud(seed, offers=12, load_rps=max(1e-3, load))
    counts, exact = fast(of)
    assert not exact
    assert not violation(of, counts)
    going_on = np.repeat(of.running[:, None], of.steps, axis=1)
    assert price(of, counts) <= min(price(of, nothing(of)), price(of, going_on)) * (1.0 + 1e-9)


@FEW
@given(seed=seeds)
def test_answers_never_make_a_plan_dearer(seed: int) -> None:
    of = cloud(seed)
    rng = np.random.default_rng(seed)
    counts = np.sort(rng.integers(0, 5, (of.offers, of.steps)), axis=1)[:, ::-1]
    counts = np.minimum(counts, of.running[:, None])
    found = improve(of, counts)
    assert not violation(of, found)
    assert price(of, found) <= price(of, counts) * (1.0 + 1e-12)


def test_the_search_stays_within_three_percent_of_what_is_proven() -> None:
    """The average is over small fleets and large ones; each stays within six percent."""
    gaps = []
    for seed in range(6):
        for load_rps in (60.0, 600.0):
            of, _ = prune(cloud(seed, offers=12, load_rps=load_rps), scaled=True)
            counts, _ = fast(of)
            gaps.append(1.0 - prove(of, counts, gap=0.002, rounds=8)[1] / price(of, counts))
    assert np.mean(gaps) < 0.03
    assert max(gaps) < 0.06


def test_what_runs_serves_until_something_cheaper_does() -> None:
    """The dear one covers the three steps that the cheap one boots, at which overflow would cost ten times as much."""
    of = program(
        usd=(3.0, 1.0), rps=(5.0, 5.0), load_rps=(5.0,) * 12, boot=3, launch=1.0, running=(1, 0), usd_per_rps=5.0
    )
    of = replace(of, most=np.array([900, 900]))
    counts, _ = fast(of)
    assert counts.tolist() == [[1] * 3 + [0] * 9, [0] * 3 + [1] * 9]


def test_what_runs_is_not_swapped_for_slightly_less() -> None:
    """A tenth less over nine steps does not pay for a launch of two."""
    of = program(usd=(1.0, 0.9), rps=(5.0, 5.0), load_rps=(5.0,) * 12, boot=3, launch=2.0, running=(1, 0))
    assert fast(of)[0].tolist() == [[1] * 12, [0] * 12]


def test_a_running_instance_is_kept_beside_bundles() -> None:
    """A hundred tiny ones fit: bundles of four; the one that runs is worth its price, another not its launch."""
    of = program(usd=(0.05,), rps=(0.1,), load_rps=(10.0,) * 6, launch=9.0, boot=1, running=1)
    of = replace(of, overflow_usd=np.repeat(covering((10.0,)), 6, axis=0))
    assert improve(of, nothing(of)).tolist() == [[1] * 6]


@pytest.mark.parametrize("seed", range(5))
def test_the_order_of_offers_decides_only_between_equal_ones(seed: int) -> None:
    of = cloud(seed, offers=12)
    order = np.random.default_rng(seed).permutation(of.offers)
    shuffled = replace(
        of,
        usd_per_step=of.usd_per_step[order],
        launch_usd=of.launch_usd[order],
        capacity_rps=of.capacity_rps[order],
        running=of.running[order],
    )
    assert (fast(shuffled)[0] == fast(of)[0][order]).all()


def test_of_equal_offers_the_first_is_bought() -> None:
    of = cloud(3, offers=6, running=np.zeros(6, dtype=np.int64))
    twice = replace(
        of,
        usd_per_step=np.tile(of.usd_per_step, 2),
        launch_usd=np.tile(of.launch_usd, 2),
        capacity_rps=np.tile(of.capacity_rps, 2),
        boot_steps=np.tile(of.boot_steps, 2),
        running=np.tile(of.running, 2),
        most=np.tile(of.most, 2),
    )
    counts, _ = fast(twice)
    assert counts[:6].any()
    assert not counts[6:].any()


@FEW
@given(seed=seeds)
def test_what_never_pays_can_be_left_out(seed: int) -> None:
    """Instances that a given plan has are kept."""
    of = drawn(seed, most=3, steps=2)
    less = tight(of, nothing(of))
    assert (less.most <= of.most).all()
    assert least_usd(less) == pytest.approx(least_usd(of), rel=1e-12)
    kept = np.repeat(of.most[:, None], 2, axis=1)
    assert tight(of, kept).most.tolist() == of.most.tolist()


@FEW
@given(seed=seeds, share=st.floats(0.0, 1.2), usd_share=st.floats(0.0, 1.2))
def test_limits_are_kept_in_every_step(seed: int, share: float, usd_share: float) -> None:
    """The limits of instances and of dollars range from zero to more than enough, and include boots."""
    of = cloud(seed, offers=6)
    free, _ = fast(of)
    limited = replace(
        of,
        max_instances=int(share * free.sum(axis=0).max()),
        max_usd_per_step=usd_share * float((of.usd_per_step @ free).max()),
    )
    counts, _ = within_limits(limited)
    assert not violation(limited, counts)
    assert price(limited, counts) <= price(limited, nothing(limited)) * (1.0 + 1e-9)


@FEW
@given(seed=seeds)
def test_a_plan_proven_within_limits_is_the_best(seed: int) -> None:
    of = drawn(seed, limits=True)
    counts, exact = within_limits(of)
    best = least_usd(of)
    assert not violation(of, counts)
    assert price(of, counts) >= best * (1.0 - 1e-9)
    if exact:
        assert price(of, counts) == pytest.approx(best, rel=1e-9)


def test_scarce_instances_are_large_ones() -> None:
    """Small ones are cheaper by the request, but five instances must do."""
    of = program(usd=(1.0, 9.0), rps=(1.0, 8.0), load_rps=(9.0,) * 5, usd_per_rps=3.0, max_instances=5, first=True)
    part, left = prune(of, scaled=False)
    counts, _ = within_limits(part)
    assert left.tolist() == [0, 1]
    assert counts.tolist() == [[1] * 5, [1] * 5]
