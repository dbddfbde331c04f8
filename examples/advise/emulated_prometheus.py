"""A Prometheus on this machine with a month of one service that a pod autoscaler scales.

    python examples/advise/emulated_prometheus.py

The service `ranker` in the namespace `shop` runs on c7i.large, one replica a node. A replica answers 8 requests/s, a
request takes 125 ms. With `--vllm` it is the model `llama` on g6.2xlarge: a replica does 2,400 tokens/s, and a request
has 480 on average, of which it answers 180. The autoscaler follows 70 % utilisation between 6 and 30 replicas, and a
new replica is ready four minutes after it was wanted. Every Monday a release renames all pods. Nothing here is
measured: the month is drawn.
"""

from __future__ import annotations

import argparse
import contextlib
import math
import time
from collections import deque
from dataclasses import dataclass

import numpy as np
from prometheus_in_memory import EmulatedPrometheus

DAY_S = 86400
SCRAPE_S = 30
AHEAD_S = DAY_S // 4  # so long it may be asked
TARGET, LEAST, MOST, READY_AFTER_S, CALM_S = 0.7, 6, 30, 240, 300


@dataclass(frozen=True)
class Example:
    """A service, its metrics and a replica: its requests/s, and the time of a request that does not wait."""

    name: str
    label: str
    instance: str
    counter: str
    histogram: str
    capacity_rps: float
    service_s: float
    bounds_s: tuple[float, ...]
    tokens: tuple[tuple[str, float, float], ...] = ()  # counters, the mean of a request and its variation

    @property
    def labels(self) -> dict[str, str]:
        return {"namespace": "shop", self.label: self.name}


RANKER = Example(
    "ranker",
    "app",
    "c7i.large",
    "http_requests_total",
    "http_request_duration_seconds",
    8.0,
    0.125,
    (0.05, 0.1, 0.15, 0.2, 0.3, 0.4, 0.6, 1.0, 2.0, 4.0, math.inf),
)
LLAMA = Example(
    "llama",
    "model_name",
    "g6.2xlarge",
    "vllm:request_success_total",
    "vllm:e2e_request_latency_seconds",
    5.0,
    6.0,
    (1.0, 2.5, 5.0, 10.0, 15.0, 20.0, 30.0, 40.0, 50.0, 60.0, math.inf),
    (("vllm:prompt_tokens_total", 300.0, 1.3), ("vllm:generation_tokens_total", 180.0, 0.8)),
)


def traffic(times: np.ndarray, random: np.random.Generator) -> np.ndarray:
    """Requests/s: days, weekends, a slow noise, and a dozen rushes that more than double the load in four minutes."""
    hour, weekday = times / 3600.0 % 24.0, times // DAY_S % 7
    rps = 26.0 * (1.0 + 0.75 * np.sin((hour - 9.0) / 24.0 * 2.0 * np.pi)) * np.where(weekday >= 5, 0.6, 1.0)
    slow = np.convolve(random.normal(size=len(times)), np.ones(60) / 60.0, "same")
    rps = rps * (1.0 + 0.5 * slow)
    for start in random.uniform(times[0], times[-1], 12 * len(times) * SCRAPE_S // (30 * DAY_S)):
        rps = rps + 1.5 * rps * np.clip(
            np.minimum((times - start) / 240.0, (start + 5400.0 - times) / 1800.0), 0.0, 1.0
        )
    return np.maximum(rps, 1.0)


def scaled(rps: np.ndarray, capacity_rps: float) -> np.ndarray:
    """Ready replicas of a pod autoscaler: up at once by the utilisation, down to the most of the last five minutes."""
    ready, found, coming = LEAST, [], deque([LEAST] * (READY_AFTER_S // SCRAPE_S))
    lately: deque[int] = deque(maxlen=CALM_S // SCRAPE_S)
    for rate in rps:
        busy = min(1.0, rate / (ready * capacity_rps))
        lately.append(min(MOST, max(LEAST, math.ceil(ready * busy / TARGET))))
        coming.append(max(lately))
        ready = min(coming.popleft(), max(lately)) if max(lately) < ready else max(ready, coming.popleft())
        found.append(ready)
    return np.array(found, dtype=float)


def latency_shares(busy: np.ndarray, service_s: float, bounds_s: tuple[float, ...]) -> np.ndarray:
    """The share of answers within each bound: service times that scatter, and a wait that grows with the load."""
    wait_s = service_s * 0.5 * np.minimum(busy, 0.98) ** 4 / (1.0 - np.minimum(busy, 0.98))
    wait_s = wait_s + np.where(busy > 1.0, (busy - 1.0) * 32.0 * service_s, 0.0)
    bounds = np.array(bounds_s)[:, None]
    alone = 1.0 / (1.0 + np.exp(-(np.log(np.maximum(bounds, 1e-9)) - math.log(service_s)) / 0.18))
    waited = 1.0 - np.exp(-np.maximum(bounds - service_s, 0.0) / np.maximum(wait_s, 1e-6))
    return np.where(np.isinf(bounds), 1.0, alone * waited)


def counter(counts: np.ndarray, there: np.ndarray) -> np.ndarray:
    """A counter that begins at zero whenever its pod comes again; NaN while the pod is away."""
    grown = np.cumsum(np.where(there, counts, 0.0))
    began = there & ~np.concatenate(([False], there[:-1]))
    return np.where(there, grown - np.maximum.accumulate(np.where(began, grown, 0.0)), np.nan)


def fill(prometheus: EmulatedPrometheus, end_s: float, days: float, seed: int = 1, example: Example = RANKER) -> None:
    """Add the metrics of the service, of kube-state-metrics and of the nodes."""
    random = np.random.default_rng(seed)
    times = np.arange(end_s - days * DAY_S, end_s + 1, SCRAPE_S)
    rps = traffic(times, random)
    replicas = scaled(rps, example.capacity_rps)
    shares = latency_shares(rps / (replicas * example.capacity_rps), example.service_s, example.bounds_s)
    each = random.poisson(rps / replicas * SCRAPE_S).astype(float)
    week = (times // DAY_S - 4) // 7  # Unix time began on a Thursday
    for release in np.unique(week):
        part = week == release
        for slot in range(int(replicas[part].max())):
            there, at = replicas[part] > slot, times[part]
            pod = f"{example.name}-{int(release):08x}-{slot:05d}"
            labels = example.labels | {"pod": pod, "instance": f"10.0.0.{slot}:8080"}
            prometheus.add(example.counter, labels | {"code": "200"}, at, counter(each[part], there))
            for name, mean, variation in example.tokens:
                spread = variation * mean * np.sqrt(each[part]) * random.normal(size=len(at))
                tokens = np.maximum(0.0, mean * each[part] + spread)
                prometheus.add(name, labels, at, counter(tokens, there))
            for bound, share in zip(example.bounds_s, shares, strict=True):
                le = labels | {"le": "+Inf" if math.isinf(bound) else f"{bound:g}"}
                within = counter(each[part] * share[part], there)
                prometheus.add(f"{example.histogram}_bucket", le, at, within)
            runs = {"namespace": "shop", "pod": pod, "node": f"node-{slot:02d}"}
            prometheus.add("kube_pod_info", runs, at, np.where(there, 1.0, np.nan))
    for slot in range(MOST):
        kind = {"node": f"node-{slot:02d}", "label_node_kubernetes_io_instance_type": example.instance}
        prometheus.add("kube_node_labels", kind, times, np.ones(len(times)))
    deployment = {"namespace": "shop", "deployment": example.name}
    prometheus.add("kube_deployment_status_replicas_available", deployment, times, replicas)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--port", type=int, default=9090)
    parser.add_argument("--days", type=float, default=30.0)
    parser.add_argument("--vllm", action="store_true")
    args = parser.parse_args()
    example = LLAMA if args.vllm else RANKER
    try:
        emulated = EmulatedPrometheus(port=args.port)
    except OSError as error:
        parser.error(f"--port {args.port} cannot be used: {error.strerror}; name another one")
    with emulated as prometheus:
        fill(prometheus, math.floor(time.time() / SCRAPE_S) * SCRAPE_S + AHEAD_S, args.days, example=example)
        print(f"a month of shop/{example.name} at {prometheus.url}; Ctrl-C ends it", flush=True)
        with contextlib.suppress(KeyboardInterrupt):
            prometheus.wait()


if __name__ == "__main__":
    main()
