"""Errors by version and segment, and intervals that hold whenever they are looked at."""

from __future__ import annotations

import math

import numpy as np
import pytest

from mark.personal.judge import ALL, ErrorJudge, ErrorTally, segment_of


def _tally(errors: list[float]) -> ErrorTally:
    found = ErrorTally()
    for error in errors:
        found.add(error)
    return found


def test_interval_misses_the_mean_seldom_though_looked_at_each_time() -> None:
    """Of 300 sequences that are checked 2,000 times, at most 27 may leave at the stated 5 % (5 % + 4 sd)."""
    draw, left = np.random.default_rng(0), 0
    for _ in range(300):
        found = ErrorTally()
        for error in draw.exponential(size=2000):
            found.add(float(error))
            low, high = found.interval(0.05)
            if not low <= 1.0 <= high:
                left += 1
                break

    assert left <= 27


def test_interval_of_squared_errors_holds_its_level_from_the_first_observations() -> None:
    """Of 300 sequences that are checked 500 times, at most 9 may leave at the stated 1 % (1 % + 4 sd)."""
    draw, left = np.random.default_rng(4), 0
    for _ in range(300):
        found = ErrorTally()
        for error in draw.normal(size=500) ** 2:
            found.add(float(error))
            low, high = found.interval()
            if not low <= 1.0 <= high:
                left += 1
                break

    assert left <= 9


def test_interval_shrinks_with_observations() -> None:
    draw = np.random.default_rng(1)
    widths = []
    for count in (19, 100, 1000, 10_000):
        low, high = _tally(draw.normal(size=count).tolist()).interval()
        widths.append(high - low)

    assert widths[0] == math.inf
    assert widths[1] > 2 * widths[2] > 4 * widths[3]


def test_tallies_of_writers_add_up() -> None:
    one, other, whole = _tally([1.0, 2.0]), _tally([4.0]), _tally([1.0, 2.0, 4.0])
    one.merge(other)

    assert one == whole
    assert whole.mean == pytest.approx(7 / 3)
    assert math.isnan(ErrorTally().mean)


@pytest.mark.parametrize(
    ("before", "segment"),
    [(0, "new"), (1, "1 to 4"), (4, "1 to 4"), (5, "5 to 19"), (20, "20 to 99"), (100, "100 or more")],
)
def test_segment_follows_the_observations_of_the_key(before: int, segment: str) -> None:
    assert segment_of(before) == segment


def test_judge_keeps_versions_and_segments_apart_and_is_read_as_written() -> None:
    judge = ErrorJudge()
    judge.add("2", 7, 4.0)
    judge.add("1", 0, 1.0)
    judge.add("1", 7, 3.0)
    found = ErrorJudge.of_json(judge.to_json())

    assert [(version, segment) for version, segment, _ in found.rows()] == [
        *(("1", ALL), ("1", "new"), ("1", "5 to 19")),
        *(("2", ALL), ("2", "5 to 19")),
    ]
    assert found.tally("1").mean == 2.0
    assert found.tally("1", "20 to 99").count == 0


@pytest.mark.parametrize("said", [3, [["1", "all", 1]], [["1", "some", 1, 2.0, 3.0]], [["1", "all", "x", 2.0, 3.0]]])
def test_other_data_is_no_judge(said: object) -> None:
    with pytest.raises(ValueError, match=r"."):
        ErrorJudge.of_json(said)
