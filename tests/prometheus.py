"""The emulated Prometheus of the examples, and a workload in it: requests around a rate, six replicas, one node."""

from __future__ import annotations

import sys
import time
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "examples" / "advise"))

from prometheus_in_memory import MOST_POINTS, EmulatedPrometheus
from promql import PromqlError, Stored, Vector, evaluate

__all__ = ["MOST_POINTS", "EmulatedPrometheus", "PromqlError", "Stored", "Vector", "add_workload", "evaluate"]

REPLICAS = 6.0


def add_workload(prometheus: EmulatedPrometheus, name: str = "ranker", rps: float = 16.0) -> None:
    """Add seven hours until an hour from now, scraped every 30 s. Latencies would take seconds to count, so it has
    none."""
    times = np.arange(time.time() - 7 * 3600.0, time.time() + 3600.0, 30.0)
    one = np.ones(len(times))
    counted = np.cumsum(30.0 * rps * (1.0 + 0.3 * np.sin(times / 3000.0)))
    pod = {"namespace": "shop", "pod": f"{name}-6d4f5c7b8-x2x2b"}
    for letter in "bcdfgh"[: round(REPLICAS)]:
        own = {"namespace": "shop", "app": name, "pod": f"{name}-6d4f5c7b8-x2x2{letter}"}
        prometheus.add("http_requests_total", own, times, counted / REPLICAS)
    ready = {"namespace": "shop", "deployment": name}
    prometheus.add("kube_deployment_status_replicas_available", ready, times, REPLICAS * one)
    prometheus.add("kube_pod_info", pod | {"node": "n1"}, times, one)
    node = {"node": "n1", "label_node_kubernetes_io_instance_type": "c7i.large"}
    prometheus.add("kube_node_labels", node, times, one)
