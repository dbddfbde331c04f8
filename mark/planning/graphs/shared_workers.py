"""Workers of each stage on an instance that stages share: a fixed number by its type, as a pod has containers.

A server knows it of its own instance by the pipeline's file, as does whatever buys that. Nothing here is compiled.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from mark.domain.profile import Candidate
from mark.planning.graphs.packing import Placement

_EXACT = 1e-9


def workers_together(
    placements: Sequence[Placement], alone: Sequence[Candidate], calls: Sequence[float]
) -> tuple[int, ...] | None:
    """Workers of each stage: `alone` are the stages on such an instance by themselves, `calls` those of a query.

    None where there is no room for one of each.
    """
    worker_rps = [
        one.capacity_rps / one.workers / each if each > 0.0 else math.inf
        for one, each in zip(alone, calls, strict=True)
    ]
    return workers_on_one(placements, worker_rps)


def workers_on_one(placements: Sequence[Placement], worker_rps: Sequence[float]) -> tuple[int, ...] | None:
    """Workers of each stage on one instance, so that the queries/s of all of them are as many as possible.

    `worker_rps` (queries/s) is what one worker of each stage can do, infinite where no query calls it; `placements`
    what it takes. None where there is no room for one of each. The stage that can do the fewest has one more as long as
    there is room; what is left then is for the others, in the same way. That is the best: for a rate all stages need at
    least ceil(rate / worker_rps) workers, and these are what the steps on the way to it give.
    """
    host = placements[0].host
    vcpus = host.vcpus + _EXACT - sum(one.vcpus for one in placements)
    gpus = host.gpus + _EXACT - sum(one.gpus for one in placements)
    if vcpus < 0.0 or gpus < 0.0:
        return None
    workers = [1] * len(placements)
    growing = [at for at, rps in enumerate(worker_rps) if rps < math.inf]
    while growing:
        least = min(growing, key=lambda at: workers[at] * worker_rps[at])
        takes = placements[least]
        if takes.vcpus <= vcpus and takes.gpus <= gpus:
            workers[least] += 1
            vcpus, gpus = vcpus - takes.vcpus, gpus - takes.gpus
        else:
            growing.remove(least)
    return tuple(workers)
