"""Statements about a table's numbers beside the name of their column: titles, comments, and columns of one value.

Tools write the unit, the statistic, the span of a row or the rate of a sample there, as CloudWatch's console does above
its header, and SQL in a column.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache

import numpy as np

from mark.traffic.traces.cells import is_missing, plain_numbers, read_numbers
from mark.traffic.traces.meanings import COUNTER, RATES, ROW, Kind, Meaning, meaning_of

Statement = tuple[str, str]  # a key, empty for free text, and its value

_PAIR = re.compile(r"\s*([A-Za-z_][\w ./-]{0,40}?)\s*[:=]\s*(\S.*?)\s*")
_INFLUX = re.compile(r"#default,(\w+),")  # the name that a query gives its result: that of its function
_STATISTIC = frozenset(
    [
        *("stat", "stats", "statistic", "statistics", "aggregation", "aggregate", "agg", "aggr", "aggregator", "func"),
        *("aggregationtype", "downsample", "calculation", "calc", "reducer", "function", "fn", "rollup", "statistik"),
    ]
)
_UNIT = frozenset(["unit", "units", "uom", "einheit", "einheiten", "unidad", "unite", "unita"])
_SPAN = re.compile(
    r"(?:period|interval|step|resolution|granularity|span|bucket(?:width|size)?|bin(?:width|size)?|window(?:size)?"
    r"|timegrain|rollup|spanofarow|duration|width|timeframe|dauer|interval[leo]|zeitraum|frequency"
    r"|aggregation|seconds|minutes)(?:s|sec|secs|seconds|ms|m|min|minutes)?"
)
_KIND = frozenset(["type", "metrictype", "metrickind", "kind", "valuetype"])
_TEMPORALITY = frozenset(["aggregationtemporality", "temporality", "metrickind"])
CUMULATIVE = re.compile(r"(?:aggregation_temporality_)?cumulative", re.IGNORECASE)
_DELTA = re.compile(r"(?:aggregation_temporality_)?delta", re.IGNORECASE)
_GAUGES = frozenset(["gauge", "histogram", "summary", "distribution", "percentage", "percent", "duration"])
_SAMPLE = re.compile(
    r"(?:item|sample)count|weight|repeat(?:s|ed|count)?|suppressed|dropped|batch(?:size|len(?:gth)?)?|(?:(?:micro|mini)?batch)?bsz?"
    r"|(?:n|num(?:berof)?)(?:items|requests|samples)|(?:n|num(?:berof)?)?(?:inputs|instances|prompts)"
    r"|(?:\w*traces)?sampl(?:e|es|ed|ing)(?:rate|ratio|interval|factor|fraction|every|weight"
    r"|probability|percentage|percent)?"
)
# Fields of a request that list numbers, texts or objects of several requests.
_LISTS = {
    dict: re.compile("requests|records|events|batch|calls|entries"),
    str: re.compile("(?:request|req|record|event|message|trace|correlation)?ids?"),
    float: re.compile(r"\w*(?:latency|latencies|duration|elapsed)\w*"),
}
_BETWEEN_IDS, _HEX = re.compile(r"[;,|+/\s]+"), re.compile(r"[0-9a-fA-F]+")
_NO_UNIT = frozenset(
    ["", "none", "count", "counts", "#", "number", "short", "1", "null", "events", "event", "n", "items", "locale"]
)
_NAMES_NO_SCALE = re.compile(
    r"(?i:\b(?:thousands?|millions?|hundreds|tsd|mio|tausend|millionen)\b|'000s?|\b10\^[36]\b)"
)
_SAMPLED = re.compile(  # "sampled 1/10", "1% sample", "1 in 10 requests", "every 10th"; not all of them
    r"(?!.*\b(?:100\s?%|1[/:]1\b|1\.0\b))(?:.*(?<![a-z])sampl(?:e|ed|es|ing)(?![a-z]).*\d"
    r"|.*(?:\b1\s?[:/]\s?\d+\b|\d\s?%|\b0?\.\d+\b).*(?<![a-z])sampl"
    r"|.*\b(?:1|one) (?:in|of|out of|of every) \d+\b|.*\bevery \d+(?:st|nd|rd|th)\b)",
    re.IGNORECASE,
)
_EVERY = re.compile(r"\b(?:interval|period|every)\W+(\d+(?:\.\d+)?\s*[a-z]+)\s*$", re.IGNORECASE)
_TIMES = re.compile(
    r"(?:P?T)?(\d+(?:\.\d+)?)\s*(ms|millis\w*|s|secs?|seconds?|m|mins?|minutes?|h|hrs?|hours?|d|days?)?", re.IGNORECASE
)
_CLOCK = re.compile(r"(\d{1,2}):(\d\d):(\d\d)")
_LENGTHS = {"ms": 1e-3, "mi": 60.0, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86_400.0}
_OUTCOME = re.compile(
    r"(?!cache)\w*status(?:class|code)?|\w*response(?:class|code)|class|code|(?:http)?code|result|outcome|response"
)
_OF_REQUESTS = (Kind.REQUESTS, Kind.PERHAPS, Kind.PART, Kind.ERRORS)
_CODE = re.compile(r"([1-5](?:\d\d|(xx)))(?:\.0)?")
_WORD = re.compile(r"[\w.-]*[A-Za-z][\w.-]*")
_NO_LABEL = re.compile(r"[^\w.]+")
_FLAGS = {
    **dict.fromkeys(
        ("partial", "incomplete", "truncated", "estimated", "interpolated", "isforecast", "forecast"), True
    ),
    **dict.fromkeys(("complete", "iscomplete", "final", "isfinal"), False),
}
_TRUTH = {"true": True, "yes": True, "1": True, "false": False, "no": False, "0": False}
_ABOUT_NUMBERS = frozenset(
    [
        *(_STATISTIC | _UNIT | _KIND | _TEMPORALITY | set(_FLAGS)),
        *("series", "metric", "metricname", "name", "label", "legend"),
        *("note", "notes", "comment", "remark", "flag", "flags", "quality", "qualityflag", "health"),
        *("weekend", "isweekend", "weekday", "holiday", "isholiday", "timezone", "tz"),
    ]
)
_EVERY_VALUE = frozenset(["all", "any", "total", "overall"])
_FACTOR = re.compile(r"scale|scaling|multiplier|(?:scale|scaling)?factor")
_PART = re.compile(r"(\d+(?:\.\d+)?)\s*(%)?(?:\s*(?::|/|in|of)\s*(\d+(?:\.\d+)?))?")


@dataclass(frozen=True, slots=True)
class Doubt:
    """A statement that leaves the numbers of a column open. `sample`: requests are missing, whatever the unit."""

    statement: str
    sample: bool = False


def above_and_between(titles: Iterable[Sequence[str]], comments: Iterable[str]) -> list[Statement]:
    """Return the statements of title rows and of comments."""
    found: list[Statement] = []
    for row in titles:
        cells = [cell.strip() for cell in row if cell.strip()]
        if len(cells) == 2:
            found.append((cells[0], cells[1]))
        else:
            found += [_statement(cell) for cell in cells]
    for line in comments:
        default = _INFLUX.match(line)
        found.append(("statistic", default[1]) if default else _statement(line.strip().lstrip("# ")))
    return found


def of_object(whole: Mapping[str, object]) -> list[Statement]:
    """Return the plain fields of an object around the rows."""
    return [(key, str(value)) for key, value in whole.items() if isinstance(value, str | int | float)]


def of_columns(columns: Mapping[str, Sequence[object]]) -> list[Statement]:
    """Return the columns that hold one value in all of several rows, and those of units that hold several."""
    found = []
    for name, values in columns.items():
        held = dict.fromkeys(map(str, values)) if len(values) > 1 else {}
        if len(held) == 1 or (_plain(name) in _UNIT and 1 < len(held) <= _MOST_UNITS):
            found.append((name, _BETWEEN.join(held)))
    return found


def stated(meaning: Meaning, statements: Sequence[Statement]) -> Meaning:
    """Return the meaning of a column whose name leaves open what a statement says: a statistic, or a unit."""
    if meaning.kind in (Kind.MEASURE, Kind.STATISTIC):
        return meaning
    gauge, over = False, None
    for key, value in statements:
        plain = _plain(key)
        if _BETWEEN in value:
            continue
        if plain in _STATISTIC and not _seconds(value, plain) and _is_statistic(value):  # `1 min` is no minimum
            return Meaning(Kind.STATISTIC)
        if _OUTCOME.fullmatch(plain) and meaning_of(f"{value} requests").kind is Kind.ERRORS:
            return Meaning(Kind.ERRORS)
        if plain in _KIND and _plain(value) in _GAUGES:
            if plain not in _TEMPORALITY:
                return Meaning(Kind.MEASURE)
            gauge = meaning.counts  # of Google: a rate, or a mean
        elif plain in _TEMPORALITY and meaning.unit is None:
            over = COUNTER if CUMULATIVE.fullmatch(value) else ROW if _DELTA.fullmatch(value) else None
        if plain not in _UNIT or meaning.unit is not None or meaning.times != 1.0 or value.strip().lower() in _NO_UNIT:
            continue
        unit = meaning_of(f"requests ({value})")
        if unit.kind in (Kind.MEASURE, Kind.STATISTIC):
            return Meaning(Kind.MEASURE)
        if unit.kind is Kind.REQUESTS and (unit.unit is not None or unit.times != 1.0):
            kind = meaning.kind if meaning.kind in _OF_REQUESTS else Kind.REQUESTS
            return Meaning(kind, unit.unit, times=unit.times)
        if meaning_of(f"{value} count").kind not in (Kind.REQUESTS, Kind.COUNT):
            return Meaning(Kind.UNCLEAR)
    return Meaning(Kind.UNCLEAR) if gauge else replace(meaning, unit=meaning.unit or over)


def part_of(columns: Iterable[Statement]) -> tuple[Kind, Statement] | None:
    """Return the first column that is the same in all rows and selects a part of the requests, and the kind of its
    counts.

    It is read as a label of the counts, such as `method` GET, or as a status.
    """
    for key, value in columns:
        name = key.removesuffix(".keyword")  # of Elasticsearch
        plain = _plain(name)
        code, outcome = _CODE.fullmatch(value), _OUTCOME.fullmatch(plain)
        if value.lower() in _EVERY_VALUE:
            continue
        if outcome or (code and code[2]):
            found = meaning_of(f"requests {code[1] if code else value}")
        elif code or plain in _ABOUT_NUMBERS or not _WORD.fullmatch(value):
            continue
        else:
            found = meaning_of(f'requests{{{_NO_LABEL.sub("_", name)}="{value}"}}')
        if found.kind in (Kind.PART, Kind.ERRORS):
            return found.kind, (key, value)
    return None


def doubt(meaning: Meaning, statements: Sequence[Statement], step_s: float, whole_s: float) -> Doubt | None:
    """Return the first statement by which the numbers are not the requests of rows that are `step_s` apart.

    All rows last `whole_s`, which a title may state.
    """
    for key, value in statements:
        plain, text = _plain(key), f"{key} {value}".strip()
        if (plain and _SAMPLE.fullmatch(plain) and _is_sample(value)) or (
            (not key or plain in _TITLES) and _SAMPLED.match(value) and not _is_step(value, step_s)
        ):
            return Doubt(text, sample=True)
        if plain in _UNIT and _BETWEEN in value:
            return Doubt(text)
        if plain in _FLAGS and _TRUTH.get(value.strip().lower()) is _FLAGS[plain]:
            return Doubt(text)
        if _FACTOR.fullmatch(plain) and _is_sample(value):
            return Doubt(text)
        if meaning.unit not in (None, ROW) or meaning.times != 1.0:
            continue
        if _SPAN.fullmatch(plain) and max(spans := _seconds(value, plain), default=0.0) > 0.0 < step_s:
            if not any(abs(span - known) <= 0.01 * known for span in spans for known in (step_s, whole_s)):
                return Doubt(text)
        elif not key or plain in _TITLES:
            said = meaning_of(value)
            rate = said.unit if said.kind in _OF_REQUESTS and said.unit in RATES.values() else None
            of_rows = rate is not None and abs(rate.per_s - step_s) <= 0.01 * step_s  # both readings are the same
            if _NAMES_NO_SCALE.search(value) or (rate is not None and not of_rows):
                return Doubt(text)
    return None


def _is_step(text: str, step_s: float) -> bool:
    """Return whether a text says that the numbers are sampled once in each row, not one request in many."""
    found = _EVERY.search(text)
    return found is not None and any(abs(span - step_s) <= 0.01 * step_s for span in _seconds(found[1], ""))


def says_sample(comment: str) -> bool:
    """Return whether a comment above requests says that they are a sample."""
    return _SAMPLED.match(comment) is not None


def sample_of(name: str, value: object) -> bool:
    """Return whether a field of a request says that it stands for others, too, or lists them."""
    if isinstance(value, dict):
        return any(not isinstance(inner, dict) and sample_of(f"{name} {key}", inner) for key, inner in value.items())
    if isinstance(value, list) and len(value) > 1:
        return (
            _LISTS[next((t for t in (dict, str) if isinstance(value[0], t)), float)].fullmatch(_plain(name)) is not None
        )
    if isinstance(value, str) and _LISTS[str].fullmatch(_plain(name)):
        return _are_ids(value)
    return not isinstance(value, list | bool) and _SAMPLE.fullmatch(_plain(name)) is not None and _is_sample(str(value))


def _are_ids(text: str) -> bool:
    """Return whether a text joins ids of one form, as `r1;r2` does; base64 and a number with commas are one id."""
    parts = _BETWEEN_IDS.split(text.strip())
    if len(parts) < 2 or read_numbers([text]) is not None or np.ptp([len(part) for part in parts]) > 2:
        return False
    return any(map(str.isdigit, parts[0])) and len({_HEX.sub("0", part) for part in parts}) == 1


def is_statement(name: str, statements: Sequence[Statement]) -> bool:
    """Return whether a column of one value states a span or a sample, and so is no column of counts."""
    plain = _plain(name)
    known = _SPAN.fullmatch(plain) or _SAMPLE.fullmatch(plain) or _FACTOR.fullmatch(plain) or plain in _FLAGS
    return bool(known) and any(key == name for key, _ in statements)


def is_about_numbers(key: str) -> bool:
    """Return whether a field states a unit, a span, a statistic or a kind of numbers."""
    plain = _plain(key)
    return plain in _STATISTIC | _UNIT | _KIND | _TEMPORALITY or _SPAN.fullmatch(plain) is not None


def is_unit(key: str) -> bool:
    return _plain(key) in _UNIT | _STATISTIC


_BETWEEN = "; "  # several units of a column
_MOST_UNITS = 20
_TITLES = frozenset({"title", "note", "notes", "remark", "comment", "description", "values", "hinweis", "label"})


def _statement(text: str) -> Statement:
    found = _PAIR.fullmatch(text)
    return (found[1], found[2]) if found else ("", text)


def _is_statistic(value: str) -> bool:
    return _plain(value) == "samplecount" or meaning_of(f"requests {value}").kind is Kind.STATISTIC


def _is_sample(value: str) -> bool:
    """Return whether a share or a weight is known and not 1; `true` only says that a request was sampled."""
    if is_missing(value) or (found := _PART.fullmatch(value.strip())) is None:
        return False
    share = float(found[1]) / (100.0 if found[2] else float(found[3] or 1.0) or 1.0)
    return 0.0 < share != 1.0


def _seconds(value: str, key: str) -> list[float]:
    """Return the lengths that the text may say; none if it is no span."""
    if clock := _CLOCK.fullmatch(value.strip()):
        return [3600.0 * int(clock[1]) + 60.0 * int(clock[2]) + int(clock[3])]
    found = _TIMES.fullmatch(value.strip())
    if found is None:
        return []
    number = float(found[1])
    if found[2]:
        unit = found[2].lower()
        return [number * (_LENGTHS.get(unit[:2]) or _LENGTHS[unit[0]])]
    # A number without a unit may be any, unless the key names it.
    factors = [1e-3] if key.endswith("ms") else [1.0, 60.0, 1e-3, 3600.0]
    return [number * factor for factor in factors] if plain_numbers([value]) is not None else []


@lru_cache(maxsize=4096)  # a column's name is asked for each of its cells
def _plain(text: str) -> str:
    return re.sub(r"[^a-z0-9]", "", text.lower())
