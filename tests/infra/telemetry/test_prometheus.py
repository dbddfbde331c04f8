"""Queries over HTTP: the requests, the errors, and which queries may be repeated."""

from __future__ import annotations

import ssl
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
import trustme
from mark_infra.telemetry.prometheus import PAGE_POINTS, Prometheus, PrometheusAccess

from mark.domain.errors import BadInput
from mark.traffic.prometheus.answers import Unanswered
from tests.prometheus import EmulatedPrometheus

T = np.arange(0.0, 3000.0, 30.0)


@pytest.fixture
def emulated() -> Iterator[EmulatedPrometheus]:
    with EmulatedPrometheus() as prometheus:
        prometheus.add("load", {"pod": "a"}, T, T / 30.0)
        yield prometheus


def _reader(emulated: EmulatedPrometheus, **access: object) -> Prometheus:
    return Prometheus(PrometheusAccess(emulated.url, **access))  # type: ignore[arg-type]


def test_instant_query_gives_the_value_of_that_time(emulated: EmulatedPrometheus) -> None:
    assert _reader(emulated).query("sum(load)", 300.0).series[0].values.tolist() == [10.0]


def test_range_query_gives_every_step_with_both_ends(emulated: EmulatedPrometheus) -> None:
    (found,) = _reader(emulated).query_range("load", 0.0, 120.0, 60.0).series
    assert found.times_s.tolist() == [0.0, 60.0, 120.0]
    assert found.values.tolist() == [0.0, 2.0, 4.0]


def test_range_of_more_points_than_the_server_gives_is_asked_in_pages(emulated: EmulatedPrometheus) -> None:
    (found,) = _reader(emulated).query_range("load", 0.0, 2999.9, 0.1).series
    assert len(found.times_s) == 30_000 > PAGE_POINTS
    assert np.allclose(np.diff(found.times_s), 0.1)
    assert len(emulated.asked) == 3


@pytest.mark.parametrize("fault", ["500", "503", "503 plain", "429", "error", "cut", "partial"])
def test_failure_of_the_server_may_be_asked_again(fault: str, emulated: EmulatedPrometheus) -> None:
    emulated.fault = fault
    with pytest.raises(Unanswered) as found:
        _reader(emulated).query("load", 300.0)
    assert "\n" not in str(found.value)
    emulated.fault = None
    assert _reader(emulated).query("load", 300.0).series


def test_refusal_says_the_servers_reason(emulated: EmulatedPrometheus) -> None:
    emulated.fault = "422"
    with pytest.raises(BadInput, match=r"ask for fewer days .*: 422 execution: query processing would load too many"):
        _reader(emulated).query("load", 300.0)


def test_query_that_cannot_be_parsed_is_refused(emulated: EmulatedPrometheus) -> None:
    with pytest.raises(BadInput, match=r"400 bad_data: .*parse error"):
        _reader(emulated).query("sum(load", 300.0)


@pytest.mark.parametrize("fault", ["404", "garbage"])
def test_other_server_is_not_taken_for_a_prometheus(fault: str, emulated: EmulatedPrometheus) -> None:
    emulated.fault = fault
    with pytest.raises(BadInput, match="is the path right"):
        _reader(emulated).query("load", 300.0)


def test_silent_server_is_given_up(emulated: EmulatedPrometheus) -> None:
    emulated.fault = "slow"
    with pytest.raises(Unanswered, match="timed out"):
        _reader(emulated, timeout_s=0.1).query("load", 300.0)


def test_server_that_is_not_there_is_named() -> None:
    with EmulatedPrometheus() as gone:
        url = gone.url
    with pytest.raises(Unanswered, match=rf"{url}: does not answer \(.*refused"):
        Prometheus(PrometheusAccess(url)).query("load", 0.0)


def test_answer_that_is_too_large_is_refused(emulated: EmulatedPrometheus) -> None:
    emulated.fault = "large"
    with pytest.raises(BadInput, match="ask for fewer days"):
        _reader(emulated, answer_bytes=1000).query("load", 300.0)


def test_undefined_values_are_counted(emulated: EmulatedPrometheus) -> None:
    emulated.fault = "nan"
    found = _reader(emulated).query_range("load", 0.0, 120.0, 60.0)
    assert (found.series, found.undefined) == ((), 3)


def test_empty_answer_has_no_series(emulated: EmulatedPrometheus) -> None:
    assert _reader(emulated).query("load_of_others", 300.0).series == ()


def test_redirection_on_the_same_host_is_followed(emulated: EmulatedPrometheus) -> None:
    emulated.fault = "redirect"
    assert _reader(emulated).query("load", 300.0).series


def test_redirection_to_another_host_is_refused(emulated: EmulatedPrometheus) -> None:
    emulated.fault = "elsewhere"
    with pytest.raises(BadInput, match=r"redirects to another address.*: http://127\.0\.0\.2:9"):
        _reader(emulated, token="secret").query("load", 300.0)


def test_token_is_sent_and_a_wrong_one_is_refused_without_being_shown() -> None:
    with EmulatedPrometheus(token="right") as emulated:
        emulated.add("load", {}, T, T)
        assert _reader(emulated, token="right").query("load", 300.0).series
        for access in ({}, {"token": "wr0ng-secret"}):
            with pytest.raises(BadInput, match=r"refuses the credentials.*401 Unauthorized") as found:
                _reader(emulated, **access).query("load", 300.0)
            assert "wr0ng" not in str(found.value)


def test_user_and_password_are_sent() -> None:
    with EmulatedPrometheus(password="right") as emulated:
        emulated.add("load", {}, T, T)
        assert _reader(emulated, user="mark", password="right").query("load", 300.0).series
        with pytest.raises(BadInput, match="refuses the credentials"):
            _reader(emulated, user="mark", password="wrong").query("load", 300.0)


def test_certificate_is_checked_against_the_named_authority(tmp_path: Path) -> None:
    authority, context = trustme.CA(), ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    authority.issue_cert("127.0.0.1").configure_cert(context)
    authority.cert_pem.write_to_path(str(tmp_path / "ca.pem"))
    with EmulatedPrometheus(tls=context) as emulated:
        emulated.add("load", {}, T, T)
        assert _reader(emulated, ca_file=str(tmp_path / "ca.pem")).query("load", 300.0).series
        with pytest.raises(Unanswered, match="certificate verify failed"):
            _reader(emulated).query("load", 300.0)


def test_authority_that_is_no_certificate_is_refused(tmp_path: Path) -> None:
    (tmp_path / "ca.pem").write_text("nothing")
    for name in ("ca.pem", "absent.pem"):
        with pytest.raises(BadInput, match="--prometheus-ca"):
            Prometheus(PrometheusAccess("https://127.0.0.1:1", ca_file=str(tmp_path / name)))


@pytest.mark.parametrize(
    "url", ["", "localhost:9090", "ftp://host", "http://", "http://host:x", "http://host/?a=b", "http://ho st"]
)
def test_address_that_is_none_is_refused(url: str) -> None:
    with pytest.raises(BadInput, match="must be http"):
        PrometheusAccess(url)


def test_secrets_are_not_shown() -> None:
    access = PrometheusAccess("https://host", token="abc-token", user="mark", password="abc-password")
    assert "abc" not in repr(access)
    with pytest.raises(BadInput, match="one line") as found:
        PrometheusAccess("https://host", token="abc\ndef")
    assert "abc" not in str(found.value)


def test_password_in_the_address_is_refused_and_not_shown() -> None:
    with pytest.raises(BadInput, match="PROMETHEUS_PASSWORD") as found:
        PrometheusAccess("https://mark:secret@host:9090")
    assert "secret" not in str(found.value)
