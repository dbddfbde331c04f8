"""The best protection against slow instances: for each option, the smallest fixed fleet that keeps the promise.

Hedging sends a second copy of a late request (Dean and Barroso, The Tail at Scale, CACM 2013). Parity models
reconstruct a late answer from the answers to the other requests of its group (Kosaian et al., ParM, SOSP '19).
Replication sends every request twice.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache, partial
from typing import Any

import numpy as np

from mark.cloud.billing.extras import conductors_usd_per_hour
from mark.config.pipeline_config import LEAST_CONDUCTORS
from mark.config.pipeline_file import load_pipeline, names_pipeline
from mark.config.service_file import load_service
from mark.domain.arrays import FloatArray
from mark.domain.errors import BadInput, Infeasible
from mark.domain.faults import NO_FAULTS, Faults
from mark.domain.percent import exact_percent
from mark.domain.rules.admission import TOLERANCE_S
from mark.domain.service import ServiceConfig
from mark.domain.slo import Slo
from mark.domain.time import HOUR_S
from mark.insurance.insurance_settings import BEFORE_DEADLINE_S, DEGRADED, SUM, InsuranceSettings, ParitySettings
from mark.planning.policies.fixed import offer_named, without_functions
from mark.profiling.measure import mean_and_half_s
from mark.simulation.best_fixed import cheapest_of_one_type, fewest_that_keep
from mark.simulation.coded_flow import CodedFlow, coded_answers
from mark.simulation.fixed_run import FixedRun, fixed_run
from mark.simulation.inputs import Inputs, inputs_of, looked_up, trace_named_in
from mark.simulation.request import RunRequest
from mark.studies.executor import Share, StudyExecutor

NONE, INSTANCES, HEDGE, PARITY, REPLICATE = "none", "instances", "hedge", "parity", "replicate"
OPTIONS = (NONE, INSTANCES, HEDGE, PARITY, REPLICATE)  # of equal bills the first is advised, because it has fewer parts

GROUPS = (2, 3, 4)  # k of the coding groups that are tried
HEDGE_AFTER = (3.0, 2.0, 1.5, 1.2)  # times the time of a request; of equal fleets the latest, which has fewer copies
SHARES = (0.5, 2.0)  # factors of the slow share and of the hangs, with which the two cheapest options are tried again
MOST_REQUESTS = 10_000_000  # of a part, because every answer is kept in memory
_MOST_SLOW = 0.95
_SAME_TAIL = 1.01  # values of p99.9 that differ by less are equal
_SAMPLE = 300_000  # requests on which fleets are tried before the whole part
_BLOCKS, _BLOCK_S, _BLOCK_TIMES = 20, 10.0, 20.0  # least number of sample blocks; their length in s and in RT_max
_SURE = 2.0  # intervals below the promise: a fleet that misses it by so much on the sample misses it on the part
_PARITY_SEED = 7919  # added to the seed, so that a second fleet has its own slow periods
_KEPT_RUNS = 4
_NONE_OF = 3.0  # the rule of three: n requests in time leave room for a late share of 3 / n (95 %)
FEWEST_PERIODS = 10.0  # slow periods or hangs of the advised fleet; a part with fewer says little about them


@dataclass(frozen=True, slots=True)
class InsuredFleet:
    """One option with one fleet, simulated on the whole part.

    `instances` serve every request, `parity_instances` the calls of the parity model, or the copies of a replication.
    `half_interval` is half the width of the 95 % interval of `attainment`. `worse` is true if the same instances
    without the option have a lower p99.9 or fewer late requests.
    """

    option: str
    settings: Mapping[str, Any]
    instances: int
    parity_instances: int
    usd: float  # for the part
    attainment: float
    half_interval: float
    keeps: bool
    degraded: float  # the share of the requests that a reconstruction answered
    p999_s: float
    worse: bool = False
    accuracy: float | None = None
    parity_busy: float | None = None  # the share of the time in which the second fleet works

    @property
    def able(self) -> bool:
        """Whether this fleet may be advised."""
        return self.keeps and not self.worse

    @property
    def deployed(self) -> int:
        return self.instances + self.parity_instances

    def in_doubt(self, slo: Slo) -> bool:
        """Return whether the promise lies within the interval of the attainment."""
        return abs(self.attainment - slo.attainment) <= self.half_interval

    def surely_misses(self, slo: Slo) -> bool:
        """Return whether the promise lies far above the interval."""
        return self.attainment + _SURE * self.half_interval < slo.attainment


@dataclass(frozen=True, slots=True)
class OtherShare:
    """The two cheapest options again, with the slow share and the hangs multiplied by `times`."""

    times: float
    slow_share: float
    options: tuple[InsuredFleet, ...]

    @property
    def advised(self) -> InsuredFleet | None:
        return _cheapest(self.options)


@dataclass(frozen=True, slots=True)
class Insurance:
    """The result of `mark insure`. `options` are in the order of OPTIONS, without unavailable ones."""

    service: str
    offer: str
    slo: Slo
    faults: Faults
    routing: str
    requests: int
    duration_s: float
    request_s: float  # the time of one request on the offer
    priced: str
    read: str
    options: tuple[InsuredFleet, ...]
    others: tuple[OtherShare, ...] = ()
    leaves_out_crashes: bool = False  # the service has them, and nothing would replace an instance in these runs

    @property
    def advised(self) -> InsuredFleet | None:
        """The cheapest fleet that keeps the promise; None if no option does."""
        return _cheapest(self.options)

    def fault_periods(self, fleet: InsuredFleet) -> float:
        """Return the expected number of slow periods and hangs of a fleet's instances during the part."""
        faults = self.faults
        rate = faults.slow_share / faults.slow_s / faults.host_group if faults.slows else 0.0
        hangs = faults.hangs_per_hour / HOUR_S if faults.hangs else 0.0
        return (rate + hangs) * fleet.instances * self.duration_s

    def of(self, option: str) -> InsuredFleet | None:
        return next((one for one in self.options if one.option == option), None)

    def agrees(self, other: OtherShare) -> bool:
        """Return whether the same option is advised there."""
        mine, theirs = self.advised, other.advised
        return mine is not None and theirs is not None and mine.option == theirs.option


def insure(request: RunRequest, instance: str | None = None, *, executor: StudyExecutor) -> Insurance:
    """Find the smallest fleet of each option for the request's trace and service, on one instance type.

    The type is `instance`, or by default the one whose smallest fleet of calm instances costs least. Raises BadInput,
    and Infeasible if calm instances do not keep the promise in any number.
    """
    inputs = _opened(request, 1.0)
    requests = len(_arrivals(inputs))
    if not requests:
        what = "has no request in this part: choose another one with --start and --duration"
        raise BadInput(what, request.trace)
    if instance is not None:
        resolved = without_functions(inputs.resolved, [offer_named(instance, inputs.resolved, where="--instance")])
        inputs = replace(inputs, resolved=resolved)
    calm = cheapest_of_one_type(_with_faults(inputs, NO_FAULTS))
    slo = inputs.resolved.slo
    if calm is None:
        promise = f"{exact_percent(slo.attainment, 2)} within {slo.rt_max_s * 1e3:g} ms"
        what = f"no fixed fleet keeps {promise}, even if no instance is slow"
        raise Infeasible(f"{what}: allow a larger slo_ms, or faster instances")
    task = _Task(replace(request, progress=None), *calm)
    tasks = [replace(task, options=options) for options in ((NONE, INSTANCES, PARITY, REPLICATE), (HEDGE,))]
    found = {one.option: one for part in executor.map(_options_of, tasks, request.progress) for one in part}
    options = tuple(found[name] for name in OPTIONS if name in found)
    faults = inputs.service.faults
    names = tuple(one.option for one in sorted((one for one in options if one.able), key=_order)[:2])
    again = [replace(task, options=names, times=times) for times in SHARES] if faults.any and names else []
    others = tuple(
        OtherShare(one.times, _times(faults, one.times).slow_share, tuple(part))
        for one, part in zip(again, executor.map(_options_of, again), strict=True)
    )
    offer, able = offer_named(calm[0], inputs.resolved)
    return Insurance(
        service=inputs.service.name,
        offer=offer.name,
        slo=slo,
        faults=faults,
        routing=inputs.service.routing,
        requests=requests,
        duration_s=inputs.duration_s,
        request_s=float(able.service_s[1]) + able.overhead_s,
        priced=inputs.resolved.catalog.priced,
        read=inputs.trace.read,
        options=options,
        others=others,
        leaves_out_crashes=looked_up(_service(request)[0], request).service.faults.crashes,
    )


def most_instances(calm: int) -> int:
    """Return the largest fleet that is tried. Replication takes about twice the calm instances, so more never pay."""
    return 4 * calm + 8


@dataclass(frozen=True, slots=True)
class _Task:
    """A search for the smallest fleet of each of some options, in one process."""

    request: RunRequest
    offer: str
    calm: int  # instances that keep the promise if all are calm
    options: tuple[str, ...] = ()
    times: float = 1.0  # factor of the faults


def _options_of(task: _Task, progress: Share | None = None) -> list[InsuredFleet]:
    _, insurance = _service(task.request)
    fleets = InsuredFleets(_opened(task.request, task.times), task.offer, task.calm, insurance)
    found = []
    for place, option in enumerate(task.options, start=1):
        if (one := fleets.smallest(option)) is not None:
            found.append(one)
        if progress is not None:
            progress(place / len(task.options))
    return found


@dataclass(frozen=True, slots=True)
class _Variant:
    """A way to run an option, by the number of instances. With `group`, a second fleet has one for each such group."""

    run: Callable[[InsuredFleets, int], InsuredFleet]
    group: int | None = None

    def deployed(self, instances: int) -> int:
        return instances if self.group is None else instances + -(-instances // self.group)


class InsuredFleets:
    """Fleets of one offer under each option, simulated on one part of a trace.

    `arrivals_s` are the arrivals of the part by default. If the part has at least twice `sample` requests, a sample of
    that size decides which fleets are worth a run on the whole part.
    """

    def __init__(
        self,
        inputs: Inputs,
        offer: str,
        calm: int,
        insurance: InsuranceSettings | None = None,
        arrivals_s: FloatArray | None = None,
        *,
        sample: int = _SAMPLE,
    ) -> None:
        self._inputs, self._offer, self._calm = inputs, offer, calm
        self._slo = inputs.resolved.slo
        _, self._able = offer_named(offer, inputs.resolved)
        self._arrivals_s = _arrivals(inputs) if arrivals_s is None else arrivals_s
        block_s = max(_BLOCK_S, _BLOCK_TIMES * self._slo.rt_max_s)
        every = min(len(self._arrivals_s) // sample, int(inputs.duration_s / (_BLOCKS * block_s)))
        self._sample: InsuredFleets | None = None
        if every > 1:
            times_s, end_s = sample_of(self._arrivals_s, inputs.duration_s, block_s, every)
            sampled = replace(inputs, end_s=inputs.start_s + end_s)
            self._sample = InsuredFleets(sampled, offer, calm, insurance, times_s, sample=len(times_s) + 1)
        self._most = most_instances(calm)
        self._own: dict[int, FixedRun] = {}
        # The service file's settings of parity models: their accuracy, and when reconstructions answer.
        self._said = (
            InsuranceSettings(after_s=max(0.0, self._slo.rt_max_s - BEFORE_DEADLINE_S), fill_s=None)
            if insurance is None
            else insurance
        )

    def smallest(self, option: str) -> InsuredFleet | None:
        """Return the smallest fleet that may be advised, otherwise the one with the highest attainment.

        None if the option is not available: a balancer sends no second copies.
        """
        if option == NONE:
            return self.unprotected(self._calm)
        if option == INSTANCES:
            return self._smallest([_Variant(partial(InsuredFleets.unprotected, option=INSTANCES))])
        if option == HEDGE:
            delays_s = [times * self.request_s for times in HEDGE_AFTER]
            in_time = [after_s for after_s in delays_s if after_s < self._slo.rt_max_s - TOLERANCE_S]
            if self._inputs.service.routing == "alb" or not in_time:
                return None
            return self._smallest([_Variant(partial(InsuredFleets.hedged, after_s=after_s)) for after_s in in_time])
        if option == PARITY:
            # Existing parity models have one group size.
            groups = GROUPS if self._said.parity is None else (self._said.parity.k,)
            return self._smallest([_Variant(partial(InsuredFleets.protected, k=k), k) for k in groups])
        return self._smallest([_Variant(InsuredFleets.replicated, 1)])

    def unprotected(self, count: int, option: str = NONE) -> InsuredFleet:
        run = self._run(count)
        return self._fleet(option, {}, count, run.answer_s, run.usd)

    def hedged(self, count: int, after_s: float) -> InsuredFleet:
        """Simulate a second copy, on another instance, of each request that is not answered after `after_s`."""
        run = fixed_run(self._inputs, self._offer, count, self._arrivals_s, hedge_after_s=after_s)
        settings = {"hedge_after_ms": round(after_s * 1e3, 3)}
        found = self._fleet(HEDGE, settings, count, run.answer_s, run.usd)
        without = self.unprotected(count)
        worse = found.attainment < without.attainment or found.p999_s > _SAME_TAIL * without.p999_s
        return replace(found, worse=worse)

    def protected(self, count: int, k: int) -> InsuredFleet:
        """Simulate parity models with one instance for each k instances of the model, as in the paper."""
        slo, parities = self._slo, -(-count // k)
        said = self._said.parity
        coded = said if said is not None and said.k == k else ParitySettings(SUM, k)
        settings = replace(self._said, parity=coded, accept=DEGRADED)
        own = self._run(count)
        capacity_rps = parities * self._able.ceiling_rps
        flow = CodedFlow(settings, slo.rt_max_s, self._arrivals_s, lambda _: capacity_rps)
        runs: list[FixedRun] = []

        def parity(times_s: FloatArray, limits_s: FloatArray) -> FloatArray:
            runs.append(fixed_run(_seeded(self._inputs, len(runs) + 1), self._offer, parities, times_s, limits_s))
            return runs[-1].answer_s

        answers = coded_answers(flow, lambda times_s, limits_s: own.answer_s, [parity] * coded.r)
        usd = own.usd + sum(run.instances_usd for run in runs) + self._premium_usd()
        fill_ms = (
            "auto" if settings.fill_s is None else settings.fill_s * 1e3 if settings.fill_s < math.inf else "never"
        )
        shown = {"code": coded.code, "k": k, "r": coded.r, "after_ms": settings.after_s * 1e3, "fill_ms": fill_ms}
        answered_s = self._arrivals_s + answers.latency_s
        found = self._fleet(PARITY, shown, count, answered_s, usd, parities * coded.r)
        degraded = answers.reconstructed / len(self._arrivals_s)
        accuracy = None
        if coded.available_accuracy is not None and coded.degraded_accuracy is not None:
            accuracy = (1.0 - degraded) * coded.available_accuracy + degraded * coded.degraded_accuracy
        return replace(found, degraded=degraded, accuracy=accuracy, parity_busy=max(run.busy_share for run in runs))

    def replicated(self, count: int) -> InsuredFleet:
        """Simulate a second fleet of the same size that gets every request too."""
        own = self._run(count)
        other = fixed_run(_seeded(self._inputs, 1), self._offer, count, self._arrivals_s)
        usd = own.usd + other.instances_usd + self._premium_usd()
        answer_s = np.minimum(own.answer_s, other.answer_s)
        found = self._fleet(REPLICATE, {"copies": 2}, count, answer_s, usd, count)
        return replace(found, parity_busy=other.busy_share)

    @property
    def request_s(self) -> float:
        return float(self._able.service_s[1]) + self._able.overhead_s

    def _smallest(self, variants: Sequence[_Variant]) -> InsuredFleet:
        """Return the smallest fleet that may be advised, over all variants; a later variant must need fewer instances.

        Otherwise return the largest fleet of the variant that comes closest.
        """
        best: InsuredFleet | None = None
        largest = []
        for variant in variants:
            fleet = cache(partial(variant.run, self))
            sampled = fleet if self._sample is None else cache(partial(variant.run, self._sample))
            able = partial(_able, fleet, sampled, self._slo)
            fewer = (
                self._most if best is None else bisect_left(range(self._most), best.deployed, key=variant.deployed) - 1
            )
            if fewer < 1:
                continue
            largest.append((sampled(fewer), fleet, fewer))
            # If the largest fleet is not able, more capacity does not help.
            if not sampled(fewer).able and not able(fewer):
                continue
            first = self._calm if best is None else best.instances
            guess = fewest_that_keep(partial(_able, sampled, sampled, self._slo), 1, first, fewer)
            count = fewest_that_keep(able, 1, guess or fewer, fewer)
            best = best if count is None else fleet(count)
        if best is not None:
            return best
        _, fleet, count = max(largest, key=lambda one: (not one[0].worse, one[0].attainment, -one[0].deployed))
        return fleet(count)

    def _run(self, count: int) -> FixedRun:
        """Simulate the fleet without protection; the last runs used are kept."""
        run = self._own.pop(count, None)
        if run is None:
            run = fixed_run(self._inputs, self._offer, count, self._arrivals_s)
            if len(self._own) >= _KEPT_RUNS:
                del self._own[next(iter(self._own))]
        self._own[count] = run
        return run

    def _premium_usd(self) -> float:
        """Return the dollars of conductors, and of the balancer between them and the instances."""
        return conductors_usd_per_hour(LEAST_CONDUCTORS) * self._inputs.duration_s / HOUR_S

    def _fleet(
        self,
        option: str,
        settings: Mapping[str, Any],
        count: int,
        answer_s: FloatArray,
        usd: float,
        parity_instances: int = 0,
    ) -> InsuredFleet:
        latency_s = answer_s - self._arrivals_s
        in_time = latency_s <= self._slo.rt_max_s + TOLERANCE_S
        attainment, half = mean_and_half_s(in_time.astype(np.float64))
        half = max(half, _NONE_OF / len(in_time))
        return InsuredFleet(
            option=option,
            settings=settings,
            instances=count,
            parity_instances=parity_instances,
            usd=usd,
            attainment=attainment,
            half_interval=half,
            keeps=attainment >= self._slo.attainment,
            degraded=0.0,
            p999_s=float(np.quantile(latency_s, 0.999)),
        )


def _able(fleet: Callable[[int], InsuredFleet], sampled: Callable[[int], InsuredFleet], slo: Slo, count: int) -> bool:
    """Return whether the fleet may be advised, by the whole part unless the sample shows clearly that it misses."""
    return not sampled(count).surely_misses(slo) and fleet(count).able


def sample_of(arrivals_s: FloatArray, duration_s: float, block_s: float, every: int) -> tuple[FloatArray, float]:
    """Return the arrivals of one block in each `every`, and the end of the last one.

    The blocks are joined, so the load changes as on the whole part, but faster.
    """
    blocks = int(duration_s / (block_s * every))
    block, within_s = np.divmod(arrivals_s, block_s)
    cycle, place = np.divmod(block, every)
    taken = (place == every // 2) & (cycle < blocks)
    return cycle[taken] * block_s + within_s[taken], blocks * block_s


def _opened(request: RunRequest, times: float) -> Inputs:
    """Return the runs' inputs: no crashes, because nothing replaces an instance, and faults multiplied by `times`."""
    service, _ = _service(request)
    trace = trace_named_in(request)
    part = trace.part(request.start_s, request.duration_s, request.scale)
    inputs = inputs_of(request, looked_up(service, request), trace, part)
    expected = inputs.trace.total_counts(inputs.start_s, inputs.end_s, request.scale)
    if expected > MOST_REQUESTS:
        what = f"more than {MOST_REQUESTS:,} requests: choose a part with --start and --duration, its busiest hours"
        raise BadInput(what, request.trace, f"{expected:,.0f}")
    return _with_faults(inputs, _times(inputs.service.faults, times))


def _service(request: RunRequest) -> tuple[ServiceConfig, InsuranceSettings | None]:
    """Return the service without protection, and its parity models' settings. Raises BadInput for other pipelines."""
    if not names_pipeline(request.service):
        return load_service(request.service), None
    config = load_pipeline(request.service)
    if config.insured is None:
        raise BadInput("is a pipeline: a protected service has one model, [service] model", request.service)
    return config.insured, config.insurance


def _times(faults: Faults, times: float) -> Faults:
    return replace(
        faults, slow_share=min(_MOST_SLOW, times * faults.slow_share), hangs_per_hour=times * faults.hangs_per_hour
    ).without_crashes()


def _with_faults(inputs: Inputs, faults: Faults) -> Inputs:
    """Return the inputs with these faults, and without the hedging of the service file."""
    service = replace(inputs.service, faults=faults, hedge_after_s=math.inf)
    return replace(inputs, service=service, resolved=replace(inputs.resolved, service=service))


def _seeded(inputs: Inputs, fleet: int) -> Inputs:
    """Return the same inputs for another fleet, whose instances are slow at other times."""
    return replace(inputs, request=replace(inputs.request, seed=inputs.request.seed + fleet * _PARITY_SEED))


def _arrivals(inputs: Inputs) -> FloatArray:
    request = inputs.request
    chunks = inputs.trace.chunks(inputs.start_s, inputs.end_s, request.scale, request.seed)
    return np.concatenate([np.zeros(0), *(times_s for times_s, _ in chunks)])


def _order(one: InsuredFleet) -> tuple[float, int]:
    return one.usd, OPTIONS.index(one.option)


def _cheapest(options: Sequence[InsuredFleet]) -> InsuredFleet | None:
    return min((one for one in options if one.able), key=_order, default=None)
