"""How the instances of one launch are spread over a site's zones, so that no zone's failure takes all of them.

EC2 fills the pool of the best priority until it is empty. So a launch of several instances is asked for in parts, each
with another zone first; all zones stay in each part, because a zone may have no capacity.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence


def shares(count: int, zones: int) -> list[int]:
    """How many instances each part of a launch has, the largest first: at most `count / zones` of them, rounded up.

    They follow from the numbers alone, so that a launch that is repeated has the same parts.
    """
    parts = max(1, min(count, zones))
    return [count // parts + (k < count % parts) for k in range(parts)]


def rotated(zones: Sequence[str], start: int) -> list[str]:
    """The zones in the same order, beginning at the start-th."""
    start %= max(1, len(zones))
    return [*zones[start:], *zones[:start]]


def emptiest(zones: Sequence[str], instances: Mapping[str, int]) -> int:
    """The position of the zone with the fewest instances; of several the first."""
    return min(range(len(zones)), key=lambda k: (instances.get(zones[k], 0), k), default=0)
