"""The result of a load on the testbed: the object of `mark simulate --json`, with `"world": "testbed"`."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from mark.config.pipeline_file import MODEL, PARITY
from mark.domain.slo import Slo
from mark.domain.time import MINUTE_S
from mark.models.answer import RECONSTRUCTION
from mark.serving.conductor.query import ANSWERED, BY_FUNCTION, STATES, states
from mark_infra.testbed.load_generator import LoadReplay

# As in `mark.domain.rules.admission`, a request that is a microsecond late is in time.
_TOLERANCE_S = 1e-6
# Names of calls' states as in the counts of requests; other states keep their names.
_NAMED = {ANSWERED: "instances", BY_FUNCTION: "functions"}


@dataclass(frozen=True, slots=True)
class ReplayedTrace:
    """The part of a trace that was replayed; `read` describes how the trace was read.

    `duration_s` is in the trace's time, which passes `time_scale` times as fast as the clock of latencies and minutes.
    """

    name: str
    duration_s: float
    time_scale: float = 1.0
    read: str = ""


def result(
    service: str,
    slo: Slo,
    trace: ReplayedTrace,
    seed: int,
    replay: LoadReplay,
    before: Mapping[str, Any],
    after: Mapping[str, Any],
    *,
    wall_s: float,
    stages: Mapping[str, str] | None = None,
) -> dict[str, Any]:
    """Return the result of one service's or pipeline's requests.

    Bill and fleet are of the whole testbed between the statuses `before` and `after`. `stages` are a pipeline's stages
    with their names as services. Like in the simulator, latency counts from a request's due time to its answer, over
    answered requests. The bound is unknown here; compare with `mark bound`.
    """
    shown = dict(stages or {})
    insured = MODEL in shown and any(stage.startswith(PARITY) for stage in shown)
    if insured:  # groups of queries call parity models, so no single query calls them
        shown = {MODEL: shown[MODEL]}
    due_s, answered_s = replay.column("due_s"), replay.column("answered_s")
    status = replay.column("status")
    by = np.array([one.answered_by for one in replay.sent], dtype=object)
    good = status == 200
    latency_s = answered_s - due_s
    in_time = good & (latency_s <= slo.rt_max_s + _TOLERANCE_S)
    total = len(replay.sent)
    by_function = good & (by == "function")
    by_instance = good & ~by_function  # also from an instance's memory
    instances, functions = int(by_instance.sum()), int(by_function.sum())
    minutes = _minutes(due_s, in_time)
    quantiles = _quantiles_ms(latency_s[good])
    return {
        "schema": 1,
        "world": "testbed",
        "service": service,
        "policy": after.get("policy", "mark"),
        "predictor": after.get("predictor", "auto"),
        "seed": seed,
        "trace": {
            "name": trace.name,
            "requests": total,
            "duration_s": trace.duration_s,
            "time_scale": trace.time_scale,
            "read": trace.read,
        },
        "requests": {
            "total": total,
            "instances": instances,
            "functions": functions,
            "rejected": total - instances - functions,
        },
        "slo": {
            "rt_max_ms": slo.rt_max_s * 1e3,
            "target": slo.attainment,
            "attainment": float(in_time.mean()) if total else None,
            "worst_minute_attainment": float(minutes.min()) if len(minutes) else None,
            "minutes_below_target": int((minutes < slo.attainment).sum()),
        },
        "missed": {
            "instances": instances - int((in_time & by_instance).sum()),
            "functions": functions - int((in_time & by_function).sum()),
            "rejected": total - instances - functions,
        },
        "latency_ms": quantiles,
        "bill_usd": {k: after["bill_usd"][k] - before["bill_usd"][k] for k in after["bill_usd"]},
        **({"parity": _reconstructed(int((good & (by == RECONSTRUCTION)).sum()), total)} if insured else {}),
        "bound_usd": None,
        "regret": None,
        "fleet": {
            "launched": after["launched"] - before["launched"],
            "terminated": after["terminated"] - before["terminated"],
            "interrupted": after["interrupted"] - before["interrupted"],
            "peak_instances": after["peak_instances"],
            "instance_hours": {
                offer: hours - before["instance_hours"].get(offer, 0.0)
                for offer, hours in after["instance_hours"].items()
            },
        },
        "speed": {
            "wall_s": wall_s,
            "kernel_s": 0.0,
            "planner_s": 0.0,
            "predictor_s": 0.0,
            "requests_per_wall_s": total / wall_s if wall_s > 0.0 else 0.0,
            "peak_rss_mb": 0.0,
        },
        **({} if stages is None else {"stages": _stages(shown, replay, before, after)}),
        "began_unix_s": replay.began_unix_s,
        "answered_twice": replay.unasked,
        "unanswered": int((status == 0).sum()),
        "client_lag_ms": _quantiles_ms(replay.column("sent_s") - due_s),
    }


def _reconstructed(count: int, total: int) -> dict[str, Any]:
    """Return the answers by reconstruction, for a service with parity models."""
    return {"reconstructed": count, "degraded_share": count / total if total else 0.0}


def _stages(
    names: Mapping[str, str], replay: LoadReplay, before: Mapping[str, Any], after: Mapping[str, Any]
) -> list[dict[str, Any]]:
    """Return for each stage the queries that called it, by the state of the calls, and the cost of its function."""
    said = Counter(part for one in replay.sent for part in states(one.stages))

    def grown(service: str, what: str) -> Any:
        return _of_function(service, what, after) - _of_function(service, what, before)

    return [
        {
            "stage": stage,
            "queries": sum(count for (name, _), count in said.items() if name == stage),
            **{_NAMED.get(state, state): said[stage, state] for state in STATES},
            "function_calls": grown(service, "invocations"),
            "function_usd": grown(service, "usd"),
        }
        for stage, service in names.items()
    ]


def _of_function(service: str, what: str, status: Mapping[str, Any]) -> Any:
    """Return a count of the service's function; 0 if it has none."""
    name = status["function_of"].get(service)
    return 0 if name is None else status["functions"][name][what]


def _minutes(due_s: np.ndarray, in_time: np.ndarray) -> np.ndarray:
    """Return the share in time of each minute with requests."""
    if not len(due_s):
        return np.empty(0)
    minute = (due_s // MINUTE_S).astype(np.int64)
    total = np.bincount(minute)
    return np.asarray(np.bincount(minute, weights=in_time)[total > 0] / total[total > 0])


def _quantiles_ms(seconds: np.ndarray) -> dict[str, float | None]:
    seconds = seconds[np.isfinite(seconds)]
    names = {"p50": 0.5, "p95": 0.95, "p98": 0.98, "p99": 0.99, "p999": 0.999}
    if not len(seconds):
        return dict.fromkeys(("mean", *names, "max"))
    found = dict(zip(names, (1e3 * np.quantile(seconds, list(names.values()))).tolist(), strict=True))
    return {"mean": 1e3 * float(seconds.mean()), **found, "max": 1e3 * float(seconds.max())}


def thinned(times_s: np.ndarray, scale: float) -> np.ndarray:
    """Return arrivals of `scale` control seconds within one wall second at the same rate: one in `scale` of them."""
    if scale == 1.0:
        return times_s
    keep = np.unique(np.ceil(np.arange(math.ceil(len(times_s) / scale)) * scale).astype(np.int64))
    return np.asarray(times_s[keep[keep < len(times_s)]] / scale)
