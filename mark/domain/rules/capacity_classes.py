"""Capacity classes: the instance types that may share a target group of a balancer that only counts requests.

An AWS Application Load Balancer with "least outstanding requests" sends every target of a group equally many requests,
whatever its capacity. So types of similar capacity share a group, whose weight is the capacity of its ready instances.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

# Largest ratio of capacities within a class, if `most` classes are enough for it.
FACTOR = 2.0
MOST_CLASSES = 4
MOST_WEIGHT = 999  # of a target group; a whole number from 0


def capacity_classes(capacity_rps: Mapping[str, float], most: int = MOST_CLASSES) -> dict[str, int]:
    """Return the class of each offer, counted from 0 in order of capacity; all offers of an instance type share one.

    There are as few classes as FACTOR allows, and at most `most`. Given their number, the largest ratio within a class
    is as small as possible. Capacities are more than 0, and `most` is at least 1.
    """
    types: dict[str, float] = {}
    for offer, rps in capacity_rps.items():
        kind = _type(offer)
        types[kind] = max(rps, types.get(kind, 0.0))
    ascending = sorted(set(types.values()))
    if not ascending:
        return {}
    number = min(most, len(_begins(ascending, FACTOR)))
    # Try the ratios of any two capacities: the widest class spans exactly one of them.
    factors = sorted({high / low for n, low in enumerate(ascending) for high in ascending[n:]})
    begins = next(b for factor in factors if len(b := _begins(ascending, factor)) <= number)
    return {offer: sum(types[_type(offer)] >= begin for begin in begins) - 1 for offer in capacity_rps}


def class_weights(capacities_rps: Sequence[float]) -> list[int]:
    """Return whole weights of classes, 0 to MOST_WEIGHT, in proportion; all 1 while there is no capacity."""
    most = max(capacities_rps, default=0.0)
    if most <= 0.0:
        return [1] * len(capacities_rps)
    # A class with any capacity gets at least 1.
    return [max(1, round(MOST_WEIGHT * rps / most)) if rps > 0.0 else 0 for rps in capacities_rps]


def _type(offer: str) -> str:
    return offer.partition("/")[0]


def _begins(ascending: Sequence[float], factor: float) -> list[float]:
    """Return the lowest capacity of each class, if each takes all capacities up to `factor` times its lowest."""
    begins: list[float] = []
    for rps in ascending:
        if not begins or rps / begins[-1] > factor:
            begins.append(rps)
    return begins
