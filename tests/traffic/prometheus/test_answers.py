"""Answers of Prometheus become series, and invalid answers are refused by name."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest

from mark.domain.errors import BadInput
from mark.traffic.prometheus.answers import Pages, PromAnswer, PromSeries, Unanswered, parse_answer, summed


def _matrix(*series: tuple[dict[str, str], list[tuple[float, str]]], **more: Any) -> bytes:
    result = [{"metric": labels, "values": values} for labels, values in series]
    return json.dumps({"status": "success", "data": {"resultType": "matrix", "result": result}, **more}).encode()


def _series(values: list[float], first_s: float = 0.0, **labels: str) -> PromSeries:
    return PromSeries(labels, np.array([first_s + 60.0 * place for place in range(len(values))]), np.array(values))


def test_matrix_becomes_series_with_times_and_values() -> None:
    (found,) = parse_answer(_matrix(({"pod": "a"}, [(60.0, "1.5"), (120.0, "2")])), "here").series
    assert found.labels == {"pod": "a"}
    assert found.times_s.tolist() == [60.0, 120.0]
    assert found.values.tolist() == [1.5, 2.0]


@pytest.mark.parametrize("value", ["NaN", "+Inf", "-Inf"])
def test_point_without_a_finite_value_becomes_a_gap_and_is_counted(value: str) -> None:
    found = parse_answer(_matrix(({}, [(60.0, "1"), (120.0, value), (180.0, "3")])), "here")
    assert found.series[0].times_s.tolist() == [60.0, 180.0]
    assert found.undefined == 1


def test_series_without_any_finite_value_is_no_series() -> None:
    assert parse_answer(_matrix(({}, [(60.0, "NaN")])), "here").series == ()


def test_scalar_and_vector_are_read_as_one_point_each() -> None:
    scalar = {"status": "success", "data": {"resultType": "scalar", "result": [60.0, "7"]}}
    vector = {"status": "success", "data": {"resultType": "vector", "result": [{"metric": {}, "value": [60.0, "7"]}]}}
    for whole in (scalar, vector):
        assert parse_answer(json.dumps(whole).encode(), "here").series[0].values.tolist() == [7.0]


def test_error_of_the_query_is_refused_with_its_reason() -> None:
    body = b'{"status":"error","errorType":"bad_data","error":"parse error"}'
    with pytest.raises(BadInput, match="refuses the query: bad_data: parse error") as found:
        parse_answer(body, "here")
    assert not isinstance(found.value, Unanswered)


@pytest.mark.parametrize("kind", ["timeout", "unavailable", "internal", "canceled"])
def test_error_of_the_server_may_be_asked_again(kind: str) -> None:
    with pytest.raises(Unanswered, match=kind):
        parse_answer(json.dumps({"status": "error", "errorType": kind, "error": "x"}).encode(), "here")


@pytest.mark.parametrize(
    "more", [{"isPartial": True}, {"warnings": ["partial response: store timed out"]}, {"warnings": ["truncated"]}]
)
def test_part_of_an_answer_is_no_answer(more: dict[str, Any]) -> None:
    with pytest.raises(Unanswered, match="not complete"):
        parse_answer(_matrix(({}, [(60.0, "1")]), **more), "here")


def test_other_warnings_are_kept() -> None:
    assert parse_answer(_matrix(warnings=["metric might not be a counter"]), "here").warnings == (
        "metric might not be a counter",
    )


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"<html>",
        b"[]",
        b'{"status":"success"}',
        b'{"status":"success","data":{"resultType":"string","result":[0,"a"]}}',
        b'{"status":"success","data":{"resultType":"matrix","result":[{"values":[[0,"1"]]}]}}',
        b'{"status":"success","data":{"resultType":"matrix","result":[{"metric":{},"values":[[0,"one"]]}]}}',
        b'{"status":"success","data":{"resultType":"vector","result":[{"metric":{},"value":7}]}}',
    ],
)
def test_other_answers_are_refused(body: bytes) -> None:
    with pytest.raises(BadInput, match="here"):
        parse_answer(body, "here")


def test_pages_join_the_series_of_equal_labels() -> None:
    pages = Pages()
    pages.add(PromAnswer((_series([1.0, 2.0], pod="a"), _series([9.0], pod="b")), ("w",), 1))
    pages.add(PromAnswer((_series([3.0], 120.0, pod="a"),), ("w",), 2))
    found = pages.joined()
    assert {one.labels["pod"]: one.values.tolist() for one in found.series} == {"a": [1.0, 2.0, 3.0], "b": [9.0]}
    assert found.warnings == ("w",)
    assert found.undefined == 3


def test_series_of_several_pods_are_added_also_where_a_deployment_renames_them() -> None:
    times, values = summed(PromAnswer((_series([1.0, 2.0], pod="a"), _series([5.0, 6.0], 60.0, pod="b"))), "here")
    assert times.tolist() == [0.0, 60.0, 120.0]
    assert values.tolist() == [1.0, 7.0, 6.0]


def test_two_servers_that_scrape_the_same_pods_count_once() -> None:
    pair = [_series(values, pod="a", prometheus_replica=name) for name, values in (("0", [1.0, 2.0]), ("1", [1.1]))]
    times, values = summed(PromAnswer((*pair, _series([10.0, 10.0], pod="b"))), "here")
    assert times.tolist() == [0.0, 60.0]
    assert values.tolist() == [11.1, 12.0]


def test_sum_of_no_series_is_refused() -> None:
    with pytest.raises(BadInput, match="no answer in this time"):
        summed(PromAnswer(), "--query-rate")
