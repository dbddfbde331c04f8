"""Files of other tools as named columns: delimited text, JSON lines and documents, Parquet.

Another module decides the meaning of the columns (see `table_files`), and others find tables and points in JSON.
Formats with readers of their own: CloudWatch, GetMetricStatistics and GetQueryResults; Graphite; k6, "JSON output".
"""

from __future__ import annotations

import csv
import json
import re
from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from datetime import date
from pathlib import Path
from typing import Any

from mark.domain.errors import BadInput
from mark.traffic.traces.blocks import LONGEST_LINE, beginning, blocks, ends_within_line, shown
from mark.traffic.traces.cells import is_missing, plain_numbers
from mark.traffic.traces.exposition import exposed
from mark.traffic.traces.json_tables import tables_in
from mark.traffic.traces.log_text import REQUEST_LIKE
from mark.traffic.traces.meanings import COUNTER, Kind, Meaning, meaning_of
from mark.traffic.traces.metric_lines import graphite_series, influx_series
from mark.traffic.traces.partial import documents_in, joined, pages_in, refuse_fewer, refuse_part
from mark.traffic.traces.points import LINE, TIME, UNNAMED, VALUES, Points, flattened, is_time, series_of_points
from mark.traffic.traces.stated import Statement, above_and_between, is_about_numbers, of_object, sample_of

MOST_BYTES = 2 << 30  # a table is held in memory
SERIES = "series"  # the column that names the series of each row, if a format has several
_ROWS = frozenset(["results", "rows", "data", "records", "items", "values", "entries", "hits", "datapoints"])
_PARQUET = b"PAR1"
_DELIMITERS = (";", "\t", "|", ",")
_PEEK_LINES = 20
_MARKUP = re.compile(r"\s*<(?:[?!]|[a-zA-Z][^>,;\t]*>(?![,;\t]))")
_LOCUST = frozenset(["User Count", "Requests/s", _OF_LOCUST := "Total Request Count"])  # of its history
_ELISIONS = frozenset(["...", "..", "\u2026", "\u22ee", "\u00b7", "[...]", "(...)"])
_LOKI_LIMIT = 100  # lines of an answer, unless a query says more
_SEP = re.compile(r'"?sep=(.)"?', re.IGNORECASE)
# The line below psql's header, the border of MySQL's tables, and the number of rows below them.
_FRAME = re.compile(
    r"[-+|=: ]*-[-+|=: ]*|\((\d[\d,. ]*) \w+\)|(\d[\d,. ]*) rows?\b(?: in set| selected| returned)?[^,;\t|]*"
)

# A comment of a tool that cut its own answer.
_LACKING = re.compile(r"truncat|partial|incomplete|limited to|more rows|first [\d,]+ rows", re.IGNORECASE)
_MINUTES = re.compile(r"\b\d+\s?min\b", re.IGNORECASE)  # the length of a row, and no minimum
_LIMITED = re.compile(r"\b(?:limit|top|first|head)\s+([\d,_]+)", re.IGNORECASE)

_PROMETHEUS = "Prometheus range query"
# A value in MongoDB's extended JSON: a date may hold a number.
_MONGO = re.compile(r'\{\s*"\$(?:date|number(?:Long|Int|Double))"\s*:\s*("[^"]*"|-?[\d.]+)\s*\}')
_VICTORIA = {"metric", "values", "timestamps"}
_GRAPHITE_COUNTS = re.compile(r"(?<![a-z])(?:counts?|hitcount|sum)(?![a-z])", re.IGNORECASE)

Columns = Mapping[str, Sequence[object]]


@dataclass(frozen=True, slots=True)
class Export:
    """Named columns of equal length.

    `unit`: the format's statement about its counts (see `tables.UNITS`). `meanings` are its statements about columns.
    `lines` are the numbers of the rows' lines in the file. `bad` are lines without a row. `skipped` describes lines
    that are known to be no rows. `stated` is said about the numbers outside the columns.
    """

    columns: Columns
    form: str  # for the note about the assumptions
    named: bool = True  # whether the names are the file's own
    unit: str | None = None
    meanings: Mapping[str, Meaning] = field(default_factory=dict)
    lines: Sequence[int] | None = None
    bad: Sequence[tuple[int, str]] = ()
    skipped: Sequence[str] = ()
    cut: bool = False  # whether it is compressed and ends too early
    unended: bool = False  # whether the last line ends in a cell without quotes, and without a line feed
    stated: Sequence[Statement] = ()


def read_export(path: Path) -> Export | None:
    """Return the columns of a file, or None for an unknown form. Raises BadInput if it breaks its own form."""
    if is_parquet(path):
        return _parquet(path)
    cut: list[Path] = []
    text = _text(path, cut.append).strip("\n")
    if not text.strip():
        raise BadInput("the file is empty", str(path))
    if '{"$' in text:
        text = _MONGO.sub(r"\1", _MONGO.sub(r"\1", text))
    if (samples := exposed(text, str(path))) is not None:
        found = _nested(samples[0], path, _PROMETHEUS)
        found = None if found is None else replace(found, bad=samples[1])
    elif (points := influx_series(text)) is not None:
        found = _nested(points[0], path, "InfluxDB's line protocol")
        found = None if found is None else replace(found, bad=points[1])
    elif (points := graphite_series(text)) is not None:
        found = _graphite(points[0], path)
        found = None if found is None else replace(found, bad=points[1])
    elif _MARKUP.match(text):
        raise BadInput("HTML or XML, no table: export CSV or JSON", str(path), shown(text[:60].encode()))
    elif text.lstrip()[:1] in ("{", "["):
        found = _json(text, path)
    elif (found := _delimited(text, path)) is not None and not text.endswith('"') and ends_within_line(path):
        found = replace(found, unended=True)
    return replace(found, cut=True) if found is not None and cut else found


def is_parquet(path: Path) -> bool:
    try:
        with path.open("rb") as file:
            return file.read(len(_PARQUET)) == _PARQUET
    except OSError:
        return False  # its reader reports the reason


def is_table(head: bytes) -> bool:
    """Return whether a file begins with a header and rows of as many cells, which may hold requests such as GET /."""
    lines = [line for line in head.decode("utf-8", "replace").split("\n")[:_PEEK_LINES] if line.strip()]
    if influx_series("\n".join(lines)) is not None:
        return True  # its tags may look like a request
    if len(lines) < 2 or REQUEST_LIKE.search(lines[0].encode()):
        return False
    delimiter = _delimiter(lines)
    rows = list(csv.reader(lines, delimiter=delimiter, skipinitialspace=delimiter == " "))
    return len(rows[0]) > 1 and len({*map(len, rows)}) == 1 and not any(map(is_time, rows[0]))


def _text(path: Path, cut: Callable[[Path], None]) -> str:
    parts, size = [], 0
    # An answer in JSON is often one line.
    longest = MOST_BYTES if beginning(path, 1 << 10).lstrip()[:1] in (b"{", b"[") else LONGEST_LINE
    for _, block in blocks(path, cut=cut, longest=longest):
        size += len(block)
        if size > MOST_BYTES:
            raise BadInput("more than 2 GiB; files with the header t_seconds,count are streamed", str(path))
        parts.append(block)
    data = b"".join(parts)
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError:
        return data.decode("cp1252", "replace")  # Excel's encoding in Western Europe


def _parquet(path: Path) -> Export:
    try:
        import pandas as pd  # imported here because it takes 0.4 s and only tables need it

        frame = pd.read_parquet(path)
    except ImportError:
        raise BadInput("Parquet needs pandas and pyarrow (pip install 'mark-serving[parquet]')", str(path)) from None
    except (OSError, ValueError) as error:
        raise BadInput("the Parquet file cannot be read", str(path), str(error).split("\n")[0]) from None
    return Export(columns_of(frame), "Parquet")


def columns_of(frame: Any) -> Columns:
    """Return the columns of a pandas DataFrame, with its index if that has a name or holds times."""
    import pandas as pd  # imported here because it takes 0.4 s and only tables need it

    if frame.index.name is not None or isinstance(frame.index, pd.DatetimeIndex):
        frame = frame.reset_index()
    return {
        str(name): [str(value) if isinstance(value, date) else value for value in column.tolist()]
        for name, column in frame.items()
    }


# -- JSON --------------------------------------------------------------------------------------------------------------


def _json(text: str, path: Path) -> Export | None:
    try:
        whole = json.loads(text)
    except RecursionError:
        raise BadInput("JSON that is nested too deeply", str(path)) from None
    except ValueError as error:
        if (pages := joined(pages_in(text))) is not None:
            return _document(pages, path)
        found = _json_lines(text, path)
        if found is None and (rows := _objects_in(text)):
            return _json_objects(rows, path)
        if found is None and isinstance(error, json.JSONDecodeError) and _DOCUMENT.match(text):
            early = error.pos >= len(text) or error.msg.startswith("Unterminated")
            what = "the JSON document ends too early" if early else f"no JSON: {error.msg}"
            raise BadInput(
                what, f"{path} line {error.lineno}", shown(text[max(0, error.pos - 40) :].encode())
            ) from None
        return found
    if isinstance(whole, list) and (pages := joined(whole)) is not None:
        whole = pages
    if isinstance(whole, dict):
        return _document(whole, path)
    if isinstance(whole, list) and all(isinstance(row, dict) for row in whole):
        found = _graphite(whole, path) or _columnwise(whole, path)
        nested = whole and found is None and not any(map(is_time, flattened(whole[0]).values()))
        return found or (_nested(whole, path) if nested else None) or _rows(whole, path)
    return _nested([whole], path)


def _document(whole: Mapping[str, Any], path: Path) -> Export | None:
    """Read an answer in one object."""
    refuse_part(whole, path)
    if whole.keys() >= {"apiVersion", "kind", "items"}:
        raise BadInput("a list of objects of Kubernetes holds no requests", f"{path} kind", str(whole["kind"])[:60])
    if whole.keys() >= _VICTORIA:
        return _nested([whole], path, _PROMETHEUS, "1 series")
    for read in (_prometheus, _cloudwatch_statistics, _insights, _columnwise):
        if (found := read(whole, path)) is not None:
            return found
    if isinstance(whole.get("aggregations"), dict):
        whole = {"aggregations": whole["aggregations"]}  # beside some documents
    elif isinstance(hits := whole.get("hits"), dict) and isinstance(hits.get("total"), dict):
        whole = hits | {"total": hits["total"].get("value")}  # of Elasticsearch
    found = _nested([whole], path)
    if found is None:
        lists = [value for value in whole.values() if isinstance(value, list) and value and isinstance(value[0], dict)]
        nested = any(isinstance(value, dict | list) and value for value in whole.values())
        if len(lists) != 1 and nested and not any(map(is_time, whole.values())):
            what = "a JSON document whose rows are not known: export CSV, or a list of objects with their times"
            raise BadInput(what, str(path), ", ".join(whole)[:60])
        rows = [row for row in lists[0] if isinstance(row, dict)] if len(lists) == 1 else [whole]
        found = _rows(rows, path)
        found = replace(found, stated=of_object(whole)) if found is not None and lists else found
    if found is not None:
        refuse_fewer(whole, len(next(iter(found.columns.values()))), found.columns, path)
    return found


def _nested(documents: Sequence[object], path: Path, form: str = "JSON", none: str = "") -> Export | None:
    """Return the points of nested JSON as one table, with a column of the series' names if there are several.

    Without points the answer is None, or a refusal if the format is known to hold `none`.
    """
    series = series_of_points(documents, str(path))
    if not series and none:
        raise BadInput(f"no points of time and value ({form})", str(path), none)
    if not series:
        return None
    if all(one.rows[0].keys() == {TIME, LINE} for one in series):
        return _log_lines([row for one in series for row in one.rows], path)
    places = {one.place for one in series}
    if rows := [place for place in places if place in _ROWS]:
        places = set(rows)
        series = [one for one in series if one.place in places]
    if len(places) > 1 and not all(one.labelled for one in series):
        raise BadInput("points stand at several places: keep one of them", str(path), ", ".join(sorted(places))[:120])
    for held in {id(held): held for one in series for held in one.around}.values():
        refuse_part(held, path)
    if len(series) == 1:
        found = _rows(series[0].rows, path)
        for held in series[0].around:
            refuse_fewer(held, len(series[0].rows), found.columns if found is not None else {}, path)
        if found is not None and all(_holds_times(key, values) for key, values in found.columns.items()):
            raise BadInput("the points hold times and nothing else that is known", str(path), series[0].place)
        return found and _of_one(replace(found, form=form), series[0])
    common = set.intersection(*(set(one.stated.items()) for one in series))
    all_rows: list[dict[str, object]] = []
    for one in series:
        own = {key: value for key, value in one.stated.items() if is_about_numbers(key) and (key, value) not in common}
        own[SERIES] = one.labelled or UNNAMED
        all_rows += [
            {**own, **{UNNAMED if key in VALUES else key: cell for key, cell in row.items()}} for row in one.rows
        ]
    names = dict.fromkeys(name for row in all_rows for name in row)
    columns: Columns = {name: [row.get(name) for row in all_rows] for name in names}
    return Export(columns, form, meanings={"count": Meaning(Kind.UNCLEAR)}, stated=sorted(common))


def _of_one(found: Export, series: Points) -> Export:
    """Return the table of one series with its name in those of the columns, and with the statements about it.

    A field `count` beside the name of requests is the number of samples, as Azure has it.
    """
    name, said = series.labelled, meaning_of(series.labelled)
    known = said.kind is not Kind.UNKNOWN or meaning_of(f'requests{{facet="{name}"}}').kind is Kind.PART
    hint = name or series.hint
    names = {key: key for key in found.columns}
    for key, values in found.columns.items() if hint else ():
        if key in VALUES:
            names[key] = hint
        elif not (known or (series.hint and _is_plain(key, series.hint))) or not _holds_numbers(key, values):
            continue
        elif key == "count" and meaning_of(hint).kind is Kind.MEASURE:
            names[key] = re.sub(r"\W+", "_", hint) + "_count"  # of a histogram
        else:
            names[key] = f"{hint} {key}"
    meanings = {names["count"]: Meaning(Kind.UNCLEAR)} if "count" in names and name and said.counts else {}
    columns = {names[key]: values for key, values in found.columns.items()}
    meanings |= {key: Meaning(Kind.UNCLEAR) for key in columns if _may_be_sum(key, columns)}
    if (
        said.unit is not None and names.get("total") in columns
    ):  # of Azure: a rate, or its sum over the minutes of a row
        meanings[names["total"]] = Meaning(Kind.UNCLEAR)
    return replace(found, columns=columns, meanings=meanings, stated=list(series.stated.items()))


def _may_be_sum(key: str, columns: Columns) -> bool:
    """Return whether a value beside the documents of a bucket may be the requests, as a sum that Kibana calls `1`."""
    if "doc_count" not in columns or not key.endswith(f" {UNNAMED}") or meaning_of(key).kind is not Kind.UNKNOWN:
        return False
    numbers = plain_numbers([cell for cell in columns[key] if not is_missing(cell)])
    return numbers is not None and all(numbers == numbers.round())


def _is_plain(key: str, hint: str) -> bool:
    """Return whether a hint applies to a field. One that is named as a count is no measure, but may be of errors."""
    own = meaning_of(key).kind
    return own is Kind.UNKNOWN or (own is Kind.COUNT and meaning_of(hint).kind is Kind.ERRORS)


def _holds_times(key: str, values: Sequence[object]) -> bool:
    """Return whether a column holds times. A large number in a field of values may look like one."""
    return key not in VALUES and is_time(next((value for value in values if not is_missing(value)), None))


def _holds_numbers(key: str, values: Sequence[object]) -> bool:
    known = [value for value in values if not is_missing(value)]
    return not _holds_times(key, values) and plain_numbers(known) is not None


def _log_lines(rows: Sequence[Mapping[str, object]], path: Path) -> Export | None:
    """Read lines of a log beside their times, as Loki answers them: requests, or objects of JSON with their fields."""
    lines = [str(row[LINE]) for row in rows]
    if len(lines) == _LOKI_LIMIT:
        what = f"exactly {len(lines)} lines, Loki's limit for an answer: ask for more by its `limit`"
        raise BadInput(what, str(path))
    with suppress(ValueError, RecursionError, TypeError):  # other lines
        return _rows([{**json.loads(line), TIME: row[TIME]} for line, row in zip(lines, rows, strict=True)], path)
    requests = sum(REQUEST_LIKE.search(line.encode()) is not None for line in lines) >= 0.99 * len(lines)
    columns: Columns = {TIME: [row[TIME] for row in rows], "request" if requests else "message": lines}
    return Export(columns, "Loki's lines")


_DOCUMENT = re.compile(r"\s*[\[{]\s*[\[{\"]")  # the beginning of a list or an object; logs begin with brackets too


def _objects_in(text: str) -> list[dict[str, Any]]:
    """Return objects one behind the other, as Firehose writes them, or over several lines; none for anything else."""
    try:
        found = list(documents_in(text))
    except (ValueError, RecursionError):
        return []
    return [one for one in found if isinstance(one, dict)] if all(isinstance(one, dict) for one in found) else []


def _json_lines(text: str, path: Path) -> Export | None:
    rows: list[dict[str, object]] = []
    bad: list[tuple[int, str]] = []
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
            bad.append((number, f"no JSON object: {shown(line.encode())[:60]!r}"))
        else:
            rows.append(row)
    found = _json_objects(rows, path)
    return None if found is None else replace(found, bad=bad)


def _json_objects(rows: Sequence[Mapping[str, Any]], path: Path) -> Export | None:
    if all({"metric", "type", "data"} <= row.keys() for row in rows):
        return _k6(rows, path)
    if any(map(is_time, flattened(rows[0]).values())):
        return _rows(rows, path)
    victoria = all(row.keys() >= _VICTORIA for row in rows)
    form, none = (_PROMETHEUS, f"{len(rows)} series") if victoria else ("JSON", "")
    return _nested(rows, path, form, none) or _rows(rows, path)


def _k6(rows: Sequence[Mapping[str, object]], path: Path) -> Export | None:
    """Return the points of k6's JSON output, without its declarations of metrics."""
    points = [(row["metric"], row["data"]) for row in rows if row["type"] == "Point"]
    return _rows([{"metric": name, **data} for name, data in points if isinstance(data, dict)], path)


def _rows(rows: Sequence[Mapping[str, object]], path: Path) -> Export | None:
    """Return objects as rows of plain values, without names that fewer than half have or that hold nested values.

    The fields of a request within an object are kept, and those of an object around which a tool put another one.
    """
    if not rows:
        return None
    if any(row.get("preview") is True for row in rows):
        raise BadInput("holds preliminary rows (preview true): ask for the final ones", str(path))
    rows = list(map(flattened, rows))
    several = (k for row in rows for k, held in row.items() if isinstance(held, list | dict) and sample_of(k, held))
    if name := next(several, ""):
        raise BadInput("a row stands for several requests: write each of them as a row", str(path), name)
    held = Counter(name for row in rows for name in row)
    nested = {name for row in rows for name, value in row.items() if isinstance(value, dict | list)}
    names = [name for name, times in held.items() if times >= 0.5 * len(rows) and name not in nested]
    if not names:
        raise BadInput("the objects have no plain value in common", str(path))
    return Export({name: [row.get(name) for row in rows] for name in names}, "JSON")


def _columnwise(whole: object, path: Path) -> Export | None:
    """Read names of columns beside rows or columns of values. Raises BadInput for several such tables."""
    tables = list(tables_in(whole))
    if len(tables) > 1:
        names = ", ".join(name for table in tables for name in list(table.columns)[1:])
        raise BadInput(f"{len(tables)} tables in one document: ask for one series", str(path), names[:60])
    for held in tables[0].around if tables else ():
        refuse_part(held, path)
        refuse_fewer(held, len(next(iter(tables[0].columns.values()))), tables[0].columns, path)
    return Export(tables[0].columns, "JSON", stated=[("unit", tables[0].unit)]) if tables else None


def _prometheus(whole: Mapping[str, object], path: Path) -> Export | None:
    """Read Prometheus. A counter keeps its name; `rate` and `increase` drop it, so the user must name the unit."""
    data = whole.get("data")
    if whole.get("status") == "error" and "error" in whole:
        raise BadInput("Prometheus answered with an error", str(path), shown(str(whole["error"]).encode()))
    if not isinstance(data, dict) or data.get("resultType") != "matrix":
        return None
    return _nested([whole], path, _PROMETHEUS, f"{len(data.get('result') or ())} series")


def _graphite(rows: Sequence[Mapping[str, object]], path: Path) -> Export | None:
    """Read Graphite's series, whose points have the value first.

    Its metrics are numbers of each row or rates, which only some names say.
    """
    if not rows or not all(row.keys() >= {"target", "datapoints"} for row in rows):
        return None
    found = _nested(rows, path, "Graphite series", f"{len(rows)} series")
    name, said = str(rows[0]["target"]), meaning_of(str(rows[0]["target"]))
    if found is None or len(rows) > 1 or said.unit is not None or not said.counts or _GRAPHITE_COUNTS.search(name):
        return found
    return replace(found, meanings={name: Meaning(Kind.UNCLEAR)})


def _cloudwatch_statistics(whole: Mapping[str, object], path: Path) -> Export | None:
    """Read CloudWatch statistics: for a number of requests `Sum` is the count, for a measured time `SampleCount`."""
    points = whole.get("Datapoints")
    if not isinstance(points, list) or not all(isinstance(point, dict) for point in points):
        return None
    found = _rows(sorted(points, key=lambda point: str(point.get("Timestamp"))), path)
    if found is None:
        raise BadInput("the metric has no data points", str(path))
    label = str(whole.get("Label", ""))
    said = meaning_of(label)
    units = {str(unit) for unit in found.columns.get("Unit", ("None",))}
    of_counts = units <= {"Count", "None"} and said.kind not in (Kind.MEASURE, Kind.STATISTIC)
    counted = said if label else Meaning(Kind.COUNT)
    no_sum = Meaning(Kind.MEASURE)
    of_times = units <= {"Seconds", "Milliseconds", "Microseconds"}
    samples = Meaning(Kind.REQUESTS) if of_times else no_sum
    meanings = {"Sum": counted if of_counts else no_sum, "SampleCount": samples}
    return Export(
        found.columns, f"CloudWatch statistics of {label}" if label else "CloudWatch statistics", meanings=meanings
    )


def _insights(whole: Mapping[str, object], path: Path) -> Export | None:
    """Read rows of CloudWatch Logs Insights, each a list of fields and their values."""
    results = whole.get("results")
    if not isinstance(results, list) or not results or not all(isinstance(row, list) for row in results):
        return None
    cells = [[cell for cell in row if isinstance(cell, dict)] for row in results]
    statistics = whole.get("statistics")
    matched = statistics.get("recordsMatched") if isinstance(statistics, dict) else None
    single = {"@timestamp", "@message", "@ptr"} & {str(cell.get("field")) for cell in cells[0]}  # no `stats` query
    if single and isinstance(matched, int | float) and matched > len(results):
        what = f"is more than the {len(results):,} rows here: ask for shorter times, and join their rows"
        raise BadInput(what, f"{path} recordsMatched", f"{matched:,.0f}")
    return _rows([{str(cell.get("field")): cell.get("value") for cell in row} for row in cells], path)


# -- delimited text ----------------------------------------------------------------------------------------------------


def _delimited(text: str, path: Path) -> Export | None:
    """Read lines with equal numbers of cells. The first one names the columns if it holds no time."""
    numbered = [(number, line) for number, line in enumerate(text.split("\n"), 1) if line.strip()]
    sep = _SEP.fullmatch(numbered[0][1].strip())
    if sep is not None:
        del numbered[0]
    comments = [line for _, line in numbered if line.lstrip().startswith("#")]
    kept = [
        (n, line) for n, line in numbered if not line.lstrip().startswith("#") and not _FRAME.fullmatch(line.strip())
    ]
    if not kept:
        return None
    for number, line in numbered:
        if line.lstrip().startswith("#") and _LACKING.search(line):
            what = "a comment says that rows are missing: export all of them, or delete the comment"
            raise BadInput(what, f"{path} line {number}", shown(line.encode()[:80]))
    lines = [line for _, line in kept]
    try:
        delimiter = sep[1] if sep is not None else _delimiter(lines[: 2 * _PEEK_LINES])
        lines = [line.rstrip() for line in lines] if delimiter == " " else lines
        reader = csv.reader(lines, delimiter=delimiter, skipinitialspace=delimiter == " ")
        rows = [(kept[reader.line_num - 1][0], row) for row in reader if row]
    except csv.Error as error:  # a cell of more than 128 KiB: a quote that is never closed
        raise BadInput(f"no table: {error}", str(path)) from None
    width = Counter(len(row) for _, row in rows[: _PEEK_LINES * 10]).most_common(1)[0][0]
    _complete_header(rows, width)
    first = next(i for i, (_, row) in enumerate(rows) if len(row) == width)
    titles = _titles([row for _, row in rows[first : first + _PEEK_LINES]])
    first += titles
    skipped = [f"{first} lines above the header"] if first and first <= _PEEK_LINES else []
    head = [cell.strip() for cell in rows[first][1]]
    named = not any(map(is_time, head)) and plain_numbers(head) is None
    if (
        not named
        and comments
        and len(above := [c.strip() for c in comments[-1].lstrip("# ").split(delimiter)]) == width
    ):
        head, named = above, not any(map(is_time, above))
        first -= named
    if named and titles:
        head = [_with_title(name, above) for name, above in zip(head, rows[first - 1][1], strict=True)]
    names = [name or f"column {i}" for i, name in enumerate(head, 1)]
    if named and len(set(names)) < len(names):
        raise BadInput("a column's name stands twice", f"{path} line {rows[first][0]}", delimiter.join(names))
    if not named:
        names = [f"column {i}" for i in range(1, width + 1)]
        skipped = []
        first = -1
    timed = {i for i, cell in enumerate(rows[first + 1][1] if len(rows) > first + 1 else ()) if is_time(cell)}
    body, bad, again = [], [], 0
    again_head = rows[first][1] if first >= 0 else head
    for number, row in rows[first + 1 :]:
        if set(map(str.strip, row)) <= _ELISIONS:
            raise BadInput("rows are left out here: export all of them", f"{path} line {number}", delimiter.join(row))
        if len(row) != width:
            bad.append((number, f"expected {width} columns: {shown(delimiter.join(row).encode())!r}"))
        elif named and row == again_head:
            again += 1
        elif named and _is_header_beside(row, head, timed):
            what = "another table begins here: keep one of them"
            raise BadInput(what, f"{path} line {number}", shown(delimiter.join(row).encode())[:60])
        else:
            body.append((number, row))
    if not body and bad:
        raise BadInput(bad[0][1], f"{path} line {bad[0][0]}")
    if not body:
        raise BadInput("no rows below the header", str(path))
    _refuse_fewer_lines(numbered[-1], len(body) + len(bad), path)
    for line in comments:
        if (limit := _LIMITED.search(line)) and int(re.sub(r"\D", "", limit[1])) == len(body) + len(bad):
            what = "as many rows as a comment limits them to: export all of them, or delete the comment"
            raise BadInput(what, str(path), shown(line.encode()[:80]))
    skipped += [f"{again} headers in between"] if again else []
    skipped += [f"{len(comments)} comments"] if comments else []
    said = {",": "commas", ";": "semicolons", "\t": "tabs", "|": "bars"}.get(delimiter, f"{delimiter!r}")
    cells = zip(*(row for _, row in body), strict=True)
    columns = {name: [cell.strip() for cell in column] for name, column in zip(names, cells, strict=True)}
    columns = {name: cells for name, cells in columns.items() if not all(map(is_missing, cells))} or columns
    form = f"text with {said}" if width > 1 else "text of one column"
    over = [row for _, row in rows[: max(first, 0)]]
    said_of = [meaning_of(_MINUTES.sub("", cell)) for row in over for cell in row]
    is_statistic = any(meaning.kind is Kind.STATISTIC for meaning in said_of)
    meanings = dict.fromkeys(names, Meaning(Kind.STATISTIC)) if is_statistic else {}
    if set(names) >= _LOCUST:
        columns = {name: columns[name] for name in ("Timestamp", "Type", "Name", _OF_LOCUST) if name in columns}
        meanings = {_OF_LOCUST: Meaning(Kind.REQUESTS, COUNTER)}
    lines_of_rows = [number for number, _ in body]
    stated = above_and_between(over, comments)
    return Export(columns, form, named, None, meanings, lines_of_rows, bad, skipped, stated=stated)


def _complete_header(rows: list[tuple[int, list[str]]], width: int) -> None:
    """Add the cell that a header lacks.

    R does not name its row numbers, others end only rows with a delimiter, and a date and a clock may share a name.
    """
    (number, head), body = rows[0], [row for _, row in rows[1:]]
    if len(head) != width - 1 or not body or any(len(row) != width for row in body) or any(map(is_time, head)):
        return
    if not any(row[-1].strip() for row in body):
        rows[0] = (number, [*head, ""])
    elif all(row[0].strip() == str(i) for i, row in enumerate(body, int(body[0][0] == "1"))):
        rows[0] = (number, ["", *head])
    elif at := next((i + 1 for i in range(width - 1) if is_time(" ".join(body[0][i : i + 2]))), 0):
        rows[0] = (number, [*head[:at], "", *head[at:]])


def _is_header_beside(row: Sequence[str], head: Sequence[str], timed: Collection[int]) -> bool:
    """Return whether a row names columns: a column of times as the header does, and others differently."""
    same = any(row[i].strip().lower() == head[i].lower() != "" for i in timed if i < len(row))
    return same and not any(plain_numbers([cell]) is not None or is_time(cell) for cell in row)


def _refuse_fewer_lines(last: tuple[int, str], rows: int, path: Path) -> None:
    """Raise BadInput if the line below a table, as psql's `(60 rows)`, states more rows than the table has."""
    found = _FRAME.fullmatch(last[1].strip())
    said = re.sub(r"\D", "", found[1] or found[2] or "") if found else ""
    if said and int(said) > rows:
        what = f"says more rows than the {rows:,} above it: the table is not complete"
        raise BadInput(what, f"{path} line {last[0]}", shown(last[1].encode()))


def _titles(rows: Sequence[Sequence[str]]) -> int:
    """Return the number of title rows above the header, as CloudWatch's console writes `Label` and `Statistic`.

    The header is the row of words above the first row with a time.
    """
    at = next((i for i, row in enumerate(rows) if any(map(is_time, row))), 0)
    if at < 2 or any(len(row) != len(rows[at]) for row in rows[:at]):
        return 0
    return 0 if any(plain_numbers([cell]) is not None for cell in rows[at - 1]) else at - 1


def _with_title(name: str, title: str) -> str:
    """Return the name of a column below a title: the title if it has none, both if its own is only a unit."""
    unit = name.strip("()[] ")
    said = meaning_of(f"requests ({unit})")
    is_unit = unit and (said.unit is not None or said.times != 1.0 or said.kind is Kind.MEASURE)
    return (
        f"{title.strip()} ({unit})" if is_unit and not meaning_of(unit.split("/")[0]).counts else name or title.strip()
    )


def _delimiter(head: Sequence[str]) -> str:
    """Return the delimiter that cuts most lines into equal numbers of cells, and into most cells.

    Blanks delimit only a time and a number, as `uniq -c` writes them, because messages have equal numbers of words too.
    """

    def cells(delimiter: str) -> tuple[int, int]:
        widths = Counter(len(row) for row in csv.reader(head, delimiter=delimiter) if len(row) > 1)
        width, times = widths.most_common(1)[0] if widths else (1, 0)
        return times, width

    best = max(_DELIMITERS, key=cells)
    rows = [row for row in map(str.split, head) if not row[0].startswith("#")]
    widths = {*map(len, rows[1:] or rows)}
    fits = len(widths) == 1 and max(widths) - len(rows[0]) in (0, 1)  # a date and a clock may share a name
    if cells(best)[0] == 0 and fits and all(map(_is_time_and_number, rows[1:])):
        return " "
    return best


def _is_time_and_number(cells: Sequence[str]) -> bool:
    first, last = (plain_numbers([cells[i]]) is not None for i in (0, -1))
    return (last and is_time(" ".join(cells[:-1]))) or (first and is_time(" ".join(cells[1:])))
