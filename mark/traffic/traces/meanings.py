"""What a column counts, by its name: a title, a metric's name, or the query that a dashboard shows as the legend."""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import Enum


class Kind(Enum):
    REQUESTS = "requests"  # the name says requests, or a rate of something
    COUNT = "a count"  # of whatever
    PART = "a part of the requests"
    ERRORS = "errors"
    UNKNOWN = "unknown"
    UNCLEAR = "an expression"  # of which only the user knows whether it is a rate
    MEASURE = "a measure"  # of a request or of a machine
    STATISTIC = "a statistic"  # an average, a percentile: a row stands for many requests


@dataclass(frozen=True, slots=True)
class Unit:
    """What a number stands for: requests of its row (`per_s` 0), requests in every `per_s` seconds, or a counter."""

    said: str
    per_s: float = 0.0
    counter: bool = False


ROW = Unit("requests of each row")
COUNTER = Unit("a counter's increases", counter=True)
RATES = {
    "per-second": Unit("requests/s", 1.0),
    "per-minute": Unit("requests/min", 60.0),
    "per-hour": Unit("requests/h", 3600.0),
}
UNITS = {"count": ROW, **RATES, "counter": COUNTER}


@dataclass(frozen=True, slots=True)
class Meaning:
    """`unit` is None where the name does not say it. `may_count` is a counter by its name, where its values rise."""

    kind: Kind
    unit: Unit | None = None
    may_count: bool = False

    @property
    def counts(self) -> bool:
        return self.kind in (Kind.REQUESTS, Kind.COUNT, Kind.UNCLEAR)


_WORDS = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|\d+")
_REQUESTS = frozenset(
    [
        *("anfragen", "aufrufe", "zugriffe", "solicitudes", "peticiones", "richieste", "requests", "reqs", "hits"),
        *("calls", "invocations", "queries", "predictions", "inferences", "rps", "qps", "tps", "rpm", "qpm", "reqps"),
        *("reqpm",),
    ]
)
_SINGULAR = frozenset(["request", "req", "query", "call", "invocation", "hit", "http", "prediction", "inference"])
_COUNTS = frozenset(["count", "counts", "sum", "total", "number", "num"])
_RATES = {"rps": "per-second", "qps": "per-second", "tps": "per-second", "reqps": "per-second"}
_RATES |= {"rpm": "per-minute", "qpm": "per-minute", "tpm": "per-minute", "reqpm": "per-minute"}
_SOME_RATE = frozenset({"rate", "throughput", "traffic"})
_ERRORS = frozenset(
    [
        *("error", "errors", "fail", "failed", "fails", "failure", "failures", "rejected", "dropped", "timeout"),
        *("timeouts", "exceptions"),
    ]
)
_PARTS = frozenset(
    ["success", "successes", "successful", "succeeded", "ok", "cached", "misses", "miss", "throttles", "throttled"]
)
_CODES = re.compile(r"(?<![0-9a-z])(?:([12345])xx|[12345]\d\d)(?![0-9a-z])")
_STATISTICS = frozenset(
    [
        *("average", "avg", "mean", "median", "min", "minimum", "max", "maximum", "stddev", "stdev", "percentile"),
        *("quantile", "percent", "pct", "share", "ratio", "utilization", "utilisation"),
    ]
)
_PERCENTILE = re.compile(r"(?<![a-z0-9])[pq]\d{1,2}(?:\.?\d+)?(?![0-9a-z])|\d%|%")
_MEASURES = frozenset(
    [
        *("latency", "duration", "elapsed", "ms", "millis", "milliseconds", "seconds", "sec", "secs", "us", "ns"),
        *("time", "times", "bytes", "byte", "kb", "mb", "gb", "bits", "size", "length", "status", "code", "port", "id"),
        *("pid", "line", "level", "connection", "connections", "cpu", "memory", "mem", "disk", "version", "user"),
        *("users", "host", "hosts", "instances", "replicas", "nodes", "pods", "age", "load", "threads"),
        *("vus", "tokens"),
        *("price", "cost", "usd", "temperature", "queue", "depth", "lag", "uptime", "seq", "sequence", "year", "month"),
        *("week", "weekday", "day", "hour", "minute", "second", "index", "rank"),
    ]
)
_SPANS = frozenset(
    ["second", "minute", "hour", "day", "week", "month", "year", "load"]
)  # `requests of the day` counts requests
_OF_CODES = frozenset({"status", "code"})  # `status_2xx` counts the requests of a status
_PER = re.compile(r"(?:/|per[ _-]?)\s*(?:(s|secs?|seconds?)|(m|min|minutes?)|(h|hr|hours?))\b", re.IGNORECASE)
_CALLS = re.compile(r"\b(rate|irate|increase|count_over_time)\s*\(", re.IGNORECASE)
_OTHER_CALLS = re.compile(
    r"\b(avg|mean|max|min|median|quantile|stddev|stdvar|histogram_quantile|percentile|\w+_over_time|absent|time)\s*\(",
    re.IGNORECASE,
)
_WINDOWED = re.compile(r"\w+\s*\([^()]*\[\s*(?:\d+(?:ms|[smhdwy])|\$)")  # a query's function of a window of time
_METRIC = re.compile(r"([a-zA-Z_:][\w:.]*)\s*(?:\{[^}]*\})?\s*\[\s*([^\]:]+)[^\]]*\]")
_WINDOW = re.compile(r"(\d+)(ms|s|m|h|d)")
_SECONDS = {"ms": 1e-3, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}
_TIMES_60 = re.compile(r"\*\s*60\s*$")
_OPERATOR = re.compile(r"[-+*/]\s*\(|\)\s*[-+*/]|\s[-+*/]\s|[*/]\s*[\d$]|/\s*period\b")
_BRACES = re.compile(r"\{[^}]*\}|\[[^\]]*\]|\"[^\"]*\"|\$\w+")
_IDENTIFIER = re.compile(r"[a-zA-Z_:][\w:]*(?:\{.*\})?")


def meaning_of(name: str) -> Meaning:
    """What the name says of the column's numbers."""
    if (call := _CALLS.search(name)) is not None:
        return _of_query(name, call[1].lower())
    bare = _BRACES.sub("", name)
    low = bare.lower()
    if _WINDOWED.search(name) and not _OTHER_CALLS.search(low):
        return Meaning(Kind.UNCLEAR)  # delta, deriv, changes, ...
    per = _PER.search(low)
    # The unit of time of `requests per minute` is neither a measure nor a minimum.
    words = {word.lower() for word in _WORDS.findall(bare if per is None else bare[: per.start()] + bare[per.end() :])}
    if words & _STATISTICS or _PERCENTILE.search(low) or (_OTHER_CALLS.search(low) and "count" not in words):
        return Meaning(Kind.STATISTIC)
    ending = bare.strip().rpartition("_")[2] if "_" in bare and _IDENTIFIER.fullmatch(name.strip()) else ""
    if ending in ("count", "total", "bucket"):
        measures = words & _MEASURES
        if (ending == "count" and measures) or (ending == "total" and not measures):
            return Meaning(_part(words, low) or Kind.REQUESTS, may_count=True)
        if ending == "bucket":
            return Meaning(Kind.MEASURE)
    unit = _per(per) if per is not None else next((RATES[_RATES[w]] for w in sorted(words) if w in _RATES), None)
    measures = words & _MEASURES - (_SPANS if words & _REQUESTS else frozenset())
    if measures and not (measures <= _OF_CODES and _CODES.search(low)):
        return Meaning(Kind.MEASURE)
    if _OPERATOR.search(low) and per is None:
        return Meaning(Kind.UNCLEAR)
    if (part := _part(words, low)) is not None:
        return Meaning(part, unit)
    if unit is not None:
        return Meaning(Kind.REQUESTS, unit)
    if words & _SOME_RATE:
        return Meaning(Kind.UNCLEAR)
    if words & _REQUESTS or (words & _SINGULAR and words & _COUNTS):
        return Meaning(Kind.REQUESTS)
    return Meaning(Kind.COUNT if words & _COUNTS else Kind.UNKNOWN)


def _per(found: re.Match[str]) -> Unit:
    return RATES["per-second" if found[1] else "per-minute" if found[2] else "per-hour"]


def _part(words: set[str], low: str) -> Kind | None:
    if words & _ERRORS:
        return Kind.ERRORS
    codes = _CODES.search(low)
    if codes is not None:
        return Kind.ERRORS if codes[0][0] in "45" else Kind.PART
    return Kind.PART if words & _PARTS else None


def _of_query(name: str, call: str) -> Meaning:
    """A query of Prometheus or Loki. `rate` is per second; `increase` counts in its window."""
    per_minute = _TIMES_60.search(name) is not None
    outside = _BRACES.sub("", _TIMES_60.sub("", name))
    if _OTHER_CALLS.search(outside.replace("count_over_time", "")):
        return Meaning(Kind.STATISTIC)
    if _OPERATOR.search(outside.lower()) or len(_CALLS.findall(name)) > 1:
        return Meaning(Kind.UNCLEAR)
    metric = _METRIC.search(name)
    words = {word.lower() for word in _WORDS.findall(metric[1] if metric else outside)}
    if words & _MEASURES and not (metric and metric[1].endswith("_count")):
        return Meaning(Kind.MEASURE)
    if call in ("rate", "irate"):
        return Meaning(Kind.REQUESTS, RATES["per-minute" if per_minute else "per-second"])
    window = _WINDOW.fullmatch(metric[2].strip()) if metric else None
    if per_minute or (metric and window is None and metric[2].strip() != "$__interval"):
        return Meaning(Kind.UNCLEAR)
    if window is None:
        return Meaning(Kind.REQUESTS, ROW)
    seconds = int(window[1]) * _SECONDS[window[2]]
    return Meaning(Kind.REQUESTS, Unit(f"increases over {window[0]}", seconds))
