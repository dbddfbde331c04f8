"""Logs as servers and containers write them: read with the right number of requests, or refused with advice."""

from __future__ import annotations

import bz2
import gzip
import json
import lzma
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from zoneinfo import ZoneInfo

import numpy as np
import pytest
import zstandard

from mark.domain.errors import BadInput
from mark.traffic.traces.accesslog import LogReading, log_file
from mark.traffic.traces.bad_lines import BadLines
from mark.traffic.traces.reader import open_trace
from mark.traffic.traces.table_files import TableColumns
from mark.traffic.traces.times import TimeForm
from tests.traffic.traces.files import alb_line, arrivals, written

CASES = Path(__file__).with_name("cases")
T0 = 1_777_629_600  # 2026-05-01 10:00 UTC


def clock(at_s: float, form: str) -> str:
    return datetime.fromtimestamp(at_s, UTC).strftime(form)


def combined(k: int) -> str:
    at = clock(T0 + k, "%d/%b/%Y:%H:%M:%S")
    return f'192.0.2.{k % 9} - - [{at} +0000] "POST /predict HTTP/1.1" 200 12 "-" "curl/8"\n'


def flask(k: int) -> str:
    return f'10.0.0.{k % 9} - - [{clock(T0 + k, "%d/%b/%Y %H:%M:%S")}] "POST /predict HTTP/1.1" 200 -\n'


def plain_json(k: int) -> str:
    return json.dumps({"ts": T0 + 1.3 * k, "status": 200}) + "\n"


def haproxy(k: int) -> str:
    at = clock(T0 + k, "%d/%b/%Y:%H:%M:%S")
    return (
        f"May  1 10:00:00 lb haproxy[14389]: 10.0.1.2:33317 [{at}.655] http-in static/srv1 10/0/30/69/109 200 2750 "
        '- - ---- 1/1/1/1/0 0/0 {1wt.eu} {} "GET /index.html HTTP/1.1"\n'
    )


def classic(k: int) -> str:
    return (
        f"{clock(T0 + k, '%Y-%m-%dT%H:%M:%S')}.945958Z my-loadbalancer 192.168.131.39:2817 10.0.0.1:80 0.000073 "
        '0.001048 0.000057 200 200 0 29 "GET http://www.example.com:80/ HTTP/1.1" "curl/7.38.0" - -\n'
    )


def envoy(k: int) -> str:
    return (
        f'[{clock(T0 + k, "%Y-%m-%dT%H:%M:%S")}.310Z] "POST /api HTTP/2" 204 - 154 0 226 100 "10.0.35.28" "nsq2http"\n'
    )


def uvicorn(k: int) -> str:
    return f'{clock(T0 + k, "%Y-%m-%d %H:%M:%S")},123 INFO:     127.0.0.1:54321 - "GET / HTTP/1.1" 200 OK\n'


def caddy(k: int) -> str:
    request = {"remote_ip": "10.0.0.1", "proto": "HTTP/2.0", "method": "GET", "uri": "/a"}
    row = {"level": "info", "ts": T0 + 0.5 * k, "msg": "handled request", "request": request, "status": 200}
    return json.dumps(row, separators=(",", ":")) + "\n"


def traefik(k: int) -> str:
    began, ended = clock(T0 + k, "%Y-%m-%dT%H:%M:%S"), clock(T0 + k + 2, "%Y-%m-%dT%H:%M:%SZ")
    row = {"DownstreamStatus": 200, "RequestMethod": "GET", "StartLocal": f"{began}.25+02:00"}
    return json.dumps({**row, "StartUTC": f"{began}.123456789Z", "time": ended}) + "\n"


def traefik_counted(k: int) -> str:
    return json.dumps({"RequestCount": k + 1, "RequestPath": "/", **json.loads(traefik(k))}) + "\n"


def pino(k: int) -> str:
    """Return a line of pino-http, of Node.js."""
    request = {"id": k + 1, "method": "GET", "url": "/a"}
    row = {"level": 30, "time": int(1000 * (T0 + k)), "req": request, "res": {"statusCode": 200}, "responseTime": 3}
    return json.dumps({**row, "msg": "request completed"}) + "\n"


def exported(k: int) -> str:
    """Return a line as `elasticdump` exports it from Kibana's index."""
    source = {"@timestamp": clock(T0 + k, "%Y-%m-%dT%H:%M:%S.250Z"), "http": {"response": {"status_code": 200}}}
    return json.dumps({"_index": "logs", "_id": str(k), "_source": source}) + "\n"


def docker(k: int) -> str:
    return (
        json.dumps({"log": combined(k), "stream": "stdout", "time": clock(T0 + k + 9, "%Y-%m-%dT%H:%M:%S.5Z")}) + "\n"
    )


UNTIMED = 'INFO:     10.0.0.1:4321 - "POST /predict HTTP/1.1" 200 OK\n'


def wrapped(message: str, time: str, at: str, **others: object) -> str:
    """Return uvicorn's default line, which shows no time, in an object that does."""
    return json.dumps({message: UNTIMED, time: at} | others) + "\n"


def node_log(k: int) -> str:
    return f"{clock(T0 + k, '%Y-%m-%dT%H:%M:%S')}.123456789Z stdout F {uvicorn(k)}"


W3C = "#Version: 1.0\n#Fields: date time s-ip cs-method cs-uri-stem sc-status\n"


def iis(k: int) -> str:
    return f"{clock(T0 + k, '%Y-%m-%d %H:%M:%S')} 10.0.0.1 GET /x 200\n"


def cloudfront(k: int) -> str:
    return clock(T0 + k, "%Y-%m-%d\t%H:%M:%S\tFRA56-P1\t200\t192.0.2.1\n")


FORMATS: dict[str, Callable[[int], str]] = {
    "logfmt with the queries of a database": lambda k: (
        f"time={clock(T0 + k, '%Y-%m-%dT%TZ')} method=GET path=/ status=200 queries={k % 9}\n"
    ),
    "ALB": lambda k: alb_line(float(k)),
    "combined": combined,
    "virtual hosts": lambda k: "example.com:80 " + combined(k),
    "a prefix in brackets": lambda k: "[pod/web-1/app] " + combined(k),
    "docker compose": lambda k: "web-1  | " + combined(k),
    "comma milliseconds": lambda k: combined(k).replace(" +0000]", ",123 +0000]"),
    "Flask": flask,
    "Chi": lambda k: clock(T0 + k, '%Y/%m/%d %T "POST http://a.example/p HTTP/1.1" from 10.0.0.1:4 - 200 12B in 3ms\n'),
    "Flask, coloured": lambda k: flask(k).replace('"POST', '"\x1b[33mPOST').replace('1.1"', '1.1\x1b[0m"'),
    "HAProxy": haproxy,
    "classic ELB": classic,
    "Envoy": envoy,
    "uvicorn with times": uvicorn,
    "nginx, ISO time after the request": lambda k: clock(T0 + k, '"GET / HTTP/1.1" 200 [%Y-%m-%dT%H:%M:%S+00:00]\n'),
    "S3": lambda k: combined(k).replace(' "POST', ' 192.0.2.3 79a5 3E57 REST.GET - "POST').replace(" 12 ", " - 12 "),
    "nginx with $msec": lambda k: f'{T0 + k}.123 192.0.2.1 "GET / HTTP/1.1" 200 12\n',
    "Heroku": lambda k: clock(T0 + k, '%Y-%m-%dT%T.5+00:00 heroku[router]: at=info method=GET path="/" status=200\n'),
    "JSON": plain_json,
    "JSON, escaped slashes": lambda k: clock(T0 + k, '{"time_local":"%d\\/%b\\/%Y:%T +0000","status":200}\n'),
    "JSON, the time's name in another object": lambda k: json.dumps({"a": {"ts": 1}, "ts": T0 + k, "uri": "/}"}) + "\n",
    "a JSON list, an object a line": lambda k: ("[\n" if k == 0 else "") + plain_json(k)[:-1] + ",\n",
    "Caddy": caddy,
    "Caddy's console": lambda k: (
        clock(T0 + k, "%Y/%m/%d %T.500\tinfo\thttp.log.access\thandled request\t")
        + json.dumps({"request": json.loads(caddy(k))["request"], "status": 200})
        + "\n"
    ),
    "messages of a shipper": lambda k: json.dumps({"@timestamp": "x", "message": combined(k)}) + "\n",
    "messages of Fluent Bit": lambda k: json.dumps({"date": T0 + k + 5, "log": combined(k)}) + "\n",
    "messages of Loki": lambda k: json.dumps({"labels": {"app": "x"}, "line": combined(k), "timestamp": "x"}) + "\n",
    "JSON, a list of objects in each line": lambda k: json.dumps({"ts": T0 + k, "uri": "/", "tags": [{"a": k}]}) + "\n",
    "events of Splunk": lambda k: json.dumps({"preview": False, "result": {"_raw": combined(k), "_time": "x"}}) + "\n",
    "messages of journald": lambda k: json.dumps({"__REALTIME_TIMESTAMP": "1", "MESSAGE": combined(k)}) + "\n",
    "Traefik": traefik,
    "Traefik, requests numbered": traefik_counted,
    "pino": pino,
    "Kibana's export": exported,
    "Docker": docker,
    "Docker, JSON inside": lambda k: json.dumps({"log": caddy(k), "stream": "stdout", "time": "x"}) + "\n",
    "Kubernetes": node_log,
    "Docker, times of the wrapper only": lambda k: wrapped("log", "time", clock(T0 + k, "%FT%T.5Z"), stream="stdout"),
    "Kubernetes, times of the wrapper only": lambda k: clock(T0 + k, "%FT%T.123456789Z stdout F ") + UNTIMED,
    "Loki, times of the wrapper only": lambda k: wrapped("line", "timestamp", clock(T0 + k, "%FT%TZ"), labels={}),
    "journald, times of the wrapper only": lambda k: wrapped("MESSAGE", "__REALTIME_TIMESTAMP", f"{T0 + k}000000"),
    "Gin": lambda k: clock(T0 + k, '[GIN] %Y/%m/%d - %T | 200 |  12.3ms |  192.0.2.1 | POST     "/predict"\n'),
    "Squid": lambda k: f"{T0 + k}.123     12 192.0.2.1 TCP_MISS/200 412 GET http://a.example/x - HIER_NONE/- -\n",
    "PHP-FPM": lambda k: clock(T0 + k, '192.0.2.1 -  %d/%b/%Y:%T +0000 "GET /index.php" 200\n'),
    "Ray Serve": lambda k: clock(T0 + k, "INFO %Y-%m-%d %T,123 default_Model x1 -- POST /predict 200 12.3ms\n"),
    "Fastly": lambda k: clock(T0 + k, "<134>%Y-%m-%dT%TZ cache-fra1 fastly[1]: 192.0.2.1 GET /x 200\n"),
    "Azure's gateway": lambda k: (
        json.dumps({"timeStamp": clock(T0 + k, "%FT%T.5Z"), "category": "Access", "properties": {"httpStatus": 200}})
        + "\n"
    ),
    "IIS": lambda k: (W3C if k == 0 else "") + iis(k),
    "CloudFront": lambda k: ("#Fields: date time x-edge sc-status c-ip\n" if k == 0 else "") + cloudfront(k),
}  # fmt: skip


@pytest.mark.parametrize("name", FORMATS)
def test_every_line_of_a_format_is_a_request(tmp_path: Path, name: str) -> None:
    text = "".join(FORMATS[name](k) for k in range(130))
    trace = open_trace(written(tmp_path, text, "a.log"))
    assert trace.rows == 130
    assert trace.duration_s in (65.0, 130.0, 168.0)
    assert not any("malformed" in note for note in trace.notes)


@pytest.mark.parametrize("name", FORMATS)
def test_a_cut_last_line_is_left_out_and_counted(tmp_path: Path, name: str) -> None:
    text = "".join(FORMATS[name](k) for k in range(130)) + FORMATS[name](130)[:12]
    trace = open_trace(written(tmp_path, text, "a.log"))
    assert trace.rows == 130
    malformed = next(note for note in trace.notes if "malformed" in note)
    assert malformed.startswith("1 malformed lines left out (0.7")
    assert "1 of them cut at the end of a file), the first at" in malformed


@pytest.mark.parametrize(
    ("name", "rows", "note"),
    [
        ("f1_truncated_last_line.json", 300, "1 malformed lines left out (0.33 %, 1 of them cut"),
        ("f5_container_start.log", 300, "6 lines that are no requests left out"),
        ("h1_flask.log", 40, "times without a zone read as UTC"),
        ("i1_nginx", 80, "1 other files not read: error.log (no access log)"),
        ("d1_date_and_time.json", 40, "times from 'date' and 'time'"),
    ],
)
def test_a_case_that_once_failed_is_read(name: str, rows: int, note: str) -> None:
    trace = open_trace(str(CASES / name))
    assert trace.rows == rows
    assert any(note in found for found in trace.notes), trace.notes


GOOD = [combined(k) for k in range(300)]
ERROR = '2026/05/01 10:00:00 [error] 9#9: *12 upstream timed out, request: "GET / HTTP/1.1", upstream: "x"\n'
DIRTY: dict[str, tuple[list[str], str]] = {
    "copytruncate": (["\0" * 100_000, *GOOD], "100000 NUL bytes"),
    "a crash": ([*GOOD[:100], GOOD[0][:30], "\0" * 5000, "\n", *GOOD[100:]], "5000 NUL bytes"),
    "a crash, and the next line right behind": ([*GOOD[:100], "\0" * 5000, *GOOD[100:]], "5000 NUL bytes"),
    "NUL bytes at the end": ([*GOOD, "\0" * 777], "777 NUL bytes"),
    "a banner and NUL bytes": (["Log opened at 10:00\n", "\0" * 500, *GOOD], "1 lines that are no requests"),
    "a banner": (["Log opened at 10:00\n", *GOOD], "1 lines that are no requests"),
    "a container's start": (["Waiting for db\n", "\n", "Listening on :80\n", *GOOD], "2 lines that are no requests"),
    "the beginning cut": ([GOOD[0][-20:], *GOOD], "1 lines that are no requests"),
    "errors among requests": ([*GOOD[:9], *[ERROR] * 50, *GOOD[9:]], "50 lines that are no requests"),
    "a restart in between": ([*GOOD[:9], "Starting\n", *GOOD[9:]], "1 malformed lines"),
    "a total": ([*GOOD, "Total: 300\n"], "1 malformed lines"),
    "gunicorn's words": ([*GOOD[:9], "[2026-05-01 10:00:00 +0000] [7] [INFO] Booting\n", *GOOD[9:]], "1 lines that"),
}


@pytest.mark.parametrize("name", DIRTY)
def test_other_lines_are_counted_and_named(tmp_path: Path, name: str) -> None:
    lines, note = DIRTY[name]
    trace = open_trace(written(tmp_path, "".join(lines), "a.log.gz"))
    assert trace.rows == 300
    assert any(found.startswith(note) for found in trace.notes), trace.notes


def test_a_server_s_word_on_an_error_is_no_request(tmp_path: Path) -> None:
    """Python's own server writes two lines for a 404."""
    lines = [flask(k) for k in range(100)]
    lines[50:50] = [lines[50].split('"')[0] + "code 404, message File not found\n"] * 3
    assert open_trace(written(tmp_path, "".join(lines), "a.log")).rows == 100


def test_the_line_that_was_read_names_format_and_losses(tmp_path: Path) -> None:
    written(tmp_path, "".join([*GOOD[:150], "?\n"]), "a.log")
    written(tmp_path, "".join(GOOD[150:]), "b.log")
    written(tmp_path, "how it was exported\n", "README")
    read = "Common or Combined Log Format, 2 files, 1 other file not read, 1 of 301 lines left out"
    trace = open_trace(str(tmp_path))
    assert (trace.read_as, trace.read) == (read, f"read 300 requests in 5 minutes, 1/s; {read}")
    only = open_trace(str(tmp_path / "b.log"), log_filter=("host", "192.0.2.1"))
    assert only.read.endswith(f"; Common or Combined Log Format, {150 - only.rows} requests filtered out")


@pytest.mark.parametrize("encoding", ["utf-16", "utf-8-sig"])
def test_a_log_is_read_in_the_encodings_of_windows(tmp_path: Path, encoding: str) -> None:
    (tmp_path / "a.log").write_bytes("".join(GOOD).encode(encoding))
    assert open_trace(str(tmp_path / "a.log")).rows == 300


def test_what_no_log_has_makes_a_table_of_it(tmp_path: Path) -> None:
    """The option would be passed over otherwise."""
    path = written(tmp_path, "".join(GOOD), "a.log")
    for columns in (TableColumns(series="sum"), TableColumns(decimal="comma"), TableColumns(unit="count")):
        with pytest.raises(BadInput):
            open_trace(path, columns=columns)


def test_a_header_in_between_may_name_other_columns(tmp_path: Path) -> None:
    other = "".join(f"/x 200 {clock(T0 + k, '%H:%M:%S %Y-%m-%d')}\n" for k in range(100, 200))
    text = W3C + "".join(map(iis, range(100))) + "#Fields: cs-uri-stem sc-status time date\n" + other
    trace = open_trace(written(tmp_path, text, "u_ex.log"))
    assert (trace.rows, trace.duration_s) == (200, 200.0)


def test_too_many_bad_lines_are_refused_with_the_way_out(tmp_path: Path) -> None:
    path = written(tmp_path, "".join([*GOOD[:150], *["?\n"] * 6, *GOOD[150:]]), "a.log")
    message = r"a.log line 151: 6 of 306 lines are no requests of its format; `skip_bad_lines` 1.97% leaves them out"
    with pytest.raises(BadInput, match=message):
        open_trace(path)
    for enough in (BadLines(0.0197), BadLines(most=6)):
        assert open_trace(path, skip_bad_lines=enough).rows == 300
    for short in (BadLines(most=5), BadLines(0.0)):
        with pytest.raises(BadInput, match="6 of 306"):
            open_trace(path, skip_bad_lines=short)


REFUSED = {
    "uvicorn without times": ('INFO:     127.0.0.1:5 - "GET / HTTP/1.1" 200 OK\n' * 50, "`time_format`"),
    "syslog's times": (
        'May  1 10:00:00 web1 uvicorn[8]: INFO:     127.0.0.1:5 - "GET / HTTP/1.1" 200 OK\n' * 50,
        "no year: export them with one, as `journalctl -o short-iso`",
    ),
    **{
        f"a log that says: {line}": (
            line + "\n" + "".join(map(combined, range(50))),
            "the requests are a sample: .*`scale`",
        )
        for line in (
            "# 1:100 sample",
            "sampled 1/10",
            "# sampling_rate=0.01",
            "# every 10th request",
            '{"sample_rate": 0.1}',
        )
    },
    **{
        f"a line with {field}": (
            "".join(f"{clock(T0 + k, '%Y-%m-%dT%TZ')} method=POST path=/p status=200 {field}\n" for k in range(50)),
            "a line stands for several requests: .*`scale`",
        )
        for field in (
            "batch_size=4",
            "sample_rate=0.1",
            "bs=4",
            "requests=12",
            "count=3",
            "n=2",
            "suppressed=12",
            "ids=r1,r2",
        )
    },
    "a W3C log of a sample": (
        "#Remark: 1 in 10 requests\n" + W3C + "".join(map(iis, range(50))),
        "the requests are a sample",
    ),
    **{
        f"JSON with a list of {name}": (
            "".join(json.dumps({"ts": T0 + k, "status": 200, name: held}) + "\n" for k in range(50)),
            f"a line stands for several requests: `log_filter` {name}=",
        )
        for name, held in {
            "requests": [{}, {}],
            "batch": [{}, {}, {}],
            "sampling": {"rate": 0.1},
            "latency_ms": [3, 4],
            "request_ids": ["a", "b"],
            "request_id": "r1;r2;r3",
        }.items()
    },
    "a container without requests": (
        json.dumps({"log": "hello\n", "stream": "stdout", "time": "2026-05-01T10:00:00Z"}) + "\n",
        "a container's log",
    ),
    "connections of TCP": (
        classic(0).replace("GET http://www.example.com:80/ HTTP/1.1", "- - - ") * 50,
        "connections, which hold any number of requests",
    ),
    "two times that differ": (
        json.dumps({"timestamp": T0, "time": T0 - 500, "status": 200}) + "\n",
        "several fields hold times, choose one with `time_column`: timestamp, time",
    ),
    "stages of a request": (
        "".join(
            json.dumps(
                {
                    "auditID": k // 2,
                    "stage": ("RequestReceived", "ResponseComplete")[k % 2],
                    "ts": T0 + k,
                    "verb": "get",
                    "status": 200,
                }
            )
            + "\n"
            for k in range(60)
        ),
        r"two lines: `log_filter` stage=\* counts both; or choose one with `log_filter`: stage=ResponseComplete",
    ),
    "an unknown order": (
        "".join(clock(T0 + k, '%Y-%m-%dT%TZ 200 0.003 "GET / HTTP/1.1"\n') for k in range(50)),
        "`time_format`",
    ),
    "calls beside requests": (
        "".join(
            clock(T0 + k, f"%F %T {line} 200\n")
            for k in range(50)
            for line in ("calling GET /stock", '192.0.2.1 "GET / HTTP/1.1"')
        ),
        "50 of 100 lines are no requests of its format",
    ),
    "calls of another server": (
        "".join(clock(T0 + k, "%F %T fetched GET https://api.example/x 200\n") for k in range(50)),
        "show no time that is known",
    ),
    "W3C without a day": ("#Fields: time c-ip\n10:00:00 192.0.2.1\n", "needs the fields date and time"),
    "NUL bytes only": ("\0" * 100_000, "the file is empty"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_a_log_without_a_known_time_is_refused(tmp_path: Path, name: str) -> None:
    text, message = REFUSED[name]
    with pytest.raises(BadInput, match=message) as caught:
        open_trace(written(tmp_path, text, "a.log"))
    assert "\n" not in str(caught.value)


def test_a_few_requests_behind_many_other_lines_are_no_log(tmp_path: Path) -> None:
    path = written(tmp_path, "one format ago\n" * 60 + "".join(GOOD[:20]), "a.log")
    with pytest.raises(BadInput, match="60 of 80 lines are no requests of its format"):
        open_trace(path)


def test_sums_of_minutes_are_no_log(tmp_path: Path) -> None:
    """Counts of one status are a table, which asks."""
    rows = [{"time": T0 + 60 * k, "status": 200, "count": 50 + k} for k in range(20)]
    path = written(tmp_path, "".join(json.dumps(row) + "\n" for row in rows), "a.json")
    with pytest.raises(BadInput, match=r"only a part of the requests \(status 200 in all rows\): name it by .*: count"):
        open_trace(path)
    assert open_trace(path, columns=TableColumns(count="count")).kind == "counts"


# -- times -------------------------------------------------------------------------------------------------------------


def test_a_time_field_can_be_chosen(tmp_path: Path) -> None:
    text = "".join(json.dumps({"timestamp": T0 + 9 * k, "time": T0 + k, "status": 200}) + "\n" for k in range(100))
    path = written(tmp_path, text, "a.json")
    assert open_trace(path, columns=TableColumns(time="timestamp")).duration_s == 892.0
    assert open_trace(path, columns=TableColumns(time="time")).duration_s == 100.0


def test_a_time_format_reads_what_is_not_known(tmp_path: Path) -> None:
    lines = [f"{clock(T0 + k, '%d.%m.%Y %H.%M.%S')} GET /predict 200 12ms\n" for k in range(200)]
    path = written(tmp_path, "".join([*lines[:50], "01.05.2026 10.00.00 starting\n", *lines[50:]]), "a.log")
    with pytest.raises(BadInput):
        open_trace(path)
    trace = open_trace(path, columns=TableColumns(times=TimeForm("%d.%m.%Y %H.%M.%S")))
    assert (trace.rows, trace.duration_s) == (200, 200.0)
    for wrong, message in (("%d.%m.%Q %H", "unknown directive %Q"), ("%d.%m. %H.%M.%S", "needs a year")):
        with pytest.raises(BadInput, match=message):
            open_trace(path, columns=TableColumns(times=TimeForm(wrong)))


def local_log(folder: Path, began: datetime, zone: str, seconds: int, step: int) -> tuple[str, list[float]]:
    """Return a Flask log on the clock of a zone, and the times of its requests."""
    from zoneinfo import ZoneInfo

    came = [began.timestamp() + k for k in range(0, seconds, step)]
    form = "%d/%b/%Y %H:%M:%S"
    lines = [flask(0).replace(clock(T0, form), datetime.fromtimestamp(t, ZoneInfo(zone)).strftime(form)) for t in came]
    return written(folder, "".join(lines), "local.log"), came


@pytest.mark.parametrize(
    ("began", "zone"),
    [
        (datetime(2026, 10, 24, 22, tzinfo=UTC), "Europe/Berlin"),  # the hour from 02:00 comes twice
        (datetime(2026, 3, 28, 22, tzinfo=UTC), "Europe/Berlin"),  # and is missing
        (datetime(2026, 11, 1, 3, tzinfo=UTC), "America/New_York"),
        (datetime(2026, 3, 8, 3, tzinfo=UTC), "America/New_York"),
        (datetime(2026, 4, 4, 12, tzinfo=UTC), "Australia/Lord_Howe"),  # half an hour
        (datetime(2026, 5, 1, tzinfo=UTC), "Asia/Kolkata"),
    ],
)
def test_local_times_are_read_on_the_clock_of_their_zone(tmp_path: Path, began: datetime, zone: str) -> None:
    path, came = local_log(tmp_path, began, zone, 8 * 3600, 20)
    trace = open_trace(path, columns=TableColumns(times=TimeForm(zone=zone)))
    np.testing.assert_allclose(arrivals(trace, 0.0, trace.duration_s), np.array(came) - came[0], atol=1e-6)
    assert trace.began_s == came[0]
    assert any(f"read on the clock of {zone}" in note for note in trace.notes)


def test_a_time_format_makes_no_log_of_a_table(tmp_path: Path) -> None:
    said = TableColumns(times=TimeForm("%d.%m.%Y %H:%M"))
    for row in ("{},5000", "{},GET /x,5000"):
        text = "".join(row.format(clock(T0 + 60 * k, "%d.%m.%Y %H:%M")) + "\n" for k in range(30))
        log = log_file(Path(written(tmp_path, "time,requests\n" + text)), LogReading(times=said.times))
        assert log is None


@pytest.mark.parametrize(
    ("began", "zone", "at"),
    [
        (datetime(2026, 10, 24, 22, tzinfo=UTC), "Europe/Berlin", r"line 541: .*Europe/Berlin.*: 2026-10-25 02:0"),
        (datetime(2026, 3, 28, 22, tzinfo=UTC), "Europe/Berlin", r"line 541: .*: 2026-03-29 03:0"),
        (datetime(2026, 11, 1, 3, tzinfo=UTC), "America/Chicago", r"line \d+: .*America/New_York.*: 2026-11-01 01:0"),
    ],
)
def test_clocks_that_were_set_ask_for_their_zone(tmp_path: Path, began: datetime, zone: str, at: str) -> None:
    path, came = local_log(tmp_path, began, zone, 8 * 3600, 20)
    with pytest.raises(BadInput, match=at) as refused:
        open_trace(path)
    assert "say `time_zone`, UTC if they are not" in str(refused.value)
    assert open_trace(path, columns=TableColumns(times=TimeForm(zone="UTC"))).rows == len(came)


def test_local_times_of_other_days_ask_nothing(tmp_path: Path) -> None:
    """Two nodes one behind the other, and an hour of silence."""
    nodes = [[k for k in range(0, 7200, 20) if not 1800 <= k < 5400] for _ in range(2)]
    text = "".join(flask(k) for node in nodes for k in node)
    assert open_trace(written(tmp_path, text, "a.log")).rows == 360


def test_a_time_that_no_clock_showed_is_refused(tmp_path: Path) -> None:
    path, _ = local_log(tmp_path, datetime(2026, 3, 29, 0, tzinfo=UTC), "UTC", 4 * 3600, 60)
    with pytest.raises(BadInput, match=r"time_zone: the clock never showed 2026-03-29 02:00:00 there"):
        open_trace(path, columns=TableColumns(times=TimeForm(zone="Europe/Berlin")))
    with pytest.raises(BadInput, match="no such time zone"):
        open_trace(path, columns=TableColumns(times=TimeForm(zone="Europe/Berln")))


def test_a_log_with_two_lines_for_each_request_asks_for_one(tmp_path: Path) -> None:
    rows = [
        {"timestamp": clock(T0 + k, "%Y-%m-%dT%H:%M:%S.5Z"), "event": event, "path": "/p"}
        for k in range(100)
        for event in ("request_started", "request_finished")
    ]
    path = written(tmp_path, "".join(json.dumps(row) + "\n" for row in rows), "app.log")
    with pytest.raises(BadInput, match=r"each request has two lines.*log_filter.*event=request_finished"):
        open_trace(path)
    assert open_trace(path, log_filter=("event", "request_finished")).rows == 100


def test_messages_with_requests_in_a_table_are_read_when_asked(tmp_path: Path) -> None:
    """CloudWatch Logs Insights exports such a table."""
    rows = "".join(f'{clock(T0 + k * k % 997, "%Y-%m-%d %H:%M:%S.000")},"GET /p HTTP/1.1"\n' for k in range(100))
    path = written(tmp_path, "@timestamp,@message\n" + rows, "insights.csv")
    with pytest.raises(BadInput, match="`count_column` none if each line is a request"):
        open_trace(path)
    assert open_trace(path, columns=TableColumns("@timestamp", "none")).rows == 100


# -- folders -----------------------------------------------------------------------------------------------------------


def test_a_folder_names_what_it_does_not_read(tmp_path: Path) -> None:
    for name, text in (
        ("access.log", "".join(GOOD[200:])),
        ("access.log.1", "".join(GOOD[100:200])),
        ("access.log.2.gz", "".join(GOOD[:100])),
        ("error.log", ERROR * 9),
        ("README", "The logs of our model.\n"),
        (".DS_Store", b"\0\0\0\1Bud1" * 99),
        ("notes.pdf", b"%PDF-1.4\n\0\1\2\3\4" * 99),
        ("empty.log", ""),
    ):
        written(tmp_path, text, name)
    trace = open_trace(str(tmp_path))
    assert (trace.rows, trace.duration_s) == (300, 300.0)
    assert trace.notes[0] == "Common or Combined Log Format: 300 requests in 300 lines of 3 files"
    named = next(note for note in trace.notes if "not read" in note)
    for name in (".DS_Store (hidden)", "empty.log (empty)", "error.log (no access log)", "README (no access log)"):
        assert name in named
    assert "5 other files" in named


def test_a_compressed_copy_is_not_counted_again(tmp_path: Path) -> None:
    written(tmp_path, "".join(GOOD), "access.log.1")
    written(tmp_path, "".join(GOOD), "access.log.1.gz")
    trace = open_trace(str(tmp_path))
    assert trace.rows == 300
    assert any("access.log.1.gz (the same as access.log.1)" in note for note in trace.notes)


def test_a_copy_of_a_log_is_not_counted_again(tmp_path: Path) -> None:
    """This covers a whole copy and a copy made while the log still grew, packed and longer than a block of 8 MiB."""
    long = "".join(combined(k).replace("curl", "c" * 9000) for k in range(1000))
    written(tmp_path, long, "access.log")
    written(tmp_path, long[: long.index("\n", 8_900_000) + 1], "access.log.bak")
    written(tmp_path, long, "access (1).log.gz")
    written(tmp_path, "".join(map(combined, range(1000, 1100))), "access.log.old")
    trace = open_trace(str(tmp_path))
    assert trace.rows == 1100
    named = next(note for note in trace.notes if "not read" in note)
    assert "access.log.bak (the same as access.log)" in named
    assert "access (1).log.gz (the same as access.log)" in named


def test_log_may_have_only_the_name_of_a_copy(tmp_path: Path) -> None:
    written(tmp_path, "".join(GOOD), "old")
    assert open_trace(str(tmp_path)).rows == 300


def test_two_logs_of_the_same_bytes_are_asked_for(tmp_path: Path) -> None:
    """Logs of two nodes may both be meant; a pattern names them."""
    for node in ("node1.log", "node2.log"):
        written(tmp_path, "".join(GOOD), node)
    with pytest.raises(BadInput, match=r"node2.log: holds the same bytes as node1.log: .* by a pattern"):
        open_trace(str(tmp_path))
    assert open_trace(str(tmp_path / "node*.log")).rows == 600


def test_a_link_to_a_log_is_not_counted_again(tmp_path: Path) -> None:
    written(tmp_path, "".join(GOOD), "z.log")
    (tmp_path / "current.log").symlink_to(tmp_path / "z.log")
    trace = open_trace(str(tmp_path))
    assert trace.rows == 300
    assert any("current.log (another name of z.log)" in note for note in trace.notes)


def test_a_rotated_file_of_unknown_format_is_refused(tmp_path: Path) -> None:
    written(tmp_path, "".join(GOOD), "access.log")
    written(tmp_path, "2026.05.01 one format ago\n" * 50, "access.log.1")
    with pytest.raises(BadInput, match=r"access.log.1: is named as access.log and is no access log"):
        open_trace(str(tmp_path))


def test_logs_of_two_formats_need_a_pattern(tmp_path: Path) -> None:
    written(tmp_path, "".join(GOOD), "nginx.log")
    written(tmp_path, "".join(map(caddy, range(10))), "caddy.log")
    with pytest.raises(BadInput, match="logs of two formats may hold the same requests"):
        open_trace(str(tmp_path))
    assert open_trace(str(tmp_path / "*.log")).rows == 310
    assert open_trace(str(tmp_path / "n*")).rows == 300
    with pytest.raises(BadInput, match="no file matches this pattern"):
        open_trace(str(tmp_path / "*.json"))


def test_nodes_with_hourly_files_are_merged(tmp_path: Path) -> None:
    for node in range(2):
        for hour in range(3):
            text = "".join(combined(3600 * hour + 30 * k + node) for k in range(120))
            written(tmp_path, text, f"node{node}-{hour}.log")
    trace = open_trace(str(tmp_path))
    assert trace.rows == 720
    came = sorted(3600 * hour + 30 * k + node for node in range(2) for hour in range(3) for k in range(120))
    np.testing.assert_allclose(arrivals(trace, 0.0, trace.duration_s), came, atol=1e-6)


def test_a_folder_of_json_logs_is_read(tmp_path: Path) -> None:
    written(tmp_path, "".join(map(caddy, range(50, 100))), "b.json")
    written(tmp_path, "".join(map(caddy, range(50))), "a.json.gz")
    assert open_trace(str(tmp_path)).rows == 100


def test_tables_of_a_folder_are_one_below_the_other(tmp_path: Path) -> None:
    for day in (2, 1):
        rows = "".join(f"2026-05-0{day}T{hour:02}:00:00Z,{100 + hour}\n" for hour in range(24))
        written(tmp_path, "time,requests\n" + rows, f"day{day}.csv" + ".gz" * (day == 1))
    written(tmp_path, "how it was exported\n", "README")
    written(tmp_path, "2026-05-01 10:00:00,123 ERROR x\n2026-05-01 10:00:09,123 ERROR x\n", "exporter.log")
    trace = open_trace(str(tmp_path))
    assert (trace.kind, trace.rows, trace.total_counts(0.0, trace.duration_s)) == (
        "counts",
        48,
        2.0 * sum(range(100, 124)),
    )
    assert "2 files, one below the other" in trace.notes
    written(tmp_path, "time,hits\n2026-05-03T00:00:00Z,5\n2026-05-03T01:00:00Z,5\n", "day3.csv")
    with pytest.raises(BadInput, match="tables of different columns"):
        open_trace(str(tmp_path))


def test_bad_lines_of_tables_in_a_folder_are_counted_through(tmp_path: Path) -> None:
    for day in (1, 2):
        rows = [f"2026-05-0{day}T{hour:02}:00:00Z,{100 + hour}\n" for hour in range(24)]
        rows[10 * day] += "cut\n"
        written(tmp_path, "time,requests\n" + "".join(rows), f"day{day}.csv")
    with pytest.raises(BadInput, match=r"2 files one below the other: 2 of 50 lines .* is line 13, expected 2 columns"):
        open_trace(str(tmp_path))
    assert open_trace(str(tmp_path), skip_bad_lines=BadLines(most=2)).rows == 48


def test_a_broken_table_of_a_folder_is_not_passed_over(tmp_path: Path) -> None:
    written(tmp_path, "time,requests\n2026-05-01T00:00:00Z,5\n2026-05-01T01:00:00Z,5\n", "a.csv")
    (tmp_path / "b.csv.gz").write_bytes(gzip.compress(b"time,requests\n2026-05-02T00:00:00Z,5\n" * 9)[:-9])
    with pytest.raises(BadInput, match=r"b.csv.gz: the compressed file is truncated"):
        open_trace(str(tmp_path))


def test_an_hour_that_comes_twice_must_be_told_apart(tmp_path: Path) -> None:
    """Its lines may be of either hour; a line that goes back in time decides."""
    second_time = 1_792_890_000  # 2026-10-25 01:00 UTC, 02:00 in Berlin for the second time

    def lines(begin_s: int, end_s: int) -> str:
        berlin = ZoneInfo("Europe/Berlin")
        stamps = [datetime.fromtimestamp(at, berlin).strftime("%d/%b/%Y %H:%M:%S") for at in range(begin_s, end_s, 5)]
        return "".join(f'10.0.0.1 - - [{at}] "POST /predict HTTP/1.1" 200 -\n' for at in stamps)

    columns = TableColumns(times=TimeForm(zone="Europe/Berlin"))
    whole = written(tmp_path, lines(second_time - 3600, second_time + 5400), "whole.log")
    assert open_trace(whole, columns=columns).duration_s == pytest.approx(9000.0, abs=10.0)
    later = written(tmp_path, lines(second_time + 600, second_time + 5400), "later.log")
    with pytest.raises(BadInput, match=r"later.log: time_zone Europe/Berlin: 2026-10-25 02:10:00 came twice there"):
        open_trace(later, columns=columns)


# -- truncated files ---------------------------------------------------------------------------------------------------

ALB_LINES = [alb_line(k + k * 7919 % 997 / 1e3) for k in range(4000)]
PACKED = {
    "gzip": gzip.compress,
    "zstd": zstandard.ZstdCompressor().compress,
    "xz": lambda data: lzma.compress(data, preset=0),
    "bzip2": lambda data: bz2.compress(data, 1),
}


@pytest.mark.parametrize("packer", PACKED)
@pytest.mark.parametrize("share", [0.3, 0.9])
def test_a_truncated_log_ends_where_the_file_does(tmp_path: Path, packer: str, share: float) -> None:
    """Its requests up to there are all read, and the first line says that it was cut."""
    data = PACKED[packer]("".join(ALB_LINES).encode())
    path = tmp_path / "access.log"
    path.write_bytes(data[: int(share * len(data))])
    trace = open_trace(str(path))
    assert 0.2 * share * 4000 < trace.rows < 4000
    assert trace.read.endswith("; ALB access log, access.log: the compressed file is truncated")
    whole = written(tmp_path, "".join(ALB_LINES[: trace.rows]), "whole.log")
    np.testing.assert_array_equal(
        arrivals(trace, 0.0, trace.duration_s), arrivals(open_trace(whole), 0.0, trace.duration_s)
    )


def test_a_truncated_file_among_others_is_refused(tmp_path: Path) -> None:
    for node in ("a", "b"):
        data = gzip.compress("".join(ALB_LINES[node == "b" :: 2]).encode())
        (tmp_path / f"{node}.log.gz").write_bytes(data if node == "a" else data[: len(data) // 2])
    with pytest.raises(BadInput, match=r"b.log.gz: .* truncated, so that requests .*: `skip_bad_lines` 2% reads"):
        open_trace(str(tmp_path))
    trace = open_trace(str(tmp_path), skip_bad_lines=BadLines.parse("2%"))
    assert 2500 < trace.rows < 4000
    assert "b.log.gz: the compressed file is truncated" in trace.read


def test_a_truncated_table_ends_before_the_row_that_is_cut(tmp_path: Path) -> None:
    rows = [f"2026-05-01T{i // 60:02}:{i % 60:02}:00Z,{1000 + i * 7919 % 997}\n" for i in range(1200)]
    data = gzip.compress(("time,requests\n" + "".join(rows)).encode())
    for name in ("a", "b"):
        (tmp_path / f"{name}.csv.gz").write_bytes(data[: len(data) * 2 // 3])
    trace = open_trace(str(tmp_path / "a.csv.gz"))
    assert 500 < trace.rows < 1200
    assert trace.total_counts(0.0, trace.duration_s) == sum(1000 + i * 7919 % 997 for i in range(trace.rows))
    assert trace.read.endswith("column 'requests' as requests of each row, the compressed file is truncated")
    with pytest.raises(BadInput, match=r"csv.gz: the compressed file is truncated, so that"):
        open_trace(str(tmp_path))


# -- fields ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "field", "value", "kept"),
    [
        ("HAProxy", "path", "/index.html", 130),
        ("HAProxy", "backend", "static", 130),
        ("HAProxy", "status", "5*", 0),
        ("classic ELB", "client", "192.168.131.39", 130),
        ("classic ELB", "user_agent", "curl/*", 130),
        ("Flask", "path", "/predict", 130),
        ("Envoy", "method", "POST", 130),
        ("uvicorn with times", "status", "200", 130),
        ("Caddy", "status", "200", 130),
        ("Caddy", "request.uri", "/a", 130),
        ("Traefik", "RequestMethod", "POST", 0),
        ("IIS", "cs-uri-stem", "/x", 130),
        ("CloudFront", "c-ip", "192.0.2.*", 130),
        ("Docker", "path", "/predict", 130),
        ("Gin", "path", "/predict", 130),
        ("Gin", "method", "POST", 130),
        ("Gin", "status", "200", 130),
        ("Squid", "status", "200", 130),
        ("Ray Serve", "path", "/predict", 130),
        ("PHP-FPM", "status", "5*", 0),
    ],
)
def test_a_filter_knows_the_fields_of_a_format(tmp_path: Path, name: str, field: str, value: str, kept: int) -> None:
    path = written(tmp_path, "".join(FORMATS[name](k) for k in range(130)), "a.log")
    if kept:
        assert open_trace(path, log_filter=(field, value)).rows == kept
    else:
        with pytest.raises(BadInput, match="no lines match"):
            open_trace(path, log_filter=(field, value))


def test_lines_that_syslog_repeated_ask(tmp_path: Path) -> None:
    lines = [f"web nginx: {combined(k)}" for k in range(130)]
    lines[70] = f"web nginx: message repeated 5 times: [ {combined(70).strip()}]\n"
    path = written(tmp_path, "".join(lines), "a.log")
    with pytest.raises(BadInput, match=r"a line stands for 5 requests: .*line=\* counts each once"):
        open_trace(path)
    assert open_trace(path, log_filter=("line", "*")).rows == 130
    assert open_trace(path, log_filter=("line!", "*repeated*")).rows == 129


@pytest.mark.parametrize(
    "line",
    [
        *("last message repeated 12 times", "suppressed: 12", "nginx: 17 similar lines omitted", "... 12 more lines"),
        *("journal: Suppressed 55 messages from nginx.service", "imuxsock lost 120 messages due to rate-limiting"),
    ],
)
def test_lines_that_a_logger_left_out_ask(tmp_path: Path, line: str) -> None:
    path = written(tmp_path, "".join(map(combined, range(130))) + f"web {line}\n", "a.log")
    with pytest.raises(BadInput, match=r"line 131: the logger left lines out here: `log_filter` line=\* counts"):
        open_trace(path)
    assert open_trace(path, log_filter=("line", "*")).rows == 130
