"""Metrics that count the requests of a workload, and its ready replicas, as their projects document them.

Data only: to read one more project, add a row with the page that names its metrics.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from mark.domain.load_unit import REQUESTS as REQUESTS_UNIT


@dataclass(frozen=True, slots=True)
class RequestMetric:
    """A project's metric of requests.

    `workload` are the labels that may name the workload, the first present one counts. `buckets` is the latency
    histogram without `_bucket`, whose bounds are in `bound_s` seconds. `by_replica`: each replica exports the metric
    itself, so the number of pods that export it is the number of replicas. A metric of another `unit` than requests
    counts the load of the requests that `of` counts; `also` is a second counter, to be added.
    """

    name: str
    requests: str
    workload: tuple[str, ...]
    buckets: str
    bound_s: float
    source: str
    match: str = ""
    by_replica: bool = True
    own_labels: tuple[str, ...] = ()  # which never name a scraper
    unit: str = REQUESTS_UNIT.name
    also: str = ""
    of: str = ""

    @property
    def counters(self) -> tuple[str, ...]:
        return (self.requests, self.also) if self.also else (self.requests,)


@dataclass(frozen=True, slots=True)
class ReadyMetric:
    """A metric of ready replicas. `named` is the pattern of `label`'s value, {} is the workload."""

    metric: str
    label: str
    source: str
    named: str = "{}"


_VLLM = RequestMetric(
    name="vllm",
    requests="vllm:request_success_total",
    workload=("model_name",),
    buckets="vllm:e2e_request_latency_seconds",
    bound_s=1.0,
    source="docs.vllm.ai/en/latest/usage/metrics",
)
_VLLM_TOKENS = replace(_VLLM, unit="tokens", of=_VLLM.requests)

REQUESTS = (
    RequestMetric(
        name="istio",
        requests="istio_requests_total",
        workload=("destination_workload", "destination_service_name"),
        buckets="istio_request_duration_milliseconds",
        bound_s=1e-3,
        # Both proxies report a request; the client's would count it a second time.
        match='reporter=~"destination|waypoint"',
        source="istio.io/latest/docs/reference/config/metrics",
    ),
    RequestMetric(
        name="envoy",
        requests="envoy_cluster_upstream_rq_total",
        workload=("envoy_cluster_name",),
        buckets="envoy_cluster_upstream_rq_time",
        bound_s=1e-3,
        by_replica=False,
        source="envoyproxy.io/docs/envoy/latest/configuration/upstream/cluster_manager/cluster_stats",
    ),
    RequestMetric(
        name="nginx-ingress",
        requests="nginx_ingress_controller_requests",
        workload=("exported_service", "service", "ingress"),
        buckets="nginx_ingress_controller_request_duration_seconds",
        bound_s=1.0,
        by_replica=False,
        source="kubernetes.github.io/ingress-nginx/user-guide/monitoring",
    ),
    RequestMetric(
        name="knative",
        requests="kn_serving_invocation_duration_seconds_count",
        workload=("kn_service_name", "kn_configuration_name", "service"),
        buckets="kn_serving_invocation_duration_seconds",
        bound_s=1.0,
        source="knative.dev/docs/serving/observability/metrics/serving-metrics",
    ),
    RequestMetric(
        name="knative-1.18",
        requests="revision_app_request_count",
        workload=("service_name", "configuration_name"),
        buckets="revision_app_request_latencies",
        bound_s=1e-3,
        source="knative.dev/v1.10-docs/serving/services/service-metrics",
    ),
    _VLLM,
    replace(_VLLM_TOKENS, name="vllm-prompt-tokens", requests="vllm:prompt_tokens_total"),
    replace(_VLLM_TOKENS, name="vllm-generation-tokens", requests="vllm:generation_tokens_total"),
    replace(_VLLM_TOKENS, name="vllm-tokens", requests="vllm:prompt_tokens_total", also="vllm:generation_tokens_total"),
    RequestMetric(
        name="ray-serve",
        requests="ray_serve_deployment_request_counter_total",
        workload=("deployment",),
        buckets="ray_serve_deployment_processing_latency_ms",
        bound_s=1e-3,
        source="docs.ray.io/en/latest/serve/monitoring.html",
        own_labels=("replica",),
    ),
    RequestMetric(
        name="triton",
        requests="nv_inference_request_success",
        workload=("model",),
        # Triton's only histogram, for models that are not decoupled; it must be enabled in Triton.
        buckets="nv_inference_first_response_histogram_ms",
        bound_s=1e-3,
        source="docs.nvidia.com/deeplearning/triton-inference-server/user-guide/docs/user_guide/metrics.html",
    ),
    RequestMetric(
        name="mark",
        requests="mark_requests_total",
        workload=("stage", "model"),
        buckets="mark_latency_seconds",
        bound_s=1.0,
        source="docs/serving.md",
    ),
    RequestMetric(
        name="http",
        requests="http_requests_total",
        workload=("deployment", "app", "service", "job"),
        buckets="http_request_duration_seconds",
        bound_s=1.0,
        source="prometheus.io/docs/practices/naming",
    ),
)

READY = (
    ReadyMetric(
        "kube_deployment_status_replicas_available",
        "deployment",
        "github.com/kubernetes/kube-state-metrics docs/metrics/workload/deployment-metrics.md",
    ),
    ReadyMetric(
        "kube_statefulset_status_replicas_ready",
        "statefulset",
        "github.com/kubernetes/kube-state-metrics docs/metrics/workload/statefulset-metrics.md",
    ),
    ReadyMetric(
        "kube_deployment_status_replicas_available",
        "deployment",
        "the Deployment of each Knative revision: github.com/knative/serving pkg/reconciler/revision/resources/names",
        named="{}-[0-9]+-deployment",
    ),
    ReadyMetric("ray_serve_deployment_replica_healthy", "deployment", "docs.ray.io/en/latest/serve/monitoring.html"),
)

# Pods by node and nodes by type: kube-state-metrics, docs/metrics/workload/pod-metrics.md and cluster/node-metrics.md.
# kube_node_labels has this label only if kube-state-metrics may show it (--metric-labels-allowlist).
PODS = "kube_pod_info"
NODES = "kube_node_labels"
INSTANCE_LABEL = "label_node_kubernetes_io_instance_type"
