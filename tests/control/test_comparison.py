"""Releases are compared like with like; one is worse only if chance does not explain the difference."""

from __future__ import annotations

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mark.control.comparison import Comparison
from mark.control.ports import ReleaseCounts
from mark.domain.slo import Slo

SLO = Slo(0.6, 0.98)
NOTHING = ReleaseCounts()
Counts = dict[str, ReleaseCounts]


def counts(requests: int, errors: int = 0, misses: int = 0, each_s: float = 1.0, by_functions: int = 0) -> Counts:
    return {"large": ReleaseCounts(requests, misses, errors, (requests - by_functions) * each_s, by_functions)}


def compared(*looks: tuple[Counts, Counts]) -> Comparison:
    """Return the comparison after looks that found these additional counts of the new release and of the other one."""
    offers = sorted({offer for new, _ in looks for offer in new})
    theirs = {offer for _, old in looks for offer in old}
    new, old = dict.fromkeys(offers, NOTHING), dict.fromkeys(theirs, NOTHING)
    comparison = Comparison().looked(new, old, offers, 0.0)
    for number, (more_new, more_old) in enumerate(looks):
        new = {offer: one + more_new.get(offer, NOTHING) for offer, one in new.items()}
        old = {offer: one + more_old.get(offer, NOTHING) for offer, one in old.items()}
        comparison = comparison.looked(new, old, offers, 5.0 * number)
    return comparison


@pytest.mark.parametrize(
    ("new", "old", "bad"),
    [
        (counts(20, errors=20), counts(10_000), "errors"),
        (counts(10_000, errors=1), counts(10_000), ""),
        (counts(5, errors=4), counts(10_000), ""),  # too few to say
        (counts(1000, errors=50), counts(1000, errors=50), ""),  # both are ill
        (counts(1000, misses=19), counts(100_000), ""),  # within the promise
        (counts(1000, misses=60), counts(100_000), "late"),
        (counts(100_000, misses=2_300), counts(100_000, misses=2_000), ""),  # the difference is too small to go back
        (counts(500, misses=250), counts(0), ""),  # nothing to compare with
        (counts(2000, each_s=2.0), counts(2000, each_s=1.0), "2.0 times the worker time"),
        (counts(2000, each_s=1.2), counts(2000, each_s=1.0), ""),
        (counts(6000, each_s=5.0, by_functions=4800), counts(54_000), "functions"),
        (counts(6000, each_s=5.0, by_functions=200), counts(54_000), "5.0 times"),
        (counts(0), counts(10_000), ""),
    ],
)
def test_worse_is_more_than_chance_explains(new: Counts, old: Counts, bad: str) -> None:
    found = compared((new, old)).worse(SLO)
    assert bad in found
    assert bool(found) is bool(bad)


@given(st.integers(5, 100_000), st.floats(0.0, 0.3), st.integers(1, 10))
def test_equal_shares_are_never_worse(requests: int, share: float, times: int) -> None:
    one = counts(requests, round(share * requests), round(share * requests))
    many = counts(times * requests, times * round(share * requests), times * round(share * requests))
    assert compared((one, many)).worse(SLO) == ""


def test_no_mix_of_types_makes_a_release_worse() -> None:
    """The new release has most instances of the type that costs more and misses more."""
    dear, cheap = ReleaseCounts(100, 10, 10, 500.0), ReleaseCounts(100, 0, 0, 10.0)
    many, few = 20, 1

    def times(one: ReleaseCounts, n: int) -> ReleaseCounts:
        return sum([one] * n, NOTHING)

    new = {"large": times(dear, many), "small": times(cheap, few)}
    old = {"large": times(dear, few), "small": times(cheap, many)}
    assert compared(*[(new, old)] * 10).worse(SLO) == ""


def test_no_load_that_changes_makes_a_release_worse() -> None:
    """The new release got most of its requests in bad times, the other one in good times."""
    good = counts(100), counts(5000)
    bad = counts(5000, errors=500, misses=500, each_s=2.0), counts(100, errors=10, misses=10, each_s=2.0)
    assert compared(*[good] * 10, *[bad] * 10).worse(SLO) == ""


def test_few_requests_are_put_together_until_they_can_be_compared() -> None:
    """Each look has one request."""
    assert "errors" in compared(*[(counts(1, errors=1), counts(2))] * 40).worse(SLO)


def test_a_new_types_errors_and_misses_are_compared_with_others() -> None:
    new = {"small": ReleaseCounts(2000, 0, 0, 9000.0)}
    assert compared((new, counts(2000))).worse(SLO) == ""
    assert "errors" in compared(({"small": ReleaseCounts(2000, 0, 1000)}, counts(2000))).worse(SLO)
    assert "late" in compared(({"small": ReleaseCounts(2000, 1000)}, counts(2000))).worse(SLO)


def test_counters_that_fell_begin_anew() -> None:
    """Counters fall when another controller's telemetry takes over.

    Earlier requests do not count twice, nor do lost ones.
    """
    comparison = compared((counts(1000), counts(1000)))
    for new, old in ((counts(50, errors=50), counts(60)), (counts(150, errors=50), counts(160))):
        comparison = comparison.looked(new, old, ["large"], 10.0)
    assert comparison.errors.mine == 0
    assert (comparison.errors.requests, comparison.errors.of_theirs) == (1100, 1100)


def test_where_nothing_new_is_seen_nothing_changes() -> None:
    """Otherwise an unchanged comparison would be stored."""
    comparison = compared((counts(1000), counts(1000)))
    assert comparison.looked(counts(1000), counts(1000), ["large"], 99.0) is comparison


@pytest.mark.untraced
def test_like_releases_are_told_apart_by_chance_hardly_ever() -> None:
    """The test makes two hundred trials of sixty looks each, in which three requests in a hundred are late."""
    draw = random.Random(7)
    bad = 0
    for _ in range(200):
        looks = [
            (counts(20, misses=_binomial(draw, 20, 0.03)), counts(60, misses=_binomial(draw, 60, 0.03)))
            for _ in range(60)
        ]
        bad += bool(compared(*looks).worse(SLO))
    assert bad == 0


def _binomial(draw: random.Random, n: int, share: float) -> int:
    return sum(draw.random() < share for _ in range(n))


def test_what_gets_no_requests_is_unreached() -> None:
    """The others get requests, and by its share the release would have had enough of them."""
    comparison = Comparison().looked({}, counts(1000), ["large"], 0.0)
    assert comparison.is_unreached(counts(1400), {"large": 0.1})
    assert not comparison.is_unreached(counts(1100), {"large": 0.1})
    assert not comparison.looked(counts(5), counts(1400), ["large"], 5.0).is_unreached(counts(3000), {"large": 0.1})
