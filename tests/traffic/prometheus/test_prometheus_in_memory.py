"""The emulated Prometheus answers as the real one documents it; the client's tests ask it over HTTP."""

from __future__ import annotations

import json

import numpy as np
import pytest

from tests.prometheus import MOST_POINTS, EmulatedPrometheus

T = np.arange(0.0, 600.0, 30.0)


@pytest.fixture
def emulated() -> EmulatedPrometheus:
    with EmulatedPrometheus() as prometheus:
        prometheus.add("load", {"pod": "a"}, T, T)
        return prometheus


def test_labels_and_series_are_listed(emulated: EmulatedPrometheus) -> None:
    status, labels = emulated.answer("/api/v1/labels", {}, None)
    assert (status, json.loads(labels)["data"]) == (200, ["__name__", "pod"])
    _, series = emulated.answer("/api/v1/series", {"match[]": 'load{pod="a"}', "end": "300"}, None)
    assert json.loads(series)["data"] == [{"__name__": "load", "pod": "a"}]


@pytest.mark.parametrize(("points", "status"), [(MOST_POINTS, 200), (MOST_POINTS + 1, 400)])
def test_more_points_than_a_real_one_gives_are_refused(points: int, status: int, emulated: EmulatedPrometheus) -> None:
    asked = {"query": "load", "start": "0", "end": str(points - 1), "step": "1"}
    found, body = emulated.answer("/api/v1/query_range", asked, None)
    assert found == status
    assert ("exceeded maximum resolution" in body.decode()) == (status == 400)


def test_other_paths_and_absent_parameters_are_refused(emulated: EmulatedPrometheus) -> None:
    assert emulated.answer("/api/v1/rules", {}, None)[0] == 404
    assert emulated.answer("/api/v1/query", {"query": "load"}, None)[0] == 400
