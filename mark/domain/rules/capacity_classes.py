"""Capacity classes: which instance types may share a target group of a balancer that counts requests only.

An AWS Application Load Balancer with "least outstanding requests" sends every target of a group the same, whatever it
can do. So types of similar capacity share a group, and each group's weight is the capacity of those in it that are
ready.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

# Within a class no type can do more than this many times what another can, where `most` classes are enough for that.
FACTOR = 2.0
MOST_CLASSES = 4
MOST_WEIGHT = 999  # of a target group; a whole number from 0


def capacity_classes(capacity_rps: Mapping[str, float], most: int = MOST_CLASSES) -> dict[str, int]:
    """The class of each offer, counted from 0 in order of capacity; all offers of an instance type share one.

    As few classes as keep within FACTOR, but at most `most`; with that many, the one whose types differ most differs as
    little as can be. Capacities are more than 0, and `most` at least 1.
    """
    types: dict[str, float] = {}
    for offer, rps in capacity_rps.items():
        kind = _type(offer)
        types[kind] = max(rps, types.get(kind, 0.0))
    ascending = sorted(set(types.values()))
    if not ascending:
        return {}
    number = min(most, len(_begins(ascending, FACTOR)))
    # Each class is as wide as two of its capacities are apart: no other factor need be tried.
    factors = sorted({high / low for n, low in enumerate(ascending) for high in ascending[n:]})
    begins = next(b for factor in factors if len(b := _begins(ascending, factor)) <= number)
    return {offer: sum(types[_type(offer)] >= begin for begin in begins) - 1 for offer in capacity_rps}


def class_weights(capacities_rps: Sequence[float]) -> list[int]:
    """Whole weights of classes, 0 to MOST_WEIGHT, in proportion; all 1 while there is no capacity."""
    most = max(capacities_rps, default=0.0)
    if most <= 0.0:
        return [1] * len(capacities_rps)
    # What serves at all gets something.
    return [max(1, round(MOST_WEIGHT * rps / most)) if rps > 0.0 else 0 for rps in capacities_rps]


def _type(offer: str) -> str:
    return offer.partition("/")[0]


def _begins(ascending: Sequence[float], factor: float) -> list[float]:
    """The lowest capacity of each class, when each is filled with all that lie within `factor` of its lowest."""
    begins: list[float] = []
    for rps in ascending:
        if not begins or rps / begins[-1] > factor:
            begins.append(rps)
    return begins
