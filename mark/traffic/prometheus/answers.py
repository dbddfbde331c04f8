"""Answers of Prometheus' HTTP API (also of Thanos, Mimir and VictoriaMetrics) as series of numbers.

A point whose value is NaN or infinite is left out and counted: it becomes a gap and never a zero.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import orjson

from mark.domain.arrays import FloatArray
from mark.domain.errors import BadInput
from mark.traffic.traces.partial import incomplete

# Two Prometheus servers that scrape the same targets differ in these labels only.
REPLICA_LABELS = ("__replica__", "prometheus_replica")
# Labels of one replica of a workload. Series that differ in other labels may be those of several workloads.
POD_LABELS = ("pod", "pod_name", "k8s_pod_name", "replica", "instance")
_LATER = ("canceled", "internal", "timeout", "unavailable")  # kinds of errors that do not concern the query
_SHOWN = 200  # characters of a reason


class Unanswered(BadInput):
    """Prometheus did not answer, or not in full. The same query may succeed later."""


@dataclass(frozen=True, slots=True, eq=False)
class PromSeries:
    """One series: `times_s` are Unix seconds and ascend, `values` are finite."""

    labels: Mapping[str, str]
    times_s: FloatArray
    values: FloatArray

    def without(self, dropped: Iterable[str]) -> tuple[tuple[str, str], ...]:
        """Return the labels except `dropped`, as a key."""
        gone = set(dropped)
        return tuple(sorted((name, value) for name, value in self.labels.items() if name not in gone))


@dataclass(frozen=True, slots=True)
class PromAnswer:
    """The series of one answer, the server's warnings and the number of points without a finite value."""

    series: tuple[PromSeries, ...] = ()
    warnings: tuple[str, ...] = ()
    undefined: int = 0


@dataclass(slots=True)
class Pages:
    """Answers for consecutive spans, joined to one."""

    _parts: dict[tuple[tuple[str, str], ...], list[PromSeries]] = field(default_factory=dict)
    _warnings: dict[str, None] = field(default_factory=dict)
    _undefined: int = 0

    def add(self, page: PromAnswer) -> None:
        for series in page.series:
            self._parts.setdefault(series.without(()), []).append(series)
        self._warnings |= dict.fromkeys(page.warnings)
        self._undefined += page.undefined

    def joined(self) -> PromAnswer:
        series = tuple(
            PromSeries(dict(key), *(np.concatenate([getattr(one, name) for one in parts]) for name in _ARRAYS))
            for key, parts in self._parts.items()
        )
        return PromAnswer(series, tuple(self._warnings), self._undefined)


_ARRAYS = ("times_s", "values")


def parse_answer(body: bytes, where: str) -> PromAnswer:
    """Return the series of an answer to `query` or `query_range`; `where` names the server in errors.

    Raises BadInput for an answer that says `error` or that is not in Prometheus' form, and Unanswered for a partial
    answer.
    """
    whole = json_of(body)
    data = whole.get("data")
    if whole.get("status") == "error":
        later = whole.get("errorType") in _LATER
        what = "Prometheus could not answer" if later else "Prometheus refuses the query"
        raise (Unanswered if later else BadInput)(f"{what}: {reason_of(whole)}", where)
    if whole.get("status") != "success" or not isinstance(data, dict):
        raise BadInput("the answer is not one of Prometheus' HTTP API: is the path right?", where, shown(body))
    warnings = tuple(str(one) for one in whole.get("warnings") or ())
    if partial := incomplete(whole, warnings):
        raise Unanswered("the answer is not complete: ask again, or for fewer days", where, partial[0])
    kind: Any = data.get("resultType")
    result: Any = data.get("result")
    found: list[tuple[Any, Any]]
    try:
        if kind == "scalar":
            found = [({}, [result])]
        elif kind in ("vector", "matrix"):
            found = [(one["metric"], one["values"] if kind == "matrix" else [one["value"]]) for one in result]
        else:
            raise BadInput("the query must give numbers over time", where, f"resultType {kind}")
        series, undefined = [], 0
        for labels, points in found:
            table = np.array([(float(at), float(value)) for at, value in points], dtype=np.float64).reshape(-1, 2)
            known = np.isfinite(table[:, 1])
            undefined += int(len(known) - known.sum())
            if known.any():
                table = table[known]
                named = {str(name): str(value) for name, value in labels.items()}
                series.append(PromSeries(named, table[:, 0].copy(), table[:, 1].copy()))
    except (KeyError, TypeError, ValueError) as error:
        raise BadInput(f"the answer is not one of Prometheus' HTTP API ({error})", where, shown(body)) from None
    return PromAnswer(tuple(series), warnings, undefined)


def json_of(body: bytes) -> Mapping[str, Any]:
    """Return the JSON object of a body, or an empty one."""
    try:
        whole = orjson.loads(body)
    except orjson.JSONDecodeError:
        return {}
    return whole if isinstance(whole, dict) else {}


def reason_of(whole: Mapping[str, Any]) -> str:
    """Return Prometheus' reason for refusing, from the JSON of its answer; empty if it gives no reason."""
    said = [str(whole[key]) for key in ("errorType", "error", "message") if whole.get(key)]
    return shown(": ".join(said).encode())


def shown(body: bytes) -> str:
    """Return the beginning of a text from outside, on one line."""
    text = " ".join(body[: 4 * _SHOWN].decode("utf-8", "replace").split())
    return text if len(text) <= _SHOWN else text[:_SHOWN] + "..."


def summed(answer: PromAnswer, where: str) -> tuple[FloatArray, FloatArray]:
    """Return the times, and the sum of all series at each.

    Series that differ in REPLICA_LABELS only are the same measurement twice and count once: the highest value holds,
    because a server that was down for a while has too few. Raises BadInput without any point, and for series that
    differ in more than the replica.
    """
    if not answer.series:
        raise BadInput("the query has no answer in this time", where)
    kept: dict[tuple[tuple[str, str], ...], list[PromSeries]] = {}
    for one in answer.series:
        kept.setdefault(one.without(REPLICA_LABELS), []).append(one)
    groups = sorted({one.without((*REPLICA_LABELS, *POD_LABELS)) for one in answer.series})
    if len(groups) > 1:
        first, second = (dict(group) for group in groups[:2])
        name = min(name for name in first | second if first.get(name) != second.get(name))
        what = f"the query has {len(groups)} series: write sum(...), or select those of the workload"
        raise BadInput(what, where, f"{name} {first.get(name, '')} and {second.get(name, '')}")
    highest = [_at_each_time(alike, np.maximum) for alike in kept.values()]
    return _at_each_time([PromSeries({}, times, values) for times, values in highest], np.add)


def _at_each_time(series: Sequence[PromSeries], how: np.ufunc) -> tuple[FloatArray, FloatArray]:
    if len(series) == 1:
        return series[0].times_s, series[0].values
    times, place = np.unique(np.concatenate([one.times_s for one in series]), return_inverse=True)
    values = np.full(len(times), 0.0 if how is np.add else -np.inf)
    how.at(values, place, np.concatenate([one.values for one in series]))
    return times, values
