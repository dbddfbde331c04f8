"""`--log-filter`: which lines of an access log are kept, by any field that the format documents."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mark.domain.errors import BadInput
from mark.traffic.traces import open_trace
from tests.traffic.traces.files import alb_line, arrivals, arrivals_file, counts_file, stamp, written

# A line of the newest kind: a value for each field, as it stands there, that `alb_line` has nowhere.
ALB = {
    "type": "h2",
    "time": stamp(2.0),
    "elb": "app/other/50dc6c495c0c9188",
    "client:port": "203.0.113.7:2817",
    "target:port": "10.0.0.66:9000",
    "request_processing_time": "0.086",
    "target_processing_time": "0.048",
    "response_processing_time": "0.037",
    "elb_status_code": "201",
    "target_status_code": "204",
    "received_bytes": "1234",
    "sent_bytes": "98765",
    "request": '"PUT https://api.example.com:8443/v2/models/m[0]/infer?user=7 HTTP/2.0"',
    "user_agent": '"a \\"quoted\\" agent/1.0 (x y)"',
    "ssl_cipher": "ECDHE-RSA-AES128-GCM-SHA256",
    "ssl_protocol": "TLSv1.2",
    "target_group_arn": "arn:aws:elasticloadbalancing:us-east-2:1:targetgroup/u/8",
    "trace_id": '"Root=1-58337263-36d228ad5d99923122bbe354"',
    "domain_name": '"www.example.com"',
    "chosen_cert_arn": '"arn:aws:acm:us-east-2:1:certificate/c"',
    "matched_rule_priority": "17",
    "request_creation_time": stamp(1.0),
    "actions_executed": '"waf,forward"',
    "redirect_url": '"https://example.com/there"',
    "error_reason": '"LambdaInvalidResponse"',
    "target:port_list": '"10.0.0.66:9000 10.0.0.67:9000"',
    "target_status_code_list": '"204 502"',
    "classification": '"Acceptable"',
    "classification_reason": '"SpaceInUri"',
    "conn_trace_id": "TID_1234abcd",
    "transformed_host": '"inner.example.com"',
    "transformed_uri": '"/inner"',
    "request_transform_status": '"TransformSuccess"',
}
DERIVED = {
    "client": "203.0.113.7",
    "target": "10.0.0.66",
    "method": "PUT",
    "host": "api.example.com",
    "path": "/v2/models/m[0]/infer",
}
COMBINED = (
    '192.0.2.9 - mary ann [10/Oct/2000:13:55:37 -0700] "POST /predict?x=1 HTTP/1.1" 201 52 "http://a/b" '
    '"Mozilla/4.08 [en]"\n'
)
COMMON = '127.0.0.1 - - [10/Oct/2000:13:55:36 -0700] "GET /a.gif HTTP/1.0" 200 2326\n'


def kept(folder: Path, text: str, name: str, value: str) -> int:
    """Return how many lines a filter keeps, 0 if it keeps none."""
    path = written(folder, text, "access.log")
    try:
        return open_trace(path, log_filter=(name, value)).rows
    except BadInput as error:
        assert "no lines match" in str(error)  # noqa: PT017
        return 0


@pytest.mark.parametrize(("name", "value"), [*((k, v.strip('"')) for k, v in ALB.items()), *DERIVED.items()])
def test_every_documented_alb_field_is_found_in_its_place(tmp_path: Path, name: str, value: str) -> None:
    line = " ".join(ALB.values()) + ' "added later"\n'
    text = line + alb_line(3.0) * 2
    assert kept(tmp_path, text, name, value) == 1
    assert kept(tmp_path, text, name, value + "x") == 0
    assert kept(tmp_path, text, name, "*") == 3


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("host", "192.0.2.9"),
        ("user", "mary ann"),
        ("request", "POST /predict?x=1 HTTP/1.1"),
        ("method", "POST"),
        ("path", "/predict"),
        ("status", "201"),
        ("referer", "http://a/b"),
        ("user_agent", "Mozilla/4.08 [en]"),
    ],
)
def test_every_field_of_a_common_or_combined_log_is_found(tmp_path: Path, name: str, value: str) -> None:
    text = COMMON * 2 + COMBINED
    assert kept(tmp_path, text, name, value) == 1
    assert kept(tmp_path, text, name, value[:-1]) == 0
    assert kept(tmp_path, text, name, "*") == 3


def test_a_value_is_exact_or_a_shell_pattern(tmp_path: Path) -> None:
    paths = ("/v1/a", "/v1/ab", "/v1/[ab]", "/v2/a/b", "/V1/a", "/v1/a.b")
    text = "".join(alb_line(k).replace(":80/ ", f":80{path} ") for k, path in enumerate(paths))
    for value, count in (
        ("/v1/a", 1),
        ("/v1/*", 4),
        ("/v1/a?", 1),
        ("/v1/[ab]", 1),
        ("/v?/a*", 4),
        ("*/*b*", 4),
        ("/v1/a.b", 1),
        ("*", 6),
        ("", 0),
    ):
        assert kept(tmp_path, text, "path", value) == count, value


def test_client_and_target_are_compared_with_their_port_and_without(tmp_path: Path) -> None:
    text = alb_line(0.0) + alb_line(1.0).replace("192.168.131.39:2817", "[2001:db8::1]:443").replace("10.0.0.1:80", "-")
    for name, value, count in (
        ("client", "192.168.131.39", 1),
        ("client", "192.168.131.39:2817", 1),
        ("client", "[2001:db8::1]", 1),
        ("client:port", "192.168.131.39", 0),
        ("target", "10.0.0.*", 1),
        ("target:port", "10.0.0.1:80", 1),
        ("target", "-", 1),
    ):
        assert kept(tmp_path, text, name, value) == count, (name, value)


@pytest.mark.parametrize(
    ("request_line", "method", "host", "path"),
    [
        ("GET http://[2001:db8::1]:80/a/b HTTP/1.1", "GET", "[2001:db8::1]", "/a/b"),
        ("GET https://example.com/?q=http://x/y HTTP/1.1", "GET", "example.com", "/"),
        ("GET http://example.com:80 HTTP/1.1", "GET", "example.com", "-"),
        ('GET http://example.com:80/a\\"b HTTP/1.1', "GET", "example.com", '/a\\"b'),
        ("- http://www.example.com:80- -", "-", "www.example.com", "-"),  # AWS's line for a connection without HTTP
        ("-", "-", "-", "-"),
    ],
)
def test_method_host_and_path_come_out_of_the_request(
    tmp_path: Path, request_line: str, method: str, host: str, path: str
) -> None:
    text = alb_line(0.0).replace("GET http://www.example.com:80/ HTTP/1.1", request_line)
    for name, value in (("method", method), ("host", host), ("path", path)):
        assert kept(tmp_path, text, name, value) == 1, name


def test_a_field_missing_in_a_line_is_a_dash(tmp_path: Path) -> None:
    ended = alb_line(0.0).split(' "forward"')[0] + "\n"
    text = ended + alb_line(1.0)
    assert kept(tmp_path, text, "actions_executed", "-") == 1
    assert kept(tmp_path, text, "actions_executed", "forward") == 1
    assert kept(tmp_path, text, "request_transform_status", "-") == 2
    assert kept(tmp_path, COMMON + COMBINED, "referer", "-") == 1


def test_the_notes_count_the_lines_kept(tmp_path: Path) -> None:
    good = [alb_line(k / 10.0, agent="a" if k % 3 else "b") for k in range(300)]
    path = written(tmp_path, "".join([*good[:50], "cut off\n", "\n", *good[50:]]))
    trace = open_trace(path, log_filter=("user_agent", "b"))
    assert trace.rows == 100
    assert trace.notes[:2] == (
        "ALB access log: 300 requests in 301 lines",
        "100 of 300 lines kept by --log-filter user_agent=b",
    )
    assert trace.notes[2].startswith("1 malformed lines left out (0.33 %), the first at")
    assert open_trace(path).notes[1:] == trace.notes[2:]


def test_lines_left_out_make_no_other_line_late(tmp_path: Path) -> None:
    """Lines that are left out do not count: one of them with a wrong clock does no harm."""
    text = alb_line(0.0) + alb_line(5000.0, agent="other") + alb_line(10.0) + alb_line(20.0)
    trace = open_trace(written(tmp_path, text), log_filter=("user_agent", "curl/*"))
    assert trace.notes == ("ALB access log", "3 of 4 lines kept by --log-filter user_agent=curl/*")
    np.testing.assert_allclose(arrivals(trace, 0.0, 60.0), [0.0, 10.0, 20.0])


def test_a_filter_reaches_every_file_of_a_folder(tmp_path: Path) -> None:
    written(tmp_path, alb_line(5000.0) + alb_line(5001.0, kind="h2"), "a.log.gz")
    written(tmp_path, alb_line(0.0, kind="h2") + alb_line(1.0), "b.log")
    trace = open_trace(str(tmp_path), log_filter=("type", "h2"))
    np.testing.assert_allclose(arrivals(trace, 0.0, trace.duration_s), [0.0, 5001.0])
    written(tmp_path, COMMON, "c.log")
    with pytest.raises(BadInput, match="unknown field, Common or Combined Log Format has host, user"):
        open_trace(str(tmp_path / "*.log*"), log_filter=("type", "h2"))


@settings(max_examples=30)
@given(
    lines=st.lists(st.tuples(st.integers(0, 3000), st.sampled_from(("200", "204", "404", "502"))), min_size=1),
    value=st.sampled_from(("200", "4*", "20?", "*2*")),
)
def test_a_filtered_log_holds_the_matching_lines(
    tmp_path_factory: pytest.TempPathFactory, lines: list[tuple[int, str]], value: str
) -> None:
    matching = {"200": ("200",), "4*": ("404",), "20?": ("200", "204"), "*2*": ("200", "204", "502")}[value]
    folder = tmp_path_factory.mktemp("logs")
    rows = [(alb_line(at / 7.0).replace(" 200 200 ", f" {status} 200 "), status) for at, status in lines]
    every = written(folder, "".join(text for text, _ in rows), "every.log")
    some = written(folder, "".join(text for text, status in rows if status in matching), "some.log")
    if not any(status in matching for _, status in rows):
        with pytest.raises(BadInput, match="no lines match"):
            open_trace(every, log_filter=("elb_status_code", value))
        return
    found, expected = open_trace(every, log_filter=("elb_status_code", value)), open_trace(some)
    assert found.rows == expected.rows
    end_s = expected.duration_s
    np.testing.assert_array_equal(arrivals(found, 0.0, end_s), arrivals(expected, 0.0, end_s))


def test_an_unknown_field_is_answered_with_those_there_are(tmp_path: Path) -> None:
    path = written(tmp_path, alb_line(0.0), "a.log")
    with pytest.raises(
        BadInput, match=r"^log_filter: unknown field, ALB access log has type, .* path, line: status=200$"
    ):
        open_trace(path, log_filter=("status", "200"))
    path = written(tmp_path, COMMON, "a.log")
    known = "host, user, request, method, path, status, referer, user_agent, line"
    with pytest.raises(BadInput, match=rf"^log_filter: unknown field, .* has {known}: elb_status_code=200$"):
        open_trace(path, log_filter=("elb_status_code", "200"))


def test_a_filter_that_leaves_nothing_shows_what_there_is(tmp_path: Path) -> None:
    path = written(tmp_path, alb_line(0.0) * 3, "a.log")
    message = r"^log_filter: no lines match; the first of 3 in a.log has '200': elb_status_code=5\*$"
    with pytest.raises(BadInput, match=message):
        open_trace(path, log_filter=("elb_status_code", "5*"))
    with pytest.raises(BadInput, match="no lines match") as caught:
        open_trace(path, log_filter=("user_agent", "\x1b[31m\udcff"))
    assert str(caught.value).isprintable()


def test_what_is_no_access_log_cannot_be_filtered(tmp_path: Path) -> None:
    for spec in (
        counts_file(tmp_path, [(0.0, 1.0)]),
        arrivals_file(tmp_path, [0.0]),
        "synthetic:poisson",
    ):
        with pytest.raises(BadInput, match=r"^log_filter: only access logs have fields to filter by; this is none: "):
            open_trace(spec, log_filter=("path", "/"))
