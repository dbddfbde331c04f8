"""Weeks of a workload from range queries: counts by step, replicas, latencies, and their gaps."""

from __future__ import annotations

import math

import numpy as np
import pytest

from mark.domain.errors import BadInput
from mark.traffic.prometheus.history import LatencyBuckets, WorkloadHistory, read_history
from mark.traffic.prometheus.workload import Asked, Workload, find_workload
from tests.traffic.prometheus.reading import MemoryReader

END = 1.79e9 - 1.79e9 % 300.0
T = END + np.arange(-6 * 3600.0, 1.0, 30.0)
RPS = 10.0 + 5.0 * np.sin((T - T[0]) / 3000.0)
LABELS = {"app": "ranker", "namespace": "shop", "pod": "ranker-1-a"}


def _filled(there: np.ndarray | None = None, scrape: int = 1) -> MemoryReader:
    reader = MemoryReader()
    keep = np.ones(len(T), bool) if there is None else there
    for share, le in ((0.5, "0.1"), (0.9, "0.3"), (1.0, "+Inf")):
        counter = np.where(keep, np.cumsum(RPS * 30.0 * share), np.nan)[::scrape]
        if le == "+Inf":
            reader.add("http_requests_total", T[::scrape], counter, **LABELS)
        reader.add("http_request_duration_seconds_bucket", T[::scrape], counter, **LABELS, le=le)
    reader.add(
        "kube_deployment_status_replicas_available",
        T,
        np.where(T < END - 7200.0, 2.0, 4.0),
        deployment="ranker",
        namespace="shop",
    )
    return reader


def _read(reader: MemoryReader, days: float = 0.2) -> WorkloadHistory:
    return read_history(reader, find_workload(reader, Asked(), END), days, END)


def _own(rate: str, latency: str | None = None) -> Workload:
    return Workload("mine", "", rate, "sum(pods)", latency, 1.0, "--query-rate", "--query-replicas")


def test_requests_are_counted_by_step() -> None:
    found = _read(_filled(), days=4.5 / 24.0)
    expected = float(RPS[-540:].sum() * 30.0)
    assert found.trace.total_counts(0.0, found.trace.duration_s) == pytest.approx(expected, rel=0.01)
    assert found.trace.bin_s == 60.0
    assert found.ended_s == END
    assert found.trace.read.endswith('every 60 s; http_requests_total{app="ranker",namespace="shop"} of Prometheus')


def test_step_is_as_long_as_two_scrapes_need() -> None:
    assert _read(_filled(scrape=4)).trace.bin_s == 300.0


def test_step_has_two_scrapes_of_each_replica() -> None:
    """Every 40 s and one after the other: in a minute only half of the replicas have two scrapes."""
    reader = MemoryReader()
    for pod in range(4):
        times = END + np.arange(-6 * 3600.0, 1.0, 40.0) + 10.0 * pod - 30.0
        reader.add("http_requests_total", times, 5.0 * (times - times[0]), app="ranker", pod=f"ranker-{pod}")
    reader.add("kube_deployment_status_replicas_available", T, np.full(len(T), 4.0), deployment="ranker")
    found = _read(reader, days=4.0 / 24.0)
    assert found.trace.bin_s == 120.0
    assert found.trace.total_counts(0.0, found.trace.duration_s) == pytest.approx(20.0 * 4.0 * 3600.0, rel=0.01)


def test_workload_that_is_scraped_too_seldom_is_refused() -> None:
    with pytest.raises(BadInput, match="has no rate over 300 s"):
        _read(_filled(scrape=20))


def test_replicas_are_known_at_each_step() -> None:
    found = _read(_filled())
    assert found.replicas_between(END - 3600.0, END).tolist() == [4.0] * 60
    assert found.replicas_between(END - 4 * 3600.0, END - 3 * 3600.0).tolist() == [2.0] * 60


def test_hour_without_scrapes_is_a_gap_and_not_zero() -> None:
    away = (T > END - 7200.0) & (T <= END - 3600.0)
    found = _read(_filled(~away))
    (gap,) = found.trace.gaps
    assert gap[1] - gap[0] == pytest.approx(3600.0, abs=120.0)


def test_shorter_history_than_asked_for_is_said() -> None:
    found = _read(_filled(), days=3.0)
    assert any("has no requests before 0.25 days ago; 3 were asked" in note for note in found.notes)


def test_undefined_points_and_warnings_are_said() -> None:
    reader = _filled()
    workload = find_workload(reader, Asked(), END)
    reader.undefined, reader.warnings = 7, ("slow query",)  # type: ignore[assignment]
    notes = read_history(reader, workload, 0.2, END).notes
    assert "7 points of the rate have no finite value and are gaps" in notes
    assert "Prometheus warns about the latencies: slow query" in notes


def test_unknown_replicas_are_said() -> None:
    reader = _filled()
    (ready,) = [one for one in reader.series if one.labels["__name__"].startswith("kube_")]
    ready.values[(T > END - 3 * 3600.0) & (T <= END - 3600.0)] = np.nan
    found = _read(reader, days=4.0 / 24.0)
    assert any("number of replicas is not known for 50% of the time" in note for note in found.notes)
    assert len(found.replicas_between(END - 3 * 3600.0, END)) == 60


def test_counter_in_place_of_a_rate_is_refused() -> None:
    reader = _filled()
    reader.add("pods", T, np.ones(len(T)))
    with pytest.raises(BadInput, match="only rises, as a counter does"):
        read_history(reader, _own("sum(http_requests_total)"), 0.2, END)


def test_negative_rate_and_absent_requests_are_refused() -> None:
    reader = MemoryReader()
    reader.add("pods", T, np.ones(len(T)))
    reader.add("mine", T, np.where(T < END - 600.0, 1.0, -1.0))
    reader.add("none", T, np.zeros(len(T)))
    with pytest.raises(BadInput, match="a rate is negative: -1"):
        read_history(reader, _own("mine"), 0.1, END)
    with pytest.raises(BadInput, match="no requests in this time"):
        read_history(reader, _own("none"), 0.1, END)


def test_replicas_that_were_never_ready_are_refused() -> None:
    reader = MemoryReader()
    reader.add("mine", T, 5.0 + np.sin(T))
    with pytest.raises(BadInput, match=r"ready replicas .* has no answer"):
        read_history(reader, _own("mine"), 0.1, END)
    reader.add("pods", T, np.zeros(len(T)))
    with pytest.raises(BadInput, match="no replica was ever ready"):
        read_history(reader, _own("mine"), 0.1, END)


def test_latencies_come_as_counts_within_each_bound() -> None:
    latency = _read(_filled()).latency
    assert latency is not None
    assert latency.bounds_s.tolist() == [0.1, 0.3, math.inf]
    shares = latency.within[1:] / latency.within[1:, -1:]
    assert np.allclose(shares, [0.5, 0.9, 1.0])


def test_query_of_latencies_without_bounds_is_refused() -> None:
    reader = _filled()
    reader.add("pods", T, np.ones(len(T)))
    with pytest.raises(BadInput, match="--query-latency: is no histogram"):
        read_history(reader, _own("sum(rate(http_requests_total[1m]))", "sum(rate(http_requests_total[1m]))"), 0.2, END)


@pytest.mark.parametrize(
    ("rt_max_s", "late", "least", "most"),
    [
        (0.1, 50.0, 50.0, 50.0),
        (0.2, 30.0, 10.0, 50.0),
        (0.3, 10.0, 10.0, 10.0),
        (0.05, 75.0, 50.0, 100.0),
    ],
)
def test_late_answers_are_interpolated_within_the_bucket(
    rt_max_s: float, late: float, least: float, most: float
) -> None:
    buckets = LatencyBuckets(np.array([0.1, 0.3, math.inf]), np.array([300.0]), np.array([[50.0, 90.0, 100.0]]))
    found = [float(counts[0]) for counts in buckets.late(rt_max_s)]
    assert found == pytest.approx([late, least, most])


def test_histogram_reaches_its_last_finite_bound() -> None:
    buckets = LatencyBuckets(np.array([0.1, 0.3, math.inf]), np.array([300.0]), np.array([[50.0, 90.0, 100.0]]))
    assert [buckets.reaches(rt_max_s) for rt_max_s in (0.05, 0.3, 0.31)] == [True, True, False]
