"""Workers of several stages on one instance: of all that fit, those with which most queries are served."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence

from hypothesis import given
from hypothesis import strategies as st

from mark.planning.graphs.packing import Host, Placement
from mark.planning.graphs.shared_workers import workers_on_one

takes = st.sampled_from([(0.5, 0.0), (1.0, 0.0), (2.0, 0.0), (1.0, 0.5), (1.0, 1.0), (0.25, 0.25)])


@given(st.lists(st.tuples(takes, st.sampled_from([1.0, 3.0, 10.0, 25.0, math.inf])), min_size=1, max_size=3))
def test_no_other_workers_do_more_queries(stages: list[tuple[tuple[float, float], float]]) -> None:
    host = Host("gpu", 0.8, 5.0, 2.0)
    placements = [Placement(host, *taken) for taken, _ in stages]
    rps = [of_worker for _, of_worker in stages]

    def fits(workers: Sequence[int]) -> bool:
        return all(
            sum(n * getattr(one, of) for n, one in zip(workers, placements, strict=True)) <= getattr(host, of) + 1e-9
            for of in ("vcpus", "gpus")
        )

    every = [workers for workers in itertools.product(range(1, 21), repeat=len(stages)) if fits(workers)]
    found = workers_on_one(placements, rps)
    if found is None:
        assert not every
        return
    assert fits(found)
    least = [min(n * one for n, one in zip(workers, rps, strict=True)) for workers in every]
    assert min(n * one for n, one in zip(found, rps, strict=True)) == max(least)
    grows = [at for at, one in enumerate(rps) if one < math.inf]
    assert not any(fits([n + (at == more) for at, n in enumerate(found)]) for more in grows), "room is left"
