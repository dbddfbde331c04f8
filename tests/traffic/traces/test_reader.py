"""Any error in a trace ends in one line that names file, line and value."""

from __future__ import annotations

import gzip
import subprocess
import sys
from pathlib import Path

import pytest

from mark.domain.errors import BadInput
from mark.traffic.traces import open_trace
from mark.traffic.traces.blocks import watched
from tests.traffic.traces.files import alb_line, written

HEAD = "t_seconds,count\n"
COUNTER = HEAD + "".join(f"{60 * i},{900_000 + 1000 * i + 37 * i % 101}\n" for i in range(60))


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "the file is empty"),
        ("\n\n", "the file is empty"),
        (HEAD, "no rows below the header"),
        (HEAD + "\n\n", "no rows below the header"),
        (HEAD + "0,1\n60,2\n30,3\n", r"line 4: t_seconds must increase, 60 stands before: 30$"),
        (HEAD + "0,1\n0,2\n", r"line 3: t_seconds must increase"),
        (HEAD + "0,1\n60,-2\n", r"line 3: count must not be negative: -2$"),
        (HEAD + "-60,1\n0,2\n", r"line 2: t_seconds must not be negative: -60$"),
        (HEAD + "0,1\n60,nan\n", r"line 3: count must be finite: nan$"),
        (HEAD + "0,inf\n60,1\n", r"line 2: count must be finite: inf$"),
        (HEAD + "inf,1\n", r"line 2: t_seconds must be finite: inf$"),
        (HEAD + "0,1\nsixty,1\n", r"line 3: t_seconds is not a number: sixty$"),
        (HEAD + "0,1_000\n", r"line 2: count is not a number: 1_000$"),
        (HEAD + "0,1\n60,\n", r"line 3: count is not a number: $"),
        (HEAD + "0,1\n60\n", r"line 3: expected the columns t_seconds,count: 60$"),
        (HEAD + "0,1\n60,2,3\n", r"line 3: expected the columns t_seconds,count: 60,2,3$"),
        (HEAD + "0,1,2\n60,2\n1,2,3\n", r"line 2: expected the columns t_seconds,count: 0,1,2$"),
        (HEAD + "0,1\n\n60,2\n", r"line 3: expected the columns"),
        (HEAD + "0,0\n60,0\n", "every count is 0"),
        (HEAD + "0,1e300\n", r"line 2: a count beyond 1e15: 1e\+300$"),
        (HEAD + "0,1\n1e300,1\n", "spans more than ten years"),
        ("t_seconds,count,size\n0,1,2\n", "exactly the columns t_seconds,count: t_seconds,count,size$"),
        ("t_seconds\n", "no requests"),
        ("t_seconds\n5\n4\n", r"line 3: t_seconds must not go back, 5 stands before: 4$"),
        ("t_seconds,requests\n5,1\n", r"does requests count the requests of each row\? Say `count_column` requests"),
        ("t_seconds,rps\n5,1\n", "does rps count"),
        ("t_seconds,size\n1777629600000,1\n", "line 2: t_seconds is in milliseconds or less.*`time_column`"),
        ("t_seconds,count\n1777629600000,1\n", "line 2: t_seconds is in milliseconds or less.*`time_column`"),
        (COUNTER, "count never falls, as that of a counter: say `count_unit` counter, or count"),
        ("t_seconds,size\n5,1\nnan,2\n", r"line 3: t_seconds must be finite: nan$"),
        ("t_seconds,size\n5,1\n-1,2\n", r"line 3: t_seconds must not be negative: -1$"),
        ("t_seconds,size\n5,1\n,2\n", r"line 3: t_seconds is not a number: $"),
        ("t_seconds\n0\n1e12\n", "spans more than ten years"),
        (
            "time,requests\n0,1\n",
            r"no column holds times that are known, name it by `time_column`, its form by `time_format`",
        ),
        ("0,1\n60,2\n", "neither a trace"),
        (b"\x89PNG\r\n\x1a\n\x00\x00\x00\rIHDR", "binary data"),
        (
            b"PK\x03\x04\x14\x00\x06\x00",
            "the zip archive is truncated or corrupt$|binary data, not text",
        ),
        (HEAD.encode() + b"0,1\n60,\x00\n", "line 3: binary data"),
        (HEAD.encode() + b"0,1\n60,\xff\xfe\x1b[31m\n", "line 3: count is not a number"),
        (HEAD + "0," + "1" * 3_000_000 + "\n", "line 2: count must be finite"),
        ("x" * 3_000_000, "line 1: a line longer than 1 MiB"),
    ],
)
@pytest.mark.parametrize("name", ["bad.csv", "bad.csv.gz"])
def test_a_bad_file_is_one_clear_line(tmp_path: Path, text: str | bytes, message: str, name: str) -> None:
    path = written(tmp_path, text, name)
    with pytest.raises(BadInput, match=message) as caught:
        open_trace(path)
    shown = str(caught.value)
    assert shown.startswith((path, name))
    assert "\n" not in shown
    assert shown.isprintable()
    assert len(shown) < len(path) + 250


def test_errors_after_the_first_block_still_name_the_line(tmp_path: Path) -> None:
    rows = [f"{k:015},{k % 7:015}\n" for k in range(270_000)]  # a block of 8 MiB ends before the fault
    rows[265_000] = "265000,x\n"
    with pytest.raises(BadInput, match="line 265002: count is not a number: x"):
        open_trace(written(tmp_path, HEAD + "".join(rows)))
    rows[265_000] = "264999,3\n"
    with pytest.raises(BadInput, match="line 265002: t_seconds must increase"):
        open_trace(written(tmp_path, HEAD + "".join(rows)))


def test_a_truncated_or_corrupt_gzip_is_refused(tmp_path: Path) -> None:
    packed = gzip.compress((HEAD + "".join(f"{k},{k * 7919 % 1000}\n" for k in range(5000))).encode())
    for data, message in (
        (packed[: len(packed) // 2], "truncated"),
        (packed[:500] + b"junk" + packed[504:], "corrupt"),
    ):
        path = tmp_path / "trace.csv.gz"
        path.write_bytes(data)
        with pytest.raises(BadInput, match=message):
            open_trace(str(path))
    path.write_bytes(packed[:2])
    with pytest.raises(BadInput, match=r"truncated|corrupt"):
        open_trace(str(path))


def test_what_is_no_file_is_refused(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match=r"missing.csv: cannot be opened: No such file"):
        open_trace(str(tmp_path / "missing.csv"))
    with pytest.raises(BadInput, match="no log files in this folder"):
        open_trace(str(tmp_path))
    for device in ("/dev/null", "/dev/zero", "/dev/urandom"):
        with pytest.raises(BadInput, match="neither a regular file nor a folder"):
            open_trace(device)
    for name in ("", "a\0b", "x" * 5000):
        with pytest.raises(BadInput):
            open_trace(name)
    written(tmp_path, "how to read these\n", "README")
    with pytest.raises(BadInput, match="no file here is an access log"):
        open_trace(str(tmp_path))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"gaps": "ignore"}, "gaps: must be one of bridge, zero, interpolate, fail: ignore"),
        ({"start_s": -1.0}, "start_s"),
        ({"duration_s": -1.0}, "duration_s"),
        ({"duration_s": float("nan")}, "duration_s"),
        ({"duration_s": 1e12}, "duration_s: longer than ten years"),
    ],
)
def test_impossible_options_are_refused(options: dict[str, object], message: str) -> None:
    with pytest.raises(BadInput, match=message):
        open_trace("synthetic:poisson", **options)  # type: ignore[arg-type]


def test_cloudwatch_needs_the_extra_and_says_so() -> None:
    """No AWS package is imported before it is needed."""
    code = """
import sys
from mark.domain.errors import BadInput
from mark.traffic.traces import open_trace
assert "boto3" not in sys.modules
sys.modules["boto3"] = None  # as if it were not installed
try:
    open_trace("cloudwatch:AWS/ApplicationELB/RequestCount?LoadBalancer=app")
except BadInput as error:
    assert "needs the AWS adapter, which comes with the extra `aws`" in str(error), error
else:
    sys.exit("read without boto3")
"""
    subprocess.run([sys.executable, "-c", code], check=True)


def test_a_metric_has_no_fields_to_filter_by() -> None:
    with pytest.raises(BadInput, match="only access logs have fields"):
        open_trace("cloudwatch:AWS/ApplicationELB/RequestCount", log_filter=("a", "b"))


def test_a_log_that_turns_binary_is_refused(tmp_path: Path) -> None:
    text = "".join(alb_line(float(k)) for k in range(300)).encode()
    with pytest.raises(BadInput, match="line 301: binary data"):
        open_trace(written(tmp_path, text + b"\0\1\2\3" * 1000))


def test_importing_and_reading_needs_no_compiler() -> None:
    """Start-up time counts: numba comes with the first draw."""
    use = "import sys, mark.traffic.traces as w; w.open_trace('synthetic:diurnal').load(0, 600);"
    code = f"{use} sys.exit('numba' in sys.modules)"
    subprocess.run([sys.executable, "-c", code], check=True)


def test_a_file_that_is_rotated_while_its_folder_is_read_is_bad_input(tmp_path: Path) -> None:
    line = '10.0.0.1 - - [02/Nov/2026:00:00:{:02} +0000] "GET / HTTP/1.1" 200 5\n'
    for name, seconds in (("a.log", range(20)), ("b.log", range(20, 40))):
        (tmp_path / name).write_text("".join(map(line.format, seconds)))
    gone = watched.set(lambda done, total: (tmp_path / "a.log").unlink(missing_ok=True))
    try:
        with pytest.raises(BadInput, match=r"a.log: cannot be read \(removed or renamed meanwhile") as told:
            open_trace(str(tmp_path))
    finally:
        watched.reset(gone)
    assert "No such file" in str(told.value)
