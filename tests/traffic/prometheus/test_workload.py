"""The metric of a workload is found by trying; where there is a doubt, the user is asked."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest
from mark_infra.telemetry.prometheus import Prometheus, PrometheusAccess

from mark.domain.errors import BadInput
from mark.domain.load_unit import LoadUnit
from mark.traffic.prometheus.answers import summed
from mark.traffic.prometheus.known import REQUESTS, RequestMetric
from mark.traffic.prometheus.workload import Asked, check_select, find_workload, instance_types
from tests.prometheus import EmulatedPrometheus

T = 1.79e9 + np.arange(0.0, 2 * 3600.0, 30.0)
END = float(T[-1])


@pytest.fixture
def emulated() -> Iterator[EmulatedPrometheus]:
    with EmulatedPrometheus() as prometheus:
        yield prometheus


@pytest.fixture
def reader(emulated: EmulatedPrometheus) -> Prometheus:
    return Prometheus(PrometheusAccess(emulated.url))


def _count(emulated: EmulatedPrometheus, metric: str, rps: float = 5.0, **labels: str) -> None:
    emulated.add(metric, labels, T, rps * (T - T[0]))


def _ready(emulated: EmulatedPrometheus, count: float = 2.0, **labels: str) -> None:
    emulated.add("kube_deployment_status_replicas_available", labels, T, np.full(len(T), count))


def _rps(reader: Prometheus, query: str) -> float:
    return float(summed(reader.query(query, END), "here")[1][0])


@pytest.mark.parametrize("metric", REQUESTS, ids=lambda metric: metric.name)
def test_each_known_metric_is_found_with_its_histogram(
    metric: RequestMetric, emulated: EmulatedPrometheus, reader: Prometheus
) -> None:
    labels = {metric.workload[0]: "ranker", "namespace": "shop", "pod": "ranker-1-a", "reporter": "destination"}
    for counter in metric.counters:
        _count(emulated, counter, 5.0 / len(metric.counters), **labels)
    if metric.of:
        _count(emulated, metric.of, 0.5, **labels)
    for le, share in (("100", 0.5), ("+Inf", 1.0)):
        _count(emulated, f"{metric.buckets}_bucket", 5.0 * share, **labels, le=le)
    _ready(emulated, 3.0, namespace="shop", deployment="ranker")
    named = None if metric.unit == "requests" else metric.name
    found = find_workload(reader, Asked(metric=named), END)
    assert (found.name, found.namespace, found.bound_s) == ("ranker", "shop", metric.bound_s)
    size = pytest.approx(10.0 if metric.of else 1.0)
    assert (found.unit.name, found.unit.size) == (metric.unit, size)
    assert _rps(reader, found.rate_query(60.0)) == pytest.approx(5.0)
    assert _rps(reader, found.replicas) == 3.0
    query = found.buckets_query(300.0)
    assert query is not None
    rows = {one.labels["le"]: float(one.values[0]) for one in reader.query(query, END).series}
    assert rows == {"100": pytest.approx(2.5), "+Inf": pytest.approx(5.0)}


def test_istio_requests_count_once_although_both_proxies_report_them(
    emulated: EmulatedPrometheus, reader: Prometheus
) -> None:
    for reporter in ("source", "destination"):
        _count(emulated, "istio_requests_total", destination_workload="ranker", reporter=reporter, pod=f"{reporter}-1")
    _ready(emulated, deployment="ranker", namespace="shop")
    assert _rps(reader, find_workload(reader, Asked(), END).rate_query(60.0)) == pytest.approx(5.0)


def test_several_workloads_are_named_and_none_is_guessed(emulated: EmulatedPrometheus, reader: Prometheus) -> None:
    _count(emulated, "http_requests_total", 9.0, app="ranker", namespace="shop")
    _count(emulated, "http_requests_total", 2.0, app="search", namespace="shop")
    with pytest.raises(BadInput, match=r"--workload: several .*: shop/ranker by http, shop/search by http"):
        find_workload(reader, Asked(), END)


def test_workload_may_be_named_with_its_namespace(emulated: EmulatedPrometheus, reader: Prometheus) -> None:
    for namespace, rps in (("shop", 9.0), ("test", 2.0)):
        _count(emulated, "http_requests_total", rps, app="ranker", namespace=namespace, pod=f"ranker-{namespace}")
        _ready(emulated, deployment="ranker", namespace=namespace)
    with pytest.raises(BadInput, match="several workloads"):
        find_workload(reader, Asked(workload="ranker"), END)
    found = find_workload(reader, Asked(workload="test/ranker"), END)
    assert _rps(reader, found.rate_query(60.0)) == pytest.approx(2.0)
    assert _rps(reader, found.replicas) == 2.0


def test_unknown_workload_is_refused_with_the_one_that_was_meant(
    emulated: EmulatedPrometheus, reader: Prometheus
) -> None:
    _count(emulated, "http_requests_total", app="ranker", namespace="shop")
    with pytest.raises(BadInput, match=r"--workload: .*did you mean ranker\?: rankr"):
        find_workload(reader, Asked(workload="rankr"), END)


def test_two_metrics_of_one_workload_are_named_with_the_option(
    emulated: EmulatedPrometheus, reader: Prometheus
) -> None:
    _count(emulated, "http_requests_total", app="ranker", namespace="shop", pod="ranker-1")
    _count(emulated, "nginx_ingress_controller_requests", exported_service="ranker", namespace="shop", pod="nginx-1")
    _ready(emulated, deployment="ranker", namespace="shop")
    with pytest.raises(BadInput, match=r"--metric: several .* shop/ranker by http, shop/ranker by nginx-ingress"):
        find_workload(reader, Asked(), END)
    assert "nginx" in find_workload(reader, Asked(metric="nginx-ingress"), END).counted_by


def test_metric_without_requests_is_refused_with_what_was_tried(
    emulated: EmulatedPrometheus, reader: Prometheus
) -> None:
    _count(emulated, "http_requests_total", 0.0, app="ranker")
    with pytest.raises(BadInput, match=r"no metric counts requests .*istio_requests_total.*--query-rate"):
        find_workload(reader, Asked(), END)


def test_two_scrapers_of_the_same_pods_count_once(emulated: EmulatedPrometheus, reader: Prometheus) -> None:
    for job, endpoint in (("services", "http"), ("pods", "metrics")):
        for pod, rps in (("ranker-1", 5.0), ("ranker-2", 7.0)):
            labels = {"app": "ranker", "namespace": "shop", "pod": pod, "job": job, "endpoint": endpoint}
            _count(emulated, "http_requests_total", rps, **labels, instance=f"{pod}:{endpoint}")
    _ready(emulated, deployment="ranker", namespace="shop")
    found = find_workload(reader, Asked(), END)
    assert _rps(reader, found.rate_query(60.0)) == pytest.approx(12.0)
    assert found.notes[0] == "job pods and services scrape the same pods: their requests count once"


def test_two_processes_of_one_pod_are_both_counted(emulated: EmulatedPrometheus, reader: Prometheus) -> None:
    for port, rps in (("8001", 5.0), ("8002", 8.0)):
        labels = {"app": "ranker", "namespace": "shop", "pod": "ranker-1", "job": "pods"}
        _count(emulated, "http_requests_total", rps, **labels, instance=f"10.0.0.1:{port}")
    _ready(emulated, deployment="ranker", namespace="shop")
    assert _rps(reader, find_workload(reader, Asked(), END).rate_query(60.0)) == pytest.approx(13.0)


def test_two_servers_with_replica_labels_count_once(emulated: EmulatedPrometheus, reader: Prometheus) -> None:
    for replica in ("a", "b"):
        labels = {"app": "ranker", "namespace": "shop", "pod": "ranker-1", "prometheus_replica": replica}
        _count(emulated, "http_requests_total", 5.0, **labels)
        _ready(emulated, deployment="ranker", namespace="shop", prometheus_replica=replica, instance=replica)
    found = find_workload(reader, Asked(), END)
    assert _rps(reader, found.rate_query(60.0)) == pytest.approx(5.0)
    assert _rps(reader, found.replicas) == 2.0


def test_two_servers_that_are_told_apart_by_replica_count_once(
    emulated: EmulatedPrometheus, reader: Prometheus
) -> None:
    for server in ("a", "b"):
        for pod, rps in (("ranker-1", 5.0), ("ranker-2", 7.0)):
            labels = {"app": "ranker", "namespace": "shop", "pod": pod, "replica": server}
            _count(emulated, "http_requests_total", rps, **labels)
        _ready(emulated, deployment="ranker", namespace="shop", replica=server)
    found = find_workload(reader, Asked(), END)
    assert _rps(reader, found.rate_query(60.0)) == pytest.approx(12.0)
    assert _rps(reader, found.replicas) == 2.0
    assert found.notes[0] == "replica a and b scrape the same pods: their requests count once"


def test_replicas_of_ray_serve_in_one_pod_are_both_counted(emulated: EmulatedPrometheus, reader: Prometheus) -> None:
    for replica in ("ranker#x", "ranker#y"):
        labels = {"deployment": "ranker", "pod": "ray-worker-1", "replica": replica}
        _count(emulated, "ray_serve_deployment_request_counter_total", 5.0, **labels)
    _ready(emulated, deployment="ranker")
    assert _rps(reader, find_workload(reader, Asked(), END).rate_query(60.0)) == pytest.approx(10.0)


def test_restarted_counter_and_renamed_pods_do_not_change_the_rate(
    emulated: EmulatedPrometheus, reader: Prometheus
) -> None:
    half = len(T) // 2
    grown = 5.0 * (T - T[0])
    restarted = np.where(np.arange(len(T)) < half, grown, grown - grown[half - 1])
    emulated.add("http_requests_total", {"app": "ranker", "namespace": "shop", "pod": "ranker-1-a"}, T, restarted)
    for pod, there in (("ranker-1-b", np.arange(len(T)) < half), ("ranker-2-b", np.arange(len(T)) >= half)):
        values = np.where(there, grown, np.nan)
        emulated.add("http_requests_total", {"app": "ranker", "namespace": "shop", "pod": pod}, T, values)
    _ready(emulated, deployment="ranker", namespace="shop")
    found = find_workload(reader, Asked(), END)
    _, rps = summed(reader.query_range(found.rate_query(60.0), float(T[4]), END, 60.0), "here")
    assert np.median(rps) == pytest.approx(10.0)
    assert rps.max() <= 10.0 + 1e-6


def test_pods_that_export_the_metric_are_the_replicas_where_nothing_counts_them(
    emulated: EmulatedPrometheus, reader: Prometheus
) -> None:
    for pod in ("vllm-1", "vllm-2", "vllm-3"):
        for reason in ("stop", "length"):
            _count(emulated, "vllm:request_success_total", model_name="llama", pod=pod, finished_reason=reason)
    found = find_workload(reader, Asked(), END)
    assert _rps(reader, found.replicas) == 3.0
    assert found.ready_by == "pods that export vllm:request_success_total (pod)"


def test_gateway_metric_without_replicas_asks_for_them(emulated: EmulatedPrometheus, reader: Prometheus) -> None:
    _count(emulated, "envoy_cluster_upstream_rq_total", envoy_cluster_name="ranker", pod="envoy-1")
    with pytest.raises(BadInput, match="--query-replicas"):
        find_workload(reader, Asked(), END)


def test_knative_revisions_are_counted_together(emulated: EmulatedPrometheus, reader: Prometheus) -> None:
    _count(emulated, "kn_serving_invocation_duration_seconds_count", kn_service_name="ranker", namespace="shop")
    for revision in ("00007", "00008"):
        _ready(emulated, 2.0, deployment=f"ranker-{revision}-deployment", namespace="shop")
    _ready(emulated, 9.0, deployment="ranker-cache", namespace="shop")
    assert _rps(reader, find_workload(reader, Asked(), END).replicas) == 4.0


def test_own_queries_are_used_as_they_are(emulated: EmulatedPrometheus, reader: Prometheus) -> None:
    found = find_workload(reader, Asked(workload="mine", rate="sum(my_rate)", replicas="sum(my_pods)"), END)
    assert (found.name, found.rate_query(60.0), found.replicas, found.buckets) == (
        "mine", "sum(my_rate)", "sum(my_pods)", None,
    )  # fmt: skip
    assert not emulated.asked


def test_own_rate_needs_own_replicas_and_no_increase(reader: Prometheus) -> None:
    with pytest.raises(BadInput, match="--query-replicas: is needed"):
        find_workload(reader, Asked(rate="sum(my_rate)"), END)
    with pytest.raises(BadInput, match="--query-rate: gives requests of a window"):
        find_workload(reader, Asked(rate="sum(increase(x[5m]))", replicas="x"), END)
    with pytest.raises(BadInput, match="--metric: is not looked for where --query-rate is given"):
        find_workload(reader, Asked(rate="sum(my_rate)", replicas="x", metric="istio"), END)


def test_selection_goes_into_every_metric(emulated: EmulatedPrometheus, reader: Prometheus) -> None:
    for cluster, rps in (("eu", 5.0), ("us", 2.0)):
        _count(emulated, "http_requests_total", rps, app="ranker", cluster=cluster, pod=cluster)
        _ready(emulated, rps, deployment="ranker", namespace="shop", cluster=cluster)
    found = find_workload(reader, Asked(select='cluster="us"'), END)
    assert _rps(reader, found.rate_query(60.0)) == pytest.approx(2.0)
    assert _rps(reader, found.replicas) == 2.0


def test_clusters_behind_one_server_are_added(emulated: EmulatedPrometheus, reader: Prometheus) -> None:
    for cluster, rps in (("eu", 5.0), ("us", 2.0)):
        _count(emulated, "http_requests_total", rps, app="ranker", cluster=cluster, pod=cluster)
        for exporter in ("kube-state-metrics-1", "kube-state-metrics-2"):
            _ready(emulated, rps, deployment="ranker", namespace="shop", cluster=cluster, pod=exporter)
    found = find_workload(reader, Asked(), END)
    assert _rps(reader, found.rate_query(60.0)) == pytest.approx(7.0)
    assert _rps(reader, found.replicas) == 7.0


@pytest.mark.parametrize("select", ["namespace=shop", 'a="b" or c', '{a="b"', 'a="b"}[5m]', "a"])
def test_selection_that_is_no_list_of_matchers_is_refused(select: str) -> None:
    if select == '{a="b"':  # a forgotten bracket changes nothing
        assert check_select(select) == 'a="b"'
        return
    with pytest.raises(BadInput, match="--select"):
        check_select(select)


def _pods(emulated: EmulatedPrometheus, **pods: str) -> None:
    one = np.ones(len(T))
    for node, kind in (("n1", "g6.xlarge"), ("n2", "g6.xlarge"), ("n3", "c7i.large")):
        emulated.add("kube_node_labels", {"node": node, "label_node_kubernetes_io_instance_type": kind}, T, one)
    for pod, node in pods.items():
        labels = {"pod": pod.replace("_", "-"), "node": node, "namespace": "shop"}
        for scraper in ("a", "b"):
            emulated.add("kube_pod_info", labels | {"instance": scraper}, T, one)


def test_instance_types_come_from_the_labels_of_the_pods_nodes(
    emulated: EmulatedPrometheus, reader: Prometheus
) -> None:
    for pod in ("llama-a", "llama-b", "llama-c"):
        _count(emulated, "vllm:request_success_total", model_name="llama-3", pod=pod, namespace="shop")
    _pods(emulated, llama_a="n1", llama_b="n1", llama_c="n2", search_a="n3")
    found = find_workload(reader, Asked(), END)
    assert instance_types(reader, found, "", END) == ({"g6.xlarge": 3}, {"g6.xlarge": 2})


def test_pods_behind_a_gateway_are_known_by_their_names(emulated: EmulatedPrometheus, reader: Prometheus) -> None:
    _count(
        emulated,
        "nginx_ingress_controller_requests",
        exported_service="ranker",
        exported_namespace="shop",
        namespace="ingress-nginx",
        pod="nginx-1",
    )
    _ready(emulated, 3.0, deployment="ranker", namespace="shop")
    _pods(emulated, ranker_6d4f5c7b8_x2x2x="n1", ranker_6d4f5c7b8_y2y2y="n2", ranker_cache_7c9d8f6b5_z2z2z="n3")
    found = find_workload(reader, Asked(), END)
    assert (found.namespace, _rps(reader, found.replicas)) == ("shop", 3.0)
    assert _rps(reader, found.rate_query(60.0)) == pytest.approx(5.0)
    assert instance_types(reader, found, "", END) == ({"g6.xlarge": 2}, {"g6.xlarge": 2})


def _tokens(emulated: EmulatedPrometheus) -> None:
    for counter in ("vllm:prompt_tokens_total", "vllm:generation_tokens_total"):
        _count(emulated, counter, 250.0, model_name="llama", pod="llama-1-a", namespace="shop")
    _ready(emulated, namespace="shop", deployment="llama")


def test_tokens_are_counted_only_if_asked_for(emulated: EmulatedPrometheus, reader: Prometheus) -> None:
    _tokens(emulated)
    _count(emulated, "vllm:request_success_total", 1.0, model_name="llama", pod="llama-1-a", namespace="shop")
    assert find_workload(reader, Asked(), END).unit.is_requests
    with pytest.raises(BadInput, match=r"--metric: several metrics count its requests, name one: .* by vllm-tokens"):
        find_workload(reader, Asked(unit="tokens"), END)
    found = find_workload(reader, Asked(metric="vllm-tokens"), END)
    assert _rps(reader, found.rate_query(60.0)) == pytest.approx(500.0)
    assert found.notes[-1] == "a request has 500 tokens on average, by vllm:request_success_total of the last day"
    assert find_workload(reader, Asked(metric="vllm-tokens", unit_size=480.0), END).unit == LoadUnit("tokens", 480.0)


@pytest.mark.parametrize(
    ("asked", "message"),
    [
        (Asked(metric="vllm-tokens"), "--unit-size: vllm:request_success_total counts no requests in the last day"),
        (Asked(metric="vllm-tokens", unit="pages"), "--metric: counts tokens, and the load is in pages: vllm-tokens"),
        (
            Asked(unit="pages"),
            "--unit: no known metric counts it, only requests and tokens: say the load by --query-rate",
        ),
        (Asked(rate="a", replicas="b", unit="tokens"), "--unit-size: is needed beside --query-rate: the mean tokens"),
        (Asked(rate="a", replicas="b", unit="a b", unit_size=3.0), "--unit: must be a word"),
    ],
)
def test_unit_that_cannot_be_counted_is_refused(
    emulated: EmulatedPrometheus, reader: Prometheus, asked: Asked, message: str
) -> None:
    _tokens(emulated)
    with pytest.raises(BadInput, match=message):
        find_workload(reader, asked, END)


def test_own_queries_may_count_another_unit(reader: Prometheus) -> None:
    asked = Asked(rate="rate", replicas="pods", unit="tokens", unit_size=480.0)
    assert find_workload(reader, asked, END).unit == LoadUnit("tokens", 480.0)
