"""Finds the metric that counts the requests of a workload, by trying, and the queries that read it.

A workload is chosen only without doubt: several candidates with traffic are an error that names them.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from mark.domain.errors import BadInput
from mark.domain.load_unit import REQUESTS as REQUESTS_UNIT
from mark.domain.load_unit import LoadUnit, checked_unit
from mark.domain.time import DAY_S
from mark.traffic.prometheus.answers import POD_LABELS, REPLICA_LABELS, PromAnswer
from mark.traffic.prometheus.known import INSTANCE_LABEL, NODES, PODS, READY, REQUESTS, RequestMetric

SCRAPED = "count(up)"  # has points while Prometheus itself scrapes
STEPS_S = (60.0, 120.0, 300.0)  # a rate needs two scrapes within the step
_SCRAPES = 0.95  # of two scrapes within each step: one in twenty may come late
_SEARCH_S = DAY_S  # a candidate has had requests within a day
_POD_NAMES = ("pod", "pod_name", "k8s_pod_name")
# If an exporter reports requests of others, `namespace` is the exporter's and the workload's has another name.
_NAMESPACES = ("exported_namespace", "destination_workload_namespace", "namespace_name", "namespace")
# Pods of a Deployment (a Knative revision has one too) or of a StatefulSet.
_OF_WORKLOAD = "{}(-[0-9]{{5}}-deployment)?-[a-z0-9]{{5,10}}-[a-z0-9]{{5}}|{}-[0-9]+"
# Of Thanos and Mimir `replica` often names the Prometheus server, but Ray Serve's metrics have it themselves.
_SCRAPERS = (("job",), ("instance",), ("job", "instance"), ("replica",))
_OF_TARGETS = ("container", "endpoint", "service")  # labels that a scraper adds beside its job
_OF_EXPORTER = (
    "job",
    "instance",
    "pod",
    "node",
    "uid",
    *_OF_TARGETS,
    "WorkerId",
    "Component",
    "NodeAddress",
    "Version",
)
_ALIKE = 0.02  # counts of two scrapers of one target differ by less
_FEW = 50.0  # requests: below this equal counts prove nothing
_MOST_NAMED = 6
_BY_PODS = "pods that export"
_MATCHER = re.compile(r'\s*[A-Za-z_][A-Za-z0-9_]*\s*(=~|!~|!=|=)\s*"(?:[^"\\]|\\.)*"\s*')


class MetricsReader(Protocol):
    """The source of metrics.

    Both methods may be repeated. They raise Unanswered if the server does not answer, or not in full, and BadInput if
    it refuses the query.
    """

    def query(self, promql: str, at_s: float) -> PromAnswer:
        """Return the value of each series at a Unix time."""
        ...

    def query_range(self, promql: str, start_s: float, end_s: float, step_s: float) -> PromAnswer:
        """Return the values of each series at `start_s` and every `step_s` from there on, `end_s` included."""
        ...


class TimedReader(MetricsReader, Protocol):
    """A reader that knows the server's clock."""

    def now_s(self) -> float:
        """Return the server's Unix time. Raises as `query` does."""
        ...


@dataclass(frozen=True, slots=True)
class Asked:
    """The user's settings of the workload. `select` holds label matchers for every metric; queries are PromQL.

    `unit` is what the rate counts (None: as `metric` does, otherwise requests), and `unit_size` how many a request has
    (None: to be counted).
    """

    workload: str | None = None
    metric: str | None = None
    select: str = ""
    rate: str | None = None
    replicas: str | None = None
    latency: str | None = None
    unit: str | None = None
    unit_size: float | None = None


@dataclass(frozen=True, slots=True)
class Workload:
    """A workload and the queries that read it.

    `rate` gives requests/s, `buckets` cumulative requests/s by `le` (None without a histogram), whose bounds are in
    `bound_s` seconds, and `replicas` the ready replicas. In `rate` and `buckets` `{window}` stands for the step. `pods`
    gives a series for each pod by `pod_label`, if the replicas themselves export the metric. `scrapes` counts the
    scrapes of STEPS_S[-1], and is empty for queries of the user's own. `exporting` counts the workload's own pods that
    export the metric, and `targets` is the share of its targets that answer; both may be empty. `counted_by` says in
    words which metric counts the requests, `ready_by` which one counts the replicas. In another `unit` than requests
    the rate counts this unit.
    """

    name: str
    namespace: str
    rate: str
    replicas: str
    buckets: str | None
    bound_s: float
    counted_by: str
    ready_by: str
    notes: tuple[str, ...] = ()
    pods: str | None = None
    pod_label: str = ""
    scrapes: str = ""
    pods_are_replicas: bool = False  # nothing else counts them
    exporting: str = ""
    targets: str = ""
    unit: LoadUnit = REQUESTS_UNIT

    def rate_query(self, step_s: float) -> str:
        return self.rate.replace("{window}", f"{step_s:.0f}s")

    def buckets_query(self, step_s: float) -> str | None:
        return None if self.buckets is None else self.buckets.replace("{window}", f"{step_s:.0f}s")


@dataclass(frozen=True, slots=True)
class _Candidate:
    metric: RequestMetric
    label: str
    name: str
    namespace: str
    namespace_label: str

    def __str__(self) -> str:
        place = f"{self.namespace}/{self.name}" if self.namespace else self.name
        return f"{place} by {self.metric.name}"


def check_select(select: str) -> str:
    """Return the matchers, as `namespace="shop",app=~"rank.*"`. Raises BadInput for any other form."""
    text = select.strip().removeprefix("{").removesuffix("}").strip().removesuffix(",")
    rest = text
    while rest:
        found = _MATCHER.match(rest)
        if found is None or (rest[found.end() :] and rest[found.end()] != ","):
            raise BadInput('must be label matchers, as in namespace="shop",app="ranker"', "--select", select)
        rest = rest[found.end() + 1 :]
    return text


def find_workload(reader: MetricsReader, asked: Asked, end_s: float) -> Workload:
    """Return the requested workload, or the only one with requests in the day before `end_s`.

    Raises BadInput for no or several workloads, and the errors of the reader.
    """
    select = check_select(asked.select)
    if asked.rate is not None:
        return _own_queries(asked)
    chosen = _chosen(_candidates(reader, asked, select, end_s), asked)
    matchers = ",".join(filter(None, (chosen.metric.match, select, f'{chosen.label}="{_quoted(chosen.name)}"')))
    if chosen.namespace:
        matchers += f',{chosen.namespace_label}="{_quoted(chosen.namespace)}"'
    counters = [f"{name}{{{matchers}}}" for name in chosen.metric.counters]
    counter = counters[0]
    dropped, pod, jobs, note = _scrapers(reader, counter, chosen.metric.own_labels, end_s)
    without = f"max without ({','.join(dropped)}) "

    replicas, ready_by = _replicas(reader, asked, chosen, select, counter, pod, dropped, end_s)
    buckets, latency_notes = _buckets(reader, asked, chosen.metric, matchers, without, end_s)
    own = re.escape(chosen.name)
    of_own = f'{pod}=~"{_quoted(_OF_WORKLOAD.format(own, own))}"'
    by_pod = chosen.metric.by_replica and pod in _POD_NAMES
    pods_are_replicas = ready_by.startswith(_BY_PODS)
    unit, unit_notes = _unit(reader, asked, chosen.metric, counters, matchers, without, end_s)
    return Workload(
        name=chosen.name,
        namespace=chosen.namespace,
        rate=" + ".join(f"sum({without}(rate({one}[{{window}}])))" for one in counters),
        replicas=replicas,
        buckets=buckets,
        bound_s=chosen.metric.bound_s if asked.latency is None else 1.0,
        counted_by=" + ".join(counters),
        ready_by=ready_by,
        notes=(*note, *latency_notes, *unit_notes),
        pods=f"count by ({pod}) ({counter})" if by_pod else None,
        pod_label=pod or "",
        scrapes=f"max(count_over_time({counter}[{STEPS_S[-1]:.0f}s]))",
        pods_are_replicas=pods_are_replicas,
        # Other pods may export it too: a waypoint proxy reports the requests of the pods behind it.
        exporting=f"count(count by ({pod}) ({counter[:-1]},{of_own}}}))" if by_pod and not pods_are_replicas else "",
        targets=f'avg(up{{job=~"{_quoted("|".join(map(re.escape, jobs)))}"}})' if jobs else "",
        unit=unit,
    )


def rate_step(reader: MetricsReader, workload: Workload, end_s: float) -> float | None:
    """The finest step that has two scrapes of each replica; None where even the longest has fewer.

    In a shorter step only some replicas have two scrapes, so that the sum of their rates is too low.
    """
    if not workload.scrapes:
        return STEPS_S[0]
    answer = reader.query_range(workload.scrapes, end_s - _SEARCH_S, end_s, STEPS_S[-1])
    scrapes = float(np.median(answer.series[0].values)) if answer.series else 0.0
    return next((step_s for step_s in STEPS_S if scrapes * step_s >= 2.0 * _SCRAPES * STEPS_S[-1]), None)


def instance_types(
    reader: MetricsReader, workload: Workload, select: str, at_s: float
) -> tuple[dict[str, int], dict[str, int]]:
    """Return the workload's pods by instance type at a time, and their nodes; empty if Prometheus does not know."""
    place = f'namespace="{_quoted(workload.namespace)}"' if workload.namespace else ""
    pods = reader.query(f"max by (node,pod) ({PODS}{{{','.join(filter(None, (select, place)))}}})", at_s)
    nodes = reader.query(f"max by (node,{INSTANCE_LABEL}) ({NODES})", at_s)
    types = {one.labels.get("node", ""): one.labels.get(INSTANCE_LABEL, "") for one in nodes.series}
    name = re.escape(workload.name)
    named = re.compile(_OF_WORKLOAD.format(name, name))
    own = {pod for one in pods.series if named.fullmatch(pod := one.labels.get("pod", ""))}
    if not own and workload.pods is not None:
        # The workload is not named like its Deployment, for example a model that vLLM serves.
        own = {one.labels.get(workload.pod_label, "") for one in reader.query(workload.pods, at_s).series}
    by_type: dict[str, int] = {}
    hosts: dict[str, set[str]] = {}
    for one in pods.series:
        node = one.labels.get("node", "")
        if (kind := types.get(node)) and one.labels.get("pod", "") in own:
            by_type[kind] = by_type.get(kind, 0) + 1
            hosts.setdefault(kind, set()).add(node)
    return by_type, {kind: len(found) for kind, found in hosts.items()}


def _own_queries(asked: Asked) -> Workload:
    """Return a workload by the user's own PromQL, which must include the rate."""
    assert asked.rate is not None
    if asked.metric is not None:
        raise BadInput("is not looked for where --query-rate is given: name one of both", "--metric", asked.metric)
    if re.search(r"\bincrease\s*\(", asked.rate):
        raise BadInput("gives requests of a window; write rate(...), which is per second", "--query-rate", asked.rate)
    if asked.replicas is None:
        raise BadInput(
            "is needed beside --query-rate, as sum(kube_deployment_status_replicas_available{...})",
            "--query-replicas",
            "nothing",
        )
    unit = REQUESTS_UNIT
    if asked.unit not in (None, unit.name):
        if asked.unit_size is None:
            raise BadInput(
                f"is needed beside --query-rate: the mean {asked.unit} of a request", "--unit-size", "nothing"
            )
        unit = checked_unit(asked.unit, asked.unit_size, "--")
    return Workload(
        name=asked.workload or "workload",
        namespace="",
        rate=asked.rate,
        replicas=asked.replicas,
        buckets=asked.latency,
        bound_s=1.0,
        counted_by=f"--query-rate {asked.rate}",
        ready_by="--query-replicas",
        unit=unit,
    )


def _candidates(reader: MetricsReader, asked: Asked, select: str, end_s: float) -> list[_Candidate]:
    """Return the workloads with requests in the last day, the busiest first."""
    names = [metric.name for metric in REQUESTS]
    if asked.metric is not None and asked.metric not in names:
        raise BadInput(f"must be one of {', '.join(names)}", "--metric", asked.metric, known=names)
    metrics = _tried(asked)
    found: dict[_Candidate, float] = {}
    for metric in metrics:
        matchers = ",".join(filter(None, (metric.match, select)))
        labels = ",".join((*metric.workload, *_NAMESPACES))
        answer = reader.query(f"sum by ({labels}) (increase({metric.requests}{{{matchers}}}[{_SEARCH_S:.0f}s]))", end_s)
        for one in answer.series:
            label = next((label for label in metric.workload if one.labels.get(label)), None)
            requests = float(one.values[-1])
            if label is not None and requests >= 1.0:
                place = next((place for place in _NAMESPACES if one.labels.get(place)), "")
                candidate = _Candidate(metric, label, one.labels[label], one.labels.get(place, ""), place)
                found[candidate] = found.get(candidate, 0.0) + requests
    return sorted(found, key=lambda one: (-found[one], str(one)))


def _tried(asked: Asked) -> list[RequestMetric]:
    """Return the metrics that may count the load: all of its unit, or the one that was named."""
    if asked.metric is None:
        units = list(dict.fromkeys(metric.unit for metric in REQUESTS))
        if asked.unit not in (None, *units):
            what = f"no known metric counts it, only {' and '.join(units)}: say the load by --query-rate"
            raise BadInput(what, "--unit", asked.unit, known=units)
        return [metric for metric in REQUESTS if metric.unit == (asked.unit or REQUESTS_UNIT.name)]
    (named,) = (metric for metric in REQUESTS if metric.name == asked.metric)
    if asked.unit not in (None, named.unit):
        raise BadInput(f"counts {named.unit}, and the load is in {asked.unit}", "--metric", asked.metric)
    return [named]


def _unit(
    reader: MetricsReader,
    asked: Asked,
    metric: RequestMetric,
    counters: Sequence[str],
    matchers: str,
    without: str,
    end_s: float,
) -> tuple[LoadUnit, tuple[str, ...]]:
    """Return the unit of the load, with the mean size of the last day's requests unless it was said, and notes."""
    if metric.unit == REQUESTS_UNIT.name:
        return REQUESTS_UNIT, ()
    if asked.unit_size is not None:
        return checked_unit(metric.unit, asked.unit_size, "--"), ()
    sums = []
    for counter in (f"{metric.of}{{{matchers}}}", *counters):
        answer = reader.query(f"sum({without}(increase({counter}[{_SEARCH_S:.0f}s])))", end_s)
        sums.append(float(answer.series[0].values[-1]) if answer.series else 0.0)
    requests, counted = sums[0], sum(sums[1:])
    if not (requests >= 1.0 and counted > 0.0):
        what = f"{metric.of} counts no requests in the last day: say the mean {metric.unit} of a request"
        raise BadInput(what, "--unit-size", "nothing")
    unit = checked_unit(metric.unit, counted / requests, "--")
    return unit, (f"a request has {unit.size:.4g} {unit.name} on average, by {metric.of} of the last day",)


def _chosen(found: Sequence[_Candidate], asked: Asked) -> _Candidate:
    if asked.workload is not None:
        place = asked.workload.rpartition("/")
        named = [one for one in found if one.name == place[2] and place[0] in ("", one.namespace)]
        if not named and found:
            what = f"has no requests in the last day; there are {_listed(found)}"
            raise BadInput(what, "--workload", asked.workload, known=[one.name for one in found])
        found = named
    if not found:
        tried = ", ".join(dict.fromkeys(metric.requests for metric in _tried(asked)))
        what = f"no metric counts {asked.unit or 'requests'} in the last day (tried {tried})"
        what += ": say --query-rate and --query-replicas"
        raise BadInput(what, "--prometheus")
    if len(found) == 1:
        return found[0]
    if len({(one.namespace, one.name) for one in found}) == 1:
        raise BadInput(f"several metrics count its requests, name one: {_listed(found)}", "--metric", "nothing")
    raise BadInput(f"several workloads have requests, name one: {_listed(found)}", "--workload", "nothing")


def _listed(found: Sequence[_Candidate]) -> str:
    more = f", and {len(found) - _MOST_NAMED} more" if len(found) > _MOST_NAMED else ""
    return ", ".join(map(str, found[:_MOST_NAMED])) + more


def _scrapers(
    reader: MetricsReader, counter: str, own: tuple[str, ...], end_s: float
) -> tuple[tuple[str, ...], str | None, tuple[str, ...], tuple[str, ...]]:
    """Return labels that only distinguish scrapers of one target, the label of replicas, scrape jobs and notes.

    Two jobs that scrape the same pods count each request twice. Equal counts in every pod show it, because two
    different processes would have different counts.
    """
    labels = (*POD_LABELS, "namespace", "job", *REPLICA_LABELS)
    answer = reader.query(f"sum by ({','.join(labels)}) (increase({counter}[{_SEARCH_S:.0f}s]))", end_s)
    rows = [(dict(one.labels), float(one.values[-1])) for one in answer.series]
    pod = next((label for label in POD_LABELS if rows and all(row.get(label) for row, _ in rows)), None)
    jobs = tuple(sorted({row["job"] for row, _ in rows if row.get("job")}))
    rows = _merged(rows, REPLICA_LABELS)
    for some in _SCRAPERS:
        if pod not in some and not set(some) & set(own) and _counted_twice(rows, some):
            values = sorted({row.get(some[0], "") for row, _ in rows})
            note = f"{some[0]} {' and '.join(values)} scrape the same pods: their requests count once"
            return tuple(dict.fromkeys((*REPLICA_LABELS, *some, *_OF_TARGETS))), pod, jobs, (note,)
    return REPLICA_LABELS, pod, jobs, ()


def _merged(rows: Sequence[tuple[dict[str, str], float]], dropped: Sequence[str]) -> list[tuple[dict[str, str], float]]:
    """Return the highest value of rows that are equal except in `dropped`."""
    found: dict[tuple[tuple[str, str], ...], float] = {}
    for labels, value in rows:
        key = tuple(sorted((name, text) for name, text in labels.items() if name not in dropped))
        found[key] = max(value, found.get(key, 0.0))
    return [(dict(key), value) for key, value in found.items()]


def _counted_twice(rows: Sequence[tuple[dict[str, str], float]], dropped: Sequence[str]) -> bool:
    groups: dict[tuple[tuple[str, str], ...], list[float]] = {}
    for labels, value in rows:
        key = tuple(sorted((name, text) for name, text in labels.items() if name not in dropped))
        groups.setdefault(key, []).append(value)
    shared = [values for values in groups.values() if len(values) > 1 and max(values) >= _FEW]
    return bool(shared) and all(max(values) - min(values) <= _ALIKE * max(values) for values in shared)


def _replicas(
    reader: MetricsReader,
    asked: Asked,
    chosen: _Candidate,
    select: str,
    counter: str,
    pod: str | None,
    dropped: tuple[str, ...],
    end_s: float,
) -> tuple[str, str]:
    """Return the query of the ready replicas, and the metric that counts them."""
    if asked.replicas is not None:
        return asked.replicas, "--query-replicas"
    for ready in READY:
        pattern = ready.named.format(re.escape(chosen.name)) if ready.named != "{}" else None
        match = f'{ready.label}="{_quoted(chosen.name)}"' if pattern is None else f'{ready.label}=~"{_quoted(pattern)}"'
        place = f'namespace="{_quoted(chosen.namespace)}"' if chosen.namespace and "namespace" not in select else ""
        metric = f"{ready.metric}{{{','.join(filter(None, (select, match, place)))}}}"
        # Of two exporters, or one before and after its restart, each sees all replicas of its cluster.
        replicas = f"max without ({','.join(dict.fromkeys((*dropped, *_OF_EXPORTER)))}) ({metric})"
        found = reader.query(f"max by (namespace) (max_over_time({metric}[{_SEARCH_S:.0f}s]))", end_s)
        if len(found.series) > 1:
            places = ", ".join(sorted(one.labels.get("namespace", "") for one in found.series))
            raise BadInput(
                f"{ready.metric} has {chosen.name} in several namespaces ({places}): choose one",
                "--select",
                asked.select or "nothing",
            )
        if found.series and float(found.series[0].values[-1]) > 0.0:
            return f"sum({replicas})", metric
    if chosen.metric.by_replica and pod is not None:
        return f"count(count by ({pod}) ({counter}))", f"{_BY_PODS} {chosen.metric.requests} ({pod})"
    what = f"no metric counts the ready replicas of {chosen.name}; say --query-replicas"
    raise BadInput(what, "--prometheus", ", ".join(dict.fromkeys(ready.metric for ready in READY)))


def _buckets(
    reader: MetricsReader, asked: Asked, metric: RequestMetric, matchers: str, without: str, end_s: float
) -> tuple[str | None, tuple[str, ...]]:
    """Return the query of the latency histogram, or None, and notes."""
    if asked.latency is not None:
        return asked.latency, ()
    buckets = f"{metric.buckets}_bucket{{{matchers}}}"
    found = reader.query(f"sum by (le) (increase({buckets}[{_SEARCH_S:.0f}s]))", end_s)
    if not found.series:
        return None, (f"{metric.buckets}_bucket has no points: how often requests were late is not known",)
    return f"sum by (le) ({without}(rate({buckets}[{{window}}])))", ()


def _quoted(text: str) -> str:
    return text.replace("\\", "\\\\").replace('"', '\\"')
