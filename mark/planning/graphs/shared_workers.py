"""Workers of each stage on an instance that stages share: a fixed number by its type, as a pod has containers.

Servers, each for its own instance, and the buyer compute them from the pipeline's file. No code here is compiled.
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
    """Return the workers of each stage; None if one of each does not fit.

    `alone` are the stages on such an instance by themselves, `calls` the calls of a query.
    """
    worker_rps = [
        one.capacity_rps / one.workers / each if each > 0.0 else math.inf
        for one, each in zip(alone, calls, strict=True)
    ]
    return workers_on_one(placements, worker_rps)


def workers_on_one(placements: Sequence[Placement], worker_rps: Sequence[float]) -> tuple[int, ...] | None:
    """Return the workers of each stage on one instance that give the most queries/s.

    `worker_rps` (queries/s) is the rate of one worker of each stage, infinite if no query calls it; `placements` are
    the workers' shares. None if one of each does not fit. The stage with the lowest rate gets one more as long as there
    is room; then the others get the rest in the same way. That is the best: for a rate all stages need at least
    ceil(rate / worker_rps) workers, and the steps on the way to it give exactly these.
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
