"""Tables of scores: the grid, the increasing curve, and the discount."""

from __future__ import annotations

import math
import random
import sys

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from sklearn.isotonic import IsotonicRegression

from mark.selection.score_table import Fading, ScoreTable, grid_place

FINITE = st.floats(allow_nan=False, allow_infinity=False)
NEAR_ONE = st.floats(1.0 - 1e-9, 1.0 + 1e-9) | st.floats(0.0, 1.0)
ANSWERS = st.lists(st.tuples(NEAR_ONE | FINITE, st.floats(0.0, 1.0), st.integers(1, 5_000)), min_size=1, max_size=40)
Answers = list[tuple[float, float, int]]


@given(FINITE | NEAR_ONE, FINITE | NEAR_ONE)
@example(1.0 - 1e-16, 1.0)
@example(-1e308, 1e308)
@example(5e-324, 0.0)
@example(-sys.float_info.max, sys.float_info.max)
@example(0.5, math.nextafter(0.5, 1.0))
@example(1.0, math.nextafter(1.0, 2.0))
@example(-5e-324, 0.0)
def test_places_never_fall_as_scores_rise(one: float, other: float) -> None:
    low, high = sorted((one, other))
    assert grid_place(low) <= grid_place(high)


@given(st.integers(-500, 500), st.floats(0.5, 1.0))
def test_places_never_fall_from_one_float_to_the_next(octave: int, near: float) -> None:
    score = math.ldexp(near, octave // 10)
    assert grid_place(score) <= grid_place(math.nextafter(score, math.inf))


def test_grid_is_fine_near_zero_and_near_one() -> None:
    low = [grid_place(10.0**-power) for power in range(1, 30)]
    assert len(set(low)) == len(low)
    high = [grid_place(1.0 - 10.0**-power) for power in range(1, 16)]
    assert len(set(high)) == len(high)


def test_grid_is_bounded() -> None:
    places = [grid_place(score) for score in (-sys.float_info.max, sys.float_info.max)]
    assert places[1] - places[0] < 10_000


def table_of(answers: Answers, half_life: float = math.inf) -> ScoreTable:
    table = ScoreTable(Fading(half_life))
    for answer in answers:
        table.add(*answer)
    return table


@given(ANSWERS, st.sampled_from([math.inf, 700.0]))
def test_curve_is_that_of_scikit_learn(answers: Answers, half_life: float) -> None:
    table, newest = table_of(answers, half_life), max(stamp for *_, stamp in answers)
    weights = [2.0 ** ((stamp - newest) / half_life) for *_, stamp in answers]
    places = [float(grid_place(score)) for score, *_ in answers]
    theirs = IsotonicRegression().fit(places, [right for _, right, _ in answers], weights).predict(places)
    ours = [table.probability(score) for score, *_ in answers]
    assert np.allclose(ours, theirs, rtol=0.0, atol=1e-9)


@given(ANSWERS, st.lists(FINITE | NEAR_ONE, min_size=2, max_size=20))
def test_probability_never_falls_as_the_score_rises(answers: Answers, scores: list[float]) -> None:
    table = table_of(answers, 100.0)
    found = [table.probability(score) for score in sorted(scores)]
    assert found == sorted(found)
    assert found[0] >= -1e-12
    assert found[-1] <= 1.0 + 1e-12


@given(ANSWERS, st.randoms(use_true_random=False), st.sampled_from([3.0, 100.0, math.inf]))
def test_order_of_answers_changes_nothing(answers: Answers, chance: random.Random, half_life: float) -> None:
    shuffled = answers[:]
    chance.shuffle(shuffled)
    one, other = table_of(answers, half_life), table_of(shuffled, half_life)
    assert one.total == pytest.approx(other.total, rel=1e-12, abs=1e-12)
    newest = max(stamp for *_, stamp in answers)
    assert one.total == pytest.approx(math.fsum(2.0 ** ((at - newest) / half_life) for *_, at in answers), rel=1e-12)
    rows, others = one.dump(), other.dump()
    for place in rows.keys() | others.keys():
        assert rows.get(place, [0.0, 0.0]) == pytest.approx(others.get(place, [0.0, 0.0]), rel=1e-12, abs=1e-12)


@given(ANSWERS, st.lists(st.integers(1, 5), min_size=1, max_size=40), st.sampled_from([math.inf, 3.0, 700.0]))
def test_curve_that_is_mended_is_that_of_all_answers(answers: Answers, reads: list[int], half_life: float) -> None:
    """Curves are mended where answers came since the last reading, after one answer or after several."""
    table, given = ScoreTable(Fading(half_life)), answers * 3
    for read in reads:
        for score, right, stamp in given[:read]:
            table.add(score, right, stamp)
        given = given[read:]
        whole = ScoreTable(Fading(half_life))
        whole._fading.load(table._fading.dump())
        whole.load(table.dump())
        if whole.total:
            for score, *_ in answers:
                assert table.probability(score) == pytest.approx(whole.probability(score), rel=1e-9, abs=1e-12)


@pytest.mark.parametrize("seed", range(20))
def test_long_curve_that_is_mended_is_that_of_all_answers(seed: int) -> None:
    generator = random.Random(seed)
    table, whole = ScoreTable(Fading(100.0)), ScoreTable(Fading(100.0))
    for stamp in range(1, 600):
        score = generator.random() ** generator.choice([1, 9])
        right = float(generator.random() < generator.choice([score, 0.5]))
        table.add(score, right, stamp)
        whole.add(score, right, stamp)
        if generator.random() < 0.3:
            whole._curve = None
            for _ in range(5):
                score = generator.random()
                assert table.probability(score) == pytest.approx(whole.probability(score), rel=1e-9)


def test_equal_scores_are_pooled_to_their_mean() -> None:
    table = table_of([(0.9, 1.0, 0), (0.9, 0.0, 0), (0.9, 1.0, 0), (0.1, 0.0, 0)])
    assert table.probability(0.9) == pytest.approx(2 / 3)
    assert table.probability(0.1) == table.probability(-5.0) == 0.0
    assert table.probability(7.0) == pytest.approx(2 / 3)
    assert table.total == 4.0


def test_millions_of_stamps_overflow_nothing() -> None:
    table = ScoreTable(Fading(140.0))
    for stamp in [1, 2**53, 3, 10_000_000, 2**53 - 1, 0]:
        table.add(0.5, 1.0, stamp)
    assert table.total == pytest.approx(1.0 + 0.5 ** (1 / 140.0))
    assert table.probability(0.5) == 1.0


def test_stamps_in_a_row_have_the_weight_of_a_geometric_sum() -> None:
    table = ScoreTable(Fading(10.0))
    for stamp in range(1, 20_001):
        table.add(0.5, stamp % 2, stamp)
    assert table.total == pytest.approx(1.0 / (1.0 - 0.5**0.1), rel=1e-9)


def test_tables_of_one_fading_fade_together() -> None:
    fading = Fading(10.0)
    one, other = ScoreTable(fading), ScoreTable(fading)
    one.add(0.5, 1.0, 1)
    other.add(0.5, 1.0, 11)
    assert (one.total, other.total) == (0.5, 1.0)
    other.add(0.5, 1.0, 1_000_000)
    assert one.total == 0.0
    with pytest.raises(ValueError, match="says nothing"):
        one.probability(0.5)


def test_rows_that_weigh_nothing_leave_the_memory() -> None:
    table = ScoreTable(Fading(1.0))
    for stamp in range(1, 5_000):
        table.add(float(stamp), 1.0, stamp)
    assert len(table.dump()) < 50


@given(ANSWERS, st.sampled_from([50.0, 140.0, math.inf]))
def test_table_returns_from_a_dump_with_another_half_life(answers: Answers, half_life: float) -> None:
    fading = Fading(100.0)
    table = ScoreTable(fading)
    for answer in answers:
        table.add(*answer)
    after = Fading(half_life)
    after.load(fading.dump())
    other = ScoreTable(after)
    other.load(table.dump())
    assert other.total == pytest.approx(table.total)
    score, _, newest = max(answers, key=lambda one: one[2])
    assert other.probability(score) == pytest.approx(table.probability(score), abs=1e-9)
    other.add(score, 1.0, newest)
    assert other.total == pytest.approx(table.total + 1.0)
