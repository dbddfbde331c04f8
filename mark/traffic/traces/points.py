"""Series of points in nested JSON, found by their shape: the metrics and logs that monitoring services answer.

Points are a list of objects with a time, a list of pairs with one, a map from times to numbers, or a list of times
beside lists of numbers. The objects around them name the series and state its unit. Formats: Azure Monitor, metrics;
Google Cloud Monitoring, `timeSeries.list`; New Relic, NRQL; Cloudflare, GraphQL; Artillery, reports; OpenTSDB,
`/api/query`; OpenTelemetry, OTLP/JSON; Loki, streams; Prometheus, range queries; CloudWatch, GetMetricData.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from mark.domain.errors import BadInput
from mark.traffic.traces.cells import is_missing, plain_numbers, read_numbers
from mark.traffic.traces.meanings import Kind, meaning_of
from mark.traffic.traces.stated import CUMULATIVE, is_unit
from mark.traffic.traces.times import as_times

UNNAMED = "value"  # the column of a series without a name
LINE = "line"  # the column of a log's lines
TIME = "timestamp"  # the column of times of points without names, which are since 1970
_DEEPEST, _PEEK = 16, 50  # objects in a list that show whether it holds series or points
# Objects whose fields belong to the point: of Elasticsearch, Splunk, Google, Cloudflare, Artillery, New Relic.
_AROUND = frozenset(["_source", "result", "interval", "dimensions", "sum", "counters", "results"])
_AROUND |= {"distributionValue", UNNAMED}
_OF_REQUEST = frozenset(["httpRequest", "request", "response", "http", "properties"])
_STATISTICS = frozenset(["sum", "total", "count", "avg", "average", "min", "max", "unique", "value"])
VALUES = frozenset([UNNAMED, "values", "asInt", "asDouble", "int64Value", "doubleValue"])
_METRICS = ("expression", "__name__", "metricName", "metric_name", "metricId", "metric", "target")
_NAMES = (*_METRICS, "name", "facet", "label", "Label", "Id", "key")  # of one object of several
# Names of lists of any points, and of objects around any of them.
_GENERAL = frozenset(
    ["data", "values", "points", "datapoints", "series", "dps", "pointlist", "samples", "result", "results"]
)
_GENERAL |= {"rows", "records", "items", "entries", "timeseries", "timeSeries", "metricValues", "dataPoints"}
_GENERAL |= {"measurements", "value", "response", "metrics", "payload", "body", "output", "stats", "chart"}
_GENERAL |= {"charts", "graph", "panels", "total", "totalResult"}
_OVER_TIME = re.compile(r"(?i)_?(?:over|by)_?time|time_?(?:line|series|buckets?)|^(?:time|(?:by_?)?(?:minute|hour))$")
_TITLES = (*_METRICS, "name", "title", "description", "label", "legend", "query", "expr", "id")
_TELLING = frozenset([Kind.MEASURE, Kind.STATISTIC, Kind.ERRORS, Kind.PART])
_LABELS = frozenset(["metric", "labels", "tags", "attributes", "dimensions", "dimensionMap", "resource", "stream"])
_LABELS |= {"metadatavalues"}
_ABOUT = frozenset(["meta", "metadata", "info", "config", "options"])
_VALUE_FIRST = "datapoints"  # of Graphite
_MONOTONIC = "isMonotonic"  # of OpenTelemetry, as the two below; its units stand in braces if they are things
_OVER = "aggregationTemporality"
_SAID: Mapping[tuple[str, object], str] = {(_OVER, 1): "delta", (_OVER, 2): "cumulative", ("unit", "By"): "bytes"}
_ENDS = {"timeUnixNano": "endTimeUnixNano"}  # of OpenTelemetry's deltas
_START = re.compile(r"(?i)start")


@dataclass(frozen=True, slots=True)
class Points:
    """Points of one series: `rows` are objects. `name` and `labels` are those of the objects around.

    `hint` is a field on the way or a title, if it says that plain numbers are no requests of each row. `around` are the
    objects on the way, the inner ones first.
    """

    place: str  # the fields on the way to them
    name: str
    hint: str
    labels: Mapping[str, str]
    stated: Mapping[str, str]
    around: Sequence[Mapping[str, object]] = ()
    rows: list[Mapping[str, object]] = field(default_factory=list)

    @property
    def labelled(self) -> str:
        labels = ",".join(f"{key}={value}" for key, value in self.labels.items())
        return f"{self.name}{{{labels}}}" if labels else self.name


def series_of_points(documents: Sequence[object], where: str) -> list[Points]:
    """Return the series in documents that belong together. Points of one name in several documents are one series.

    Labels that all series share are left out, unless they select a part of the requests. Raises BadInput for times
    without numbers.
    """
    found: dict[tuple[object, ...], Points] = {}
    times: dict[tuple[object, ...], set[tuple[object, ...]]] = {}
    for document in documents:
        for points in _points_in(document, where):
            for labels, rows in _by_labels(points.rows):
                own = replace(points, labels={**points.labels, **labels}, rows=rows)
                key, again = (own.place, own.name, *sorted(own.labels.items())), 0
                while (*key, again) in found and not _stamps(rows).isdisjoint(times[*key, again]):
                    again += 1  # another series of the same name, as of two zones
                if again:
                    own = replace(own, labels={**own.labels, "number": str(again + 1)})
                found.setdefault((*key, again), replace(own, rows=[])).rows.extend(rows)
                times.setdefault((*key, again), set()).update(_stamps(rows))
    return _without_common(list(found.values()))


def flattened(row: Mapping[str, object]) -> Mapping[str, object]:
    """Return a row with the fields of objects in it that belong to the point or the request.

    A field of an object whose name the row has already is called after the object, too.
    """
    found: dict[str, object] = {}
    for name, value in row.items():
        inner: object = value
        if name == "results" and "beginTimeSeconds" in row and isinstance(value, list):  # of New Relic
            inner = _merged([one for one in value if isinstance(one, dict)])
        if isinstance(inner, dict) and name in _AROUND:
            for key, each in flattened(inner).items():
                found[f"{name} {key}" if found.get(key, row.get(key, each)) != each else key] = each
        elif isinstance(inner, dict) and name in _OF_REQUEST:
            found |= {f"{name}.{key}": each for key, each in inner.items()}
        elif isinstance(inner, dict) and inner and inner.keys() <= _STATISTICS and meaning_of(name).counts:
            found |= {f"{name} {key}": each for key, each in inner.items()}
        elif isinstance(inner, dict) and "doc_count" in row and inner.keys() & {UNNAMED}:
            found[f"{name} {UNNAMED}"] = inner[UNNAMED]  # of Elasticsearch
        else:
            found[name] = value
    return found


def _merged(objects: Sequence[Mapping[str, object]]) -> Mapping[str, object] | None:
    """Return the fields of several objects; None if two have one name."""
    found = {key: each for one in objects for key, each in one.items()}
    return found if len(found) == sum(map(len, objects)) else None


def is_time(cell: object) -> bool:
    if isinstance(cell, bool) or not isinstance(cell, str | int | float):
        return False
    try:
        return as_times("", [cell]) is not None
    except BadInput:
        return True  # a time whose day and month, or zone, are ambiguous


# -- shapes ------------------------------------------------------------------------------------------------------------

_Around = tuple[tuple[Mapping[str, object], bool], ...]  # objects, the inner ones first, and whether a list holds them


def _points_in(
    held: object, where: str, place: tuple[str, ...] = (), around: _Around = (), *, listed: bool = False
) -> Iterator[Points]:
    if len(place) > _DEEPEST or not held:
        return
    if isinstance(held, dict):
        around = ((held, listed), *around)
        rows = _by_time(held) or _beside(held, where)
        if rows:
            yield _points(place, around, where, rows)
            return
        for key, value in held.items():
            yield from _points_in(value, where, (*place, key), around)
    elif isinstance(held, list):
        if (rows := _pairs(held, place, where)) is not None:
            yield _points(place, around, where, rows)
            return
        objects = [one for one in held if isinstance(one, dict)]
        if len(objects) == len(held) and _are_rows(objects):
            yield _points(place, around, where, [flattened(one) for one in objects])
            return
        inner = [each for one in objects[:_PEEK] for each in _points_in(one, where, place, around, listed=True)]
        if inner:
            yield from inner
            for one in objects[_PEEK:]:
                yield from _points_in(one, where, place, around, listed=True)
        elif len(objects) == len(held) and any(map(is_time, flattened(held[0]).values())):
            yield _points(place, around, where, [flattened(one) for one in objects])


def _are_rows(objects: Sequence[Mapping[str, object]]) -> bool:
    """Return whether each of several objects has a time of its own, and none is a series with points."""
    peek = objects[:_PEEK]
    keys = [key for key, value in peek[0].items() if is_time(value)]
    own = len(peek) > 1 and any(len({str(one.get(key)) for one in peek}) == len(peek) for key in keys)
    return own and not any(key in _GENERAL and isinstance(value, list) for key, value in peek[0].items())


def _by_time(held: Mapping[str, object]) -> list[Mapping[str, object]] | None:
    first = next(iter(held), "")
    if not first[:1].isdigit() or not is_time(first) or not all(map(is_time, held)):
        return None
    return [{TIME: key, **(value if isinstance(value, dict) else {UNNAMED: value})} for key, value in held.items()]


def _beside(held: Mapping[str, object], where: str) -> list[Mapping[str, object]] | None:
    """Return the rows of lists of equal length, one of them of times and others of numbers."""
    lists = {key: value for key, value in held.items() if isinstance(value, list) and value}
    times = [key for key, value in lists.items() if "time" in key.lower() and is_time(value[0])]
    numbers = [key for key, value in lists.items() if key not in times and _are_numbers(value)]
    if len(times) != 1 or not numbers:
        return None
    if len({len(lists[key]) for key in (*times, *numbers)}) > 1:
        raise BadInput("as many timestamps as values are needed", where)
    columns = [lists[key] for key in (*times, *numbers)]
    names = [TIME, *(UNNAMED if key.lower() == "values" else key for key in numbers)]
    return [dict(zip(names, row, strict=True)) for row in zip(*columns, strict=True)]


def _pairs(held: list[object], place: tuple[str, ...], where: str) -> list[Mapping[str, object]] | None:
    first = held[0]
    if not isinstance(first, list) or len(first) != 2 or not (is_time(first[0]) or is_time(first[1])):
        return None
    wrong = next((pair for pair in held if not isinstance(pair, list) or len(pair) != 2), None)
    if wrong is not None:
        raise BadInput("points of time and value are needed", where, str(wrong)[:60])
    pairs = [pair for pair in held if isinstance(pair, list)]
    value_first = place[-1:] == (_VALUE_FIRST,) or not is_time(first[0])
    if not value_first and _at_one_step([last for _, last in pairs]) and not _at_one_step([one for one, _ in pairs]):
        raise BadInput("both numbers of a pair may be the time: write the time first", where, str(first)[:60])
    pairs = [pair[::-1] for pair in pairs] if value_first else pairs
    cells = [value for _, value in pairs]
    name = UNNAMED if all(map(is_missing, cells)) or read_numbers(cells) is not None else LINE
    return [{TIME: time, name: value} for time, value in pairs]


def _at_one_step(cells: Sequence[object]) -> bool:
    """Return whether all cells may be times, and stand at one step."""
    numbers = plain_numbers(cells) if all(map(is_time, cells[:2])) else None
    return numbers is not None and len(steps := {*np.diff(numbers).tolist()}) == 1 and 0.0 not in steps


def _points(place: tuple[str, ...], around: _Around, where: str, rows: list[Mapping[str, object]]) -> Points:
    labels: dict[str, str] = {}
    stated: dict[str, str] = {}
    for held, _ in reversed(around):
        for key, value in held.items():
            if key in _LABELS:
                labels |= _labels(value)
            elif key == "unit" and isinstance(value, list) and value:
                stated[key] = _unit_of(value)
            elif key == "sum_other_doc_count" and value:
                what = "documents of other buckets are missing: ask for one date_histogram"
                raise BadInput(what, f"{where} {key}", value)
            elif key == "query" and isinstance(value, dict):  # of OpenTSDB
                stated |= {inner: str(said) for inner, said in value.items() if isinstance(said, str)}
                stated |= {"interval": stated["downsample"].partition("-")[0]} if "downsample" in stated else {}
                stated |= {"unit": "requests/s"} if value.get("rate") is True else {}
            elif key in _ABOUT and isinstance(value, dict):
                stated |= {inner: said for inner, said in value.items() if isinstance(said, str) and is_unit(inner)}
            elif isinstance(value, str | int | float):
                stated[key] = _SAID.get((key, value), str(value).strip("{}"))
    if "aggregator" not in stated and any(held.get("aggregateTags") for held, _ in around):
        stated["metricKind"] = "gauge"  # OpenTSDB added or averaged series
    named = (_name(held, _NAMES if listed else _METRICS) for held, listed in around)
    name = next(filter(None, named), "")
    hint = ""
    if not name:
        keys = [own for key in reversed(place) if key not in _GENERAL and (own := _OVER_TIME.sub("", key))]
        hint = next(filter(_tells, [*keys, *_titles(around)]), "")
        if rows[0].keys() & VALUES:
            own = next(iter(keys), hint)
            name = own if own == hint or _tells(own) else f"{hint} {own}".strip()
    if place[-2:-1] == ("gauge",) or stated.pop(_MONOTONIC, "True") == "False":
        stated["type"] = "gauge"
    if any(map(CUMULATIVE.fullmatch, stated.values())):  # their starts are those of the counter
        rows = [{key: value for key, value in row.items() if not _START.search(key)} for row in rows]
    elif "startTimeUnixNano" in rows[0]:
        rows = [{_ENDS.get(key, key): value for key, value in row.items()} for row in rows]
    return Points(".".join(place), name, hint, labels, stated, [held for held, _ in around], rows)


def _titles(around: _Around) -> Iterator[str]:
    for held, _ in around:
        metric = held.get("metric")
        for one in (held, metric if isinstance(metric, dict) else {}):
            yield from (text for key in _TITLES if isinstance(text := one.get(key), str))


def _tells(text: str) -> bool:
    """Return whether a name says that its numbers are no requests of each row: a rate, a part, a measure."""
    said = meaning_of(text)
    return said.kind in _TELLING or said.unit is not None or said.times != 1.0


def _unit_of(units: Sequence[object]) -> str:
    """Return the unit of Datadog's series: a thing of some size, or its rate."""
    thing, per = ([one if isinstance(one, dict) else {} for one in units] + [{}])[:2]
    scale = thing.get("scale_factor", 1.0)
    name = f"{thing.get('name', '')} x {scale:g}" if scale != 1.0 else str(thing.get("name", ""))
    return f"{name}/{per['name']}" if "name" in per else name


def _name(held: Mapping[str, object], keys: Sequence[str] = _NAMES) -> str:
    for key in keys:
        value = held.get(key)
        if isinstance(value, dict):
            value = value.get("__name__") or (value.get("value") if key == "name" else _google_type(value))
        if isinstance(value, str) and value:
            return value
    return ""


def _google_type(held: Mapping[str, object]) -> object:
    """Return Google's name of a metric; elsewhere `type` is a label."""
    return held.get("type") if "labels" in held or "/" in str(held.get("type")) else None


def _labels(held: object) -> dict[str, str]:
    """Return labels: an object of texts, or a list of objects with a key and a value."""
    if isinstance(held, dict):
        own = ("__name__", "type" if _google_type(held) else "")
        found = {str(key): str(value) for key, value in held.items() if isinstance(value, str) and key not in own}
        return found | {k: v for key in held.keys() & _LABELS for k, v in _labels(held[key]).items()}
    found = {}
    for one in held if isinstance(held, list) else ():
        if isinstance(one, dict) and (key := _name(one) or one.get("key")) and "value" in one:
            value = one["value"]
            found[str(key)] = str(next(iter(value.values()), "") if isinstance(value, dict) else value)
    return found


def _by_labels(rows: list[Mapping[str, object]]) -> list[tuple[dict[str, str], list[Mapping[str, object]]]]:
    """Return rows by their own labels, as OpenTelemetry's points have them."""
    keys = {key for key in rows[0] if key in _LABELS and isinstance(rows[0][key], dict | list)}
    if not keys:
        return [({}, rows)]
    found: dict[tuple[tuple[str, str], ...], list[Mapping[str, object]]] = {}
    for row in rows:
        labels = {k: v for key in sorted(keys) for k, v in _labels(row.get(key)).items()}
        kept = {key: value for key, value in row.items() if key not in keys}
        found.setdefault(tuple(labels.items()), []).append(kept)
    return [(dict(labels), kept) for labels, kept in found.items()]


def _stamps(rows: Sequence[Mapping[str, object]]) -> set[tuple[object, ...]]:
    keys = [key for key, value in rows[0].items() if is_time(value)]
    return {tuple(str(row.get(key)) for key in keys) for row in rows}


def _without_common(series: list[Points]) -> list[Points]:
    if len(series) == 1:
        bare = replace(series[0], labels={})
        return [bare if meaning_of(bare.name).kind is meaning_of(series[0].labelled).kind else series[0]]
    shared = set.intersection(*(set(one.labels.items()) for one in series)) if series else set()
    return [replace(one, labels=dict(i for i in one.labels.items() if i not in shared)) for one in series]


def _are_numbers(values: Sequence[object]) -> bool:
    return plain_numbers([value for value in values if not is_missing(value)]) is not None
