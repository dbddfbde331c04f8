"""Small pipelines to plan, and the cheapest plan of each by a full search."""

from __future__ import annotations

import itertools
from dataclasses import replace

import numpy as np
from hypothesis import strategies as st

from mark.domain.pipeline import ALL, FIRST, Join, Pipeline, PipelineStage
from mark.domain.slo import Slo
from mark.planning.graphs.estimate import PipelineEstimator, QuerySample, StageChoice, StageOption, usd_per_hour
from mark.planning.graphs.packing import Host, Placement, resource_usd_per_hour


def chain(*names: str) -> Pipeline:
    """Return a pipeline in which each stage comes after the one before."""
    return Pipeline(tuple(PipelineStage(name, name, names[n - 1 : n] if n else ()) for n, name in enumerate(names)))


def any_graph(data: st.DataObject) -> Pipeline:
    """Draw up to five stages, each after any of those before it, with joins of every kind."""
    stages: list[PipelineStage] = []
    for n in range(data.draw(st.integers(1, 5))):
        after = tuple(one.name for one in stages if data.draw(st.booleans()))
        join = data.draw(st.sampled_from([Join(), FIRST, Join(1, 2.0), Join(2, 1.0)]))
        stages.append(PipelineStage(f"s{n}", "m", after, join))
    return Pipeline(tuple(stages))


def option(
    hardware: str, usd_per_hour: float, fixed_s: float, each_s: float, largest: int = 4, workers: int = 1
) -> StageOption:
    """Return an option whose batch of b takes `fixed_s` + b x `each_s`."""
    times_s = np.array([0.0, *(fixed_s + each_s * b for b in range(1, largest + 1))])
    return StageOption(hardware, usd_per_hour, times_s, workers)


def worker_on(host: Host, fixed_s: float, each_s: float, gpus: float = 0.0, vcpus: float = 1.0) -> StageOption:
    """Return an option of a worker on a shared instance, where a vCPU costs 0.05 elsewhere; batches have up to 4."""
    of_vcpu, of_gpu = resource_usd_per_hour(host, 0.05)
    alone = option(host.instance, vcpus * of_vcpu + gpus * of_gpu, fixed_s, each_s)
    return replace(alone, placement=Placement(host, vcpus, gpus))


def traffic(queries: int, rate: float, cv: float, shares: tuple[float, ...], seed: int) -> QuerySample:
    """Return gamma arrivals (`cv` is sigma / mu); each stage is visited independently, by that share of the queries."""
    rng = np.random.default_rng(seed)
    arrivals_s = np.cumsum(rng.gamma(1.0 / cv**2, cv**2 / rate, size=queries))
    return QuerySample(arrivals_s, (rng.random((queries, len(shares))) < shares).astype(np.int64))


def cheapest(
    pipeline: Pipeline, sample: QuerySample, options: list[list[StageOption]], slo: Slo, most_replicas: int
) -> float:
    """Return the least dollars per hour over hardware, batches (powers of two) and numbers of replicas up to that."""
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
    for tried in sorted(itertools.product(*choices), key=usd_per_hour):
        if estimator.feasible(tried, slo.attainment):
            return usd_per_hour(tried)
    raise AssertionError("nothing is feasible")


_SHAPES = ("", "a"), ("", ""), ("", "a", "b"), ("", "", "ab"), ("", "a", "a")  # by stage, its predecessors
_PRICES = (0.0, 0.05, 0.1, 0.7, 1.3)


def anything_small(seed: int) -> tuple[Pipeline, QuerySample, list[list[StageOption]], Slo]:
    """Draw a pipeline of two or three stages of all kinds, with a promise that it can keep."""
    rng = np.random.default_rng(seed)
    joins = ALL, FIRST, Join(1, 0.03)
    pipeline = Pipeline(
        tuple(
            PipelineStage(name, name, tuple(after), joins[rng.integers(3)] if len(after) > 1 else ALL)
            for name, after in zip("abc", _SHAPES[seed % len(_SHAPES)], strict=False)
        )
    )
    stages, queries = len(pipeline.stages), int(rng.integers(1, 60))
    bursts = (0.0, 1.0, 1.0, 4.0)[rng.integers(4)]
    gaps_s = rng.gamma(1.0 / bursts, bursts / 60.0, queries) if bursts else np.zeros(queries)
    visits = rng.random((queries, stages)) < rng.choice([0.02, 0.5, 1.0], stages)
    calls = visits * (rng.integers(1, 4, (queries, stages)) if rng.random() < 0.3 else 1)
    fixed_s, each_s = (0.002, 0.01, 0.03), (0.001, 0.005, 0.02)
    options = [
        [
            option(
                f"{kind}", float(rng.choice(_PRICES)), rng.choice(fixed_s), rng.choice(each_s), int(rng.integers(1, 5)),
                workers=int(rng.integers(1, 3)),
            )
            for kind in range(rng.integers(1, 4))
        ]
        for _ in range(stages)
    ]  # fmt: skip
    # Four replicas of the fastest option at each stage can keep it.
    slo = Slo(float(rng.choice([0.2, 0.4])) + 0.02 * queries * (not bursts), float(rng.choice([0.9, 0.95, 0.99])))
    return pipeline, QuerySample(np.cumsum(gaps_s), calls.astype(np.int64)), options, slo
