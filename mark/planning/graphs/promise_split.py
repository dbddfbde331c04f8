"""The cost of a whole pipeline's promise for a load, with RT_max split over its stages as is cheapest.

Each stage's cost falls in steps with its time (mark/planning/promise_cost.py), so that a split is a step of each: with
x[s, l] = 1 where stage s has step l, of t[s, l] seconds and c[s, l] dollars an hour, and e[k, s] the end of stage s for
queries of pattern k,

    minimise  sum c[s, l] x[s, l]   where   sum over l of x[s, l] = 1,
    e[k, s] >= e[k, p] + sum over l of t[s, l] x[s, l]   for each predecessor p of s,   and   e[k, s] <= RT_max;

a stage that the pattern does not visit takes no time. This holds if all joins wait for all their stages; pipelines with
other joins are split by mark/planning/graphs/latency_split.py.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from mark.domain.errors import Infeasible
from mark.domain.pipeline import Pipeline
from mark.domain.price_list import SHIFT_S, PromiseEstimate, promise_estimate
from mark.planning.graphs.latency_split import split_latency
from mark.planning.promise_cost import EPSILON_S, PromiseSteps
from mark.planning.solver.mixed_program import Constraint, solve_mixed

_MOST_NODES = 2000  # search nodes; after these the best split found is the estimate
_MS = 1e3  # because seconds would be close to the solver's tolerance


def split_usd_per_hour(
    pipeline: Pipeline, patterns: NDArray[np.int64], steps: Sequence[PromiseSteps], rt_max_s: float
) -> float:
    """Return the $/h of the cheapest split with no path of `patterns` (calls by stage) longer than RT_max.

    Infinite without a split. `steps` are of each stage at its own load.
    """
    visits = _longest(pipeline, patterns > 0)
    in_time = [
        sum(s <= rt_max_s + EPSILON_S for s in of.seconds) for of in steps
    ]  # steps that could be part of a split
    if not all(in_time):
        return math.inf
    if all(join_waits for join_waits, stage in zip(pipeline.awaits_all, pipeline.stages, strict=True) if stage.after):
        return _program(pipeline, visits, steps, in_time, rt_max_s)
    try:
        parts_s = split_latency(pipeline, visits, [of.usd_within for of in steps], rt_max_s)
    except Infeasible:
        return math.inf
    return sum(of.usd_within(part_s) for of, part_s in zip(steps, parts_s, strict=True))


def split_estimate(
    pipeline: Pipeline,
    patterns: NDArray[np.int64],
    steps: Sequence[PromiseSteps],
    rt_max_s: float,
    queries_per_s: float | None,
) -> PromiseEstimate:
    """Estimate for RT_max, and for `SHIFT_S` less and more, at a load of `queries_per_s`, which `steps` are made
    for.
    """
    return promise_estimate(
        queries_per_s, rt_max_s, SHIFT_S, lambda within_s: split_usd_per_hour(pipeline, patterns, steps, within_s)
    )


def _program(
    pipeline: Pipeline, visits: NDArray[np.int64], steps: Sequence[PromiseSteps], counts: Sequence[int], rt_max_s: float
) -> float:
    first = np.concatenate([[0], np.cumsum(counts)])  # index of each stage's first x; the ends stand behind all x
    size = int(first[-1]) + visits.size
    times_ms = [_MS * np.array(of.seconds[:n]) for of, n in zip(steps, counts, strict=True)]
    rows = [Constraint(range(first[s], first[s + 1]), [1.0] * n, 1.0, 1.0) for s, n in enumerate(counts)]
    for pattern, visited in enumerate(visits):
        ends = int(first[-1]) + pattern * len(visited)
        for stage, before in enumerate(pipeline.predecessors):
            own = list(range(first[stage], first[stage + 1])) if visited[stage] else []
            takes = (-times_ms[stage]).tolist() if visited[stage] else []
            for earlier in before or (None,):
                waits = ([], []) if earlier is None else ([ends + earlier], [-1.0])
                rows.append(Constraint([ends + stage, *waits[0], *own], [1.0, *waits[1], *takes], -1e-6))
    usd = np.concatenate([np.array(of.usd_per_hour[:n]) for of, n in zip(steps, counts, strict=True)])
    chosen = np.arange(size) < len(usd)
    cost = np.concatenate([usd, np.zeros(visits.size)])
    most = np.where(chosen, 1.0, _MS * (rt_max_s + EPSILON_S))
    found = solve_mixed(cost, chosen, most, rows, _MOST_NODES)
    return math.inf if found.values is None else float(usd @ np.round(found.values[: len(usd)]))


def _longest(pipeline: Pipeline, visits: NDArray[np.bool_]) -> NDArray[np.int64]:
    """Return the sets of visited stages that can be slowest: subsets of another are left out if all joins wait
    for all.
    """
    left = np.unique(visits, axis=0)
    if not all(pipeline.awaits_all):
        return left.astype(np.int64)
    kept = []
    while len(left):
        kept.append(most := left[left.sum(axis=1).argmax()])
        left = left[(left & ~most).any(axis=1)]
    return np.array(kept, dtype=np.int64)
