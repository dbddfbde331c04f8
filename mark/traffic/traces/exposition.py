"""Samples in Prometheus' text format and in OpenMetrics: scrapes one behind the other, with the time of each sample."""

from __future__ import annotations

import re
from typing import Any

from mark.domain.errors import BadInput

_TEXT = r'"(?:[^"\\]|\\.)*"'
_SAMPLE = re.compile(
    rf'(?P<name>[a-zA-Z_:][\w:]*)?(?:\{{(?P<labels>(?:[^"}}]|{_TEXT})*)\}})?[ \t]+(?P<value>[-+\w.]+)'
    r"(?:[ \t]+(?P<time>\d[\d.eE+]*))?(?:[ \t]+#.*)?\s*"
)
_BARE = re.compile(r"[a-zA-Z]\w*_\w+[ \t]+[\d.eE+]+[ \t]+\d{13}\s*")
_FIRST = re.compile(r"^[^#\n].*", re.MULTILINE)  # line that is no comment
_LABEL = re.compile(rf"(\w+)\s*=\s*({_TEXT})")
_TYPE = re.compile(r"#\s*TYPE\s+(\S+)\s+(\w+)\s*")
_ENDING = re.compile(r"_(?:total|count|bucket|sum|created)$")
_COUNTED = {"counter": "_total", "histogram": "_count", "summary": "_count"}


def exposed(text: str, where: str) -> tuple[list[object], list[tuple[int, str]]] | None:
    """Return the series as Prometheus' API answers them, with their kinds, and the lines that are no samples.

    None for other texts. Raises BadInput for samples without a time.
    """
    shown = _FIRST.search(text)
    first = None if shown is None else _SAMPLE.fullmatch(shown[0])
    # A name without labels is Prometheus' too if the time is in milliseconds; Graphite's is in seconds.
    if first is None or not (first["labels"] or _TYPE.search(text) or _BARE.fullmatch(first[0])):
        return None
    kinds: dict[str, str] = {}
    series: dict[str, dict[str, Any]] = {}
    bad = []
    for number, line in enumerate(text.split("\n"), 1):
        if line.startswith("#") or not line.strip():
            kinds |= dict(_TYPE.findall(line))
            continue
        found = _SAMPLE.fullmatch(line)
        if found is None:
            bad.append((number, f"no sample: {line[:60]!r}"))
            continue
        if found["time"] is None:
            what = "a sample without a time: append the time of the scrape to each line, or export from Prometheus"
            raise BadInput(what, f"{where} line {number}", line[:60])
        labels = {key: value[1:-1] for key, value in _LABEL.findall(found["labels"] or "")}
        name = found["name"] or labels.get("__name__", "")
        one = series.setdefault(f"{name}{sorted(labels.items())}", _series(name, labels, kinds))
        one["values"].append([found["time"], found["value"]])
    return list(series.values()), bad


def _series(name: str, labels: dict[str, str], kinds: dict[str, str]) -> dict[str, Any]:
    kind = kinds.get(name) or kinds.get(_ENDING.sub("", name))
    counts = name.endswith(_COUNTED.get(kind or "", "?")) or (kind == "counter" and not name.endswith("_created"))
    said = {} if kind in (None, "untyped", "unknown") else {"metricKind": "cumulative"} if counts else {"type": "gauge"}
    return {"metric": {**labels, "__name__": name}, **said, "values": []}
