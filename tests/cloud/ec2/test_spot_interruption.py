"""Spot capacity of a zone: how many instances it sells, and how many a fall of its share interrupts."""

from __future__ import annotations

import math
from dataclasses import dataclass

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mark.cloud.ec2.spot_interruption import SpotZone
from mark.cloud.ec2.spot_series import SpotSeries


@dataclass
class One:
    number: int
    launched_s: float = 0.0


def zone(*shares: float) -> SpotZone:
    """Return a zone whose share changes every 10 s."""
    return SpotZone(
        SpotSeries("s", "availability", tuple(10.0 * k for k in range(len(shares))), shares, 10.0 * len(shares))
    )


def test_without_a_series_any_number_is_sold_for_ever() -> None:
    """No change ever comes."""
    spot = SpotZone()
    assert spot.room(1000, 1000) == 1000
    assert spot.next_change_s == math.inf


def test_equal_shares_are_no_change_however_many_there_are() -> None:
    assert zone(1.0, 1.0, 1.0).next_change_s == math.inf


def test_changes_come_at_the_times_of_the_series_and_repeat() -> None:
    """The period is 30 s; a neighbour with the same share is no change."""
    spot, seen = zone(1.0, 0.5, 1.0), []
    for _ in range(4):
        at_s = spot.next_change_s
        spot.change([])
        seen.append((at_s, spot.share))
    assert seen == [(10.0, 0.5), (20.0, 1.0), (40.0, 0.5), (50.0, 1.0)]


@pytest.mark.parametrize(
    ("before", "after", "held", "interrupted"),
    [(1.0, 0.5, 4, 2), (0.5, 0.25, 4, 2), (0.5, 0.0, 3, 3), (1.0, 0.5, 1, 1), (1.0, 0.6, 1, 0), (0.5, 1.0, 4, 0)],
)
def test_a_fall_interrupts_one_minus_the_ratio_of_shares(
    before: float, after: float, held: int, interrupted: int
) -> None:
    """The number is rounded to the nearest, half an instance up."""
    assert len(zone(before, after).change([One(k) for k in range(held)])) == interrupted


def test_the_longest_running_are_interrupted_first() -> None:
    """Of instances launched at one time the lowest number goes first."""
    held = [One(1, 30.0), One(4, 20.0), One(3, 20.0), One(2, 90.0)]
    assert [one.number for one in zone(1.0, 0.25).change(held)] == [3, 4, 1]


def test_of_what_was_wanted_most_only_the_share_is_sold() -> None:
    """This lasts until the share is 1 again."""
    spot = zone(1.0, 0.5, 0.0, 1.0)
    spot.change([One(k) for k in range(4)])
    assert spot.room(4, 2) == 1  # half of the six held and requested
    assert spot.room(1, 3) == 0
    spot.change([])
    assert spot.room(4, 0) <= 0
    spot.change([])
    assert spot.room(4, 0) == 4


@given(st.lists(st.floats(0.0, 1.0), min_size=1, max_size=8, unique=True), st.lists(st.integers(1, 9), max_size=8))
def test_no_more_is_ever_held_than_the_share_allows(shares: list[float], asked: list[int]) -> None:
    """The share is of the most wanted since the last fall from 1; at a share of zero none are held."""
    spot = zone(1.0, *shares)
    held: list[One] = []
    launched = most = 0
    for count in asked:
        most = max(most, len(held) + count)
        sold = max(0, spot.room(count, len(held)))
        held += [One(launched + k) for k in range(sold)]
        launched += sold
        if spot.share == 1.0:
            assert sold == count
        else:
            assert sold == 0 or len(held) <= spot.share * most + 0.5
        was_whole = spot.share == 1.0
        taken = spot.change(held)
        assert taken == held[: len(taken)]  # the first launched
        most = len(held) if was_whole and spot.share < 1.0 else most
        held = held[len(taken) :]
        assert spot.share > 0.0 or not held
