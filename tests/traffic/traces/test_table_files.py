"""Traffic in the forms of other tools: read without an option, or refused with the option to add."""

from __future__ import annotations

import bz2
import gzip
import io
import json
import lzma
import zipfile
from collections.abc import Callable, Sequence
from dataclasses import replace
from datetime import UTC, date, datetime
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
import pandas as pd
import pytest
import zstandard
from hypothesis import given
from hypothesis import strategies as st

from mark.domain.errors import BadInput
from mark.traffic.traces.exports import Export
from mark.traffic.traces.meanings import UNITS
from mark.traffic.traces.reader import open_trace
from mark.traffic.traces.table_files import RECOGNISED, TableColumns, read_table, trace_of_table
from mark.traffic.traces.times import TimeForm, as_times
from mark.traffic.traces.trace import Trace

T0 = 1_795_300_020
_DRAWN = Random(1)
COUNTS = [_DRAWN.randint(50, 150) for _ in range(60)]
MINUTES = [T0 + 60 * i for i in range(60)]
REQUESTS = sorted(T0 + _DRAWN.random() * 3600.0 for _ in range(400))


def clock(at_s: float, form: str = "%Y-%m-%dT%H:%M:%SZ") -> str:
    return datetime.fromtimestamp(at_s, UTC).strftime(form)


def rows(header: str, lines: Sequence[str]) -> str:
    return "\n".join([*([header] if header else []), *lines]) + "\n"


def counts(form: Callable[[int, int], str], header: str = "") -> str:
    return rows(header, [form(at, n) for at, n in zip(MINUTES, COUNTS, strict=True)])


def requests(form: Callable[[float], str], header: str = "") -> str:
    return rows(header, [form(at) for at in REQUESTS])


def prometheus(metric: dict[str, str], values: Sequence[object]) -> str:
    pairs = [[at, str(value)] for at, value in zip(MINUTES, values, strict=False)]
    return json.dumps(
        {"status": "success", "data": {"resultType": "matrix", "result": [{"metric": metric, "values": pairs}]}}
    )


OF_COUNTS = {
    "epoch milliseconds, no header": counts(lambda at, n: f"{at * 1000},{n}"),
    "minutes by name": rows("minute,requests", [f"{i},{n}" for i, n in enumerate(COUNTS)]),
    "semicolons, decimal commas": counts(lambda at, n: f"{clock(at, '%Y-%m-%d %H:%M:%S')};{n},0", "ts;requests"),
    "tabs": counts(lambda at, n: f"{at}\t{n}", "time\tcount"),
    "day first": counts(lambda at, n: f"{clock(at, '%d.%m.%Y %H:%M')}|{n}", "date|hits"),
    "Grafana": counts(lambda at, n: f'"{clock(at, "%Y-%m-%d %H:%M:%S")}","{n}"', '"Time","requests"'),
    "a rate by name": counts(lambda at, n: f"{clock(at)},{n / 60!r}", "time,req/s"),
    "a rate a minute": counts(lambda at, n: f"{clock(at)},{n}", "time,rpm"),
    "beside what is no count": counts(lambda at, n: f"{clock(at)},{n},12.5,3", "time,requestCount,avg_latency_ms,cpu"),
    "an empty cell": counts(lambda at, n: f"{clock(at)},{n}", "time,requests") + f"{clock(MINUTES[-1] + 60)},\n",
    "newest first": rows("time,requests", counts(lambda at, n: f"{at},{n}").strip().split("\n")[::-1]),
    "Prometheus, a counter": prometheus(
        {"__name__": "http_requests_total"}, [sum(COUNTS[:i]) for i in range(60)]
    ),
    "CloudWatch statistics": json.dumps(
        {
            "Label": "RequestCount",
            "Datapoints": [
                {"Timestamp": clock(at, "%Y-%m-%dT%H:%M:%S+00:00"), "Sum": float(n), "Unit": "Count"}
                for at, n in reversed(list(zip(MINUTES, COUNTS, strict=True)))
            ],
        }
    ),
    "CloudWatch metric data": json.dumps(
        {
            "MetricDataResults": [
                {
                    "Id": "m1",
                    "Label": "RequestCount",
                    "Timestamps": [clock(at) for at in MINUTES[::-1]],
                    "Values": COUNTS[::-1],
                    "StatusCode": "Complete",
                }
            ]
        }
    ),
    "Datadog": json.dumps(
        {
            "series": [
                {
                    "metric": "trace.web.request.hits",
                    "unit": [{"name": "request"}, None],
                    "pointlist": [[at * 1e3, float(n)] for at, n in zip(MINUTES, COUNTS, strict=True)],
                }
            ]
        }
    ),
}  # fmt: skip
OF_REQUESTS = {
    "a header and more columns": requests(
        lambda at: f"{datetime.fromtimestamp(at, UTC).isoformat()},/x,200,3.5", "timestamp,path,status,latency_ms"
    ),
    "one column, no header": requests(lambda at: f"{at:.3f}"),
    "microseconds": requests(lambda at: f"{at * 1e6:.0f}", "started"),
    "JSON lines": requests(lambda at: json.dumps({"ts": at, "level": "info", "latency_ms": 3.1, "tags": ["a"]})),
}
REFUSED = {
    "two counts": (counts(lambda at, n: f"{at},{n},1", "time,count,error count"), "--count-column|count_column"),
    "day or month": (rows("date,requests", [f"0{i}/02/2026,{i}" for i in range(1, 9)]), "2026-11-23"),
    "a rate or counts": (counts(lambda at, n: f"{at},{n / 7}", "time,value"), "count_unit"),
    "a rate of what": (counts(lambda at, n: f"{at},{n}", "time,request rate"), "count_unit"),
    "Prometheus, rate or increase": (prometheus({}, [n / 7 for n in COUNTS]), "count_unit"),
    "several series": (
        json.dumps({"data": {"resultType": "matrix", "result": [{"metric": {}, "values": []}] * 2}}), "2 series",
    ),
    "two unknown columns": (counts(lambda at, n: f"{at},{n},{n + 1}", "time,a,b"), "count_column"),
    "counts at any time": (requests(lambda at: f"{at},3", "time,requests"), "irregular.*count_column"),
    "two times": (counts(lambda at, n: f"{clock(at)},{clock(at + 45)},{n}", "seen,noted,requests"), "time_column"),
    "small numbers": (rows("t,n", [f"{i},{n}" for i, n in enumerate(COUNTS)]), "time_column"),
    "a line cut short": (f"time,requests\n{T0},5\n{T0 + 60}\n", "line 3, expected 2 columns.*skip_bad_lines"),
    "a name twice": (counts(lambda at, n: f"{at},{n},{n}", "time,count,count"), "stands twice"),
    "no object": ('{"ts": 1795300020}\n{"ts": 17953\n', "row 2, no JSON object.*skip_bad_lines"),
    "nothing": (" \n \n", "empty"),
    "a quote that is not closed": ('time,requests\n1795300020,"' + 200_000 * "a", "no table"),
    "JSON too deep": (100_000 * "[", "nested|neither a trace"),
    "points that are none": (prometheus({}, []), "points of time and value"),
    "a point that is no pair": (json.dumps({"series": [{"pointlist": [[T0, 1], 7]}]}), "points of time and value"),
    "words": ("hello world\nthis is no trace\n", "neither a trace"),
    "only zeros": (rows("time,requests", [f"{at},0" for at in MINUTES]), "every count is 0"),
    "less than nothing": (rows("time,requests", [f"{at},{-at}" for at in MINUTES]), "negative"),
}  # fmt: skip


def read(folder: Path, text: str, columns: TableColumns = RECOGNISED) -> Trace:
    path = folder / "traffic"
    path.write_text(text)
    return open_trace(str(path), columns=columns)


def total(trace: Trace) -> float:
    return trace.total_counts(0.0, trace.duration_s)


@pytest.mark.parametrize("form", OF_COUNTS)
def test_counts_are_read_without_an_option(tmp_path: Path, form: str) -> None:
    """Every form holds the same hour, minute by minute, and the first note states the assumption."""
    trace = read(tmp_path, OF_COUNTS[form])
    wanted = COUNTS[:-1] if "counter" in form else COUNTS  # a counter's last row begins a minute that it does not count
    assert (trace.kind, trace.bin_s, trace.rows) == ("counts", 60.0, len(wanted))
    starts = np.array([60.0 * i for i in range(len(wanted) + 1)])
    requests, _ = trace.series.until(starts)
    np.testing.assert_allclose(np.diff(requests), wanted, rtol=1e-9)
    assert trace.notes[0].startswith("read as ")
    if form != "minutes by name":
        assert trace.began_s == T0 // 60 * 60 if form == "day first" else trace.began_s == T0


def test_trace_begins_at_its_first_row_with_a_value(tmp_path: Path) -> None:
    rows = [f"{T0 + 60 * i},{count if i > 4 else ''}" for i, count in enumerate(COUNTS)]
    assert read(tmp_path, "\n".join(["time,requests", *rows]) + "\n").began_s == T0 + 300.0


@pytest.mark.parametrize("form", OF_REQUESTS)
def test_requests_are_read_without_an_option(tmp_path: Path, form: str) -> None:
    """Each row is a request, to the precision of the stamps."""
    trace = read(tmp_path, OF_REQUESTS[form])
    assert (trace.kind, trace.rows) == ("arrivals", len(REQUESTS))
    times = np.concatenate([chunk for chunk, _ in trace.chunks(0.0, trace.duration_s)])
    whole = form in ("IIS", "CloudFront")
    np.testing.assert_allclose(times, np.array(REQUESTS) - REQUESTS[0], atol=2.0 if whole else 2e-3)
    assert "one row a request" in trace.notes[0]
    assert any("spread evenly" in note for note in trace.notes) is whole


@pytest.mark.parametrize("case", REFUSED)
def test_an_ambiguous_table_is_refused_with_what_to_add(tmp_path: Path, case: str) -> None:
    text, what = REFUSED[case]
    with pytest.raises(BadInput, match=what) as refused:
        read(tmp_path, text)
    assert "\n" not in str(refused.value)
    assert "traffic" in str(refused.value)


@pytest.mark.parametrize(
    ("case", "columns", "kind"),
    [
        ("two counts", TableColumns(count="count"), "counts"),
        ("a rate or counts", TableColumns(unit="per-second"), "counts"),
        ("Prometheus, rate or increase", TableColumns(unit="counter"), "counts"),
        ("two unknown columns", TableColumns(count="b"), "counts"),
        ("counts at any time", TableColumns(count="none"), "arrivals"),
        ("two times", TableColumns(time="seen"), "counts"),
    ],
)
def test_what_is_said_is_enough(tmp_path: Path, case: str, columns: TableColumns, kind: str) -> None:
    """Each refusal above that asks for an option is answered by it."""
    assert read(tmp_path, REFUSED[case][0], columns).kind == kind


def test_units_make_the_same_requests(tmp_path: Path) -> None:
    """60 a minute are one a second; a counter that starts again counts from zero."""
    text = rows("time,value", [f"{T0 + 60 * i},{60.0 * (i + 1) % 240}" for i in range(8)])
    totals = {unit: total(read(tmp_path, text, TableColumns(unit=unit))) for unit in UNITS}
    assert totals["count"] == totals["per-minute"] == totals["per-second"] / 60.0 == 2 * (60 + 120 + 180)
    assert totals["counter"] == 2 * 60 + 0 + 3 * 60 + 0


def test_a_counter_s_gap_is_not_one_minute(tmp_path: Path) -> None:
    """An hour is missing after the third row: its 6,000 requests came while no value was reported."""
    rising = [(0, 0), (60, 100), (120, 200), (3720, 6200), (3780, 6300), (3840, 6400)]
    text = rows("time,http_requests_total", [f"{T0 + at},{n}" for at, n in rising])
    trace = read(tmp_path, text, TableColumns(count="http_requests_total", unit="counter"))
    assert (total(trace), trace.bin_s, trace.gaps) == (400.0, 60.0, ((120.0, 3720.0),))


@pytest.mark.parametrize(
    ("columns", "what"),
    [
        (TableColumns(time="requests", count="none"), "time_column: counts from the start, .*`time_format`, s or ms"),
        (TableColumns(time="when"), "time_column: no such column in .*traffic: there are time, requests: 'when'"),
        (TableColumns(count="hits"), "count_column: no such column in .*: there are requests: 'hits'"),
    ],
)
def test_a_missing_column_is_named_with_the_existing_ones(tmp_path: Path, columns: TableColumns, what: str) -> None:
    text = counts(lambda at, n: f"{clock(at)},{n}", "time,requests")
    with pytest.raises(BadInput, match=what.replace("'", "")):
        read(tmp_path, text, columns)


@pytest.mark.parametrize(("form", "seconds"), [("s", 1.0), ("ms", 0.001)])
@pytest.mark.parametrize("is_json", [False, True])
def test_numbers_from_the_start_are_read_in_the_stated_unit(
    tmp_path: Path, form: str, seconds: float, is_json: bool
) -> None:
    """Their size does not tell whether they are seconds or milliseconds."""
    times = [15_000 * i for i in range(100)]
    path = tmp_path / "traffic"
    path.write_text(
        "".join(f'{{"timestamp": {at}, "input_length": 9}}\n' for at in times)
        if is_json
        else rows("timestamp,input_length", [f"{at},9" for at in times])
    )
    columns = TableColumns(time="timestamp", count="none")
    with pytest.raises(BadInput, match="say its unit by `time_format`, s or ms"):
        open_trace(str(path), columns=columns)
    trace = open_trace(str(path), columns=replace(columns, times=TimeForm(form)))
    assert (trace.rows, trace.duration_s) == (100, pytest.approx(99 * 15_000 * seconds, rel=0.05))


@pytest.mark.parametrize(("step", "is_read"), [(60, True), (900, True), (1, False), (1_000, False), (60_000, False)])
def test_whole_minutes_from_the_start_are_seconds(tmp_path: Path, step: int, is_read: bool) -> None:
    text = rows("t,n", [f"{i * step},{n}" for i, n in enumerate(COUNTS)])
    columns = TableColumns(time="t", count="n")
    if is_read:
        assert read(tmp_path, text, columns).bin_s == step
        return
    with pytest.raises(BadInput, match="say its unit by `time_format`, s or ms"):
        read(tmp_path, text, columns)


def test_an_unknown_unit_is_refused() -> None:
    with pytest.raises(BadInput, match="count_unit"):
        TableColumns(unit="dozens")


def test_a_log_filter_has_nothing_to_filter_in_a_table(tmp_path: Path) -> None:
    (tmp_path / "traffic").write_text(OF_COUNTS["tabs"])
    with pytest.raises(BadInput, match="only access logs"):
        open_trace(str(tmp_path / "traffic"), log_filter=("path", "/"))


def zipped(data: bytes, *names: str) -> bytes:
    whole = io.BytesIO()
    with zipfile.ZipFile(whole, "w", zipfile.ZIP_DEFLATED) as archive:
        for name in names or ("folder/", "folder/traffic.csv", "__MACOSX/folder/._traffic.csv"):
            archive.writestr(name, b"" if name.endswith("/") else data)
    return whole.getvalue()


def test_zip_archive_of_one_file_is_read(tmp_path: Path) -> None:
    path = tmp_path / "traffic.zip"
    path.write_bytes(zipped(OF_COUNTS["Grafana"].encode()))
    assert total(open_trace(str(path))) == sum(COUNTS)
    path.write_bytes(zipped(OF_COUNTS["Grafana"].encode(), "a.csv", "b.csv"))
    with pytest.raises(BadInput, match="a zip archive of several files, or an Excel workbook: unpack it, or save CSV"):
        open_trace(str(path))


@pytest.mark.parametrize("pack", [gzip.compress, bz2.compress, lzma.compress, zstandard.ZstdCompressor().compress])
def test_compressed_files_are_recognised(tmp_path: Path, pack: Callable[[bytes], bytes]) -> None:
    path = tmp_path / "traffic.csv"
    path.write_bytes(pack(OF_COUNTS["Grafana"].encode()))
    assert total(open_trace(str(path))) == sum(COUNTS)
    path.write_bytes(2 * pack(OF_COUNTS["Grafana"].split("\n", 1)[1].encode()))  # two files, one behind the other
    with pytest.raises(BadInput, match=r"times have two rows|irregular"):
        open_trace(str(path))


def test_parquet_is_read(tmp_path: Path) -> None:
    path = tmp_path / "traffic.parquet"
    pd.DataFrame({"requests": COUNTS}, index=pd.to_datetime(MINUTES, unit="s", utc=True)).to_parquet(path)
    assert total(open_trace(str(path))) == sum(COUNTS)


def test_parquet_may_have_missing_numbers(tmp_path: Path) -> None:
    path = tmp_path / "traffic.parquet"
    counts = pd.array([None, *COUNTS[1:]], dtype="Int64")
    pd.DataFrame({"requests": counts}, index=pd.to_datetime(MINUTES, unit="s", utc=True)).to_parquet(path)
    assert total(open_trace(str(path))) == sum(COUNTS[1:])


def test_parquet_may_have_dates_and_hours(tmp_path: Path) -> None:
    path = tmp_path / "traffic.parquet"
    days = [date(2026, 5, 1 + i // 24) for i in range(48)]
    pd.DataFrame({"date": days, "hour": [i % 24 for i in range(48)], "requests": COUNTS[:48]}).to_parquet(path)
    trace = open_trace(str(path))
    assert (total(trace), trace.bin_s) == (sum(COUNTS[:48]), 3600.0)


@pytest.mark.parametrize(
    ("text", "utc"),
    [
        ("2026-05-01t10:00:00z", "10:00"),
        ("2026-05-01 10:00 UTC+2", "08:00"),
        ("2026-05-01T10:00:00+02:00[Europe/Berlin]", "08:00"),
        ("2026-05-01T10:00:00\u221203:00", "13:00"),
        ("2026-05-01 10:00 a. m.", "10:00"),
        ("13.05.2026 10.00.00", "10:00"),
        ("13/05/2026 10h00", "10:00"),
        ("2026-05-01 10:00 - 10:59", "10:00"),
        ("2026-05-01 10:00-05:00", "15:00"),
    ],
)
def test_clocks_and_zones_of_several_languages(text: str, utc: str) -> None:
    times = as_times("time", [text])
    assert times is not None
    assert str(np.datetime64(int(times.seconds[0]), "s"))[11:16] == utc


def test_spans_without_blanks_are_no_offsets() -> None:
    times = as_times("time", [f"2026-05-01 {hour:02}:00-{hour + 1:02}:00" for hour in range(9)])
    assert times is not None
    assert np.diff(times.seconds).tolist() == [3600.0] * 8


@given(
    st.lists(st.integers(0, 10_000), min_size=2, max_size=50).filter(any),
    st.sampled_from([1, 10, 60, 300]),
    st.sampled_from([1, 1000, 1_000_000]),
    st.randoms(use_true_random=False),
)
def test_no_request_is_lost_or_made(values: list[int], step_s: int, per_second: int, random: Any) -> None:
    """This holds for any order of the rows, step and precision of the stamps."""
    table = [((T0 + step_s * i) * per_second, n) for i, n in enumerate(values)]
    random.shuffle(table)
    columns = {"time": [at for at, _ in table], "requests": [n for _, n in table]}
    trace = trace_of_table(Export(columns, "a test"), "t", "t", TableColumns(count="requests", unit="count"))
    assert trace is not None
    assert total(trace) == pytest.approx(sum(values))
    assert trace.bin_s == step_s


_JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=9) | st.sampled_from([T0, str(T0)]),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(["data", "resultType", "result", "metric", "values", "Datapoints", "Timestamp", "Sum"])
            | st.sampled_from(
                ["MetricDataResults", "Timestamps", "Values", "series", "pointlist", "unit", "time", "count"]
            ),
            inner | st.just("matrix"),
            max_size=4,
        )
    ),
    max_leaves=12,
)


@given(
    st.one_of(
        st.text(max_size=200),
        st.lists(st.lists(st.text('0123456789.,-:TZ"e \u00e9', max_size=12), max_size=4).map(",".join)).map("\n".join),
        _JSON.map(json.dumps),
        st.lists(_JSON.map(json.dumps), max_size=4).map("\n".join),
    ),
    st.sampled_from([RECOGNISED, TableColumns(count="none"), TableColumns(time="time"), TableColumns(unit="counter")]),
)
def test_any_file_is_a_trace_or_one_line(
    tmp_path_factory: pytest.TempPathFactory, text: str, columns: TableColumns
) -> None:
    path = tmp_path_factory.getbasetemp() / "whatever"
    path.write_text(text, errors="replace")
    said = ""
    try:
        trace = read_table(path, columns)
        assert trace is None or total(trace) > 0.0
    except BadInput as refused:
        said = str(refused)
    assert "\n" not in said
