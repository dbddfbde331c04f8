"""A pipeline as one black box (InferLine, SoCC '20, section 6): replicated as a unit, with one batch size."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from mark.domain.errors import BadInput, Infeasible
from mark.domain.pipeline import Pipeline
from mark.domain.slo import Slo
from mark.pipelines.estimate import QuerySample, StageChoice, StageOption
from mark.pipelines.paths import longest_path_s
from mark.rules.admission import TOLERANCE_S


def coarse_plan(
    pipeline: Pipeline,
    sample: QuerySample,
    options: Sequence[Sequence[StageOption]],
    slo: Slo,
    *,
    by: str,
) -> tuple[StageChoice, ...]:
    """Units enough for the sample's rate: `by` "mean" or "peak", the highest in windows of one RT_max.

    A unit has one replica of each stage, each on its fastest hardware, and the largest batch (of powers of two) with
    which the longest path of a whole batch keeps within RT_max. Raises Infeasible where not even a batch of one does.
    """
    fastest = [min(offered, key=lambda option: option.service_s[1]) for offered in options]
    largest = min(option.largest_batch for option in fastest)
    fitting = [
        batch
        for batch in (1 << n for n in range(largest.bit_length()))
        if longest_path_s(pipeline, [float(option.service_s[batch]) for option in fastest])
        <= slo.rt_max_s + TOLERANCE_S
    ]
    if not fitting:
        raise Infeasible("the longest path takes more than RT_max on the fastest hardware")
    batch = fitting[-1]
    calls_per_query = sample.calls.mean(axis=0)
    queries_per_s = min(
        option.workers * batch / float(option.service_s[batch]) / calls
        for option, calls in zip(fastest, calls_per_query, strict=True)
        if calls > 0.0
    )
    units = max(1, math.ceil(_queries_per_s(sample, slo, by) / queries_per_s))
    return tuple(StageChoice(option, batch, units) for option in fastest)


def _queries_per_s(sample: QuerySample, slo: Slo, by: str) -> float:
    arrivals_s = np.sort(sample.arrivals_s)
    if by == "mean":
        return len(arrivals_s) / max(float(np.ptp(arrivals_s)), slo.rt_max_s)
    if by == "peak":
        within = np.searchsorted(arrivals_s, arrivals_s + slo.rt_max_s) - np.arange(len(arrivals_s))
        return float(within.max()) / slo.rt_max_s
    raise BadInput('must be "mean" or "peak"', "by", by)
