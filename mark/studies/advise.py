"""Compare the user's own autoscaler over the last weeks with other policies by cost and late answers.

The requests that Prometheus counted become a trace, and the facts known about a replica become a profile. Both are
files in a folder, because runs in other processes read files. Then `mark compare` runs on the last days of them. Only
instances are billed: the load balancer, disks and moved data are the same for every scaler.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view

from mark.config.as_is import KINDS, as_is_of, keys_of
from mark.config.section import Section
from mark.config.service_file import load_service
from mark.domain.arrays import FloatArray
from mark.domain.catalog.tables import catalog_path, load_catalog
from mark.domain.errors import BadInput
from mark.domain.load_unit import LoadUnit
from mark.domain.offer import Catalog, Market, Offer
from mark.domain.slo import Slo
from mark.domain.time import HOUR_S
from mark.planning.policies.as_is import steady_count
from mark.planning.policies.fixed import offer_named
from mark.planning.policies.names import AS_IS, BEST_FIXED, split_policy
from mark.planning.policies.policy_registry import policy_entry
from mark.profiling.fitted_replica import FittedReplica, ServiceTime, fit_replica, replica_profile, service_time
from mark.simulation.inputs import open_service
from mark.simulation.request import RunRequest, Sensitivity
from mark.simulation.result import SimulationResult
from mark.studies.compare import compare
from mark.studies.executor import HERE, StudyExecutor
from mark.traffic.prometheus.history import LATENCY_STEP_S, WorkloadHistory

POLICIES = ("mark", BEST_FIXED, "oracle")
MONTH_H = 730.0
_MOST_INSTANCES = 1000
_NEAR = 0.1  # if the simulated capacity is within this share of the known one, the service time is not scaled
_FAR = 3.0  # a stated capacity that is this factor off the measured one is refused
_APART = 1.25  # from this factor on, a note states the difference
_STALE_S = 300.0  # a number of replicas holds this long, as in Prometheus
_LEAST_AT_MINIMUM = 0.01  # the scaler's minimum is this quantile of the number of replicas over time
_LEAST_WASTE = 0.01  # of the bill; less is no reason to change a minimum
_AMOUNTS = ("keda", "knative", "ray")  # their target is an amount for each replica; for other kinds it is a share
_WHOLE_DAY_H = 24.0  # a fixed fleet needs a whole day to prove anything


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


@dataclass(frozen=True, slots=True)
class PricedReplica:
    """A replica's price: `per_instance` replicas share an instance of `offer`. `said` names the source."""

    offer: Offer
    per_instance: int
    usd_per_hour: float
    said: str


@dataclass(frozen=True, slots=True)
class Observed:
    """What the user's scaler did over a span, measured. Without a histogram of latencies, lateness is unknown (None).

    `late_least` and `late_most` are proven by the buckets around RT_max; `late_share` is interpolated between them.
    """

    hours: float
    usd: float
    replica_hours: float
    mean_replicas: float
    least_replicas: float
    most_replicas: float
    late_share: float | None = None
    late_least: float | None = None
    late_most: float | None = None

    @property
    def month_usd(self) -> float:
        return self.usd * MONTH_H / self.hours

    def as_json(self, slo: Slo) -> dict[str, Any]:
        return {
            "hours": self.hours,
            "usd": self.usd,
            "usd_per_month": self.month_usd,
            "late_share": self.late_share,
            "late_share_between": [self.late_least, self.late_most],
            "keeps": None if self.late_share is None else self.late_share <= 1.0 - slo.attainment,
            "replica_hours": self.replica_hours,
            "mean_replicas": self.mean_replicas,
            "least_replicas": self.least_replicas,
            "most_replicas": self.most_replicas,
        }


@dataclass(frozen=True, slots=True)
class AdvisedChange:
    """One finding about the user's scaler, with the dollars a month that are at stake, or None."""

    about: str
    text: str
    usd_per_month: float | None = None


@dataclass(frozen=True, slots=True)
class ScalerSettings:
    """The simulated settings of the own scaler: `least` and `most` replicas, in whole instances of `step` replicas.

    `held` are the replicas that it would have had in each step of the history without minimum and maximum, if the
    load within a step were steady. None for a scaler without a target.
    """

    least: int
    most: int
    step: int
    held: FloatArray | None


@dataclass(frozen=True, slots=True)
class StaticMinimum:
    """How long the own scaler stood at its `replicas`, its lowest number, and the excess there in dollars a month.

    `needed` replicas on average would have been enough in that time.
    """

    replicas: float
    share: float
    needed: float
    usd_per_month: float


@dataclass(frozen=True, slots=True)
class ScalerAdvice:
    """The whole report. `now` covers the own scaler over the whole history, `part` over the simulated days."""

    history: WorkloadHistory
    slo: Slo
    replica: PricedReplica
    rps_per_replica: float  # in the workload's unit a second
    fitted: FittedReplica | None
    capacity_said: str
    now: Observed
    part: Observed
    results: Mapping[str, SimulationResult]
    notes: tuple[str, ...]
    settings: ScalerSettings | None = None
    advice: tuple[AdvisedChange, ...] = ()

    @property
    def what_if(self) -> str | None:
        """The difference between the settings and the measurement; None if they agree or are not known."""
        own, replicas = self.settings, self.history.replicas
        if own is None:
            return None
        lowest, highest = (_quantile(replicas, share) for share in (_LEAST_AT_MINIMUM, 1.0 - _LEAST_AT_MINIMUM))
        if lowest <= own.least - own.step:
            return f"their minimum is {own.least}, but there were {lowest:g} replicas"
        if highest > own.most:
            return f"their maximum is {own.most}, but there were {highest:g} replicas"
        if own.least < lowest and static_minimum(self).usd_per_month > _LEAST_WASTE * self.now.month_usd:
            ever = "never" if self.now.least_replicas == lowest else "hardly ever"
            return f"their minimum is {own.least}, but there {ever} were fewer than {lowest:g} replicas"
        return None

    @property
    def bound_usd(self) -> float | None:
        return next((one.bound_usd for one in self.results.values() if one.bound_usd is not None), None)

    def as_json(self) -> dict[str, Any]:
        """Return the report's JSON but for its notes, which the printed report adds."""
        trace, workload = self.history.trace, self.history.workload
        fitted, size = self.fitted, workload.unit.size
        most = None if fitted is None else fitted.most_rps
        return {
            "schema": 1,
            "read": {
                "text": trace.read,
                "workload": workload.name,
                "namespace": workload.namespace,
                "counted_by": workload.counted_by,
                "ready_by": workload.ready_by,
                "began_unix_s": self.history.began_s,
                "duration_s": trace.duration_s,
                "requests": trace.total_counts(0.0, trace.duration_s) / size,
                "step_s": trace.bin_s,
                "gaps": len(trace.gaps),
                "gap_s": sum(end - begin for begin, end in trace.gaps),
            },
            "replica": {
                "instance": self.replica.offer.instance,
                "per_instance": self.replica.per_instance,
                "usd_per_hour": self.replica.usd_per_hour,
                "said": self.replica.said,
                "rps": self.rps_per_replica / size,
                "rps_between": None if fitted is None else [fitted.least_rps / size, most and most / size],
                "rps_said": self.capacity_said,
            },
            "now": self.now.as_json(self.slo) | {"simulated_part": self.part.as_json(self.slo)},
            "policies": {name: result.as_json() for name, result in self.results.items()},
            "bound_usd": self.bound_usd,
            "advice": [
                {"about": one.about, "text": one.text, "usd_per_month": one.usd_per_month} for one in self.advice
            ],
        } | self._in_units()

    def _in_units(self) -> dict[str, Any]:
        """Return the load in the workload's unit; an empty dict if that is requests."""
        unit, trace, fitted = self.history.workload.unit, self.history.trace, self.fitted
        if unit.is_requests:
            return {}
        total = trace.total_counts(0.0, trace.duration_s)
        between = None if fitted is None else [fitted.least_rps, fitted.most_rps]
        of_replica = {"per_replica_per_s": self.rps_per_replica, "per_replica_per_s_between": between}
        return {"unit": {"name": unit.name, "size": unit.size, "total": total, **of_replica}}


def check_options(options: AdviseOptions) -> None:
    """Raise BadInput for options that are wrong with any history, before a history is read for minutes."""
    service = None if options.service is None else load_service(options.service, any_unit=True)
    catalog = load_catalog(options.catalog or ("aws-2026" if service is None else service.catalog))
    if options.instance is not None:
        _on_demand(catalog, options.instance)
    for name in options.policies:
        policy_entry(split_policy(name, None)[0])
    if options.scaler is not None:
        _scaler_table(options.scaler)


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
        (folder / "service.toml").write_text(_service_text(history, slo, replica, options.scaler), encoding="utf-8")
    else:
        request = replace(request, service=options.service or "")
    fitted: FittedReplica | None = None
    if service is not None and options.rps_per_replica is None:
        rps, said = _capacity_rps(request, replica, unit), f"the profile of {options.service}"
    else:
        rps, said, fitted = _capacity(history, options, slo)
    if fitted is None:
        where = _option(unit) if options.rps_per_replica is not None else f"the profile of {options.service}"
        notes += _contradictions(history, rps, slo, where)
    if service is None or options.rps_per_replica is not None:
        found = None
        if history.latency is not None:
            found = service_time(_load_per_replica(history), history.latency.within, history.latency.bounds_s, rps)
        if found is None:
            notes.append("no service time is known: a quarter of RT_max is assumed")
        model = "workload" if service is None else service.model
        time = found or ServiceTime(slo.rt_max_s / 4.0)
        request = _profiled(request, model, replica, rps, time, slo, folder, unit)
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
            notes=tuple(_dated(note, history.began_s) for note in one.notes),
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
        settings=_settings(request, history, replica, rps) if own else None,
    )
    return replace(found_advice, advice=tuple(changes(found_advice)))


def priced_replica(
    catalog: Catalog, instance: str | None, per_instance: int | None, types: tuple[Mapping[str, int], Mapping[str, int]]
) -> PricedReplica:
    """Return the on-demand price of a replica, by the named type or the types of the nodes that pods run on.

    Raises BadInput if neither is known, and for a type that the catalogue does not sell on demand.
    """
    pods, nodes = types
    if instance is None and not pods:
        what = "is not known: kube_node_labels has no instance types of the workload's nodes, say the type"
        raise BadInput(what, "--instance", "nothing")
    chosen = instance or max(sorted(pods), key=lambda name: pods[name])
    offer = _on_demand(catalog, chosen)
    measured = pods[chosen] / nodes[chosen] if pods.get(chosen) else 1.0
    share = max(1, round(measured)) if per_instance is None else per_instance
    if instance is not None or (len(pods) == 1 and per_instance is not None):
        usd_per_hour = offer.usd_per_hour / (measured if per_instance is None else share)
    else:  # whole nodes are paid, also those with room for another pod
        usd = sum(count * _on_demand(catalog, name).usd_per_hour for name, count in nodes.items() if name in pods)
        usd_per_hour = usd / sum(pods.values())
    listed = ", ".join(f"{count} pods on {nodes[name]} {name}" for name, count in sorted(pods.items()))
    said = "as --instance says" if instance is not None else f"by the labels of the nodes now ({listed})"
    if per_instance is None:
        said += f"; {_a_node(measured, share)}" if pods.get(chosen) else "; one a node is assumed"
    return PricedReplica(offer, share, usd_per_hour, said)


def _a_node(measured: float, share: int) -> str:
    whole = math.isclose(measured, share)
    return f"{share} a node" if whole else f"{measured:.3g} a node are paid, {share} a node simulated"


def observed(history: WorkloadHistory, replica: PricedReplica, slo: Slo, start_s: float) -> Observed:
    """Return the record of the own scaler from `start_s` of the trace to its end.

    Unknown numbers of replicas count as the mean.
    """
    begin_s, end_s = history.began_s + start_s, history.ended_s
    replicas = history.replicas_between(begin_s, end_s)
    if not len(replicas):
        raise BadInput("no number of ready replicas is known in the simulated days", history.workload.ready_by)
    hours = (end_s - begin_s) / HOUR_S
    mean = float(replicas.mean())
    found = Observed(
        hours=hours,
        usd=mean * hours * replica.usd_per_hour,
        replica_hours=mean * hours,
        mean_replicas=mean,
        least_replicas=float(replicas.min()),
        most_replicas=float(replicas.max()),
    )
    latency = history.latency
    if latency is None:
        return found
    there = latency.ends_s > begin_s
    total = float(latency.within[there, -1].sum())
    if not total > 0.0:
        return found
    late, least, most = (float(counts[there].sum()) / total for counts in latency.late(slo.rt_max_s))
    return replace(found, late_share=late, late_least=least, late_most=most)


def changes(advice: ScalerAdvice) -> list[AdvisedChange]:
    """Return the findings about the own scaler: its minimum or spare capacity, its lateness, other policies' cost."""
    found = [_minimum(advice)]
    now, allowed = advice.now, 1.0 - advice.slo.attainment
    if now.late_share is not None and now.late_share > allowed:
        found.append(
            AdvisedChange(
                "late",
                f"Your scaler answered {now.late_share:.2%} of the requests late; the promise allows {allowed:.2%}.",
            )
        )
    found += _others(advice)
    return found


def static_minimum(advice: ScalerAdvice) -> StaticMinimum:
    """Return the time at the lowest number of replicas, and its excess over the load at the scaler's own target.

    Without a known target the excess is that over fully used replicas.
    """
    history, own = advice.history, advice.settings
    lowest = _quantile(history.replicas, _LEAST_AT_MINIMUM)
    rps = _replica_steps_rps(history)
    known = np.isfinite(rps)
    held = np.ceil(rps / advice.rps_per_replica - 1e-9) if own is None or own.held is None else own.held
    at_lowest = known & (history.replicas <= lowest)
    needed = np.maximum(1.0, held[at_lowest])
    steps = max(1, int(known.sum()))
    excess = float(np.maximum(0.0, lowest - needed).sum() / steps)
    return StaticMinimum(
        lowest,
        float(at_lowest.sum() / steps),
        float(needed.mean()) if len(needed) else lowest,
        excess * advice.replica.usd_per_hour * MONTH_H,
    )


def _minimum(advice: ScalerAdvice) -> AdvisedChange:
    """Return the dollars that a static minimum wastes, or else how busy the replicas are."""
    history, now, lowest = advice.history, advice.now, static_minimum(advice)
    replicas, usd = history.replicas, lowest.usd_per_month
    if lowest.replicas > 1.0 and usd > _LEAST_WASTE * now.month_usd:
        text = f"Your scaler stood at its minimum of {lowest.replicas:g} replicas for {lowest.share:.0%} of the time, "
        if advice.settings is None or advice.settings.held is None:
            text += (
                f"when {lowest.needed:.1f} on average, used to 100%, would have carried the load. A lower minimum "
                f"saves less than ${usd:,.0f} of ${now.month_usd:,.0f} a month, by the utilisation that your scaler "
                "aims at. "
            )
        else:
            text += (
                f"when its settings without a minimum ask for {lowest.needed:.1f} on average: that minimum costs about "
                f"${usd:,.0f} of ${now.month_usd:,.0f} a month. "
            )
        text += "A floor that rises before the load comes can replace this static minimum."
        return AdvisedChange("minimum", text, usd)
    rps = _replica_steps_rps(history)
    known = np.isfinite(rps)
    asleep = float((replicas == 0.0).mean())
    busy = float(np.nansum(rps[known]) / max(1e-9, replicas[known].sum() * advice.rps_per_replica))
    return AdvisedChange(
        "busy",
        (f"Your scaler stood at zero replicas for {asleep:.0%} of the time, which costs nothing. " if asleep else "")
        + f"Your replicas were {busy:.0%} busy on average: one can do {advice.rps_per_replica:.3g} "
        f"{history.workload.unit.name}/s.",
    )


def _others(advice: ScalerAdvice) -> list[AdvisedChange]:
    """Return the findings about mark and a fixed fleet.

    They are compared with the simulated settings of the own scaler, or with its measurement if these are not known.
    """
    mark, fixed, settings = (advice.results.get(name) for name in ("mark", BEST_FIXED, AS_IS))
    if advice.part.month_usd <= 0.0:
        return [
            AdvisedChange("asleep", "Your scaler had no replica in the simulated time, so there is nothing to save.")
        ]
    own_usd = advice.part.month_usd
    own, told, missed = "your scaler", "", False
    if settings is not None and settings.month_usd is not None:
        own_usd, missed = settings.month_usd, settings.kept is False
        own = "your scaler's settings" if advice.what_if is None else "your what-if settings"
        told = f" ({_lateness(settings)})"
    elif advice.part.late_share is not None:
        missed = advice.part.late_share > 1.0 - advice.slo.attainment
        told = f" ({advice.part.late_share:.2%} late)"
    month_usd = None if mark is None else mark.month_usd
    found = []
    if mark is not None and month_usd is not None:
        saved = own_usd - month_usd
        basis = f"Simulated on the same {advice.part.hours:.3g} h, "
        if settings is None:
            basis = f"Over the same {advice.part.hours:.3g} h, with your scaler measured and mark simulated, "
        did = "cost" if not told else f"{'missed' if missed else 'kept'} the promise for"
        text = (
            f"{basis}{own} {did} ${own_usd:,.0f} a month{told}, and mark kept the promise for ${month_usd:,.0f} "
            f"({_lateness(mark)}): "
        )
        if not mark.kept:
            text = f"The policy mark would have missed the promise in this time ({_lateness(mark)}): do not follow it."
        elif saved <= 0.0:
            text += "it would save nothing." if not missed else "keeping the promise costs more."
        else:
            text += f"{saved / own_usd:.0%} less."
        found.append(AdvisedChange("mark", text, saved if mark.kept else None))
    fixed_usd = None if fixed is None or not fixed.kept else fixed.month_usd
    whole_days = advice.part.hours >= _WHOLE_DAY_H
    if fixed_usd is not None and whole_days and fixed_usd < 1.01 * min(own_usd, month_usd or math.inf):
        text = (
            f"A fleet that never changes, sized with hindsight, would have kept the promise for ${fixed_usd:,.0f} a "
            "month: if your days are alike, you need no scaler."
        )
        found.append(AdvisedChange("fixed", text, own_usd - fixed_usd))
    return found


def _lateness(result: SimulationResult) -> str:
    late = 1.0 - (1.0 if result.slo_result.attainment is None else result.slo_result.attainment)
    minutes = round(result.trace.duration_s / 60.0)
    return f"{late:.2%} late; {result.slo_result.minutes_below_target:,} of {minutes:,} minutes below the promise"


def _settings(
    request: RunRequest, history: WorkloadHistory, replica: PricedReplica, per_replica: float
) -> ScalerSettings | None:
    """Return the settings of the own scaler that the request's service has. Raises BadInput.

    `per_replica` is a replica's rate within the promise, in the workload's unit a second.
    """
    resolved, size = open_service(request), history.workload.unit.size
    own, each = resolved.service.as_is, replica.per_instance
    if own is None:
        return None
    steady, held = steady_count(own, resolved, each * per_replica / size), None
    if steady is not None:
        count, keeps_s = steady
        rps = np.nan_to_num(_replica_steps_rps(history) / size)
        wished = np.array([each * count(one) for one in rps.tolist()])
        steps = max(1, math.ceil(keeps_s / history.trace.bin_s))
        held = sliding_window_view(np.pad(wished, (steps - 1, 0), "edge"), steps).max(axis=1)
    return ScalerSettings(each * own.min_instances, each * own.max_instances, each, held)


def _dated(note: str, began_s: float) -> str:
    """Return a note with dates in place of the seconds of the trace."""

    def date(found: re.Match[str]) -> str:
        return f"{datetime.fromtimestamp(began_s + float(found[1]), UTC):%Y-%m-%d %H:%M} UTC"

    return re.sub(r"second (\d+)\b", date, note)


def _capacity(history: WorkloadHistory, options: AdviseOptions, slo: Slo) -> tuple[float, str, FittedReplica | None]:
    """Return a replica's requests/s within the promise, the source of the number, and the fit if it was fitted.

    Raises BadInput.
    """
    unit = history.workload.unit
    if options.rps_per_replica is not None:
        return options.rps_per_replica, f"as {_option(unit)} says", None
    if history.latency is None:
        what = f"there is no histogram of latencies up to RT_max to fit it to: say {unit.name}/s within the promise"
        raise BadInput(what, _option(unit), "nothing")
    late, _, _ = history.latency.late(slo.rt_max_s)
    allowed = 1.0 - slo.attainment
    try:
        fitted = fit_replica(_load_per_replica(history), late, history.latency.within[:, -1], allowed, unit.name)
    except BadInput as error:
        raise BadInput(error.what, _option(unit), error.value) from None
    return fitted.rps, _fitted_words(fitted, slo), fitted


def _contradictions(history: WorkloadHistory, rps: float, slo: Slo, where: str) -> tuple[str, ...]:
    """Return a note if Prometheus shows another capacity of a replica than `rps`. Raises BadInput if far from it."""
    kept, broken, by, per_s = 0.0, math.inf, "", f"{history.workload.unit.name}/s"
    if history.latency is not None:
        late, _, _ = history.latency.late(slo.rt_max_s)
        with suppress(BadInput):  # too few latencies, or none in time: then the load alone can tell
            total = history.latency.within[:, -1]
            fitted = fit_replica(_load_per_replica(history), late, total, 1.0 - slo.attainment)
            kept, broken = fitted.least_rps, math.inf if fitted.most_rps is None else fitted.most_rps
            by = "by the histogram a replica"
    if not by:
        rps_each = _replica_steps_rps(history)
        known = np.isfinite(rps_each) & (history.replicas > 0.0)
        kept = float(np.median(rps_each[known] / history.replicas[known])) if known.any() else 0.0
        by = "half of the time a replica"
    if rps < kept:
        said, times = f"{by} did {kept:.3g} {per_s}" + (" in time" if "histogram" in by else " or more"), kept / rps
    else:
        said, times = f"{by} broke the promise at {broken:.3g} {per_s}", rps / broken
    if times > _FAR:
        raise BadInput(f"contradicts Prometheus: {said}; correct it", where, f"{rps:.3g}")
    return (f"{where} says {rps:.3g} {per_s}, but {said}",) if times > _APART else ()


def _option(unit: LoadUnit) -> str:
    return "--rps-per-replica" if unit.is_requests else "--units-per-replica"


def _profiled(
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
        counted_rps = _capacity_rps(request, replica, unit)
        if last or abs(counted_rps / rps - 1.0) <= _NEAR:
            break
        scaled_s = row.latency_ms / 1e3 * counted_rps / rps
        time = ServiceTime(scaled_s, time.tail)
    return request


def _capacity_rps(request: RunRequest, replica: PricedReplica, unit: LoadUnit) -> float:
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
            f"{slo.attainment:.1%} within {slo.rt_max_s * 1e3:g} ms"
        )
    return f"fitted to latencies and replicas: between {fitted.least_rps:.3g} (kept) and {fitted.most_rps:.3g} (broken)"


def _on_demand(catalog: Catalog, instance: str) -> Offer:
    sold = [one for one in catalog.offers if one.instance == instance and one.market is Market.ON_DEMAND]
    if not sold:
        known = sorted({one.instance for one in catalog.offers if one.market is Market.ON_DEMAND})
        raise BadInput(
            f"{catalog.name} does not sell it on demand: name another type or --catalog",
            "--instance",
            instance,
            known=known,
        )
    return min(sold, key=lambda one: (one.usd_per_hour, one.name))


def _load_per_replica(history: WorkloadHistory) -> FloatArray:
    """Return requests/s per ready replica in each step of the latencies; NaN if one of the two is not known."""
    if history.latency is None:
        return np.zeros(0)
    ends_s = history.latency.ends_s
    place = np.searchsorted(history.replicas_s, ends_s, "right") - 1
    known = (place >= 0) & (ends_s - history.replicas_s[np.maximum(place, 0)] < _STALE_S)
    replicas = np.where(known, history.replicas[np.maximum(place, 0)], np.nan)
    rps = _mean_rps(history, ends_s - LATENCY_STEP_S, ends_s)
    found = np.full(len(rps), np.nan)
    np.divide(rps, replicas, out=found, where=replicas > 0.0)
    return found


def _replica_steps_rps(history: WorkloadHistory) -> FloatArray:
    """Return the mean rate in each step of the numbers of replicas; NaN where it is not known."""
    return _mean_rps(history, history.replicas_s - history.trace.bin_s, history.replicas_s)


def _quantile(replicas: FloatArray, share: float) -> float:
    return float(np.quantile(replicas, share, method="inverted_cdf"))


def _mean_rps(history: WorkloadHistory, begins_s: FloatArray, ends_s: FloatArray) -> FloatArray:
    """Return the mean rate over each span of Unix time; NaN if less than half of the span is known."""
    counted, seen = (
        [part - history.began_s for part in (begins_s, ends_s)],
        history.trace.series,
    )
    (before, seen_before), (after, seen_after) = (
        seen.until(np.clip(at, 0.0, history.trace.duration_s)) for at in counted
    )
    seen_s = seen_after - seen_before
    known = seen_s >= 0.5 * (ends_s - begins_s)
    found = np.full(len(seen_s), np.nan)
    np.divide(after - before, seen_s, out=found, where=known)
    return found


def _write_trace(history: WorkloadHistory, folder: Path) -> Path:
    path, series = folder / "requests.csv", history.trace.series
    starts_s = history.began_s + series.starts_s
    rows = (f"{at!r},{count!r}\n" for at, count in zip(starts_s.tolist(), series.counts.tolist(), strict=True))
    path.write_text("t_seconds,count\n" + "".join(rows), encoding="utf-8")
    return path


def _service_text(history: WorkloadHistory, slo: Slo, replica: PricedReplica, scaler: str | None) -> str:
    """Return a service file for a workload without one: one type of instance, and no functions."""
    name = re.sub(r"[^A-Za-z0-9._-]+", "-", history.workload.name).strip("-._")[:63] or "workload"
    unit = history.workload.unit
    counted = "" if unit.is_requests else f"unit = {json.dumps(unit.name)}\nunit_size = {unit.size!r}\n"
    instance = json.dumps(replica.offer.instance)
    return (
        f'[service]\nname = {json.dumps(name)}\nmodel = "workload"\n'
        f"slo_ms = {slo.rt_max_s * 1e3!r}\nslo_attainment = {slo.attainment!r}\n{counted}"
        f'[fleet]\nmarkets = ["on-demand"]\ninstances = [{instance}]\n'
        f'catalog = "aws-2026"\nmax_instances = {_MOST_INSTANCES}\nmax_usd_per_hour = 1e6\n'
        '[overflow]\nfunction = "none"\nlate = "refuse"\n'
        f"{_policy_text(scaler, instance, replica.per_instance, unit.size)}"
    )


def _policy_text(scaler: str | None, instance: str, per_instance: int, size: float = 1.0) -> str:
    """Turn `hpa:target=0.7,min=2,max=50`, which counts replicas, into the section [policy], which counts instances.

    KEDA's target is in the load's unit, and a request has `size` units; the targets of Knative and Ray count requests.
    """
    if scaler is None:
        return ""
    table = _scaler_table(scaler)
    for key, value in table.items():
        if key in ("min", "max") and isinstance(value, int):
            table[key] = math.ceil(value / per_instance)
        elif key == "target" and table["kind"] in _AMOUNTS and isinstance(value, int | float):
            table[key] = value * per_instance / (size if table["kind"] == "keda" else 1.0)
    lines = [f"{json.dumps(key)} = {json.dumps(value)}\n" for key, value in table.items()]
    return f"[policy]\ninstance = {instance}\n{''.join(lines)}"


def _scaler_table(scaler: str) -> dict[str, float | str]:
    """Return the kind and the keys of `KIND:key=value,...`, checked. Raises BadInput."""
    kind, colon, rest = scaler.strip().partition(":")
    kind = kind.strip().lower()
    pairs = [[part.strip() for part in one.partition("=")] for one in rest.split(",") if one.strip()]
    if not kind or bool(colon) != bool(pairs) or not all(all(pair) for pair in pairs):
        what = f"must be KIND:key=value,..., as hpa:target=0.7,min=2,max=50; KIND is one of {', '.join(KINDS)}"
        raise BadInput(what, "--scaler", scaler)
    if kind not in KINDS:
        raise BadInput(f"must be one of {', '.join(KINDS)}", "--scaler kind", kind)
    table: dict[str, float | str] = {"kind": kind}
    for key, _, text in pairs:
        if key not in keys_of(kind):
            raise BadInput(f"unknown key; {kind} has {', '.join(keys_of(kind))}", f"--scaler {key}", text)
        if key in table:
            raise BadInput("is given twice", f"--scaler {key}", text)
        table[key] = _scaler_value(key, text)
    try:
        as_is_of(Section(Path("--scaler"), "policy", {"instance": "any", **table}))
    except BadInput as error:
        raise BadInput(error.what, error.where.replace(" [policy]", ""), error.value) from error.__cause__
    return table


def _scaler_value(key: str, text: str) -> float | str:
    """Return a number if the text is one. Raises BadInput."""
    try:
        value = int(text) if re.fullmatch(r"[+-]?\d{1,18}", text) else float(text.removesuffix("%"))
    except ValueError:
        return text
    if not math.isfinite(value):
        raise BadInput("must be a finite number", f"--scaler {key}", text)
    if text.endswith("%"):
        raise BadInput(f"must be a number, as {value / 100.0:g}", f"--scaler {key}", text)
    return value
