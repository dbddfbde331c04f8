"""Compare the user's own autoscaler over the last weeks with other policies by cost and late answers.

The requests that Prometheus counted become a trace, and the facts known about a replica become a profile. Both are
files in a folder, because runs in other processes read files. Then `mark compare` runs on the last days of them. Only
instances are billed: the load balancer, disks and moved data are the same for every scaler.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from mark.config.service_file import load_service
from mark.domain.catalog.tables import catalog_path, load_catalog
from mark.domain.errors import BadInput
from mark.domain.slo import Slo
from mark.planning.policies.names import AS_IS, BEST_FIXED, split_policy
from mark.planning.policies.policy_registry import policy_entry
from mark.profiling.fitted_replica import FittedReplica, ServiceTime, service_time
from mark.simulation.request import RunRequest, Sensitivity
from mark.studies.compare import compare
from mark.studies.executor import HERE, StudyExecutor
from mark.studies.own_scaler.advised_changes import changes
from mark.studies.own_scaler.replica_capacity import (
    capacity_in_simulator,
    capacity_of_replica,
    capacity_option,
    contradictions,
    profiled,
)  # fmt: skip
from mark.studies.own_scaler.scaler_advice import ScalerAdvice
from mark.studies.own_scaler.scaler_record import load_per_replica, observed, on_demand_offer, priced_replica
from mark.studies.own_scaler.scaler_settings import scaler_settings, scaler_table, service_text
from mark.traffic.prometheus.history import WorkloadHistory

POLICIES = ("mark", BEST_FIXED, "oracle")


@dataclass(frozen=True, slots=True)
class AdviseOptions:
    """The user's settings, except the queries. `slo` may be None if a service file states the promise."""

    slo: Slo | None = None
    service: str | None = None
    catalog: str | None = None
    instance: str | None = None
    replicas_per_instance: int | None = None
    rps_per_replica: float | None = None  # in the workload's unit a second
    boot_s: float | None = None
    scaler: str | None = None
    policies: tuple[str, ...] = POLICIES
    simulated_s: float = 7 * 86400.0
    seed: int = 0


def check_options(options: AdviseOptions) -> None:
    """Raise BadInput for options that are wrong with any history, before a history is read for minutes."""
    service = None if options.service is None else load_service(options.service, any_unit=True)
    catalog = load_catalog(options.catalog or ("aws-2026" if service is None else service.catalog))
    if options.instance is not None:
        on_demand_offer(catalog, options.instance)
    for name in options.policies:
        policy_entry(split_policy(name, None)[0])
    if options.scaler is not None:
        scaler_table(options.scaler)


def advise(
    history: WorkloadHistory,
    types: tuple[Mapping[str, int], Mapping[str, int]],
    options: AdviseOptions,
    folder: Path,
    *,
    executor: StudyExecutor = HERE,
    progress: Callable[[float], None] | None = None,
) -> ScalerAdvice:
    """Compare the own scaler with the policies on the last days of the history; write files into `folder`.

    `types` has the numbers of pods and of nodes by instance type, empty if Prometheus does not know them. Raises
    BadInput, Infeasible.
    """
    unit = history.workload.unit
    service = None if options.service is None else load_service(options.service, any_unit=True)
    slo = options.slo if service is None else service.slo
    if slo is None:
        raise BadInput("says within how many milliseconds an answer is in time", "--slo-ms", "nothing")
    notes = [*history.notes]
    if history.latency is not None and not history.latency.reaches(slo.rt_max_s):
        first_s, last_s = (float(history.latency.bounds_s[place]) for place in (0, -2))
        span = f"from {first_s:g} to {last_s:g} s, without RT_max ({slo.rt_max_s:g} s)"
        notes.append(f"the histogram's bounds reach {span}: how often requests were late is not known")
        history = replace(history, latency=None)
    catalog = load_catalog(options.catalog or ("aws-2026" if service is None else service.catalog))
    instance = options.instance
    if instance is None and service is not None:
        named = service.instances if service.as_is is None else (service.as_is.instance,)
        instance = named[0] if len(named) == 1 and "*" not in named[0] else None
    replica = priced_replica(catalog, instance, options.replicas_per_instance, types)
    request = RunRequest(
        trace=str(_write_trace(history, folder)),
        service=str(folder / "service.toml"),
        catalog=str(catalog_path(catalog.name)),  # given by its path, the catalogue bills no load balancer and no disks
        seed=options.seed,
        start_s=max(0.0, history.trace.duration_s - options.simulated_s),
        progress=progress,
    )
    if service is None:
        (folder / "service.toml").write_text(service_text(history, slo, replica, options.scaler), encoding="utf-8")
    else:
        request = replace(request, service=options.service or "")
    fitted: FittedReplica | None = None
    if service is not None and options.rps_per_replica is None:
        rps, said = capacity_in_simulator(request, replica, unit), f"the profile of {options.service}"
    else:
        rps, said, fitted = capacity_of_replica(history, options.rps_per_replica, slo)
    if fitted is None:
        where = capacity_option(unit) if options.rps_per_replica is not None else f"the profile of {options.service}"
        notes += contradictions(history, rps, slo, where)
    if service is None or options.rps_per_replica is not None:
        found = None
        if history.latency is not None:
            found = service_time(load_per_replica(history), history.latency.within, history.latency.bounds_s, rps)
        if found is None:
            notes.append("no service time is known: a quarter of RT_max is assumed")
        model = "workload" if service is None else service.model
        time = found or ServiceTime(slo.rt_max_s / 4.0)
        request = profiled(request, model, replica, rps, time, slo, folder, unit)
    own = options.scaler is not None or (service is not None and service.as_is is not None)
    if options.boot_s is not None:
        add_s = options.boot_s - replica.offer.boot.mean_s
        request = replace(request, sensitivity=Sensitivity(boot_add_s=add_s, certain_boots=add_s < 0.0))
    names = (*((AS_IS,) if own else ()), *(name for name in options.policies if name != AS_IS))
    results = compare(request, names, executor=executor)
    trace = history.trace
    told = {
        name: replace(
            one,
            service=history.workload.name,
            priced=catalog.priced,
            trace=replace(one.trace, name="Prometheus", read=trace.read),
        )
        for name, one in results.items()
    }
    found_advice = ScalerAdvice(
        history=history,
        slo=slo,
        replica=replica,
        rps_per_replica=rps,
        fitted=fitted,
        capacity_said=said,
        now=observed(history, replica, slo, 0.0),
        part=observed(history, replica, slo, request.start_s),
        results=told,
        notes=tuple(dict.fromkeys(notes)),
        settings=scaler_settings(request, history, replica, rps) if own else None,
    )
    return replace(found_advice, advice=tuple(changes(found_advice)))


def _write_trace(history: WorkloadHistory, folder: Path) -> Path:
    path, series = folder / "requests.csv", history.trace.series
    starts_s = history.began_s + series.starts_s
    rows = (f"{at!r},{count!r}\n" for at, count in zip(starts_s.tolist(), series.counts.tolist(), strict=True))
    path.write_text("t_seconds,count\n" + "".join(rows), encoding="utf-8")
    return path
