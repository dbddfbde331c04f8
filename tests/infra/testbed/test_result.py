"""The results of a load, counted by hand."""

from __future__ import annotations

import math

import numpy as np
import pytest
from mark_infra.testbed.load_generator import LoadReplay, Sent
from mark_infra.testbed.result import ReplayedTrace, result, thinned

from mark.domain.slo import Slo

BEFORE = {
    "bill_usd": {"on_demand": 1.0, "total": 1.5, "other": 0.5},
    "launched": 1, "terminated": 0, "interrupted": 0, "peak_instances": 1, "instance_hours": {"a": 1.0},
}  # fmt: skip
AFTER = {
    "bill_usd": {"on_demand": 1.25, "total": 2.0, "other": 0.75},
    "launched": 4, "terminated": 1, "interrupted": 2, "peak_instances": 3, "instance_hours": {"a": 1.5, "b": 0.25},
}  # fmt: skip


def sent(due_s: float, latency_s: float, status: int, by: str) -> Sent:
    return Sent(0, due_s, due_s + 0.001, due_s + latency_s, status, by)


def told(*requests: Sent) -> dict[str, object]:
    return result(
        "s", Slo(0.1, 0.5), ReplayedTrace("t", 120.0), 7, LoadReplay(0.0, list(requests)), BEFORE, AFTER, wall_s=2.0
    )


def test_requests_are_counted_by_answerer_and_minute() -> None:
    data = told(
        sent(0.0, 0.1, 200, "instance"),  # exactly in time
        sent(1.0, 0.2, 200, "function"),  # late
        sent(2.0, 0.05, 429, "nobody"),
        sent(61.0, math.nan, 0, "gone"),
        sent(62.0, 0.05, 500, "instance"),  # an error, which is no answer
        sent(63.0, 0.01, 200, "cache"),  # an instance's cache
    )
    assert data["requests"] == {"total": 6, "instances": 2, "functions": 1, "rejected": 3}
    assert data["slo"] == {
        "rt_max_ms": 100.0, "target": 0.5, "attainment": pytest.approx(2 / 6),
        "worst_minute_attainment": pytest.approx(1 / 3), "minutes_below_target": 2,
    }  # fmt: skip
    assert data["missed"] == {"instances": 0, "functions": 1, "rejected": 3}
    latency = data["latency_ms"]
    assert isinstance(latency, dict)
    assert (latency["p50"], latency["max"]) == (pytest.approx(100.0), pytest.approx(200.0))
    assert data["bill_usd"] == {"on_demand": 0.25, "total": 0.5, "other": 0.25}
    assert data["fleet"] == {
        "launched": 3, "terminated": 1, "interrupted": 2, "peak_instances": 3, "instance_hours": {"a": 0.5, "b": 0.25},
    }  # fmt: skip
    assert (data["unanswered"], data["answered_twice"], data["world"]) == (1, 0, "testbed")


def test_queries_are_counted_by_what_became_of_each_stage() -> None:
    said = ("a=1;b=4/function", "a=1;b=9", "a=1/refused", "a=2;b=3/function", "")
    queries = [Sent(n, n, n, n + 0.1, 200, "instance", stages) for n, stages in enumerate(said)]
    account = {"invocations": 3, "usd": 0.5, "throttled": 1}
    told_of = {"function_of": {"p-b": "f-b", "other": "f-other"}}
    before = {**BEFORE, **told_of, "functions": {"f-b": account, "f-other": account}}
    after = {**AFTER, **told_of, "functions": {"f-b": {**account, "invocations": 6, "usd": 0.75}, "f-other": account}}
    data = result(
        "p", Slo(0.1, 0.5), ReplayedTrace("t", 120.0), 7, LoadReplay(0.0, queries), before, after,
        wall_s=2.0, stages={"a": "p-a", "b": "p-b"},
    )  # fmt: skip
    none = dict.fromkeys(("instances", "functions", "cache", "late", "failed", "refused", "unused"), 0)
    assert data["stages"] == [
        {"stage": "a", "queries": 4, **none, "instances": 3, "refused": 1, "function_calls": 0, "function_usd": 0},
        {"stage": "b", "queries": 3, **none, "instances": 1, "functions": 2, "function_calls": 3, "function_usd": 0.25},
    ]
    assert "stages" not in told()


def test_answers_by_reconstruction_are_counted_where_there_are_parity_models() -> None:
    requests = [sent(0.0, 0.05, 200, by) for by in ("instance", "reconstruction", "reconstruction", "function")]
    looks = [look | {"functions": {}, "function_of": {}} for look in (BEFORE, AFTER)]
    names = {"model": "s-model", "parity": "s-parity"}
    replay = LoadReplay(0.0, requests)
    data = result("s", Slo(0.1, 0.5), ReplayedTrace("t", 1.0), 7, replay, *looks, wall_s=2.0, stages=names)
    assert data["parity"] == {"reconstructed": 2, "degraded_share": 0.5}
    assert data["requests"] == {"total": 4, "instances": 3, "functions": 1, "rejected": 0}
    assert [stage["stage"] for stage in data["stages"]] == ["model"], "no query calls a parity model by itself"
    assert "parity" not in told(*requests)


def test_without_requests_nothing_is_known() -> None:
    data = told()
    assert data["requests"] == {"total": 0, "instances": 0, "functions": 0, "rejected": 0}
    assert data["latency_ms"] == dict.fromkeys(("mean", "p50", "p95", "p98", "p99", "p999", "max"))


@pytest.mark.parametrize("scale", [1.0, 2.0, 2.5, 10.0])
def test_compressed_time_keeps_the_rate(scale: float) -> None:
    """Requests per second stay the same over the shorter span."""
    times_s = np.arange(1000) / 10.0
    kept = thinned(times_s, scale)
    assert len(kept) == pytest.approx(1000 / scale, abs=1)
    assert kept[0] == 0.0
    assert kept[-1] <= 100.0 / scale
    assert np.diff(kept).mean() == pytest.approx(0.1, rel=0.01)
    assert set(np.round(kept * scale, 9)) <= set(np.round(times_s, 9))
