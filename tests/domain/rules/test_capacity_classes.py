"""Capacity classes: few, narrow, in order, and independent of the offers' order."""

from __future__ import annotations

import itertools
import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mark.domain.rules.capacity_classes import FACTOR, MOST_WEIGHT, capacity_classes, class_weights

fleets = st.dictionaries(st.sampled_from("abcdefgh"), st.floats(0.01, 1e4), min_size=1)


def spread(capacity_rps: dict[str, float], classes: dict[str, int]) -> float:
    """Return the ratio of the largest to the smallest capacity in the widest class."""
    members = [[capacity_rps[o] for o in classes if classes[o] == n] for n in set(classes.values())]
    return max(max(of) / min(of) for of in members)


def test_a_gpu_and_a_cpu_do_not_share_a_class() -> None:
    """Types within the factor share a class, in every market."""
    capacity_rps = {"p2.xlarge/spot": 55.0, "c5.large/on-demand": 4.7, "c5.xlarge/spot": 9.0, "c5.large/spot": 4.7}
    assert capacity_classes(capacity_rps) == {
        "c5.large/on-demand": 0,
        "c5.large/spot": 0,
        "c5.xlarge/spot": 0,
        "p2.xlarge/spot": 1,
    }


@pytest.mark.parametrize(
    ("capacities_rps", "most", "expected"),
    [
        ([1.0, 2.0], 4, [0, 0]),  # the factor itself still fits
        ([1.0, 2.1], 4, [0, 1]),
        ([1.0, 1.9, 2.0, 3.8], 4, [0, 0, 1, 1]),
        ([1.0, 1.9, 2.1, 2.2], 4, [0, 1, 1, 1]),  # two classes are needed, and this makes both narrow
        ([1.0, 3.0, 9.0, 27.0, 60.0], 4, [0, 1, 2, 3, 3]),  # five do not fit: the closest neighbours share
        ([1.0, 3.0, 9.0, 27.0, 60.0], 2, [0, 0, 1, 1, 1]),
        ([1.0, 3.0, 9.0, 27.0, 60.0], 1, [0, 0, 0, 0, 0]),
        ([], 4, []),
    ],
)
def test_classes_are_few_and_narrow(capacities_rps: list[float], most: int, expected: list[int]) -> None:
    """The classes are computed by hand, for one type each."""
    named = {f"type{n}/on-demand": rps for n, rps in enumerate(capacities_rps)}
    assert list(capacity_classes(named, most).values()) == expected


@given(fleets, st.integers(1, 4))
def test_no_other_classes_are_as_few_and_narrower(capacity_rps: dict[str, float], most: int) -> None:
    """The reference tries every way to cut the ascending capacities into at most that many classes."""
    found = capacity_classes(capacity_rps, most)
    number = max(found.values()) + 1
    assert sorted(set(found.values())) == list(range(number))
    ascending = sorted(capacity_rps, key=lambda offer: capacity_rps[offer])
    assert [found[offer] for offer in ascending] == sorted(found.values())

    def narrowest(classes: int) -> float:
        every = itertools.combinations(range(1, len(ascending)), classes - 1)
        cuts = ({o: sum(n >= cut for cut in at) for n, o in enumerate(ascending)} for at in every)
        return min((spread(capacity_rps, classes) for classes in cuts), default=float("inf"))

    assert spread(capacity_rps, found) == narrowest(number)
    assert number <= most
    assert number == most or narrowest(number) <= FACTOR or narrowest(number) == narrowest(number + 1)
    assert number == 1 or narrowest(number - 1) > FACTOR


@given(fleets, st.randoms(use_true_random=False))
def test_classes_do_not_depend_on_the_order_of_offers(capacity_rps: dict[str, float], by: random.Random) -> None:
    """Offers of one type share a class, even if one of them has a smaller stated capacity."""
    offers = {f"{name}/{market}": rps for name, rps in capacity_rps.items() for market in ("on-demand", "spot")}
    offers |= {name: rps / 3.0 for name, rps in offers.items() if by.random() < 0.3 and name.endswith("spot")}
    mixed = list(offers.items())
    by.shuffle(mixed)
    found = capacity_classes(offers)
    assert capacity_classes(dict(mixed)) == found
    assert all(found[f"{name}/on-demand"] == found[f"{name}/spot"] for name in capacity_rps)


@pytest.mark.parametrize(
    ("capacities_rps", "expected"),
    [
        ([100.0, 50.0], [999, 500]),
        ([0.0, 0.0], [1, 1]),  # no target is ready: the first to register gets the requests
        ([1e6, 1.0, 0.0], [999, 1, 0]),  # a small capacity gets a small weight, zero capacity gets none
        ([], []),
    ],
)
def test_weights_are_whole_and_in_proportion(capacities_rps: list[float], expected: list[int]) -> None:
    assert class_weights(capacities_rps) == expected


@given(st.lists(st.one_of(st.just(0.0), st.floats(0.001, 1e6)), min_size=1, max_size=4))
def test_weights_are_what_a_listener_takes(capacities_rps: list[float]) -> None:
    """0 to 999, the largest 999, and off by half a unit at most (but for those raised to 1)."""
    weights = class_weights(capacities_rps)
    most = max(capacities_rps)
    if most > 0.0:
        assert max(weights) == MOST_WEIGHT
        for weight, rps in zip(weights, capacities_rps, strict=True):
            assert (weight > 0) == (rps > 0.0)
            assert abs(weight - MOST_WEIGHT * rps / most) <= (0.5 if weight > 1 else 1.0) + 1e-9
