"""A lower bound on the bill of any fleet that follows a load: the bound of these pipelines, with functions."""

from __future__ import annotations

from collections.abc import Sequence

from mark.domain.ec2_limits import UNBILLED_PENDING_S
from mark.domain.offer import Catalog, Delay, Market, Offer
from mark.domain.pipeline import Pipeline
from mark.domain.profile import Candidate, Profile, ProfileRow
from mark.domain.service import FunctionUse, ResolvedService, ServiceConfig
from mark.domain.slo import Slo
from mark.planning.bounds.pipeline_bound import PipelineBound, PipelineBoundProblem, pipeline_bound
from mark.planning.graphs.estimate import QuerySample, StageOption
from mark.profiling.policy import candidate
from mark_papers.inferline.pipelines import options_of
from mark_papers.inferline.workloads import ChangingLoad

_PRICES = "unit prices"


def following_bound(
    pipeline: Pipeline,
    load: ChangingLoad,
    slo: Slo,
    functions: Sequence[FunctionUse | None],
    activation_s: float,
) -> PipelineBound:
    """Return a lower bound on the bill of serving the load with as many late queries as the promise allows.

    It allows any hardware of the pipeline's stages, in fractions, and knows all queries in advance. A replica is paid
    for during its activation, as in a tuned run, and the first fleet exists from the start. Batches are the largest
    that fit.
    """
    served = load.served
    shifted = QuerySample(served.arrivals_s - load.begin_s, served.calls)
    stages = [
        service_of(options, use, slo, activation_s)
        for options, use in zip(options_of(pipeline), functions, strict=True)
    ]
    problem = PipelineBoundProblem.of_sample(pipeline, shifted, stages, slo, end_s=load.end_s - load.begin_s)
    return pipeline_bound(problem, (1.0 - slo.attainment) * len(served.arrivals_s))


def service_of(
    options: Sequence[StageOption], use: FunctionUse | None, slo: Slo, activation_s: float
) -> ResolvedService:
    """Return a stage as a separate service, which pays for a replica `activation_s` before it serves.

    EC2 does not bill the first seconds of a boot, and neither does the bound, so boots are longer by those seconds.
    """
    boot = Delay(activation_s + UNBILLED_PENDING_S, activation_s + UNBILLED_PENDING_S)
    sold: list[tuple[Offer, Candidate]] = []
    profiles: dict[str, Profile] = {}
    for one in options:
        profile = profiles[one.hardware] = Profile(
            "m", one.hardware, tuple(ProfileRow(b, 1e3 * float(s)) for b, s in enumerate(one.service_s) if b)
        )
        found = candidate(profile, slo)
        if isinstance(found, Candidate):
            sold.append((Offer(one.hardware, Market.ON_DEMAND, one.usd_per_hour, boot=boot, vcpu=1.0), found))
    offers = tuple(offer for offer, _ in sold)
    names: tuple[str, ...] = ()
    if use is not None:
        names = (use.offer.name,)
        profiles[use.offer.name] = Profile("m", use.offer.name, (ProfileRow(1, 1e3 * use.warm_s),))
    return ResolvedService(
        ServiceConfig("stage", "m", slo, _PRICES, (Market.ON_DEMAND,), ("*",), 10_000, 1e6, names),
        Catalog(_PRICES, offers, () if use is None else (use.offer,)),
        offers,
        tuple(one for _, one in sold),
        use,
        profiles=profiles,
    )
