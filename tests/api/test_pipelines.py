"""The control API's view of pipelines whose stages are among its services."""

from __future__ import annotations

import re
from dataclasses import replace

import httpx
import pytest

from mark.domain.pipeline import Join, PipelineStage
from tests.api.conftest import client, served
from tests.api.fake_manager import NOON_UNIX_S, PARTS_MS, FakeManager, FakeQueries, digits, social

ONE = "/api/v1/pipelines/social"
STAGES = ["language", "vision", "translate", "categorise"]


def test_pipelines_are_listed_with_their_services(changer: httpx.Client) -> None:
    said = changer.get("/api/v1/pipelines").json()["pipelines"]
    assert [one["pipeline"] for one in said] == ["social", "digits"]
    assert said[0]["services"] == [f"social-{stage}" for stage in STAGES]
    services = changer.get("/api/v1/services").json()
    assert services["pipelines"] == ["social", "digits"]
    assert {name for one in said for name in one["services"]} < {one["service"] for one in services["services"]}


def test_a_pipeline_is_its_stages_services_put_together(changer: httpx.Client, manager: FakeManager) -> None:
    said = changer.get(ONE).json()
    assert (said["pipeline"], said["driver"], said["rt_max_ms"], said["target"]) == ("social", None, 300.0, 0.99)
    assert [(s["stage"], s["after"]) for s in said["stages"]] == [
        ("language", []), ("vision", []), ("translate", ["language"]), ("categorise", ["translate", "vision"]),
    ]  # fmt: skip
    assert {s["stage"]: s["slo"]["rt_max_ms"] for s in said["stages"]} == PARTS_MS
    assert said["longest_path_ms"] == 280.0
    assert said["queries_per_s"] == 151.0
    own = [changer.get(f"/api/v1/services/{s['service']}").json() for s in said["stages"]]
    assert said["usd_per_hour"] == pytest.approx(sum(one["usd_per_hour"] for one in own))
    assert said["usd_so_far"] == pytest.approx(sum(one["bill"]["total"] for one in own), rel=1e-4)
    assert said["instances"] == sum(one["instances"] for one in own)
    assert sum(s["dollar_share"] for s in said["stages"]) == pytest.approx(1.0, abs=1e-5)
    prices = [
        one["prices"]["usd_per_request"] * s["calls_per_query"] for one, s in zip(own, said["stages"], strict=True)
    ]
    assert said["usd_per_query"] == pytest.approx(sum(prices), rel=1e-4)
    assert said["usd_per_million_queries_now"] == pytest.approx(said["usd_per_hour"] / 151.0 / 3600.0 * 1e6, rel=1e-4)
    for one, stage in zip(own, said["stages"], strict=True):
        assert stage["overflow_share"] == pytest.approx(0.002, rel=0.01)
        assert sum(kind["count"] for kind in stage["running"]) == one["instances"]


def test_a_pipeline_is_told_by_its_stages_clock(changer: httpx.Client, manager: FakeManager) -> None:
    view = manager.views["social-vision"]
    manager.views["social-vision"] = replace(view, at_unix_s=view.at_unix_s + 5.0, at_s=360.0, time_scale=20.0)
    said = changer.get(ONE).json()
    assert (said["at_unix_s"], said["at_s"], said["time_scale"]) == (view.at_unix_s + 5.0, 360.0, 20.0)


def test_the_bottleneck_moves_with_the_numbers(changer: httpx.Client, manager: FakeManager) -> None:
    fullest = max(changer.get(ONE).json()["stages"], key=lambda stage: stage["used"])
    assert changer.get(ONE).json()["bottleneck"]["stage"] == fullest["stage"]
    view = manager.views["social-vision"]
    manager.views["social-vision"] = replace(view, slo=replace(view.slo, recent=0.97))
    said = changer.get(ONE).json()["bottleneck"]
    assert (said["stage"], said["why"]) == ("vision", "misses")
    assert said["headroom"] == pytest.approx(view.capacity_rps / 90.6, rel=1e-4)


def test_a_drawing_has_its_boxes_either_way(changer: httpx.Client) -> None:
    drawing = changer.get(ONE).json()["drawing"]
    assert set(drawing) == {"across", "down"}
    for at in drawing.values():
        assert len(at["boxes"]) == 4
        assert all(re.fullmatch(r"M[-\d.,]+([hv][\d.]+|C[-\d., ]+)", line) for line in at["lines"])
    assert drawing["down"]["width"] < 320.0 < drawing["across"]["width"]


def test_a_driver_keeps_graph_and_shares_to_itself(changer: httpx.Client) -> None:
    said = changer.get("/api/v1/pipelines/digits").json()
    assert said["driver"] == "digits:classify"
    unknown = ("drawing", "longest_path_ms", "queries_per_s", "usd_per_query", "usd_per_million_queries_now")
    assert [said[name] for name in unknown] == [None] * 5
    assert {(s["after"], s["join"], s["calls_per_query"]) for s in said["stages"]} == {(None, None, None)}
    assert said["usd_per_hour"] > 0.0


@pytest.mark.parametrize(("join", "deadline_ms"), [(Join(1, 0.04), 40.0), (Join(), None)])
def test_a_join_says_how_long_it_waits(manager: FakeManager, join: Join, deadline_ms: float | None) -> None:
    config = social()
    assert config.pipeline is not None
    *others, last = config.pipeline.stages
    joined = replace(config.pipeline, stages=(*others, PipelineStage(last.name, last.model, last.after, join)))
    with served(manager, None, pipelines=[replace(config, pipeline=joined)]) as url, client(url, None) as one:
        stages = one.get(ONE).json()["stages"]
    assert [stage["join"] for stage in stages[:3]] == [None] * 3
    assert stages[3]["join"] == {"least": 1, "deadline_ms": deadline_ms}


def test_whole_queries_are_told_now_and_over_time(manager: FakeManager) -> None:
    conducted = {"social": FakeQueries(manager.days["social-vision"])}
    pipelines = (social(), digits())
    with served(manager, None, pipelines=pipelines, conducted=conducted) as url, client(url, None) as one:
        said, past = one.get(ONE).json(), one.get(f"{ONE}/history", params={"hours": 1, "points": 60}).json()
        others = [one.get(f"/api/v1/pipelines/{name}/history") for name in ("digits", "inception")]
        refused = one.get(f"{ONE}/history", params={"hours": 25})
    assert said["queries"] == {
        "per_s": 148.3, "recent": 0.993, "recent_ms": 131.0, "recent_p50_ms": 118.0, "recent_p99_ms": 282.0,
    }  # fmt: skip
    assert said["queries_per_s"] == 148.3
    assert said["usd_per_million_queries_now"] == pytest.approx(said["usd_per_hour"] / 148.3 / 3600.0 * 1e6, rel=1e-4)
    assert (past["step_s"], past["start_unix_s"]) == (60.0, NOON_UNIX_S - 3600.0)
    assert {len(past[name]) for name in ("per_s", "attainment", "p50_ms", "p99_ms")} == {60}
    assert [(other.status_code, other.json() is None) for other in others] == [(200, True), (404, False)]
    assert refused.status_code == 400


def test_what_10_ms_cost_is_told_as_by_a_plan(changer: httpx.Client) -> None:
    """`mark plan` uses the same names."""
    said = changer.get(ONE).json()
    assert (said["queries"], said["promise"]["rps"]) == (None, 151.0)
    own, (less, more) = said["promise"], said["promise"]["other_slos"]
    assert (less["rt_max_ms"], more["rt_max_ms"]) == (290.0, 310.0)
    for other in (less, more):
        difference = other["usd_per_hour"] - own["usd_per_hour"]
        assert other["difference_usd_per_hour"] == pytest.approx(difference, abs=1e-5)
    assert own["usd_per_hour_per_ms"] == pytest.approx((less["usd_per_hour"] - more["usd_per_hour"]) / 20.0, abs=1e-6)
    assert own["usd_per_hour_per_ms"] > 0.0


def test_an_unknown_pipeline_is_none_of_the_services(changer: httpx.Client) -> None:
    for name in ("inception", "social-vision", "nothing"):
        answer = changer.get(f"/api/v1/pipelines/{name}")
        assert (answer.status_code, answer.json()) == (404, {"error": "no such pipeline"})


def test_nothing_of_a_pipeline_is_sent_twice(changer: httpx.Client, manager: FakeManager) -> None:
    etag = changer.get(ONE).headers["etag"]
    assert changer.get(ONE, headers={"if-none-match": etag}).status_code == 304
    manager.views["social-vision"] = replace(manager.views["social-vision"], rps=1.0)
    assert changer.get(ONE, headers={"if-none-match": etag}).status_code == 200


def test_a_pipeline_of_one_that_stands_by_is_empty(manager: FakeManager) -> None:
    """A controller shows services that it does not run in the same way."""
    for service in digits().stage_services():
        view = manager.views[service.name]
        slo = replace(view.slo, recent=None)
        manager.views[service.name] = replace(
            view, rps=None, capacity_rps=0.0, usd_per_hour=0.0, instances=(), plan=None, slo=slo, mode="standing by"
        )
    with served(manager, None, pipelines=[digits()]) as url, client(url, None) as one:
        said = one.get("/api/v1/pipelines/digits").json()
    assert (said["bottleneck"], said["instances"], said["usd_per_hour"]) == (None, 0, 0.0)
    assert {stage["mode"] for stage in said["stages"]} == {"standing by"}
