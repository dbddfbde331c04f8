"""Small pipelines to plan, and the cheapest plan of each by looking at all of them."""

from __future__ import annotations

import itertools

import numpy as np

from mark.domain.pipeline import Pipeline, PipelineStage
from mark.domain.slo import Slo
from mark.pipelines.estimate import PipelineEstimator, QuerySample, StageChoice, StageOption


def chain(*names: str) -> Pipeline:
    """Each stage after the one before."""
    return Pipeline(tuple(PipelineStage(name, name, names[n - 1 : n] if n else ()) for n, name in enumerate(names)))


def option(
    hardware: str, usd_per_hour: float, fixed_s: float, each_s: float, largest: int = 4, workers: int = 1
) -> StageOption:
    """A batch of b takes `fixed_s` + b x `each_s`."""
    times_s = np.array([0.0, *(fixed_s + each_s * b for b in range(1, largest + 1))])
    return StageOption(hardware, usd_per_hour, times_s, workers)


def traffic(queries: int, rate: float, cv: float, shares: tuple[float, ...], seed: int) -> QuerySample:
    """Gamma arrivals (`cv` is sigma / mu); each stage is visited by itself, by that share of the queries."""
    rng = np.random.default_rng(seed)
    arrivals_s = np.cumsum(rng.gamma(1.0 / cv**2, cv**2 / rate, size=queries))
    return QuerySample(arrivals_s, (rng.random((queries, len(shares))) < shares).astype(np.int64))


def cheapest(
    pipeline: Pipeline, sample: QuerySample, options: list[list[StageOption]], slo: Slo, most_replicas: int
) -> float:
    """Dollars per hour, of every hardware, batch (of powers of two) and number of replicas up to that."""
    estimator = PipelineEstimator(pipeline, sample, slo_s=slo.rt_max_s)
    choices = [
        [
            StageChoice(one, batch, replicas)
            for one in offered
            for batch in (1, 2, 4, 8)
            if batch <= one.largest_batch
            for replicas in range(1, most_replicas + 1)
        ]
        for offered in options
    ]
    for tried in sorted(itertools.product(*choices), key=lambda tried: sum(one.usd_per_hour for one in tried)):
        if estimator.feasible(tried, slo.attainment):
            return sum(one.usd_per_hour for one in tried)
    raise AssertionError("nothing is feasible")
