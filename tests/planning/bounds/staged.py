"""Pipelines of tests as inputs of the bound: each stage is a separate service."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from mark.domain.function_offer import FunctionOffer
from mark.domain.offer import Catalog, Delay, Market, Offer
from mark.domain.pipeline import Pipeline
from mark.domain.profile import Candidate, Profile, ProfileRow
from mark.domain.service import FunctionUse, ResolvedService, ServiceConfig
from mark.domain.slo import Slo
from mark.planning.bounds.pipeline_bound import PipelineBoundProblem
from mark.planning.graphs.estimate import QuerySample, StageOption
from mark.planning.graphs.stage_options import InstanceOption, shared_options, shared_stages
from mark.profiling.policy import candidate
from tests.planning.graphs.planned import anything_small, chain, option, traffic


def anything_sold(seed: int) -> tuple[Pipeline, QuerySample, list[list[StageOption]], Slo]:
    """Return `anything_small` with a price above zero for each offer."""
    pipeline, sample, options, slo = anything_small(seed)
    sold = [[replace(one, usd_per_hour=max(one.usd_per_hour, 0.01)) for one in of] for of in options]
    return pipeline, sample, sold, slo


def even(queries: int, rate: float, *calls: int) -> QuerySample:
    """Return arrivals at equal distances."""
    return QuerySample(np.arange(queries) / rate, np.tile(calls, (queries, 1)).astype(np.int64))


def stage_of(
    options: Sequence[StageOption], slo: Slo, *, function: tuple[float, float] | None = None, boot_s: float = 180.0
) -> ResolvedService:
    """Return a stage of on-demand options, and a function of ($ per call, seconds a call)."""
    offers, candidates, profiles = [], [], {}
    for one in options:
        rows = [ProfileRow(b, 1e3 * float(one.service_s[b]), workers=one.workers) for b in range(1, len(one.service_s))]
        profile = Profile("m", one.hardware, tuple(rows))
        found = candidate(profile, slo)
        if isinstance(found, Candidate):
            offers.append(Offer(one.hardware, Market.ON_DEMAND, one.usd_per_hour, boot=Delay(boot_s, boot_s), vcpu=2.0))
            candidates.append(found)
            profiles[one.hardware] = profile
    functions: tuple[FunctionOffer, ...] = ()
    use: FunctionUse | None = None
    names: tuple[str, ...] = ()
    if function is not None:
        usd, call_s = function
        functions = (FunctionOffer(1024, 0.0, usd * 1e6, 1.0, 1000, 1000.0, 300.0),)
        names = (functions[0].name,)
        profiles[names[0]] = Profile("m", names[0], (ProfileRow(1, 1e3 * call_s),))
        use = FunctionUse(functions[0], call_s, 0.0, "assumed")
    service = ServiceConfig("s", "m", slo, "c", (Market.ON_DEMAND,), ("*",), 100, 100.0, names)
    return ResolvedService(
        service, Catalog("c", tuple(offers), functions), tuple(offers), tuple(candidates), use, profiles=profiles
    )


def problem_of(
    pipeline: Pipeline,
    sample: QuerySample,
    stages: Sequence[ResolvedService],
    slo: Slo,
    *,
    end_s: float | None = None,
    warm_start: bool = True,
) -> PipelineBoundProblem:
    """Return a problem; by default its part ends when all requests that are in time are answered."""
    end_s = float(sample.arrivals_s.max()) + slo.rt_max_s if end_s is None else end_s
    return PipelineBoundProblem.of_sample(pipeline, sample, stages, slo, end_s=end_s, warm_start=warm_start)


def sharing(seed: int) -> tuple[PipelineBoundProblem, list[list[StageOption]], Slo]:
    """Return two stages, the first on processors and the second on a GPU as well, which has three spare vCPUs.

    The problem at the prices of their parts, and their options by the worker.
    """
    rng = np.random.default_rng(seed)
    slo = Slo(float(rng.choice([0.15, 0.3])), 0.95)
    each_s = float(rng.choice([0.004, 0.02, 0.05]))
    options = [
        [option("small", 0.1, 0.002, each_s, 2, workers=2), option("gpu", 0.6, 0.002, 1.2 * each_s, 2, workers=4)],
        [option("small", 0.1, 0.01, 0.06, 2, workers=1), option("gpu", 0.6, 0.01, 0.005, 4)],
    ]
    sizes = {"small": (2.0, 0), "gpu": (4.0, 1)}
    stages = []
    for of in options:
        stage = stage_of(of, slo)
        offers = [replace(o, vcpu=vcpus, gpus=gpus) for o in stage.offers for vcpus, gpus in [sizes[o.instance]]]
        stages.append(replace(stage, offers=tuple(offers)))
    without_gpu = [True, False]
    offered = [
        [
            InstanceOption(offer, candidate.profile, option)
            for offer, candidate in zip(stage.offers, stage.candidates, strict=True)
            for option in of
            if option.hardware == offer.instance
        ]
        for stage, of in zip(stages, options, strict=True)
    ]
    by_worker = [[one.option for one in of] for of in shared_options(offered, without_gpu)]
    pipeline, sample = chain("a", "b"), traffic(150, float(rng.choice([10.0, 60.0])), 1.5, (1.0, 0.7), seed)
    end_s = float(sample.arrivals_s.max()) + slo.rt_max_s
    problem = PipelineBoundProblem.of_sample(
        pipeline, sample, shared_stages(stages, without_gpu), slo, end_s=end_s, shared=True
    )
    return problem, by_worker, slo


def sample_of(problem: PipelineBoundProblem) -> QuerySample:
    return QuerySample(problem.arrivals_s, problem.calls[problem.pattern])
