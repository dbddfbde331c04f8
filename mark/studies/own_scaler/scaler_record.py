"""The record of the user's own scaler in Prometheus: its price, its replicas over time, its late answers."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from mark.domain.arrays import FloatArray
from mark.domain.errors import BadInput
from mark.domain.offer import Catalog, Market, Offer
from mark.domain.slo import Slo
from mark.domain.time import HOUR_S
from mark.traffic.prometheus.history import LATENCY_STEP_S, WorkloadHistory

MONTH_H = 730.0
_STALE_S = 300.0  # a number of replicas holds this long, as in Prometheus


@dataclass(frozen=True, slots=True)
class PricedReplica:
    """A replica's price: `per_instance` replicas share an instance of `offer`. `said` names the source."""

    offer: Offer
    per_instance: int
    usd_per_hour: float
    said: str


@dataclass(frozen=True, slots=True)
class Observed:
    """The measured record of the user's scaler over a span. Without a histogram of latencies, lateness is None.

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
    offer = on_demand_offer(catalog, chosen)
    measured = pods[chosen] / nodes[chosen] if pods.get(chosen) else 1.0
    share = max(1, round(measured)) if per_instance is None else per_instance
    if instance is not None or (len(pods) == 1 and per_instance is not None):
        usd_per_hour = offer.usd_per_hour / (measured if per_instance is None else share)
    else:  # whole nodes are paid, also those with room for another pod
        usd = sum(count * on_demand_offer(catalog, name).usd_per_hour for name, count in nodes.items() if name in pods)
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


def on_demand_offer(catalog: Catalog, instance: str) -> Offer:
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


def load_per_replica(history: WorkloadHistory) -> FloatArray:
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


def replica_steps_rps(history: WorkloadHistory) -> FloatArray:
    """Return the mean rate in each step of the numbers of replicas; NaN where it is not known."""
    return _mean_rps(history, history.replicas_s - history.trace.bin_s, history.replicas_s)


def quantile_over_time(replicas: FloatArray, share: float) -> float:
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
