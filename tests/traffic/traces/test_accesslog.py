"""Access logs: formats by content, requests in order of time, bad lines counted and named."""

from __future__ import annotations

import subprocess
import sys
from datetime import UTC, datetime
from pathlib import Path

import numpy as np
import pytest

from mark.domain.errors import BadInput
from mark.traffic.traces import open_trace
from mark.traffic.traces.stamps import stamps_of
from tests.traffic.traces.files import alb_line, arrivals, written

COMMON = '127.0.0.1 - frank [10/Oct/2000:13:55:{:02} -0700] "GET /a.gif HTTP/1.0" 200 2326\n'


def test_an_alb_log_is_read_by_creation_time(tmp_path: Path) -> None:
    lines = [
        alb_line(7.5, 8.0),
        alb_line(3.25, 9.0, "h2"),
        alb_line(3.0, 10.0, "wss"),
        alb_line(8.000001, 11.0, "https"),
    ]
    for name in ("access.log", "access.log.gz", "oddly-named.csv"):
        trace = open_trace(written(tmp_path, "".join(lines), name))
        assert (trace.kind, trace.rows, trace.notes) == ("arrivals", 4, ("ALB access log",))
        np.testing.assert_allclose(arrivals(trace, 0.0, 60.0), [0.0, 0.25, 4.5, 5.000001], atol=1e-9)


def test_a_log_knows_when_its_first_request_came(tmp_path: Path) -> None:
    alb = open_trace(written(tmp_path, alb_line(7.5) + alb_line(3.25), "a.log"))
    assert alb.began_s == datetime(2018, 7, 2, 22, 0, 3, 250_000, tzinfo=UTC).timestamp()
    common = open_trace(written(tmp_path, COMMON.format(36), "c.log"))
    assert common.began_s == datetime(2000, 10, 10, 20, 55, 36, tzinfo=UTC).timestamp()
    assert open_trace("synthetic:poisson").began_s is None


def test_unusual_but_valid_alb_lines_are_read(tmp_path: Path) -> None:
    """Escaped quotes, a quoted name with blanks, milliseconds only, fields that AWS may add, and no further fields."""
    plain = alb_line(0.0)
    short = alb_line(2.0).replace(':02.000000Z "forward"', ':02.5Z "forward"')
    ended = alb_line(3.0).split(' "forward"')[0] + "\n"
    text = plain + alb_line(1.0, agent='a \\"quoted\\" agent') + short + ended + alb_line(4.0)[:-1] + ' new "field"\n'
    trace = open_trace(written(tmp_path, text))
    assert trace.notes == ("ALB access log",)
    np.testing.assert_allclose(arrivals(trace, 0.0, 60.0), [0.0, 1.0, 2.5, 3.0, 4.0], atol=1e-9)


def test_no_request_is_left_out_for_being_late(tmp_path: Path) -> None:
    created = [0.0, 899.0, 1000.0, 101.0, 99.0, 50_000.0, 1001.0]
    trace = open_trace(written(tmp_path, "".join(alb_line(s, 1001.0) for s in created)))
    assert trace.notes == ("ALB access log",)
    np.testing.assert_allclose(arrivals(trace, 0.0, trace.duration_s), sorted(created))


def test_concatenated_logs_of_nodes_are_merged_by_time(tmp_path: Path) -> None:
    """`zcat node1/*.gz node2/*.gz`: the second node's first line is hours older than the line before."""
    nodes = [[3.0 * k + node for k in range(4000)] for node in range(2)]
    trace = open_trace(written(tmp_path, "".join(alb_line(s) for node in nodes for s in node)))
    np.testing.assert_allclose(arrivals(trace, 0.0, trace.duration_s), sorted(s for node in nodes for s in node))


def test_a_few_malformed_lines_are_reported_and_many_refused(tmp_path: Path) -> None:
    good = [alb_line(k / 10.0) for k in range(300)]
    trace = open_trace(written(tmp_path, "".join([*good[:50], "cut off\n", "\n", *good[50:]]), "few.log"))
    assert trace.rows == 300
    assert "1 malformed lines left out (0.33 %), the first at" in trace.notes[1]
    assert "few.log line 51" in trace.notes[1]
    with pytest.raises(
        BadInput,
        match=r"many.log line 4: 20 of 120 lines are no requests of its format; .* the first: nonsense$",
    ):
        open_trace(written(tmp_path, "".join([*good[:3], *["nonsense\n"] * 20, *good[3:100]]), "many.log"))
    impossible = alb_line(5.0).replace('2018-07-02T22:00:05.000000Z "', '2018-13-02T22:00:05.000000Z "')
    assert "1 malformed" in open_trace(written(tmp_path, "".join([*good, impossible]))).notes[1]


def test_a_folder_is_read_in_order_of_delivery(tmp_path: Path) -> None:
    def name(end: str, node: str) -> str:
        return f"1_elasticloadbalancing_us-east-2_app.lb.50dc_{end}Z_{node}_x.log.gz"

    day = tmp_path / "2018" / "07"
    day.mkdir(parents=True)
    written(day, "".join(alb_line(s) for s in (0.0, 10.0)), name("20180702T2205", "9.9.9.9"))
    written(day, "".join(alb_line(s) for s in (5.0, 20.0)), name("20180702T2205", "1.1.1.1"))
    written(day, "".join(alb_line(s) for s in (301.0, 302.0)), name("20180702T2210", "1.1.1.1"))
    written(tmp_path, "Enable AccessLog for ELB", "ELBAccessLogTestFile")
    written(tmp_path, b"", "empty.log")
    trace = open_trace(str(tmp_path))
    np.testing.assert_allclose(arrivals(trace, 0.0, trace.duration_s), [0.0, 5.0, 10.0, 20.0, 301.0, 302.0])


def test_files_without_delivery_time_follow_their_first_line(tmp_path: Path) -> None:
    written(tmp_path, alb_line(5000.0), "a.log")
    written(tmp_path, alb_line(0.0), "b.log")
    trace = open_trace(str(tmp_path))
    np.testing.assert_allclose(arrivals(trace, 0.0, trace.duration_s), [0.0, 5000.0])


def test_common_and_combined_logs_spread_the_requests_of_a_second(tmp_path: Path) -> None:
    combined = COMMON.format(37)[:-1] + ' "http://a/b" "Mozilla/4.08 [en] (Win98; I ;Nav)"\n'
    trace = open_trace(written(tmp_path, COMMON.format(36) * 4 + combined))
    assert trace.rows == 5
    assert "spread evenly" in trace.notes[1]
    np.testing.assert_allclose(arrivals(trace, 0.0, 60.0), [0.0, 0.25, 0.5, 0.75, 1.0])


def test_zones_of_a_common_log_are_taken_into_account(tmp_path: Path) -> None:
    east = COMMON.format(36).replace("13:55:36 -0700", "22:55:38 +0200")
    trace = open_trace(written(tmp_path, COMMON.format(36) + east))
    np.testing.assert_allclose(arrivals(trace, 0.0, 60.0), [0.0, 2.0])


def test_stamps_become_the_seconds_that_numpy_knows() -> None:
    for text in (
        "2000-02-29T23:59:59.999999Z",
        "2024-12-31T00:00:00.000001Z",
        "1999-03-01T12:30:15.5Z",
        "2100-03-01T00:00:00Z",
    ):
        assert stamps_of([text.encode()]).micros[0] == np.datetime64(text[:-1], "us").astype(np.int64)
    assert stamps_of([b"10/Oct/2000:13:55:36 -0700"]).micros[0] == np.datetime64("2000-10-10T20:55:36", "us").astype(
        np.int64
    )


def test_the_benchmark_s_log_reads_back_completely(tmp_path: Path) -> None:
    maker = Path(__file__).parents[3] / "benchmarks" / "data_plane" / "make_alb_log.py"
    log = tmp_path / "made.log.gz"
    command = [sys.executable, str(maker), "3000", "--spec", "synthetic:poisson?rate=50", "--out", str(log)]
    subprocess.run(command, check=True)
    trace = open_trace(str(log))
    assert (trace.rows, trace.notes) == (3000, ("ALB access log",))
    assert trace.duration_s == pytest.approx(60.0, abs=5.0)
