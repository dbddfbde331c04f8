"""Samples as lines of InfluxDB's line protocol and of Graphite's plain text: a name, numbers and a time."""

from __future__ import annotations

import re
from typing import Any

_TEXT = r'"(?:[^"\\]|\\.)*"'
_KEY = r"(?:[^\s,=\\]|\\.)+"  # a backslash escapes blanks, commas and equals signs
_PAIR = re.compile(rf'({_KEY})=({_TEXT}|(?:[^\s,\\"]|\\.)+)')
_TAGS, _FIELDS = rf"(?:,{_PAIR.pattern})*", rf"{_PAIR.pattern}(?:,{_PAIR.pattern})*"
_INFLUX = re.compile(rf"(?P<name>(?:[^\s,\\]|\\.)+)(?P<tags>{_TAGS})[ ](?P<fields>{_FIELDS})[ ](?P<time>\d+)\s*")
_NUMBER = re.compile(r"(-?[\d.]+(?:[eE][-+]?\d+)?)[iu]?")
_GRAPHITE = re.compile(
    r"(?P<name>[^\s,\"{}]*[A-Za-z][^\s,\"{}]*)\s+(?P<value>-?[\d.]+(?:[eE][-+]?\d+)?)\s+(?P<time>\d{9,10})\s*"
)
_GRAPHITE_RAW = re.compile(
    r"(?P<name>[^|]+),(?P<begin>\d+),\d+,(?P<step>\d+)\|(?P<values>(?:None|[-\d.eE+]+)(?:,(?:None|[-\d.eE+]+))*)\s*"
)
_ESCAPE = re.compile(r"\\(.)")
Bad = list[tuple[int, str]]


def influx_series(text: str) -> tuple[list[dict[str, Any]], Bad] | None:
    """Return each field as a series of Prometheus' API, and the lines that are no points; None for other texts.

    A field called `value` has the name of its measurement, and another one both names. Texts and truths are left out.
    """
    if (matched := _matched(text, _INFLUX, "no point")) is None:
        return None
    series: dict[str, dict[str, Any]] = {}
    for found in matched[0]:
        labels = {_plain(key): _plain(value) for key, value in _PAIR.findall(found["tags"])}
        for key, value in _PAIR.findall(found["fields"]):
            if (numeral := _NUMBER.fullmatch(value)) is not None:
                name = _plain(found["name"] if key == "value" else f"{found['name']}_{key}")
                one = series.setdefault(
                    f"{name}{sorted(labels.items())}", {"metric": {**labels, "__name__": name}, "values": []}
                )
                one["values"].append([found["time"], numeral[1]])
    return (list(series.values()), matched[1]) if series else None


def graphite_series(text: str) -> tuple[list[dict[str, Any]], Bad] | None:
    """Return the series as Graphite's JSON has them, and the lines that are no samples; None for other texts."""
    if (matched := _matched(text, _GRAPHITE_RAW, "no series")) is not None:
        return [_raw_series(found) for found in matched[0]], matched[1]
    if (matched := _matched(text, _GRAPHITE, "no sample")) is None:
        return None
    series: dict[str, dict[str, Any]] = {}
    for found in matched[0]:
        one = series.setdefault(found["name"], {"target": found["name"], "datapoints": []})
        one["datapoints"].append([float(found["value"]), int(found["time"])])
    return list(series.values()), matched[1]


def _raw_series(found: re.Match[str]) -> dict[str, Any]:
    begin, step = int(found["begin"]), int(found["step"])
    values = [None if one == "None" else float(one) for one in found["values"].split(",")]
    return {"target": found["name"], "datapoints": [[one, begin + step * i] for i, one in enumerate(values)]}


def _matched(text: str, form: re.Pattern[str], fault: str) -> tuple[list[re.Match[str]], Bad] | None:
    """Return the lines of a form, without comments, and the others with their fault; None if the first is another."""
    lines = [(number, line) for number, line in enumerate(text.split("\n"), 1) if line.strip() and line[0] != "#"]
    if not lines or form.fullmatch(lines[0][1]) is None:
        return None
    found, bad = [], []
    for number, line in lines:
        if (match := form.fullmatch(line)) is not None:
            found.append(match)
        else:
            bad.append((number, f"{fault}: {line[:60]!r}"))
    return found, bad


def _plain(escaped: str) -> str:
    return _ESCAPE.sub(r"\1", escaped)
