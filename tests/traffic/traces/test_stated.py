"""Statements beside a column's name count: units, statistics, spans and samples in titles, comments and columns."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from mark.domain.errors import BadInput
from mark.traffic.traces import open_trace
from mark.traffic.traces.table_files import TableColumns
from tests.traffic.traces.variations import C, S, iso, table

SECONDS = 60.0
CONSOLE = '"Label","{label}"\n"Statistic","{statistic}"\n"Period","{period}"\n"Timestamp","{label}"\n'


def console(*, label: str = "RequestCount", statistic: str = "Sum", period: int = 60) -> str:
    """Return the CSV of CloudWatch's console."""
    head = CONSOLE.format(label=label, statistic=statistic, period=period)
    return head + "".join(f'"{iso(i)}","{count}"\n' for i, count in enumerate(C))


def beside(column: str, value: object, name: str = "requests", step: int = 60) -> str:
    return table(["time", name, column], [(iso(i, step), count, value) for i, count in enumerate(C)])


def plain(before: str = "", after: str = "", head: str = "time,requests") -> str:
    return f"{before}{head}\n" + "".join(f"{iso(i)},{count}\n" for i, count in enumerate(C)) + after


def windows(span_s: int) -> str:
    rows = [(iso(i), iso(i + span_s / 60), count) for i, count in enumerate(C)]
    return table(["start", "end", "requests"], rows)


def datadog(**said: object) -> str:
    points = [[(1_777_629_600 + 60 * i) * 1000, count] for i, count in enumerate(C)]
    series = {"metric": "x.requests", "unit": [{"name": "request"}, None], "interval": 60, "pointlist": points} | said
    return json.dumps({"status": "ok", "series": [series]})


READ = {
    "console": (console(), S),
    "console's first form": (plain("Label,RequestCount\n", head="Timestamp(UTC),"), S),
    "unit column": (beside("unit", "Count/Second", "value"), S * SECONDS),
    "unit column of minutes": (beside("unit", "req/min", step=10), S / 6),
    "unit column of thousands": (beside("unit", "thousand"), S * 1000),
    "unit column of counts": (beside("unit", "Count"), S),
    "unit in a comment": (plain("# unit: requests per second\n"), S * SECONDS),
    "unit below the header": (plain(head="time,requests\n,req/s"), S * SECONDS),
    "unit in brackets below": (plain(head="Zeit,Anfragen\n[UTC],[1/s]"), S * SECONDS),
    "thousands below": (plain(head="time,requests\n(UTC),(thousands)"), S * 1000),
    "unit of another column": (table(["time", "requests", "ms"], [(iso(i), c, 3) for i, c in enumerate(C)]), S),
    "interval of the rows": (beside("interval", "1m"), S),
    "interval in seconds": (beside("_span", 60), S),
    "comment without a number": (plain("# exported on Monday\n# service: shop\n"), S),
    "rows with ends": (windows(60), S),
    "rows with their last seconds": (windows(59), S),
    "weights of one": (beside("sample_rate", 1), S),
    "rate as the only metric": (beside("metric", "requests_per_second", "value"), S * SECONDS),
    "service as the only name": (beside("name", "checkout", "value"), S),
    "rate of the rows in a title": (plain("Requests per minute\n"), S),
    "length of the rows in a title": (plain("Traffic,1 min\n"), S),
    "length of all rows in a title": (plain("Duration: 1 h\n"), S),
    "length of the rows as their aggregation": (plain("Aggregation: 1 min\n"), S),
    "samples of each row": (plain("# sampling interval 60 s\n"), S),
    "number of a table": (beside("table", 0, "_value"), S),
    "days without a weekend": (beside("is_weekend", "no"), S),
    "rows of good quality": (beside("quality_flag", "ok"), S),
    "requests with any use of a cache": (beside("cache_status", "ALL"), S),
    "Datadog, sum": (datadog(aggr="sum"), S),
}

REFUSED = {
    "console's sample count": (console(statistic="Sample Count"), "look like a summary"),
    "console's period": (console(period=300), "'Period 300'. Say `count_unit`"),
    "console's first form of a latency": (
        plain("Label,TargetResponseTime\n", head="Timestamp(UTC),"),
        "no column holds requests",
    ),
    "unit of time": (beside("unit", "ms", "value"), "no column holds requests"),
    "unknown unit": (beside("unit", "widgets"), "Say `count_unit`"),
    "average in a column": (beside("stat", "avg"), "look like a summary"),
    "percentile in a column": (beside("aggregation", "p99", "value"), "look like a summary"),
    "gauge": (beside("type", "gauge", "value"), "no column holds requests"),
    "units that change": (
        table(["time", "requests", "unit"], [(iso(i), c, "req/s" if i % 9 else "req/min") for i, c in enumerate(C)]),
        "'unit req/min; req/s'",
    ),
    "numbers that are scaled in some rows": (
        table(["time", "requests", "unit"], [(iso(i), c, "K" if i % 9 else "") for i, c in enumerate(C)]),
        "Say `count_unit`",
    ),
    "aggregation of a window": (plain("Aggregation: 5 min\n"), "'Aggregation 5 min'. Say `count_unit`"),
    "interval of a window": (beside("interval", "5m"), "'interval 5m'. Say `count_unit`"),
    "thousands in a title": (plain("Requests in thousands\n"), "'Requests in thousands'"),
    "rate in a title": (plain("Requests per second\n", head="time,value"), "'Requests per second'"),
    "rate of a service in a title": (plain("Checkout requests per second\n"), "'Checkout requests per second'"),
    "rate of a part in a title": (plain("POST requests per second\n"), "'POST requests per second'"),
    "measure as the only metric": (beside("metric", "cpu_percent", "value"), "look like a summary"),
    "errors as the only metric": (beside("_measurement", "failed_requests", "value"), "only errors"),
    "status of all rows": (beside("status", "OK"), r"only a part of the requests \(status OK in all rows\)"),
    "thousands in a last comment": (plain(after="# values in thousands\n"), "'values in thousands'"),
    "one request in sixty": (plain("# sample every 60\n"), "a sample of the requests"),
    "sample in a comment": (plain("# sampled at 10%\n"), "a sample of the requests"),
    "rate of a sample": (plain("# sample_rate=0.1\n"), "a sample of the requests"),
    "sample in a column": (beside("sampling", "1:10"), "a sample of the requests"),
    "windows that overlap": (windows(300), "'span of a row 300 s'"),
    "windows with gaps": (windows(15), "'span of a row 15 s'"),
    "Datadog, average": (datadog(aggr="avg"), "no column holds requests"),
    "Datadog, scaled": (
        datadog(unit=[{"name": "request", "scale_factor": 1000.0}, None]),
        "Say `count_unit`",
    ),
    "Datadog, latency": (datadog(unit=[{"name": "millisecond"}, None]), "Say `count_unit`"),
    "Datadog, window": (datadog(interval=300), "'interval 300'"),
    "Datadog, query without a unit": (datadog(expression="sum:x.requests{*}"), "Say `count_unit`"),
}


@pytest.mark.parametrize("case", READ)
def test_a_statement_with_one_reading_is_followed(tmp_path: Path, case: str) -> None:
    text, requests = READ[case]
    (tmp_path / "traffic").write_text(text)
    trace = open_trace(str(tmp_path / "traffic"))
    assert trace.total_counts(0.0, trace.duration_s) == pytest.approx(requests, rel=1e-6)


@pytest.mark.parametrize("case", REFUSED)
def test_a_statement_that_leaves_the_numbers_open_is_asked_about(tmp_path: Path, case: str) -> None:
    text, said = REFUSED[case]
    (tmp_path / "traffic").write_text(text)
    with pytest.raises(BadInput, match=said):
        open_trace(str(tmp_path / "traffic"))


@pytest.mark.parametrize("case", ["interval of a window", "thousands in a title", "sample in a column"])
def test_a_named_unit_settles_a_statement(tmp_path: Path, case: str) -> None:
    (tmp_path / "traffic").write_text(REFUSED[case][0])
    trace = open_trace(str(tmp_path / "traffic"), columns=TableColumns(unit="count"))
    assert trace.total_counts(0.0, trace.duration_s) == S


@pytest.mark.parametrize(
    "extra",
    [("itemCount", "4"), ("sample_rate", "0.1"), ("SampleInterval", "10"), ("weight", "2.5"), ("SampleCount", "10")],
)
def test_rows_that_stand_for_several_requests_are_refused(tmp_path: Path, extra: tuple[str, str]) -> None:
    name, value = extra
    rows = [(iso(i * i % 97, 1), "/predict", 200, value) for i in range(90)]
    (tmp_path / "rows.csv").write_text(table(["timestamp", "path", "status", name], rows))
    (tmp_path / "log").write_text(
        "".join(
            json.dumps({"timestamp": f"{at}.5Z".replace(" ", "T"), "path": path, "status": status, name: float(value)})
            + "\n"
            for at, path, status, _ in rows
        )
    )
    with pytest.raises(BadInput, match="a row stands for several requests: `count_column` none counts the rows"):
        open_trace(str(tmp_path / "rows.csv"))
    assert open_trace(str(tmp_path / "rows.csv"), columns=TableColumns(count="none")).rows == 90
    with pytest.raises(BadInput, match=rf"a line stands for several requests: `log_filter` {name}=\*"):
        open_trace(str(tmp_path / "log"))
    assert open_trace(str(tmp_path / "log"), log_filter=(name, "*")).rows == 90


def test_a_sampled_flag_is_no_rate(tmp_path: Path) -> None:
    rows = [{"time": f"2026-05-01T10:00:{i:02}.5Z", "path": "/p", "status": 200, "sampled": True} for i in range(30)]
    (tmp_path / "log").write_text("".join(json.dumps(row) + "\n" for row in rows))
    assert open_trace(str(tmp_path / "log")).rows == 30


@pytest.mark.parametrize(
    ("first", "second", "said"),
    [
        ("", "# unit: req/s\n", "of different units or statistics, read them one by one: a.csv and b.csv"),
        ("# statistic: Sum\n", "# statistic: Average\n", "of different units or statistics"),
        ("", "# values in thousands\n", "'values in thousands'"),
    ],
)
def test_tables_of_a_folder_must_say_the_same(tmp_path: Path, first: str, second: str, said: str) -> None:
    for name, before, rows in (("a.csv", first, range(30)), ("b.csv", second, range(30, 60))):
        (tmp_path / name).write_text(before + table(["time", "requests"], [(iso(i), C[i]) for i in rows]))
    with pytest.raises(BadInput, match=said):
        open_trace(str(tmp_path))
    (tmp_path / "a.csv").write_text(
        "# exported on Monday\n" + table(["time", "requests"], [(iso(i), C[i]) for i in range(30)])
    )
    (tmp_path / "b.csv").write_text(table(["time", "requests"], [(iso(i), C[i]) for i in range(30, 60)]))
    trace = open_trace(str(tmp_path))
    assert trace.total_counts(0.0, trace.duration_s) == S


@pytest.mark.parametrize(
    "name", ["Requ\u00eates", "nombre de requ\u00eates", "requisi\u00e7\u00f5es", "\u8bf7\u6c42\u6570", "Anzahl"]
)
def test_requests_are_known_in_other_languages(tmp_path: Path, name: str) -> None:
    (tmp_path / "traffic").write_text(plain(head=f"time,{name}"))
    trace = open_trace(str(tmp_path / "traffic"))
    assert trace.total_counts(0.0, trace.duration_s) == S


@pytest.mark.parametrize(
    "name", ["requests us-east-1", "count(id)", "Requests - Sum", "requests europe-west1", "anfragen_pro_minute"]
)
def test_parts_of_a_name_that_say_nothing_are_passed_over(tmp_path: Path, name: str) -> None:
    (tmp_path / "traffic").write_text(plain(head=f"time,{name}"))
    trace = open_trace(str(tmp_path / "traffic"))
    assert trace.total_counts(0.0, trace.duration_s) == S


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("requests (us)", "no column holds requests"),
        ("dur\u00e9e des requ\u00eates", "no column holds requests"),
        ("tiempo de las solicitudes", "no column holds requests"),
        ("erreurs de requ\u00eates", "only errors"),
        ("Fehlerhafte Anfragen", "only errors"),
        ("\u8bf7\u6c42\u5ef6\u8fdf", "which column"),
    ],
)
def test_measures_and_errors_in_other_languages_are_no_requests(tmp_path: Path, name: str, said: str) -> None:
    (tmp_path / "traffic").write_text(plain(head=f"time,{name}"))
    with pytest.raises(BadInput, match=said):
        open_trace(str(tmp_path / "traffic"))
