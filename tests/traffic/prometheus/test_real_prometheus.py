"""The emulated Prometheus answers as a real one: the same workload, history, notes or refusal from the same scrapes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import astuple, dataclass, replace
from pathlib import Path

import numpy as np
import pytest
import trustme
from mark_infra.telemetry.prometheus import Prometheus, PrometheusAccess

from mark.domain.arrays import FloatArray
from mark.domain.errors import BadInput
from mark.traffic.prometheus.answers import Unanswered
from mark.traffic.prometheus.history import read_history
from mark.traffic.prometheus.workload import Asked, MetricsReader, find_workload
from tests.prometheus import MOST_POINTS, Stored
from tests.real_prometheus import real_prometheus
from tests.traffic.prometheus.reading import AWAY, END, MemoryReader, T, filled, shop

pytestmark = pytest.mark.slow

OFFSET_S = 7.0  # Prometheus 2 counts a sample at the start of a window and Prometheus 3 does not


def restarting() -> MemoryReader:
    """Three pods whose counters start again, each at another time."""
    reader = MemoryReader()
    for pod in range(3):
        counted = 4.0 * (T - T[0])
        again = np.searchsorted(T, END - 3600.0 * (pod + 1))
        reader.add("http_requests_total", T, np.where(T[again] > T, counted, counted - counted[again]), **_pod(pod))
    return _ready(reader, 3.0)


def deployed_hourly() -> MemoryReader:
    """Every hour three pods with new names take over."""
    reader = MemoryReader()
    for hour in range(6):
        there = (T - T[0] >= 3600.0 * hour) & (T - T[0] < 3600.0 * (hour + 1))
        for pod in range(3):
            counted = np.where(there, 4.0 * (T - T[0] - 3600.0 * hour), np.nan)
            reader.add("http_requests_total", T, counted, **_pod(10 * hour + pod))
    return _ready(reader, 3.0)


def scraped_twice() -> MemoryReader:
    """By two jobs, and by two servers that label what they scrape."""
    reader = MemoryReader()
    for job in ("pods", "services"):
        for pod in range(3):
            reader.add("http_requests_total", T, 4.0 * (T - T[0]), **_pod(pod), job=job, instance=f"{pod}:{job}")
    for replica in ("a", "b"):
        _ready(reader, 3.0, prometheus_replica=replica)
    return reader


def other_buckets() -> MemoryReader:
    """A deployment changes the bounds of the histogram, and how one of them is written."""
    reader, before = filled(), T < END - 7200.0
    for one in list(reader.series):
        if one.labels.get("le") == "0.1":
            reader.series.remove(one)
            counted = one.values
            for le, there in (("0.1", before), ("0.10", ~before)):
                reader.add("http_request_duration_seconds_bucket", T, np.where(there, counted, np.nan),
                           app="ranker", namespace="shop", pod="ranker-1-a", le=le)  # fmt: skip
    return reader


def two_workloads() -> MemoryReader:
    reader = filled()
    reader.add("http_requests_total", T, 3.0 * (T - T[0]), app="search", namespace="shop", pod="search-1")
    return reader


def _pod(number: int) -> dict[str, str]:
    return {"app": "ranker", "namespace": "shop", "pod": f"ranker-5d8f-{number:05d}"}


def _ready(reader: MemoryReader, count: float, **labels: str) -> MemoryReader:
    labels |= {"deployment": "ranker", "namespace": "shop"}
    reader.add("kube_deployment_status_replicas_available", T, np.full(len(T), count), **labels)
    return reader


# The hash is of "right".
WEB = """
basic_auth_users: {mark: $2b$04$VvCeAE1sJhtgh5TUZS.gAOr1YZkw56tOY4NpQ95ZNzRHZNOrgYlqO}
tls_server_config: {cert_file: server.pem, key_file: server.pem}
"""
ALWAYS = np.ones(len(T), bool)
WORKLOADS: Mapping[str, MemoryReader] = {
    "scraped every 30 s": filled(),
    "scraped every two minutes": filled(scrape=4),
    "scraped too seldom": filled(scrape=20),
    "an hour without scrapes": filled((T <= END - 7200.0) | (T > END - 3600.0)),
    "scaled to zero": shop(AWAY),
    "scaled to zero, replicas known by their pods": shop(AWAY, counted=False),
    "half of the pods unscraped": shop(ALWAYS, pods=6, seen=3),
    "a few minutes": shop(T > END - 600.0),
    "counters that restart": restarting(),
    "new pods every hour": deployed_hourly(),
    "scraped twice": scraped_twice(),
    "other buckets": other_buckets(),
    "two workloads": two_workloads(),
    "no metric": MemoryReader(),
}


@pytest.mark.parametrize("name", WORKLOADS)
def test_workload_is_read_the_same_from_a_real_prometheus(name: str, tmp_path: Path) -> None:
    emulated = MemoryReader()
    emulated.series = [_late(one) for one in WORKLOADS[name].series]
    with real_prometheus(emulated.series, tmp_path) as url:
        found = outcome(Prometheus(PrometheusAccess(url)))
    expected = outcome(emulated)
    assert found.said == expected.said
    for own, other in zip(found.numbers, expected.numbers, strict=True):
        np.testing.assert_allclose(own, other, rtol=1e-9)


def test_range_of_more_points_than_a_server_gives_is_read_in_pages(tmp_path: Path) -> None:
    with real_prometheus([Stored({"__name__": "load"}, T, T - T[0])], tmp_path) as url:
        (found,) = Prometheus(PrometheusAccess(url)).query_range("load", T[0], T[-1], 0.5).series
    assert len(found.times_s) == 2 * (T[-1] - T[0]) + 1 > 3 * MOST_POINTS
    assert found.values.tolist() == np.repeat(T - T[0], 60)[: len(found.values)].tolist()


def test_value_that_is_no_number_is_a_gap(tmp_path: Path) -> None:
    """A query of one's own divides by zero."""
    query = "load / on() (load < bool 3000)"
    with real_prometheus([Stored({"__name__": "load"}, T, T - T[0])], tmp_path) as url:
        found = Prometheus(PrometheusAccess(url)).query_range(query, T[0], T[-1], 30.0)
    assert found.undefined == len(T) - 100
    assert found.series[0].values.tolist() == (T - T[0])[:100].tolist()


def test_refusals_of_a_real_server_are_one_line_each(tmp_path: Path) -> None:
    series = [Stored({"__name__": "load", "pod": str(pod)}, T, T) for pod in range(2)]
    with real_prometheus(series, tmp_path, "--query.max-samples=1000") as url:
        reader = Prometheus(PrometheusAccess(url))
        for query, until_s, said in (
            ("sum(load", T[0], "400 bad_data: .*unclosed left parenthesis"),
            ("load + on() load", T[0], "422 execution: .*many-to-many"),
            ("load", END, "ask for fewer days .* 422 execution: query processing would load too many samples"),
        ):
            with pytest.raises(BadInput, match=said) as found:
                reader.query_range(query, T[0], until_s, 30.0)
            assert "\n" not in str(found.value)
        assert reader.query("absent", END).series == ()


def test_real_server_checks_the_password_over_tls(tmp_path: Path) -> None:
    authority = trustme.CA()
    authority.cert_pem.write_to_path(str(tmp_path / "ca.pem"))
    certificate = authority.issue_cert("127.0.0.1")
    certificate.private_key_and_cert_chain_pem.write_to_path(str(tmp_path / "server.pem"))
    with real_prometheus([Stored({"__name__": "load"}, T, T)], tmp_path, web=WEB, scheme="https") as url:
        access = PrometheusAccess(url, user="mark", password="right", ca_file=str(tmp_path / "ca.pem"))
        assert Prometheus(access).query("load", END).series
        with pytest.raises(BadInput, match="refuses the credentials"):
            Prometheus(replace(access, password="wrong")).query("load", END)
        with pytest.raises(Unanswered, match="certificate verify failed"):
            Prometheus(replace(access, ca_file=None)).query("load", END)


def test_server_that_ends_while_it_is_asked_may_be_asked_again(tmp_path: Path) -> None:
    with real_prometheus([Stored({"__name__": "load"}, T, T)], tmp_path) as url:
        reader = Prometheus(PrometheusAccess(url))
        assert reader.query("load", END).series
    with pytest.raises(Unanswered, match="does not answer"):
        reader.query("load", END)


@dataclass(frozen=True)
class Outcome:
    """The workload's queries, gaps and notes, or the refusal; and the history's numbers."""

    said: tuple[object, ...]
    numbers: tuple[FloatArray, ...] = ()


def outcome(reader: MetricsReader) -> Outcome:
    try:
        workload = find_workload(reader, Asked(), END)
        history = read_history(reader, workload, 0.2, END)
    except BadInput as error:
        return Outcome((str(error),))
    trace, latency = history.trace, history.latency
    load = trace.load(0.0, trace.duration_s)
    numbers = [load.mean_rps, history.replicas_s, history.replicas]
    if latency is not None:
        numbers += [latency.bounds_s, latency.ends_s, latency.within]
    return Outcome((astuple(workload), trace.gaps, history.notes), tuple(numbers))


def _late(one: Stored) -> Stored:
    """The series without the scrapes that its target missed, a few seconds later."""
    there = ~np.isnan(one.values)
    return Stored(one.labels, one.times_s[there] + OFFSET_S, one.values[there])
