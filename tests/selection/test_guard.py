"""The guard: false alarms are as rare as stated, and worse challengers are found."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import binom

from mark.selection.guard import FALSE_ALARM, Duel, switches_off

Floats = npt.NDArray[np.float64]
Bools = npt.NDArray[np.bool_]


def before(values: npt.NDArray[Any]) -> Floats:
    """Return running sums along the rows, without the value itself."""
    return np.cumsum(values, axis=1, dtype=float) - values


def alone(to_challenger: Bools, wrong: Bools, share: Floats | float) -> Floats:
    """Return `Duel.alone` for whole runs: the evidence after each query, a row for each run."""
    champion = ~to_challenger
    rate = (before(wrong & champion) + 0.5) / (before(champion) + 1.0)
    worse = np.maximum(rate, (before(wrong & to_challenger) + 18.0 * rate) / (before(to_challenger) + 18.0))
    both, own = share * worse + (1.0 - share) * rate, np.where(to_challenger, worse, rate)
    return np.cumsum(np.log(np.where(wrong, own / both, (1.0 - own) / (1.0 - both))), axis=1)


def pairs(champion: Bools, challenger: Bools) -> Floats:
    """Return `Duel.pair` for whole runs."""
    only = champion & ~challenger, challenger & ~champion
    share = np.maximum(0.5, (before(only[1]) + 1.0) / (before(only[0]) + before(only[1]) + 2.0))
    grown = np.log(2.0 * np.where(only[1], share, 1.0 - share))
    return np.cumsum(np.where(only[0] | only[1], grown, 0.0), axis=1)


def alarms(evidence: Floats) -> int:
    return int((evidence.max(axis=1) >= math.log(1.0 / FALSE_ALARM)).sum())


def few(evidence: Floats) -> bool:
    """Return whether a probability of `FALSE_ALARM` explains the alarms.

    A right test fails here once in 1,000 seeds.
    """
    return alarms(evidence) <= binom.ppf(0.999, len(evidence), FALSE_ALARM)


@given(st.lists(st.tuples(st.booleans(), st.floats(0.0, 1.0), st.floats(0.01, 0.99)), max_size=30))
def test_runs_of_numpy_are_those_of_the_duel(queries: list[tuple[bool, float, float]]) -> None:
    duel, grown = Duel(), 0.0
    for challenger, loss, share in queries:
        grown += duel.alone(challenger=challenger, loss=loss, share=share)
    if queries:
        columns = [np.array([column]) for column in zip(*queries, strict=True)]
        assert grown == pytest.approx(alone(columns[0], columns[1] >= 0.5, columns[2])[0, -1], abs=1e-9)


@given(st.lists(st.tuples(st.floats(0.0, 1.0), st.floats(0.0, 1.0)), max_size=30))
def test_pairs_of_numpy_are_those_of_the_duel(queries: list[tuple[float, float]]) -> None:
    duel, grown = Duel(), 0.0
    for champion, challenger in queries:
        grown += duel.pair(champion, challenger)
    if queries:
        one, other = np.array([queries]).transpose(2, 0, 1) >= 0.5
        assert grown == pytest.approx(pairs(one, other)[0, -1], abs=1e-9)


@given(
    st.lists(st.tuples(st.booleans(), st.booleans(), st.floats(0.01, 0.99)), max_size=20),
    st.floats(0.0, 1.0),
    st.floats(0.0, 1.0),
    st.floats(0.01, 0.99),
)
def test_evidence_does_not_grow_in_the_mean_while_the_challenger_is_not_worse(
    past: list[tuple[bool, bool, float]], one: float, other: float, share: float
) -> None:
    """The step of the proof: for any past, the next factor has a mean of 1 at most."""
    better, worse = sorted((one, other))
    mean = 0.0
    for challenger in (True, False):
        for wrong in (True, False):
            duel = Duel()
            for query in past:
                duel.alone(challenger=query[0], loss=float(query[1]), share=query[2])
            rate = better if challenger else worse
            likely = (share if challenger else 1.0 - share) * (rate if wrong else 1.0 - rate)
            mean += likely * math.exp(duel.alone(challenger=challenger, loss=float(wrong), share=share))
    assert mean <= 1.0 + 1e-9


@given(st.lists(st.sampled_from([(1.0, 0.0), (0.0, 1.0), (0.0, 0.0)]), max_size=30), st.floats(0.0, 0.5))
def test_evidence_of_pairs_does_not_grow_in_the_mean_either(past: list[tuple[float, float]], share: float) -> None:
    mean = 0.0
    for pair, likely in (((0.0, 1.0), share), ((1.0, 0.0), 1.0 - share)):
        duel = Duel()
        for one in past:
            duel.pair(*one)
        mean += likely * math.exp(duel.pair(*pair))
    assert mean <= 1.0 + 1e-9


def test_few_false_alarms_while_queries_become_harder_and_shares_change() -> None:
    """A test of error rates in blocks would take the harder queries of one candidate for its errors."""
    generator = np.random.default_rng(1)
    runs, queries = 1_000, 1_000
    hard = np.where(np.arange(queries) // 100 % 2, 0.4, 0.02)
    share = np.where(np.arange(queries) // 100 % 2, 0.9, 0.05)  # the challenger is asked while queries are hard
    to_challenger = generator.random((runs, queries)) < share
    assert few(alone(to_challenger, generator.random((runs, queries)) < hard, share))


@pytest.mark.parametrize(("share", "rate"), [(0.1, 0.05), (0.5, 0.3), (0.5, 0.0), (0.5, 1.0)])
def test_few_false_alarms(share: float, rate: float) -> None:
    generator = np.random.default_rng(2)
    shape = 1_000, 1_000
    assert few(alone(generator.random(shape) < share, generator.random(shape) < rate, share))
    assert few(pairs(generator.random(shape) < rate, generator.random(shape) < rate))


@pytest.mark.slow
@pytest.mark.parametrize("runs", [100, pytest.param(400, marks=pytest.mark.acceptance)])
@pytest.mark.parametrize("share", [0.1, 0.5, None])
def test_at_most_one_percent_of_long_runs_raise_a_false_alarm(share: float | None, runs: int) -> None:
    found = 0
    for seed in range(runs // 20):
        generator, shape = np.random.default_rng(seed), (20, 100_000)
        wrong = generator.random(shape) < 0.05
        if share is None:
            found += alarms(pairs(wrong, generator.random(shape) < 0.05))
        else:
            found += alarms(alone(generator.random(shape) < share, wrong, share))
    assert found <= runs // 100


@pytest.mark.parametrize(("worse", "prototype"), [(0.1, 2_990), (0.2, 570), (0.9, 70)])
def test_worse_challenger_is_found_about_as_soon_as_by_the_prototype(worse: float, prototype: int) -> None:
    generator, shape = np.random.default_rng(3), (100, 12 * prototype)
    to_challenger = generator.random(shape) < 0.1
    wrong = generator.random(shape) < np.where(to_challenger, worse, 0.05)
    over = alone(to_challenger, wrong, 0.1) >= math.log(1.0 / FALSE_ALARM)
    assert over.any(axis=1).mean() >= 0.97
    assert np.median(over.argmax(axis=1) + 1) == pytest.approx(prototype, rel=0.2)


def test_better_challenger_gathers_no_evidence() -> None:
    generator, shape = np.random.default_rng(4), (50, 5_000)
    to_challenger = generator.random(shape) < 0.5
    wrong = generator.random(shape) < np.where(to_challenger, 0.05, 0.2)
    assert alone(to_challenger, wrong, 0.5).max() < math.log(1.0 / FALSE_ALARM)


def test_writer_that_starts_anew_keeps_the_false_alarms_rare() -> None:
    generator = np.random.default_rng(5)
    runs, restarts, queries = 1_000, 10, 100
    evidence = np.zeros((runs, 0))
    for _ in range(restarts):
        to_challenger = generator.random((runs, queries)) < 0.3
        grown = alone(to_challenger, generator.random((runs, queries)) < 0.1, 0.3)
        evidence = np.hstack([evidence, grown + (evidence[:, -1:] if evidence.size else 0.0)])
    assert few(evidence)


def test_challengers_share_the_false_alarms() -> None:
    assert switches_off(math.log(100.0), 1)
    assert not switches_off(math.log(99.0), 1)
    assert not switches_off(math.log(399.0), 4)
    assert not switches_off(0.0, 0)  # the champion is alone
    assert switches_off(math.log(400.0) + 1e-9, 4)


def test_queries_on_which_both_are_right_or_both_wrong_say_nothing() -> None:
    duel = Duel()
    assert duel.pair(0.0, 0.49) == duel.pair(1.0, 0.5) == 0.0


def test_candidate_that_could_not_be_drawn_says_nothing() -> None:
    duel = Duel()
    for _ in range(9):
        duel.alone(challenger=True, loss=1.0, share=0.5)
    assert duel.alone(challenger=False, loss=0.0, share=0.0) == 0.0
