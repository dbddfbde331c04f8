"""Weeks of a workload from range queries: counts by step, replicas, latencies, and their gaps."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest

from mark.domain.errors import BadInput
from mark.traffic.prometheus.answers import PromAnswer
from mark.traffic.prometheus.history import LatencyBuckets, WorkloadHistory, read_history
from mark.traffic.prometheus.workload import Asked, Workload, find_workload
from tests.traffic.prometheus.reading import AWAY, END, LABELS, RPS, MemoryReader, T, filled, shop


def _read(reader: MemoryReader, days: float = 0.2) -> WorkloadHistory:
    return read_history(reader, find_workload(reader, Asked(), END), days, END)


def _own(rate: str, latency: str | None = None) -> Workload:
    return Workload("mine", "", rate, "sum(pods)", latency, 1.0, "--query-rate", "--query-replicas")


def test_requests_are_counted_by_step() -> None:
    found = _read(filled(), days=4.5 / 24.0)
    expected = float(RPS[-540:].sum() * 30.0)
    assert found.trace.total_counts(0.0, found.trace.duration_s) == pytest.approx(expected, rel=0.01)
    assert found.trace.bin_s == 60.0
    assert found.ended_s == END
    assert found.trace.read.endswith('every 60 s; http_requests_total{app="ranker",namespace="shop"} of Prometheus')


def test_step_is_as_long_as_two_scrapes_need() -> None:
    assert _read(filled(scrape=4)).trace.bin_s == 300.0


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
        _read(filled(scrape=20))


def test_replicas_are_known_at_each_step() -> None:
    found = _read(filled())
    assert found.replicas_between(END - 3600.0, END).tolist() == [4.0] * 60
    assert found.replicas_between(END - 4 * 3600.0, END - 3 * 3600.0).tolist() == [2.0] * 60


def test_hour_without_scrapes_is_a_gap_and_not_zero() -> None:
    away = (T > END - 7200.0) & (T <= END - 3600.0)
    found = _read(filled(~away))
    (gap,) = found.trace.gaps
    assert gap[1] - gap[0] == pytest.approx(3600.0, abs=120.0)


def test_shorter_history_than_asked_for_is_said() -> None:
    found = _read(filled(), days=3.0)
    assert any("has no requests before 0.25 days ago; 3 were asked" in note for note in found.notes)


def test_undefined_points_and_warnings_are_said() -> None:
    reader = filled()
    workload = find_workload(reader, Asked(), END)
    reader.undefined, reader.warnings = 7, ("slow query",)  # type: ignore[assignment]
    notes = read_history(reader, workload, 0.2, END).notes
    assert "7 points of the rate have no finite value and are gaps" in notes
    assert "Prometheus warns about the latencies: slow query" in notes


def test_unknown_replicas_are_said() -> None:
    reader = filled()
    (ready,) = [one for one in reader.series if one.labels["__name__"].startswith("kube_")]
    ready.values[(T > END - 3 * 3600.0) & (T <= END - 3600.0)] = np.nan
    found = _read(reader, days=4.0 / 24.0)
    assert any("number of replicas is not known for 50 % of the time" in note for note in found.notes)
    assert len(found.replicas_between(END - 3 * 3600.0, END)) == 60


def test_counter_in_place_of_a_rate_is_refused() -> None:
    reader = filled()
    reader.add("pods", T, np.ones(len(T)))
    with pytest.raises(BadInput, match="only rises, as a counter does"):
        read_history(reader, _own("sum(http_requests_total)"), 0.2, END)


def test_counter_of_pods_that_restart_is_no_rate() -> None:
    reader = filled()
    reader.add("pods", T, np.ones(len(T)))
    for pod in range(5):
        counted = np.cumsum(np.full(len(T), 90.0))
        life = 300 + 26 * pod
        reader.add("churn", T, counted - np.repeat(counted[::life], life)[: len(T)], pod=str(pod))
    with pytest.raises(BadInput, match="only rises, as a counter does"):
        read_history(reader, _own("sum(churn)"), 0.2, END)


def test_series_that_differ_in_more_than_the_pod_are_not_added() -> None:
    reader = filled()
    for name, pods in (("a", 2.0), ("b", 3.0)):
        reader.add("pods", T, np.full(len(T), pods), deployment=name)
        reader.add("rate", T, np.full(len(T), pods), pod=name)
    both = replace(_own("rate"), replicas="pods")
    with pytest.raises(BadInput, match=r"--query-replicas.* has 2 series: write sum.*: deployment a and b"):
        read_history(reader, both, 0.2, END)
    found = read_history(reader, _own("rate"), 0.2, END)
    assert found.trace.total_counts(0.0, found.trace.duration_s) == pytest.approx(5.0 * found.trace.duration_s)


def test_rate_of_one_bucket_is_refused() -> None:
    reader = filled()
    reader.add("pods", T, np.ones(len(T)))
    query = 'rate(http_request_duration_seconds_bucket{le="0.3"}[1m])'
    with pytest.raises(BadInput, match=r"counts the requests of one bucket only: .*le 0\.3"):
        read_history(reader, _own(query), 0.2, END)


def test_replicas_that_are_no_whole_numbers_are_refused() -> None:
    reader = filled()
    reader.add("pods", T, 4.0 + np.sin(T / 900.0))
    with pytest.raises(BadInput, match="--query-replicas: is seldom a whole number"):
        read_history(reader, _own("sum(rate(http_requests_total[1m]))"), 0.2, END)


@pytest.mark.parametrize("how", ["", "increase"])
def test_histogram_with_more_answers_than_requests_is_refused(how: str) -> None:
    reader = filled()
    reader.add("pods", T, np.ones(len(T)))
    buckets = (
        "http_request_duration_seconds_bucket" if not how else "increase(http_request_duration_seconds_bucket[5m])"
    )
    with pytest.raises(BadInput, match="counts more answers than there were requests"):
        read_history(reader, _own("sum(rate(http_requests_total[1m]))", f"sum by (le) ({buckets})"), 0.2, END)


def test_requests_a_minute_are_no_rate() -> None:
    reader = filled()
    reader.add("pods", T, np.ones(len(T)))
    reader.add("per_minute", T, RPS * 60.0)
    latency = "sum by (le) (rate(http_request_duration_seconds_bucket[5m]))"
    with pytest.raises(BadInput, match=r"--query-rate: is 60 times the answers in the histogram: write rate"):
        read_history(reader, _own("per_minute", latency), 0.2, END)


def test_histogram_of_a_part_of_the_requests_is_said() -> None:
    reader = filled()
    reader.add("pods", T, np.ones(len(T)))
    for le in ("0.1", "+Inf"):
        reader.add("sampled_bucket", T, np.cumsum(RPS * 3.0), le=le)
    latency = "sum by (le) (rate(sampled_bucket[5m]))"
    found = read_history(reader, _own("sum(rate(http_requests_total[1m]))", latency), 0.2, END)
    assert "the latency histogram has 0.1 answers a request; they stand for all" in found.notes


def test_histogram_of_a_service_that_is_mostly_scaled_to_zero_is_read() -> None:
    awake = (T < END - 4.2 * 3600.0) | (T > END - 1800.0)
    reader = shop(awake)
    for le in ("0.1", "+Inf"):
        counter = np.where(awake, 20.0 * (T - T[0]), np.nan)
        reader.add("http_request_duration_seconds_bucket", T, counter, app="ranker", namespace="shop", le=le)
    found = _read(reader)
    assert found.latency is not None
    assert any("for 78 % of the time: scaled to zero" in note for note in found.notes)
    assert not any("answers a request" in note for note in found.notes)


def test_histogram_that_mark_found_may_count_probes_too() -> None:
    reader = filled()
    for le in ("0.1", "+Inf"):
        reader.add("http_request_duration_seconds_bucket", T, np.cumsum(RPS * 90.0), **LABELS | {"path": "/"}, le=le)
    assert "the latency histogram has 4 answers a request; they stand for all" in _read(reader).notes


def test_steady_rise_of_a_counted_rate_is_read() -> None:
    reader = MemoryReader()
    reader.add("http_requests_total", T, (T - T[0]) ** 2 / 3600.0, **LABELS)
    reader.add("pods", T, np.ones(len(T)))
    own = _own("sum(rate(http_requests_total[2m]))")
    for workload in (find_workload(reader, Asked(), END), own):
        found = read_history(reader, workload, 0.2, END).trace
        assert found.total_counts(0.0, found.duration_s) > 1e4


def test_means_of_changing_replicas_are_read() -> None:
    class WithMeans(MemoryReader):
        def query_range(self, promql: str, start_s: float, end_s: float, step_s: float) -> PromAnswer:
            return super().query_range(promql.replace("avg_over_time(pods[10m])", "means"), start_s, end_s, step_s)

    reader = WithMeans()
    reader.add("http_requests_total", T, np.cumsum(RPS * 30.0))
    pods = np.floor(4.5 + np.sin(T / 300.0))
    reader.add("means", T, np.convolve(pods, np.full(20, 1 / 20))[: len(T)])
    own = replace(_own("sum(rate(http_requests_total[1m]))"), replicas="avg_over_time(pods[10m])")
    replicas = read_history(reader, own, 0.2, END).replicas
    assert np.mean(replicas != np.rint(replicas)) > 0.5


def test_one_bound_may_be_written_in_two_ways() -> None:
    reader = filled()
    reader.add("pods", T, np.ones(len(T)))
    for le, there in (("1", T < END - 7200.0), ("1.0", T >= END - 7200.0), ("+Inf", T > 0.0)):
        reader.add("turned_bucket", T, np.where(there, np.cumsum(RPS * 30.0), np.nan), le=le)
    latency = "sum by (le) (rate(turned_bucket[5m]))"
    found = read_history(reader, _own("sum(rate(http_requests_total[1m]))", latency), 0.2, END).latency
    assert found is not None
    assert found.bounds_s.tolist() == [1.0, math.inf]


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
    latency = _read(filled()).latency
    assert latency is not None
    assert latency.bounds_s.tolist() == [0.1, 0.3, math.inf]
    shares = latency.within[1:] / latency.within[1:, -1:]
    assert np.allclose(shares, [0.5, 0.9, 1.0])


def test_query_of_latencies_without_bounds_is_refused() -> None:
    reader = filled()
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
    assert not buckets.reaches(0.04)  # all answers could be late, or none


def test_a_deployment_with_other_buckets_leaves_lateness_between_those_of_its_time() -> None:
    reader, deployed_s = MemoryReader(), END - 7200.0
    reader.add("pods", T, np.ones(len(T)))
    old, new = {"0.1": 0.5, "0.3": 0.9, "+Inf": 1.0}, {"0.2": 0.7, "1": 1.0, "+Inf": 1.0}
    for pod, shares, there in (("old", old, deployed_s >= T), ("new", new, deployed_s < T)):
        for le, share in shares.items():
            counter = np.where(there, np.cumsum(RPS * 30.0 * share), np.nan)
            reader.add("b_bucket", T, counter, pod=pod, le=le)
    rate, latency = 'sum(rate(b_bucket{le="+Inf"}[300s]))', "sum by (le) (rate(b_bucket[300s]))"
    found = read_history(reader, _own(rate, latency), 0.2, END).latency
    assert found is not None
    total, (late, least, most) = found.within[:, -1], found.late(0.2)
    before, after = found.ends_s <= deployed_s - 300.0, found.ends_s > deployed_s + 600.0
    assert np.allclose((late / total)[before], 0.3)  # halfway between 0.1 and 0.3 s
    assert np.allclose((least / total)[before], 0.1)
    assert np.allclose((most / total)[before], 0.5)
    for counts in (late, least, most):
        assert np.allclose((counts / total)[after], 0.3)
    assert np.allclose((found.within / total[:, None])[before], [0.5, 0.7, 0.9, 0.9, 1.0])
    late, least, most = found.late(0.5)  # the old buckets end below
    assert np.allclose((late / total)[before], 0.1)
    assert np.allclose((least / total)[before], 0.0)
    assert np.allclose((most / total)[before], 0.1)


@pytest.mark.parametrize("counted", [True, False], ids=["by kube-state-metrics", "by the pods themselves"])
def test_hour_without_replicas_is_an_hour_without_requests(counted: bool) -> None:
    """Pods that are away export nothing, but nothing is missing: the service was scaled to zero."""
    found = _read(shop(AWAY, counted=counted))
    assert found.trace.gaps == ()
    assert found.trace.total_counts(0.0, found.trace.duration_s) == pytest.approx(20.0 * 3.8 * 3600.0, rel=0.02)
    replicas = found.replicas_between(END - 7200.0 + 360.0, END - 3600.0)
    assert (len(replicas), set(replicas.tolist())) == (54, {0.0})
    (note,) = [note for note in found.notes if "scaled to zero" in note]
    assert "for 2" in note
    assert not any("number of replicas is not known" in note for note in found.notes)


def test_hour_in_which_prometheus_itself_was_down_is_a_gap() -> None:
    reader = shop(AWAY, counted=False, up=False)
    reader.add("up", T, np.where(AWAY, 1.0, np.nan), job="node")
    found = _read(reader)
    assert len(found.trace.gaps) == 1
    assert not any("scaled to zero" in note for note in found.notes)


def test_half_of_the_pods_unscraped_is_refused() -> None:
    with pytest.raises(BadInput, match="only 3 of 6 ready pods export it, so the sum of their rates is too low"):
        _read(shop(np.ones(len(T), bool), pods=6, seen=3))


def test_pods_that_are_unscraped_for_an_hour_make_a_gap() -> None:
    reader = shop(np.ones(len(T), bool))
    for one in reader.series[:2]:
        one.values[~AWAY] = np.nan
    found = _read(reader)
    (gap,) = found.trace.gaps
    assert gap[1] - gap[0] == pytest.approx(3600.0, abs=400.0)
    assert any("only 2 of 4 ready pods exported requests for 2" in note for note in found.notes)


def test_new_pods_that_are_not_scraped_yet_make_no_gap() -> None:
    reader = shop(np.ones(len(T), bool), seen=3)
    late = T > END - 7200.0 + 60.0  # scraped two scrapes after it is ready
    reader.add(
        "http_requests_total", T, np.where(late, 5.0 * (T - T[0]), np.nan), app="ranker", namespace="shop",
        pod="ranker-3", job="pods",
    )  # fmt: skip
    (ready,) = [one for one in reader.series if one.labels["__name__"].startswith("kube_")]
    ready.values[T <= END - 7200.0] = 3.0
    found = _read(reader)
    assert found.trace.gaps == ()
    assert not any("ready pods" in note for note in found.notes)


def test_targets_that_do_not_answer_are_said() -> None:
    reader = shop(np.ones(len(T), bool), counted=False)
    for pod in range(4):
        reader.add("up", T, np.where((T > END - 3600.0) & (pod > 1), 0.0, 1.0), job="pods", instance=str(pod))
    assert any(
        'targets of the metric did not answer Prometheus (avg(up{job=~"pods"})' in n for n in _read(reader).notes
    )


def test_prometheus_of_a_few_minutes_is_refused() -> None:
    reader = shop(T > END - 600.0)
    with pytest.raises(BadInput, match="has requests of 10 minutes only; half an hour is needed"):
        _read(reader)
