"""The capacity of a replica: stated, profiled or fitted, checked against Prometheus, and made a profile."""

from __future__ import annotations

import math
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import numpy as np

from mark.domain.errors import BadInput
from mark.domain.load_unit import LoadUnit
from mark.domain.percent import exact_percent
from mark.domain.slo import Slo
from mark.planning.policies.fixed import offer_named
from mark.profiling.fitted_replica import FittedReplica, ServiceTime, fit_replica, replica_profile
from mark.simulation.inputs import open_service
from mark.simulation.request import RunRequest
from mark.studies.own_scaler.scaler_record import PricedReplica, load_per_replica, replica_steps_rps
from mark.traffic.prometheus.history import WorkloadHistory

_NEAR = 0.1  # if the simulated capacity is within this share of the known one, the service time is not scaled
_FAR = 3.0  # a stated capacity that is this factor off the measured one is refused
_APART = 1.25  # from this factor on, a note states the difference


def capacity_of_replica(
    history: WorkloadHistory, rps_per_replica: float | None, slo: Slo
) -> tuple[float, str, FittedReplica | None]:
    """Return a replica's requests/s within the promise, the source of the number, and the fit if it was fitted.

    Raises BadInput.
    """
    unit = history.workload.unit
    if rps_per_replica is not None:
        return rps_per_replica, f"as {capacity_option(unit)} says", None
    if history.latency is None:
        what = f"there is no histogram of latencies up to RT_max to fit it to: say {unit.name}/s within the promise"
        raise BadInput(what, capacity_option(unit), "nothing")
    late, _, _ = history.latency.late(slo.rt_max_s)
    allowed = 1.0 - slo.attainment
    try:
        fitted = fit_replica(load_per_replica(history), late, history.latency.within[:, -1], allowed, unit.name)
    except BadInput as error:
        raise BadInput(error.what, capacity_option(unit), error.value) from None
    return fitted.rps, _fitted_words(fitted, slo), fitted


def contradictions(history: WorkloadHistory, rps: float, slo: Slo, where: str) -> tuple[str, ...]:
    """Return a note if Prometheus shows another capacity of a replica than `rps`. Raises BadInput if far from it."""
    kept, broken, per_s = 0.0, math.inf, f"{history.workload.unit.name}/s"
    by = in_time = ""
    if history.latency is not None:
        late, _, _ = history.latency.late(slo.rt_max_s)
        with suppress(BadInput):  # too few latencies, or none in time: then the load alone can tell
            total = history.latency.within[:, -1]
            fitted = fit_replica(load_per_replica(history), late, total, 1.0 - slo.attainment)
            kept, broken = fitted.least_rps, math.inf if fitted.most_rps is None else fitted.most_rps
            by, in_time = "by the histogram a replica", " in time"
    if not by:
        rps_each = replica_steps_rps(history)
        known = np.isfinite(rps_each) & (history.replicas > 0.0)
        kept = float(np.median(rps_each[known] / history.replicas[known])) if known.any() else 0.0
        by, in_time = "half of the time a replica", " or more"
    if rps < kept:
        said, times = f"{by} did {kept:.3g} {per_s}{in_time}", kept / rps
    else:
        said, times = f"{by} broke the promise at {broken:.3g} {per_s}", rps / broken
    if times > _FAR:
        raise BadInput(f"contradicts Prometheus: {said}; correct it", where, f"{rps:.3g}")
    return (f"{where} says {rps:.3g} {per_s}, but {said}",) if times > _APART else ()


def capacity_option(unit: LoadUnit) -> str:
    return "--rps-per-replica" if unit.is_requests else "--units-per-replica"


def profiled(
    request: RunRequest,
    model: str,
    replica: PricedReplica,
    rps: float,
    time: ServiceTime,
    slo: Slo,
    folder: Path,
    unit: LoadUnit,
) -> RunRequest:
    """Return the request with a profile by which a replica keeps the promise up to `rps` in the simulator.

    `rps` and the profile are in the `unit`.

    The measured service time is tried first. If the simulator then finds another capacity, for example because replicas
    share a processor or take batches, the service time is scaled once: the capacity must be right, and the reason for
    the difference is not known.
    """
    path = folder / "profile.csv"
    request = replace(request, profile=str(path))
    for last in (False, True):
        profile = replica_profile(model, replica.offer.instance, replica.per_instance, rps / unit.size, time, slo)
        (row,) = profile.rows
        head, cells = "batch,latency_ms,p99_ms", f"1,{row.latency_ms!r},{row.p99_ms or ''}"
        if not unit.is_requests:
            per_s = row.workers * unit.size / row.latency_ms * 1e3
            head, cells = "unit,units_per_s", f"{unit.name},{per_s!r}"
            request = replace(request, tail=row.p99_ms and row.p99_ms / row.latency_ms)
        path.write_text(
            f"model,instance,{head},workers,basis\n{model},{profile.instance},{cells},{row.workers},{row.basis}\n",
            encoding="utf-8",
        )
        counted_rps = capacity_in_simulator(request, replica, unit)
        if last or abs(counted_rps / rps - 1.0) <= _NEAR:
            break
        scaled_s = row.latency_ms / 1e3 * counted_rps / rps
        time = ServiceTime(scaled_s, time.tail)
    return request


def capacity_in_simulator(request: RunRequest, replica: PricedReplica, unit: LoadUnit) -> float:
    """Return a replica's rate in the unit within the promise, by the profile of the request's service."""
    resolved = open_service(request)
    if replica.offer.name in [offer.name for offer in resolved.offers]:
        able = resolved.candidates[resolved.index(replica.offer.name)]
    else:
        _, able = offer_named(replica.offer.instance, resolved)
    return able.capacity_rps * unit.size / replica.per_instance


def _fitted_words(fitted: FittedReplica, slo: Slo) -> str:
    if fitted.most_rps is None:
        return (
            f"fitted: at least {fitted.rps:.3g}, the highest load there was; no load broke the promise of "
            f"{exact_percent(slo.attainment)} within {slo.rt_max_s * 1e3:g} ms"
        )
    return f"fitted to latencies and replicas: between {fitted.least_rps:.3g} (kept) and {fitted.most_rps:.3g} (broken)"
