"""The report of `mark advise`: the own scaler's record, the simulated policies, and the findings."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from mark.domain.arrays import FloatArray
from mark.domain.slo import Slo
from mark.profiling.fitted_replica import FittedReplica
from mark.simulation.result import SimulationResult
from mark.studies.own_scaler.scaler_record import (
    MONTH_H,
    Observed,
    PricedReplica,
    quantile_over_time,
    replica_steps_rps,
)
from mark.traffic.prometheus.history import WorkloadHistory

LEAST_WASTE = 0.01  # of the bill; less is no reason to change a minimum
_LEAST_AT_MINIMUM = 0.01  # the scaler's minimum is this quantile of the number of replicas over time


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
        lowest, highest = (
            quantile_over_time(replicas, share) for share in (_LEAST_AT_MINIMUM, 1.0 - _LEAST_AT_MINIMUM)
        )
        if lowest <= own.least - own.step:
            return f"their minimum is {own.least}, but there were {lowest:g} replicas"
        if highest > own.most:
            return f"their maximum is {own.most}, but there were {highest:g} replicas"
        if own.least < lowest and static_minimum(self).usd_per_month > LEAST_WASTE * self.now.month_usd:
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


def static_minimum(advice: ScalerAdvice) -> StaticMinimum:
    """Return the time at the lowest number of replicas, and its excess over the load at the scaler's own target.

    Without a known target the excess is that over fully used replicas.
    """
    history, own = advice.history, advice.settings
    lowest = quantile_over_time(history.replicas, _LEAST_AT_MINIMUM)
    rps = replica_steps_rps(history)
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
