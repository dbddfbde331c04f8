"""Every combination of one choice per stage, the cheapest first."""

from __future__ import annotations

import heapq
from collections.abc import Iterator, Sequence

from mark.planning.graphs.estimate import Choices, StageChoice, least_usd_per_hour


def by_cost(needs: Sequence[Sequence[StageChoice]]) -> Iterator[Choices]:
    """Yield the combinations by the dollars of their options, lazily. The `needs` of each stage ascend in dollars."""

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
