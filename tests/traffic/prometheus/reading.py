"""The port MetricsReader over series in memory, without a server, and six hours of a workload in it."""

from __future__ import annotations

import numpy as np

from mark.traffic.prometheus.answers import PromAnswer, PromSeries
from tests.prometheus import Stored, evaluate

END = 1.79e9 - 1.79e9 % 300.0
T = END + np.arange(-6 * 3600.0, 1.0, 30.0)
RPS = 10.0 + 5.0 * np.sin((T - T[0]) / 3000.0)
LABELS = {"app": "ranker", "namespace": "shop", "pod": "ranker-1-a"}
AWAY = (T <= END - 7200.0) | (T > END - 3600.0)  # not for an hour


class MemoryReader:
    """Answers from `series`. `undefined` and `warnings` go into each answer."""

    def __init__(self) -> None:
        self.series: list[Stored] = []
        self.undefined, self.warnings = 0, ()

    def add(self, name: str, times_s: np.ndarray, values: np.ndarray, **labels: str) -> None:
        self.series.append(Stored({"__name__": name, **labels}, times_s, values))

    def query(self, promql: str, at_s: float) -> PromAnswer:
        return self.query_range(promql, at_s, at_s, 60.0)

    def query_range(self, promql: str, start_s: float, end_s: float, step_s: float) -> PromAnswer:
        at = np.array([start_s + step_s * place for place in range(int((end_s - start_s) / step_s + 1e-9) + 1)])
        found = []
        for key, values in evaluate(promql, self.series, at).items():
            known = ~np.isnan(values)
            found.append(PromSeries(dict(key), at[known], values[known]))
        return PromAnswer(tuple(found), self.warnings, self.undefined)


def filled(there: np.ndarray | None = None, scrape: int = 1) -> MemoryReader:
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


def shop(there: np.ndarray, pods: int = 4, seen: int = 4, *, counted: bool = True, up: bool = True) -> MemoryReader:
    """Return `pods` ready pods with 5 requests/s each, `seen` of which Prometheus scrapes, while `there`."""
    reader = MemoryReader()
    for pod in range(seen):
        values = np.where(there, 5.0 * (T - T[0]), np.nan)
        reader.add("http_requests_total", T, values, app="ranker", namespace="shop", pod=f"ranker-{pod}", job="pods")
    if counted:
        ready = np.where(there, float(pods), 0.0)
        reader.add("kube_deployment_status_replicas_available", T, ready, deployment="ranker", namespace="shop")
    if up:
        reader.add("up", T, np.ones(len(T)), job="node")
    return reader
