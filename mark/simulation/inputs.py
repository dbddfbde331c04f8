"""Look up and check the names in a request, and return the inputs of a run."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import numpy as np

from mark.cloud.ec2.spot_series import SpotSeries, load_spot_series
from mark.config.faults_section import load_faults
from mark.config.fleet import markets_of
from mark.config.service_file import load_service
from mark.domain.catalog.tables import check_types, load_catalog
from mark.domain.cells import is_file, not_a_file
from mark.domain.errors import BadInput
from mark.domain.function_offer import is_function
from mark.domain.load import Load
from mark.domain.offer import Catalog, Delay, Market, Offer
from mark.domain.profile import Profile
from mark.domain.service import ResolvedService, ServiceConfig, checked_tail, hedge_after_s
from mark.models.registry_place import pinned
from mark.planning.policies.target_tracking import first_step_rps
from mark.planning.resolve import affordable, resolve
from mark.profiling.version_profiles import service_profiles
from mark.simulation.request import RunRequest, Sensitivity
from mark.traffic.traces.bad_lines import BadLines
from mark.traffic.traces.in_units import counted_in
from mark.traffic.traces.reader import open_trace
from mark.traffic.traces.table_files import TableColumns
from mark.traffic.traces.trace import Part, Trace, drawn_load

_SAME_BEGIN = timedelta(minutes=1)


@dataclass(frozen=True, slots=True)
class Inputs:
    """Everything in a run that does not depend on the policy.

    `start_s` and `end_s` count from the trace's first row; loads, gaps and everything else in the run from `start_s`.
    """

    request: RunRequest
    service: ServiceConfig
    resolved: ResolvedService
    trace: Trace
    start_s: float
    end_s: float
    history: Load  # [start - train, start), scaled
    evaluated: Load  # expected load of the part, scaled
    spot: tuple[SpotSeries, ...]

    @property
    def duration_s(self) -> float:
        return self.end_s - self.start_s

    @property
    def gaps(self) -> tuple[tuple[float, float], ...]:
        """The missing spans; empty if they were filled."""
        if self.request.gaps != "bridge":
            return ()
        return tuple((begin - self.start_s, end - self.start_s) for begin, end in self.trace.gaps)

    @property
    def before_rps(self) -> float | None:
        """The rate of the last step before the part; None if the step or its rate is missing."""
        last = self.history.mean_rps[-1:]
        return float(last[0]) if len(last) and math.isfinite(last[0]) else None

    @property
    def known(self) -> Load:
        """The load that predictors learn from: the history, or without one the rate of the part's first step.

        Policies without forecasts size their first fleet by the same rate. If functions are in time, they serve until
        something is known.
        """
        if len(self.history) or self.resolved.functions_in_time:
            return self.history
        first_rps = np.array([first_step_rps(self.evaluated)])
        return replace(self.history, start_s=-self.history.step_s, mean_rps=first_rps, peak_rps=first_rps)

    def drawn(self) -> Load:
        """Return the load of the drawn arrivals, which is the perfect forecast."""
        request = self.request
        truth = drawn_load(self.trace, self.start_s, self.end_s, request.scale, request.seed)
        return replace(truth, start_s=0.0)


def open_service(request: RunRequest, *, model_files: bool = False) -> ResolvedService:
    """Return a request's service with catalogue and profiles, looked up and checked.

    With `model_files` the files of its registry versions are fetched too; planning needs only their profiles.
    """
    # A service with files is to be deployed.
    return looked_up(load_service(request.service, any_unit=not model_files), request, model_files=model_files)


def looked_up(service: ServiceConfig, request: RunRequest, *, model_files: bool = False) -> ResolvedService:
    """Return a service that has been read, with the request's changes, looked up and checked."""
    service = pinned(service, files=model_files)
    if request.catalog is not None:
        service = replace(service, catalog=request.catalog)
    if request.profile is not None:
        if request.profile != "paper" and not is_file(Path(request.profile)):
            raise BadInput(not_a_file(Path(request.profile)), "profile", request.profile)
        service = replace(service, profile_file=request.profile)
    if request.tail is not None:
        service = replace(service, tail=checked_tail(request.tail, "tail"))
    if request.markets is not None:
        service = replace(service, markets=markets_of(request.markets, "markets"))
    if request.faults is not None:
        service = replace(service, faults=load_faults(request.faults))
    if request.hedge_after_ms is not None:
        after_s = hedge_after_s(request.hedge_after_ms, service.routing, "hedge_after_ms")
        service = replace(service, hedge_after_s=after_s)
    if request.slo is not None:
        service = replace(service, slo=request.slo)
    catalog = load_catalog(service.catalog)
    if request.catalog is None:  # another catalogue may lack types of the file's own one
        check_types(service.instances, catalog, f"{service.source or service.name} [fleet] instances")
    profiles = service_profiles(service)
    if request.sensitivity != Sensitivity():
        catalog = _shifted_catalog(catalog, request.sensitivity)
        profiles = {
            model: {name: _shifted_profile(profile, request.sensitivity) for name, profile in by_instance.items()}
            for model, by_instance in profiles.items()
        }
    resolved = resolve(service, catalog, profiles)
    # A stage's budget is a part of the pipeline's, which moves to the stages that need it.
    return resolved if service.stage else affordable(resolved)


@dataclass(frozen=True, slots=True)
class TraceQuery:
    """The fields of a request that select its trace; requests with equal queries have the same arrivals."""

    trace: str
    gaps: str
    start_s: float
    duration_s: float | None
    seed: int
    log_filter: tuple[str, str] | None
    columns: TableColumns
    skip_bad_lines: BadLines

    def open(self) -> Trace:
        return open_trace(
            self.trace,
            gaps=self.gaps,
            start_s=self.start_s,
            duration_s=self.duration_s,
            seed=self.seed,
            log_filter=self.log_filter,
            columns=self.columns,
            skip_bad_lines=self.skip_bad_lines,
        )


def trace_query(request: RunRequest) -> TraceQuery:
    return TraceQuery(
        request.trace,
        request.gaps,
        request.start_s,
        request.duration_s,
        request.seed,
        request.log_filter,
        request.columns,
        request.skip_bad_lines,
    )


def trace_named_in(request: RunRequest, *, sized: bool = False) -> Trace:
    """Open the request's trace. Raises BadInput, also for requests with sizes unless the caller takes `sized` ones."""
    trace = trace_query(request).open()
    if trace.sizes is not None and not sized:
        raise BadInput("queries of a pipeline and of an insured service have no size", "size_column")
    return trace


def open_inputs(request: RunRequest, trace: Trace | None = None) -> Inputs:
    """Return all inputs of a run; `trace` may be open already.

    Raises BadInput for unusable input, Infeasible if no type can keep the SLO.
    """
    resolved = open_service(request)
    trace = counted_in(trace_named_in(request, sized=True) if trace is None else trace, resolved.service)
    return inputs_of(request, resolved, trace, trace.part(request.start_s, request.duration_s, request.scale))


def inputs_of(request: RunRequest, resolved: ResolvedService, trace: Trace, part: Part) -> Inputs:
    """Return the inputs for a known service and part of a trace, with loads scaled by the request. Raises BadInput."""
    start_s, end_s = part.start_s, part.end_s
    resolved = replace(resolved, service=_dated(resolved.service, trace, start_s))
    train_s = start_s if request.train_s is None else min(request.train_s, start_s)
    prices = {o.instance: o.usd_per_hour for o in resolved.catalog.offers if o.market is Market.ON_DEMAND}
    return Inputs(
        request=request,
        service=resolved.service,
        resolved=resolved,
        trace=trace,
        start_s=start_s,
        end_s=end_s,
        history=history_of(trace, start_s - train_s, start_s, request.scale),
        evaluated=replace(trace.load(start_s, end_s, request.scale), start_s=0.0),
        spot=tuple(load_spot_series(path, prices) for path in request.spot_traces),
    )


def _dated(service: ServiceConfig, trace: Trace, start_s: float) -> ServiceConfig:
    """Return the service with the begin of its schedules from a trace that knows it. Raises BadInput."""
    own = service.as_is
    if own is None or not own.windows or trace.began_s is None:
        return service
    begins = datetime.fromtimestamp(trace.began_s + start_s, UTC)
    if own.begins is not None and abs(own.begins - begins) > _SAME_BEGIN:
        what = f"contradicts the trace, whose part begins at {begins:%Y-%m-%dT%H:%M:%SZ}"
        what += ": leave the key out if the trace's time zone is right"
        raise BadInput(what, f"{service.source or service.name} [policy] begins", own.begins.isoformat())
    return replace(service, as_is=replace(own, begins=begins))


def history_of(trace: Trace, from_s: float, start_s: float, scale: float) -> Load:
    """Return a predictor's history: [from, start), in whole steps that end at `start_s`, which becomes second 0."""
    steps = int((start_s - from_s) / trace.step_s + 1e-9)
    span_s = steps * trace.step_s
    return replace(trace.load(start_s - span_s, start_s, scale), start_s=-span_s)


def _shifted_catalog(catalog: Catalog, by: Sensitivity) -> Catalog:
    def longer(delay: Delay) -> Delay:
        mean_s = delay.mean_s + by.boot_add_s
        return Delay(mean_s, mean_s if by.certain_boots else delay.p95_s + by.boot_add_s)

    def shifted(offer: Offer) -> Offer:
        return replace(
            offer,
            boot=longer(offer.boot),
            resume=None if offer.resume is None else longer(offer.resume),
            interruptions_per_hour=offer.interruptions_per_hour * by.interruptions,
        )

    return replace(catalog, offers=tuple(shifted(offer) for offer in catalog.offers))


def _shifted_profile(profile: Profile, by: Sensitivity) -> Profile:
    factor = by.function_latency if is_function(profile.instance) else 1.0 / by.capacity
    if factor == 1.0:
        return profile
    return replace(
        profile,
        rows=tuple(
            replace(row, latency_ms=row.latency_ms * factor, p99_ms=None if row.p99_ms is None else row.p99_ms * factor)
            for row in profile.rows
        ),
    )
