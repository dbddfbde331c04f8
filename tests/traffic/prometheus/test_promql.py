"""The part of PromQL that the emulated Prometheus has, against values computed by hand."""

from __future__ import annotations

import numpy as np
import pytest

from tests.prometheus import PromqlError, Stored, Vector, evaluate

T = np.arange(0.0, 601.0, 15.0)
AT = np.array([600.0])
SERIES = [
    Stored({"__name__": "hits", "pod": "a", "code": "200"}, T, 2.0 * T),
    Stored({"__name__": "hits", "pod": "b", "code": "200"}, T, 3.0 * T),
    Stored({"__name__": "hits", "pod": "b", "code": "500"}, T, 1.0 * T),
]


def _only(found: Vector) -> float:
    (values,) = found.values()
    return float(values[0])


def _by(found: Vector, label: str) -> dict[str, float]:
    return {dict(key).get(label, ""): float(values[0]) for key, values in found.items()}


@pytest.mark.parametrize(
    ("matchers", "pods"),
    [
        ('pod="a"', {"a"}),
        ('pod!="a"', {"b"}),
        ('pod=~"a|b"', {"a", "b"}),
        ('pod=~"."', {"a", "b"}),
        ('pod=~"", code="200"', set()),
        ('pod!~"b.*"', {"a"}),
        ('zone=""', {"a", "b"}),
    ],
)
def test_selector_keeps_the_series_that_match(matchers: str, pods: set[str]) -> None:
    assert set(_by(evaluate(f"hits{{{matchers}}}", SERIES, AT), "pod")) == pods


def test_rate_is_per_second_and_increase_of_the_window() -> None:
    assert _by(evaluate('rate(hits{code="200"}[1m])', SERIES, AT), "pod") == pytest.approx({"a": 2.0, "b": 3.0})
    assert _only(evaluate('increase(hits{pod="a"}[5m])', SERIES, AT)) == pytest.approx(600.0)


def test_rate_needs_two_samples_in_the_window() -> None:
    assert evaluate("rate(hits[10s])", SERIES, AT) == {}


def test_restart_of_a_counter_is_no_negative_rate() -> None:
    restarted = np.where(T < 300.0, 2.0 * T, 2.0 * (T - 300.0))
    one = [Stored({"__name__": "hits"}, T, restarted)]
    found = evaluate("rate(hits[1m])", one, np.arange(60.0, 601.0, 60.0))
    assert all(0.0 <= value <= 2.01 for value in next(iter(found.values())))


@pytest.mark.parametrize(("how", "value"), [("sum", 6.0), ("max", 3.0), ("min", 1.0), ("avg", 2.0), ("count", 3.0)])
def test_aggregation_over_all_series(how: str, value: float) -> None:
    assert _only(evaluate(f"{how}(rate(hits[1m]))", SERIES, AT)) == pytest.approx(value)


def test_aggregation_by_labels_on_either_side() -> None:
    for query in ("sum by (pod) (rate(hits[1m]))", "sum(rate(hits[1m])) by (pod)"):
        assert _by(evaluate(query, SERIES, AT), "pod") == pytest.approx({"a": 2.0, "b": 4.0})


def test_aggregation_without_labels_keeps_the_others() -> None:
    assert _by(evaluate("max without (code) (rate(hits[1m]))", SERIES, AT), "pod") == pytest.approx(
        {"a": 2.0, "b": 3.0}
    )


def test_sum_of_two_vectors_needs_both() -> None:
    assert _only(evaluate("sum(rate(hits[1m])) + sum(rate(hits[1m]))", SERIES, AT)) == pytest.approx(12.0)
    assert evaluate("sum(rate(hits[1m])) + sum(rate(misses[1m]))", SERIES, AT) == {}


def test_highest_value_of_a_window() -> None:
    one = [Stored({"__name__": "pods"}, T, np.where(T == 450.0, 9.0, 2.0))]
    assert _only(evaluate("max_over_time(pods[5m])", one, AT)) == 9.0
    assert _only(evaluate("max_over_time(pods[1m])", one, AT)) == 2.0


def test_samples_of_a_window_are_counted() -> None:
    one = [Stored({"__name__": "pods"}, T, np.where(T > 450.0, np.nan, 2.0))]
    assert evaluate("count_over_time(pods[1m])", one, AT) == {}
    assert _only(evaluate("count_over_time(pods[5m])", one, AT)) == 10.0


def test_target_that_is_gone_has_no_value() -> None:
    one = [Stored({"__name__": "pods"}, T, np.where(T > 300.0, np.nan, 2.0))]
    assert evaluate("pods", one, np.array([400.0])) == {}
    old = [Stored({"__name__": "pods"}, T[:5], np.full(5, 2.0))]
    assert evaluate("pods", old, np.array([60.0 + 299.0]))
    assert evaluate("pods", old, np.array([60.0 + 301.0])) == {}


@pytest.mark.parametrize(
    "query", ["sum(hits", "hits{pod=a}", 'hits{pod="a"', "rate(hits)", "hits)", "hits + 1", 'hits{pod=~"("}', ""]
)
def test_query_that_is_none_of_it_is_refused(query: str) -> None:
    with pytest.raises(PromqlError, match=r"parse error|expected"):
        evaluate(query, SERIES, AT)
