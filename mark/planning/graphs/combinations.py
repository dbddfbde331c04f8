"""Every combination of what the stages may have, the cheapest first."""

from __future__ import annotations

import heapq
from collections.abc import Iterator, Sequence

from mark.planning.graphs.estimate import Choices, StageChoice, least_usd_per_hour


def by_cost(needs: Sequence[Sequence[StageChoice]]) -> Iterator[Choices]:
    """In order of its options' dollars, made as it is asked for; the `needs` of each stage ascend in them."""

    def at(places: Sequence[int]) -> Choices:
        return tuple(of[n] for of, n in zip(needs, places, strict=True))

    first = (0,) * len(needs)
    heap = [(least_usd_per_hour(at(first)), first)]
    seen = {first}
    while heap:
        _, places = heapq.heappop(heap)
        yield at(places)
        for stage, n in enumerate(places):
            after = (*places[:stage], n + 1, *places[stage + 1 :])
            if n + 1 < len(needs[stage]) and after not in seen:
                seen.add(after)
                heapq.heappush(heap, (least_usd_per_hour(at(after)), after))
