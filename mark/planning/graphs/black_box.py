"""A pipeline as one black box (InferLine, SoCC '20, section 6): replicated as a unit, with one batch size."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from mark.domain.arrays import FloatArray
from mark.domain.errors import BadInput, Infeasible
from mark.domain.pipeline import Pipeline
from mark.domain.rules.admission import TOLERANCE_S
from mark.domain.slo import Slo
from mark.planning.graphs.critical_paths import longest_path_s
from mark.planning.graphs.envelope import most_within
from mark.planning.graphs.estimate import Choices, QuerySample, StageChoice, StageOption
from mark.planning.graphs.tuner import Replicas


def coarse_plan(
    pipeline: Pipeline,
    sample: QuerySample,
    options: Sequence[Sequence[StageOption]],
    slo: Slo,
    *,
    by: str,
) -> tuple[StageChoice, ...]:
    """Return enough units for the sample's rate: `by` "mean" or "peak", the highest rate in windows of one RT_max.

    A unit has one replica of each stage, each on its fastest hardware, and the largest batch (a power of two) with
    which the longest path of a full batch keeps within RT_max. Raises Infeasible if even a batch of one takes longer.
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
    unit = tuple(StageChoice(option, batch, 1) for option in fastest)
    units = max(1, math.ceil(_queries_per_s(sample, slo, by) / _most_queries_per_s(sample, unit)))
    return tuple(StageChoice(option, batch, units) for option in fastest)


@dataclass(frozen=True, slots=True)
class CoarseTuner:
    """A tuner that scales all stages alike, so that they can serve the mean rate of the last half minute.

    It stands for "the scaling algorithm introduced in AutoScale", which InferLine's section 6 takes for its baseline
    and does not print. It reacts to a load only after the load has come, and keeps replicas for two minutes after they
    were last needed, as AutoScale (ACM TOCS 30(4), 2012) does by default.
    """

    planned: Replicas
    queries_per_s: float  # the highest rate of the planned replicas
    recent_s: float = 30.0
    held_s: float = 120.0

    @classmethod
    def of(cls, sample: QuerySample, choices: Choices) -> CoarseTuner:
        """Return the tuner of a configuration that was planned on this sample."""
        return cls(tuple(choice.replicas for choice in choices), _most_queries_per_s(sample, choices))

    def begin(self) -> tuple[tuple[float, float], ...]:
        """Return the rates (queries/s) that still count, each with the time it was seen (s)."""
        return ()

    def step(
        self, state: tuple[tuple[float, float], ...], arrivals_s: FloatArray, now_s: float
    ) -> tuple[Replicas, tuple[tuple[float, float], ...]]:
        """See `mark.planning.graphs.tuner.Tuner`."""
        rate = (len(arrivals_s) - int(np.searchsorted(arrivals_s, now_s - self.recent_s))) / self.recent_s
        rates = (*(one for one in state if one[0] > now_s - self.held_s), (now_s, rate))
        share = max(rate for _, rate in rates) / self.queries_per_s
        return tuple(max(1, math.ceil(replicas * share - 1e-9)) for replicas in self.planned), rates


def _most_queries_per_s(sample: QuerySample, choices: Choices) -> float:
    """Return the highest rate of queries that the slowest stage serves in full batches."""
    return min(
        choice.workers * choice.batch / float(choice.option.service_s[choice.batch]) / float(calls)
        for choice, calls in zip(choices, sample.calls.mean(axis=0), strict=True)
        if calls > 0.0
    )


def _queries_per_s(sample: QuerySample, slo: Slo, by: str) -> float:
    arrivals_s = np.sort(sample.arrivals_s)
    if by == "mean":
        return len(arrivals_s) / max(float(np.ptp(arrivals_s)), slo.rt_max_s)
    if by == "peak":
        window_s = slo.rt_max_s - TOLERANCE_S  # two arrivals one RT_max apart never share a window
        return float(most_within(arrivals_s, np.array([window_s]))[0]) / slo.rt_max_s
    raise BadInput('must be "mean" or "peak"', "by", by)
