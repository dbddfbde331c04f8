"""The findings of `mark advise` about the own scaler, each with the dollars that are at stake."""

from __future__ import annotations

import math

import numpy as np

from mark.domain.percent import exact_percent, percent
from mark.planning.policies.names import AS_IS, BEST_FIXED
from mark.simulation.result import SimulationResult
from mark.studies.own_scaler.scaler_advice import LEAST_WASTE, AdvisedChange, ScalerAdvice, static_minimum
from mark.studies.own_scaler.scaler_record import replica_steps_rps

_WHOLE_DAY_H = 24.0  # a fixed fleet needs a whole day to prove anything


def changes(advice: ScalerAdvice) -> list[AdvisedChange]:
    """Return the findings about the own scaler: its minimum or spare capacity, its lateness, other policies' cost."""
    found = [_minimum(advice)]
    now, allowed = advice.now, 1.0 - advice.slo.attainment
    if now.late_share is not None and now.late_share > allowed:
        found.append(
            AdvisedChange(
                "late",
                f"Your scaler answered {percent(now.late_share, 2)} of the requests late; "
                f"the promise allows {exact_percent(allowed, 2)}.",
            )
        )
    found += _others(advice)
    return found


def _minimum(advice: ScalerAdvice) -> AdvisedChange:
    """Return the dollars that a static minimum wastes, or else how busy the replicas are."""
    history, now, lowest = advice.history, advice.now, static_minimum(advice)
    replicas, usd = history.replicas, lowest.usd_per_month
    if lowest.replicas > 1.0 and usd > LEAST_WASTE * now.month_usd:
        text = f"Your scaler stood at its minimum of {lowest.replicas:g} replicas "
        text += f"for {percent(lowest.share, 0)} of the time, "
        if advice.settings is None or advice.settings.held is None:
            text += (
                f"when {lowest.needed:.1f} on average, used to 100 %, would have carried the load. A lower minimum "
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
    rps = replica_steps_rps(history)
    known = np.isfinite(rps)
    asleep = float((replicas == 0.0).mean())
    busy = float(np.nansum(rps[known]) / max(1e-9, replicas[known].sum() * advice.rps_per_replica))
    return AdvisedChange(
        "busy",
        (
            f"Your scaler stood at zero replicas for {percent(asleep, 0)} of the time, which costs nothing. "
            if asleep
            else ""
        )
        + f"Your replicas were {percent(busy, 0)} busy on average: one can do {advice.rps_per_replica:.3g} "
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
        told = f" ({percent(advice.part.late_share, 2)} late)"
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
            text += f"{percent(saved / own_usd, 0)} less."
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
    return (
        f"{percent(late, 2)} late; {result.slo_result.minutes_below_target:,} of {minutes:,} minutes below the promise"
    )
