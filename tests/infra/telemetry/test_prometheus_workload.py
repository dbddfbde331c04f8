"""A workload through its emulated Prometheus, at a time of the test's choice."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

import numpy as np
import pytest
from mark_infra.telemetry.prometheus import Prometheus, PrometheusAccess
from mark_infra.telemetry.prometheus_workload import PrometheusWorkload

from mark.domain.errors import BadInput
from mark.traffic.prometheus.answers import Unanswered
from mark.traffic.prometheus.workload import Asked, find_workload
from tests.prometheus import EmulatedPrometheus

NOW_S = 1_790_000_000.0
POD = {"namespace": "shop", "app": "ranker", "pod": "ranker-1"}


@pytest.fixture
def prometheus() -> Iterator[EmulatedPrometheus]:
    with EmulatedPrometheus() as emulated:
        emulated.clock = lambda: NOW_S
        yield emulated


def fill(prometheus: EmulatedPrometheus, *, scrape_s: float = 30.0, until_s: float = NOW_S) -> None:
    """Write two hours of 10 requests/s, 9 in 10 within 200 ms and all within 400, on three replicas."""
    times = np.arange(NOW_S - 7200.0, until_s + 1.0, scrape_s)
    counted = 10.0 * (times - times[0])
    prometheus.add("http_requests_total", POD, times, counted)
    for bound, share in (("0.1", 0.5), ("0.2", 0.9), ("0.4", 1.0), ("+Inf", 1.0)):
        prometheus.add("http_request_duration_seconds_bucket", POD | {"le": bound}, times, share * counted)
    ready = {"namespace": "shop", "deployment": "ranker"}
    prometheus.add("kube_deployment_status_replicas_available", ready, times, np.full(len(times), 3.0))


def asking(prometheus: EmulatedPrometheus, rt_max_s: float = 0.2, asked: Asked | None = None) -> PrometheusWorkload:
    reader = Prometheus(PrometheusAccess(prometheus.url))
    return PrometheusWorkload(reader, partial(find_workload, reader, asked or Asked()), rt_max_s)


def test_workload_now_has_rate_replicas_and_late_answers(prometheus: EmulatedPrometheus) -> None:
    fill(prometheus)
    now = asking(prometheus).now()
    assert now.at_unix_s == NOW_S
    assert now.rps == pytest.approx(10.0)
    assert now.replicas == 3
    assert (now.answered, now.in_time) == pytest.approx((1200.0, 1080.0))


def test_minutes_have_rates_and_shares_in_time(prometheus: EmulatedPrometheus) -> None:
    fill(prometheus)
    found = asking(prometheus, rt_max_s=0.15).minutes(NOW_S - 300.0, 5)
    assert found.rps == pytest.approx(np.full(5, 10.0))
    assert found.in_time_share == pytest.approx(np.full(5, 0.7))


def test_counter_in_place_of_a_rate_gives_no_floor(prometheus: EmulatedPrometheus) -> None:
    fill(prometheus)
    replicas = "sum(kube_deployment_status_replicas_available)"
    with pytest.raises(BadInput, match="only rises, as a counter does"):
        asking(prometheus, asked=Asked(rate="sum(http_requests_total)", replicas=replicas)).now()


def test_minutes_before_the_first_scrape_are_unknown(prometheus: EmulatedPrometheus) -> None:
    fill(prometheus)
    found = asking(prometheus).minutes(NOW_S - 7500.0, 10)
    assert np.isnan(found.rps[:5]).all()
    assert found.rps[6:] == pytest.approx(np.full(4, 10.0))
    assert np.isnan(found.in_time_share[:5]).all()


def test_workload_without_replicas_has_no_requests(prometheus: EmulatedPrometheus) -> None:
    """Its pods are away for the last half hour, with their counters."""
    fill(prometheus)
    away = NOW_S - 1800.0
    for one in prometheus.series:
        late = one.times_s > away
        one.values[late] = 0.0 if one.labels["__name__"].startswith("kube_") else np.nan
    workload = asking(prometheus)
    now = workload.now()
    assert (now.rps, now.replicas) == (0.0, 0)
    assert workload.minutes(away - 600.0, 40).rps[[0, 15, 39]] == pytest.approx([10.0, 0.0, 0.0])


def test_seldom_scrapes_widen_the_window(prometheus: EmulatedPrometheus) -> None:
    fill(prometheus, scrape_s=60.0)
    workload = asking(prometheus)
    assert workload.found()[1] == 120.0
    assert workload.now().rps == pytest.approx(10.0)


def test_lateness_beyond_the_last_bucket_is_unknown(prometheus: EmulatedPrometheus) -> None:
    """Otherwise every answer would count as late, and the floor would rise without end."""
    fill(prometheus)
    workload = asking(prometheus, rt_max_s=0.5)
    now = workload.now()
    assert now.rps == pytest.approx(10.0)
    assert (now.answered, now.in_time) == (None, None)
    assert np.isnan(workload.minutes(NOW_S - 300.0, 5).in_time_share).all()


def test_metric_that_ended_has_no_rate(prometheus: EmulatedPrometheus) -> None:
    """Its pods are gone, or no Prometheus scrapes them any more."""
    fill(prometheus, until_s=NOW_S - 600.0)
    now = asking(prometheus).now()
    assert (now.rps, now.answered) == (None, None)


@pytest.mark.parametrize("fault", ["nan", "inf"])
def test_undefined_numbers_are_no_rate(prometheus: EmulatedPrometheus, fault: str) -> None:
    fill(prometheus)
    workload = asking(prometheus)
    workload.found()
    prometheus.fault, prometheus.faulty_words = fault, ("http_requests_total",)
    assert workload.now().rps is None
    assert np.isnan(workload.minutes(NOW_S - 300.0, 5).rps).all()


def test_histogram_that_is_missing_leaves_lateness_unknown(prometheus: EmulatedPrometheus) -> None:
    fill(prometheus)
    prometheus.series = [one for one in prometheus.series if "le" not in one.labels]
    workload = asking(prometheus)
    assert workload.now().in_time is None
    assert np.isnan(workload.minutes(NOW_S - 300.0, 5).in_time_share).all()


def test_prometheus_that_does_not_answer_is_asked_again(prometheus: EmulatedPrometheus) -> None:
    fill(prometheus)
    workload = asking(prometheus)
    prometheus.fault = "503"
    with pytest.raises(Unanswered):
        workload.now()
    prometheus.fault = None
    assert workload.now().replicas == 3


@pytest.mark.parametrize("fault", ["nan", "503", "cut"])
def test_server_that_does_not_tell_its_time_is_asked_again(prometheus: EmulatedPrometheus, fault: str) -> None:
    fill(prometheus)
    workload = asking(prometheus)
    workload.found()
    prometheus.fault, prometheus.faulty_words = fault, ("time()",)
    with pytest.raises(Unanswered):
        workload.now()


def test_unknown_workload_is_refused(prometheus: EmulatedPrometheus) -> None:
    with pytest.raises(BadInput, match="no metric counts requests"):
        asking(prometheus).now()
