"""Limits that stages of a pipeline share: laws, and how room moves."""

from __future__ import annotations

import math
from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mark.control.shared_limits import Holding, fits, next_limits
from mark.control.views import Limits

PRICE = 0.1


def holdings(held: Sequence[int], limits: Sequence[Limits]) -> list[Holding]:
    return [Holding(count, PRICE * count, own) for count, own in zip(held, limits, strict=True)]


def total(limits: Sequence[Limits]) -> tuple[int, float]:
    return sum(one.max_instances for one in limits), sum(one.max_usd_per_hour for one in limits)


def settled(whole: Limits, held: Sequence[int], limits: Sequence[Limits]) -> list[Limits]:
    for _ in range(10):
        following = next_limits(whole, holdings(held, limits))
        if following == list(limits):
            return following
        limits = following
    raise AssertionError("limits do not come to rest")


def equal_parts(whole: Limits, count: int) -> list[Limits]:
    """Return the limits that stages begin with."""
    return [Limits(max(1, whole.max_instances // count), whole.max_usd_per_hour / count)] * count


def test_room_goes_where_instances_are() -> None:
    """Seven of twelve go to the stage that has used up its four: the others give up theirs first."""
    whole = Limits(12, 1.2)
    found = settled(whole, [4, 1, 1], equal_parts(whole, 3))
    assert [one.max_instances for one in found] == [7, 2, 2]
    assert [one.max_usd_per_hour for one in found] == pytest.approx([0.7, 0.25, 0.25])


def test_a_stage_without_instances_may_begin() -> None:
    found = settled(Limits(12, 1.2), [6, 0], equal_parts(Limits(12, 1.2), 2))
    assert (found[1].max_instances, found[1].max_usd_per_hour) == (2, pytest.approx(0.15))


def test_limits_with_room_stay_as_they_are() -> None:
    whole = Limits(12, 1.2)
    assert next_limits(whole, holdings([2, 1, 0], equal_parts(whole, 3))) == equal_parts(whole, 3)


def test_a_lower_whole_takes_from_all() -> None:
    found = settled(Limits(6, 0.6), [8, 2, 2], [Limits(8, 0.8), Limits(2, 0.2), Limits(2, 0.2)])
    assert [one.max_instances for one in found] == [4, 1, 1]


@pytest.mark.parametrize(
    ("whole", "keeps"),
    [(Limits(8, 0.8), True), (Limits(7, 0.8), False), (Limits(8, 0.7), False), (Limits(2, 0.8), False)],
)
def test_what_is_held_fits_the_whole_or_not(whole: Limits, keeps: bool) -> None:
    """With one instance each, more stages than the limit allows fit nowhere else, so they count as fitting."""
    assert fits(whole, holdings([5, 3], equal_parts(whole, 2))) is keeps
    assert fits(Limits(1, 0.8), holdings([1, 1], equal_parts(whole, 2)))


@given(
    count=st.integers(1, 6), most=st.integers(6, 200), usd=st.floats(0.5, 50.0),
    rounds=st.lists(st.lists(st.floats(0.0, 1.0), min_size=6, max_size=6), min_size=1, max_size=8),
)  # fmt: skip
def test_no_step_exceeds_the_whole_or_takes_anything(
    count: int, most: int, usd: float, rounds: list[list[float]]
) -> None:
    """Stages grow and shrink within their limits, which take effect at an unknown time for each."""
    whole = Limits(most, usd)
    limits = equal_parts(whole, count)
    for shares in rounds:
        held = [
            min(math.floor(share * own.max_instances), math.floor(own.max_usd_per_hour / PRICE))
            for share, own in zip(shares, limits, strict=False)
        ]
        following = next_limits(whole, holdings(held, limits))
        either = [
            Limits(max(a.max_instances, b.max_instances), max(a.max_usd_per_hour, b.max_usd_per_hour))
            for a, b in zip(limits, following, strict=True)
        ]
        assert total(either)[0] <= whole.max_instances
        assert total(either)[1] <= whole.max_usd_per_hour * (1.0 + 1e-9)
        for count_held, own in zip(held, following, strict=True):
            assert own.max_instances >= max(1, count_held)
            assert own.max_usd_per_hour >= PRICE * count_held * (1.0 - 1e-9)
        limits = following
