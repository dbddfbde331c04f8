"""Files of other tools as named columns: delimited text, JSON lines and documents, W3C and Envoy logs, Parquet.

What the columns mean is none of this module's business (see `tables`). Formats: W3C, "Extended Log File Format" (IIS,
CloudFront); Envoy, "Access logging", default format; Prometheus, HTTP API, range queries; CloudWatch,
GetMetricStatistics and GetMetricData; Datadog, "Query timeseries data".
"""

from __future__ import annotations

import csv
import json
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from mark.domain.errors import BadInput
from mark.workload.blocks import blocks, shown
from mark.workload.times import as_numbers

MOST_BYTES = 2 << 30  # a table is held in memory
_PARQUET = b"PAR1"
_ENVOY = re.compile(r'\[(\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(?:\.\d+)?Z)\] "')
_DELIMITERS = (",", ";", "\t", "|")
_PEEK_LINES = 20

Columns = Mapping[str, Sequence[object]]


@dataclass(frozen=True, slots=True)
class Export:
    """Named columns of equal length. `unit`: what the format says that its counts are (see `tables.UNITS`)."""

    columns: Columns
    form: str  # for the note that says what was assumed
    named: bool = True  # are the names the file's own?
    unit: str | None = None


def read_export(path: Path) -> Export | None:
    """The columns of a file; None where it has no form that is known. Raises BadInput for what breaks its own form."""
    if is_parquet(path):
        return _parquet(path)
    parts, size = [], 0
    for _, block in blocks(path):
        size += len(block)
        if size > MOST_BYTES:
            raise BadInput("more than 2 GiB; files with the header t_seconds,count are streamed", str(path))
        parts.append(block)
    text = b"".join(parts).decode("utf-8", "replace").strip("\n")
    if not text.strip():
        raise BadInput("the file is empty", str(path))
    first = text.lstrip()[:1]
    if first in ("{", "["):
        if (found := _envoy(text)) is not None:
            return found
        return _json(text, path)
    if text.startswith("#"):
        return _w3c(text, path)
    return _delimited(text, path)


def is_parquet(path: Path) -> bool:
    try:
        with path.open("rb") as file:
            return file.read(4) == _PARQUET
    except OSError:
        return False  # what reads it says why


def _parquet(path: Path) -> Export:
    import pandas as pd  # here: 0.4 s, only for tables

    try:
        frame = pd.read_parquet(path)
    except ImportError:
        raise BadInput("Parquet needs pyarrow: pip install 'mark-serving[parquet]'", str(path)) from None
    except (OSError, ValueError) as error:
        raise BadInput("the Parquet file cannot be read", str(path), str(error).split("\n")[0]) from None
    return Export(columns_of(frame), "Parquet")


def columns_of(frame: Any) -> Columns:
    """The columns of a pandas DataFrame, its index among them where that has a name or holds times."""
    import pandas as pd  # here: 0.4 s, only for tables

    if frame.index.name is not None or isinstance(frame.index, pd.DatetimeIndex):
        frame = frame.reset_index()
    return {
        str(name): [str(value) for value in column] if pd.api.types.is_datetime64_any_dtype(column) else column.tolist()
        for name, column in frame.items()
    }


def _envoy(text: str) -> Export | None:
    lines = [line for line in text.split("\n") if line]
    stamps = [match[1] for match in map(_ENVOY.match, lines) if match]
    if len(stamps) < 0.99 * len(lines) or not stamps:
        return None
    return Export({"start_time": stamps}, "Envoy access log")


def _w3c(text: str, path: Path) -> Export | None:
    """IIS's and CloudFront's: `#Fields:` names the columns of the lines that follow, date and time apart, in UTC."""
    names: list[str] = []
    times: list[object] = []
    for number, line in enumerate(text.split("\n"), 1):
        if line.startswith("#Fields:"):
            names = line.removeprefix("#Fields:").split()
            if not {"date", "time"} <= set(names):
                raise BadInput("a log of W3C's form needs the fields date and time", f"{path} line {number}", line[:80])
        elif line and not line.startswith("#"):
            cells = line.split("\t") if "\t" in line else line.split(" ")
            if not names:
                return None
            if len(cells) != len(names):
                raise BadInput(f"expected {len(names)} fields", f"{path} line {number}", shown(line.encode()))
            times.append(f"{cells[names.index('date')]} {cells[names.index('time')]}")
    return Export({"date time": times}, "W3C log") if names and times else None


# -- JSON --------------------------------------------------------------------------------------------------------------


def _json(text: str, path: Path) -> Export | None:
    try:
        whole = json.loads(text)
    except RecursionError:
        raise BadInput("JSON that is nested too deeply", str(path)) from None
    except ValueError:
        return _json_lines(text, path)
    if isinstance(whole, dict):
        for read in (_prometheus, _cloudwatch_statistics, _cloudwatch_data, _datadog):
            if (found := read(whole, path)) is not None:
                return found
        return _rows([whole], path)
    if isinstance(whole, list) and all(isinstance(row, dict) for row in whole):
        return _rows(whole, path)
    if isinstance(whole, list) and all(isinstance(row, list) and len(row) == 2 for row in whole):
        return _pairs(whole, "JSON pairs", "column 2", path, named=False)
    return None


def _json_lines(text: str, path: Path) -> Export | None:
    rows: list[dict[str, object]] = []
    for number, line in enumerate(text.split("\n"), 1):
        if not line.strip():
            continue
        try:
            row = json.loads(line)
        except (ValueError, RecursionError):
            row = None
        if not isinstance(row, dict):
            if not rows:
                return None
            raise BadInput("no JSON object", f"{path} line {number}", shown(line.encode()))
        rows.append(row)
    return _rows(rows, path)


def _rows(rows: Sequence[Mapping[str, object]], path: Path) -> Export | None:
    """Objects of plain values; what only some have, and what holds more than a value, is left out."""
    if not rows:
        return None
    names = [name for name in rows[0] if all(name in row and not isinstance(row[name], dict | list) for row in rows)]
    if not names:
        raise BadInput("the objects have no plain value in common", str(path))
    return Export({name: [row[name] for row in rows] for name in names}, "JSON")


def _pairs(
    pairs: Sequence[Any], form: str, name: str, path: Path, *, named: bool = True, unit: str | None = None
) -> Export:
    """Raises BadInput for none, and for a point that is no pair."""
    wrong = [pair for pair in pairs if not isinstance(pair, list | tuple) or len(pair) != 2]
    if wrong or not pairs:
        raise BadInput(f"points of time and value are needed ({form})", str(path), wrong[0] if wrong else None)
    columns = {"time": [pair[0] for pair in pairs], name: [pair[1] for pair in pairs]}
    return Export(columns, form, named, unit)


def _one(series: Sequence[object], form: str, path: Path) -> Mapping[str, object]:
    if len(series) != 1 or not isinstance(series[0], dict):
        raise BadInput(f"one series is needed, sum them in the query; {form} gave", str(path), f"{len(series)} series")
    return series[0]


def _prometheus(whole: Mapping[str, object], path: Path) -> Export | None:
    """A counter keeps its name; what `rate` and `increase` make of it has none, and must be told apart by the user."""
    data = whole.get("data")
    if not isinstance(data, dict) or data.get("resultType") != "matrix":
        return None
    series = _one(data.get("result") or [], "Prometheus", path)
    metric, values = series.get("metric"), series.get("values")
    name = str(metric.get("__name__", "value")) if isinstance(metric, dict) else "value"
    pairs = values if isinstance(values, list) else []
    return _pairs(pairs, "Prometheus range query", name, path, unit="counter" if name.endswith("_total") else None)


def _cloudwatch_statistics(whole: Mapping[str, object], path: Path) -> Export | None:
    points = whole.get("Datapoints")
    if not isinstance(points, list) or not all(isinstance(point, dict) for point in points):
        return None
    found = _rows(sorted(points, key=lambda point: str(point.get("Timestamp"))), path)
    if found is None:
        raise BadInput("the metric has no data points", str(path))
    return Export(found.columns, "CloudWatch statistics")


def _cloudwatch_data(whole: Mapping[str, object], path: Path) -> Export | None:
    results = whole.get("MetricDataResults")
    if not isinstance(results, list):
        return None
    series = _one(results, "CloudWatch", path)
    times, values = series.get("Timestamps"), series.get("Values")
    if not isinstance(times, list) or not isinstance(values, list) or len(times) != len(values):
        raise BadInput("as many timestamps as values are needed", str(path))
    pairs = sorted(zip(times, values, strict=True), key=lambda pair: str(pair[0]))
    return _pairs(pairs, "CloudWatch metric data", str(series.get("Label", "value")), path)


def _datadog(whole: Mapping[str, object], path: Path) -> Export | None:
    if not isinstance(whole.get("series"), list):
        return None
    series = _one(whole["series"], "Datadog", path)  # type: ignore[arg-type]
    points = series.get("pointlist")
    if not isinstance(points, list):
        return None
    units = series.get("unit")
    per = units[1] if isinstance(units, list) and len(units) == 2 else None
    unit = f"per-{per['name']}" if isinstance(per, dict) and per.get("name") in ("second", "minute") else None
    return _pairs(points, "Datadog series", str(series.get("metric", "value")), path, unit=unit)


# -- delimited text ----------------------------------------------------------------------------------------------------


def _delimited(text: str, path: Path) -> Export | None:
    """Lines of equally many cells. The first one names the columns where none of its cells is a number or a date."""
    lines = text.split("\n")
    head = [line for line in lines[:_PEEK_LINES] if line.strip()]
    try:
        delimiter = _delimiter(head)
        reader = csv.reader(lines, delimiter=delimiter)
        numbered = [(reader.line_num, row) for row in reader if row]
    except csv.Error as error:  # a cell of more than 128 KiB: a quote that nothing closes
        raise BadInput(f"no table: {error}", str(path)) from None
    rows = [row for _, row in numbered]
    width = Counter(map(len, rows[:_PEEK_LINES])).most_common(1)[0][0]
    for number, row in numbered:
        if len(row) != width:
            if row is rows[0] and len(rows) > 1:
                return None
            raise BadInput(f"expected {width} columns", f"{path} line {number}", shown(delimiter.join(row).encode()))
    names = [cell.strip() for cell in rows[0]]
    named = not any(cell[:1].isdigit() or as_numbers([cell]) is not None for cell in names)
    if named and len(set(names)) < len(names):
        raise BadInput("a column's name stands twice", f"{path} line 1", delimiter.join(names))
    body = rows[1:] if named else rows
    if not body:
        raise BadInput("no rows below the header", str(path))
    if not named:
        names = [f"column {i}" for i in range(1, width + 1)]
    said = {",": "commas", ";": "semicolons", "\t": "tabs", "|": "bars"}[delimiter] if width > 1 else "one column"
    cells = list(zip(*body, strict=True))
    decimal = delimiter == ";"  # where a comma is the decimal sign, semicolons stand between columns
    columns = {
        name: _with_points(column) if decimal else [cell.strip() for cell in column]
        for name, column in zip(names, cells, strict=True)
    }
    return Export(columns, f"text with {said}" if width > 1 else "text of one column", named)


def _delimiter(head: Sequence[str]) -> str:
    """The one that cuts all lines into equally many cells, and into most."""

    def cells(delimiter: str) -> int:
        widths = {len(row) for row in csv.reader(head, delimiter=delimiter)}
        return widths.pop() if len(widths) == 1 else 1

    return max(_DELIMITERS, key=cells)


_DECIMAL_COMMA = re.compile(r"-?\d+,\d+")


def _with_points(column: Sequence[str]) -> list[object]:
    return [re.sub(",", ".", c.strip()) if _DECIMAL_COMMA.fullmatch(c.strip()) else c.strip() for c in column]
