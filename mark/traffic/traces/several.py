"""Tables of several series below one another: the column that names them, and the series that are the requests."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

import numpy as np

from mark.domain.arrays import FloatArray
from mark.domain.errors import BadInput
from mark.traffic.traces.cells import is_missing, read_numbers
from mark.traffic.traces.meanings import Kind, are_siblings, is_of_all, meaning_of
from mark.traffic.traces.steps import is_summary

SUM = "sum"  # --series sum
NAMES = frozenset(  # of columns that name the series of a row
    [
        *("series", "metric", "metric_name", "metricname", "metric name", "__name__", "name", "legend", "label"),
        *("measurement", "item", "item name", "counter", "countername", "counter name", "key", "sensor", "channel"),
        *("variable", "parameter", "indicator", "kpi", "field", "_field", "target", "title", "displayname", "query"),
    ]
)
_LABELS = frozenset(
    ["status", "code", "status_code", "sc-status", "response_code", "http_status", "shard", "partition", "port"]
)
_MOST = 1000
_LABELLED = re.compile(r"\{[^}]*\}")
K6 = "http_reqs"
AGGREGATED = "Aggregated"  # the sum of the others in Locust's history


def series_of(columns: Mapping[str, Sequence[object]], seconds: FloatArray) -> list[str] | None:
    """Return the name of the series of each row; None if the table is one series, or a log of requests.

    A column called `metric` or similar names them. Otherwise all columns of texts do, if each of their combinations has
    rows at a fixed step and they share their times.
    """
    keys = {name: [str(value) for value in values] for name, values in columns.items() if _may_name(name, values)}
    named = [name for name in keys if name.strip().lower() in NAMES]
    several = {name for name, values in keys.items() if 1 < len(set(values)) <= _MOST}
    if said := [name for name in named if name in several]:
        first = keys[said[0]]
        if K6 in first or _regular(first, seconds):
            return first
    if len(np.unique(seconds)) == len(seconds) or not several:
        return None
    joined = [", ".join(row) for row in zip(*(keys[name] for name in keys if name in several), strict=True)]
    return joined if _regular(joined, seconds) else None


def chosen_series(names: Sequence[str], asked: str | None, where: str) -> list[str]:
    """Return the series that count: the requested one or all, or the only one whose name says requests."""
    known = list(dict.fromkeys(names))
    if asked == SUM:
        return known
    if asked is not None:
        if asked not in known and (of_metric := [name for name in known if name.partition("{")[0] == asked]):
            return of_metric
        if asked not in known:
            raise BadInput(f"no such series in {where}: there are {_listed(known)}", "series", asked, known=known)
        return [asked]
    if K6 in known:
        return [K6]
    if (rows := [name for name in known if name.split(", ")[-1] == AGGREGATED]) and len(rows) == 1:
        return rows
    kinds = {name: meaning_of(name).kind for name in known}
    requests = [
        name
        for name, kind in kinds.items()
        if kind is Kind.REQUESTS or (kind is Kind.PERHAPS and is_of_all(name, known))
    ]
    others = {kind for name, kind in kinds.items() if name not in requests}
    parts = len(requests) == 1 and any(is_part_beside(requests[0], name) for name in known)
    if len(requests) == 1 and not parts and others <= {Kind.MEASURE, Kind.STATISTIC, Kind.PART, Kind.ERRORS}:
        return requests
    what = f"{len(known)} series in one table, choose one with `series`, or all with `series` {SUM}"
    raise BadInput(what, where, _listed(known))


def is_part_beside(requests: str, other: str) -> bool:
    """Return whether two series are requests of different names or labels: together they are the requests."""
    labelled = "{" in requests and _LABELLED.sub("", requests) == _LABELLED.sub("", other)
    return requests != other and (labelled or (meaning_of(other).kind is Kind.PART and are_siblings(requests, other)))


def _may_name(name: str, values: Sequence[object]) -> bool:
    if name.strip().lower() in _LABELS:
        return True
    texts = [value for value in values[:50] if isinstance(value, str) and not is_missing(value)]
    return bool(texts) and read_numbers(texts) is None


def _regular(names: Sequence[str], seconds: FloatArray) -> bool:
    """Return whether each series has rows at a fixed step and distinct times."""
    order = np.argsort(np.array(names), kind="stable")
    _, begins = np.unique(np.array(names)[order], return_index=True)
    if len(begins) > _MOST or len(begins) > 0.5 * len(names):
        return False
    groups = np.split(seconds[order], begins[1:])
    good = [len(np.unique(group)) == len(group) and (len(group) < 3 or is_summary(group)) for group in groups]
    long = [len(group) >= 3 for group in groups]
    return sum(good) >= 0.9 * len(good) and any(long)


def _listed(names: Sequence[str]) -> str:
    shown = ", ".join(name if len(name) <= 60 else f"{name[:57]}..." for name in names[:5])
    return f"{shown}, ..." if len(names) > 5 else shown
