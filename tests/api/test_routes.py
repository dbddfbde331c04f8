"""The control API's answers, over a real server."""

from __future__ import annotations

import logging
import time
from dataclasses import replace

import httpx
import pytest

from mark.control.views import Limits
from mark.domain.fleet import Phase
from mark.domain.price_list import PromiseEstimate, SloPrice
from tests.api.conftest import client, served
from tests.api.fake_manager import MINUTES, OFFERS, FakeManager

ONE = "/api/v1/services/inception"


def test_a_service_is_shown_as_the_room_sees_it(changer: httpx.Client, manager: FakeManager) -> None:
    view, said = manager.view("inception"), changer.get(ONE).json()
    assert (said["service"], said["mode"], said["at_unix_s"]) == ("inception", "acting", view.at_unix_s)
    assert said["rps"] == pytest.approx(view.rps, rel=1e-5)
    assert said["capacity_rps"] == view.capacity_rps
    assert said["slo"]["error_budget_left"] == pytest.approx(0.48)
    assert said["troubles"] == list(view.conditions)
    assert said["limits"] == {"max_instances": 20, "max_usd_per_hour": 5.0}
    assert said["forecast"]["levels"] == [0.05, 0.25, 0.5, 0.75, 0.95]
    assert [len(row) for row in said["forecast"]["rps"]] == [60] * 5
    running = [i for i in view.instances if i.phase is not Phase.STOPPED]
    assert said["instances"] == len(running)
    assert sum(o["usd_per_hour"] for o in said["offers"]) == pytest.approx(view.usd_per_hour, abs=1e-5)


def test_the_bill_adds_up_and_is_given_per_million_requests(changer: httpx.Client, manager: FakeManager) -> None:
    view, said = manager.view("inception"), changer.get(f"{ONE}/bill").json()
    markets = ("on_demand", "spot", "burstable", "functions", "sagemaker", "other")
    assert sum(said[market] for market in markets) == pytest.approx(said["total"], abs=1e-4)
    assert said["usd_per_million_requests"] == pytest.approx(view.bill.total / view.requests * 1e6, rel=1e-5)
    assert view.rps is not None
    assert said["usd_per_million_requests_now"] == pytest.approx(view.usd_per_hour / view.rps / 3600 * 1e6, rel=1e-5)


def test_next_day_is_told_and_null_where_no_day_is_known(changer: httpx.Client) -> None:
    assert changer.get(ONE).json()["next_day"] == {
        "interval_90": [9.0, 21.0],
        "expected_usd": 14.0,
        "calibrated": False,
        "promise_kept": 0.93,
    }
    assert changer.get("/api/v1/services/translate").json()["next_day"] is None


def test_prices_are_told_and_null_where_they_are_not_known(changer: httpx.Client, manager: FakeManager) -> None:
    view, said = manager.view("inception"), changer.get(f"{ONE}/prices").json()
    assert said == {
        "usd_per_request": view.price_list.usd_per_request,
        "usd_per_miss": view.price_list.usd_per_miss,
        "promise": {
            "rps": pytest.approx(view.rps, rel=1e-5),
            "usd_per_hour": 0.61,
            "other_slos": [
                {"rt_max_ms": 237.5, "usd_per_hour": 0.68, "difference_usd_per_hour": 0.07},
                {"rt_max_ms": 262.5, "usd_per_hour": 0.61, "difference_usd_per_hour": 0.0},
            ],
            "usd_per_hour_per_ms": 0.0028,
        },
    }
    assert changer.get(ONE).json()["prices"] == said
    translate = manager.views["translate"]
    nothing_keeps = PromiseEstimate(3.0, None, (SloPrice(0.2, None), SloPrice(0.3, 0.5)))
    for promise in (None, nothing_keeps):
        manager.views["translate"] = replace(translate, promise=promise)
        said = changer.get("/api/v1/services/translate/prices").json()
        assert (said["usd_per_request"], said["usd_per_miss"]) == (None, None)
        if promise is None:
            assert said["promise"] is None
        else:
            assert said["promise"]["other_slos"][1]["difference_usd_per_hour"] is None
            assert said["promise"]["usd_per_hour_per_ms"] is None


def test_the_plan_lists_wanted_and_present_instances_with_their_cost(
    changer: httpx.Client, manager: FakeManager
) -> None:
    plan = manager.view("inception").plan
    assert plan is not None
    said = changer.get(f"{ONE}/plan").json()
    assert [t["reason"] for t in said["targets"]] == [t.reason for t in plan.targets]
    assert said["age_s"] == 31.0
    by_offer = {t["offer"]: t for t in said["targets"]}
    wanted = by_offer["c5.large/spot/us-east-1b"]
    assert wanted["usd_per_hour"] == pytest.approx(wanted["count"] * OFFERS["c5.large/spot/us-east-1b"][0])
    # The interrupted and the draining instance do not count; the booting one does.
    live = [
        i for i in manager.view("inception").instances if i.offer == wanted["offer"] and i.interruption_at_s is None
    ]
    assert wanted["have"] == sum(i.phase in (Phase.PENDING, Phase.READY) for i in live) == wanted["count"] - 1
    assert said["standbys"][0]["have"] == 1


def test_instances_come_in_pages_with_times_from_now(changer: httpx.Client, manager: FakeManager) -> None:
    first = changer.get(f"{ONE}/fleet", params={"count": 2}).json()
    rest = changer.get(f"{ONE}/fleet", params={"after": first["instances"][-1]["number"]}).json()
    numbers = [i["number"] for i in (*first["instances"], *rest["instances"])]
    assert numbers == [i.number for i in manager.view("inception").instances]
    assert first["total"] == len(numbers)
    by_phase = {i["phase"]: i for i in rest["instances"]}
    assert (by_phase["pending"]["ready_in_s"], by_phase["pending"]["age_s"]) == (52.0, 40.0)
    assert [i["gone_in_s"] for i in rest["instances"] if i["gone_in_s"] is not None] == [84.0]
    assert (by_phase["stopped"]["credits"], by_phase["stopped"]["usd_per_hour"]) == (57.0, None)


def test_decisions_come_in_pages_from_the_newest_to_the_first(changer: httpx.Client, manager: FakeManager) -> None:
    found, before = [], None
    while True:
        params = {"count": 3} if before is None else {"count": 3, "before": before}
        page = changer.get(f"{ONE}/decisions", params=params).json()
        found += page["decisions"]
        before = page["next_before"]
        if before is None:
            break
    everything = manager.decisions("inception", None, 10_000)
    assert [d["id"] for d in found] == [d.id for d in everything]
    assert [d["text"] for d in found] == [d.text for d in everything]


def test_a_history_has_the_requested_steps_with_gaps_as_null(changer: httpx.Client) -> None:
    said = changer.get(f"{ONE}/history", params={"hours": 24, "points": 240}).json()
    series = [said[name] for name in ("rps", "capacity_rps", "usd_per_hour", "attainment", "overflow_share")]
    assert {len(values) for values in (*series, *said["instances"].values())} == {240}
    assert said["step_s"] * 240 == MINUTES * 60
    assert said["rps"].count(None) > 0


def test_pages_stay_small_whatever_lies_behind(changer: httpx.Client, manager: FakeManager) -> None:
    """After ten thousand decisions and a day of minutes pages are small, and few of them lead to the first decision."""
    day = manager.days["inception"]
    decisions = day.decisions
    day.decisions = [replace(decisions[n % len(decisions)], id=n + 1) for n in range(10_000)]
    began_s = time.monotonic()
    try:
        for path in ("", "/fleet?count=1000", "/decisions?count=500", "/history?hours=24&points=1440"):
            answer = changer.get(ONE + path)
            assert answer.status_code == 200
            assert len(answer.content) < 200_000, path
        assert changer.get(f"{ONE}/decisions", params={"count": 501}).status_code == 400
        pages, before = 0, 10_001
        while before is not None:
            page = changer.get(f"{ONE}/decisions", params={"count": 500, "before": before}).json()
            pages, before = pages + 1, page["next_before"]
        assert pages in (20, 21)
        assert page["decisions"] == [] or page["decisions"][-1]["id"] == 1
    finally:
        day.decisions = decisions
    assert time.monotonic() - began_s < 10.0  # 0.1 s on an idle machine


def test_nothing_is_sent_twice(changer: httpx.Client, manager: FakeManager) -> None:
    first = changer.get(ONE)
    again = changer.get(ONE, headers={"if-none-match": f'"other", {first.headers["etag"]}'})
    assert (again.status_code, again.content, again.headers["etag"]) == (304, b"", first.headers["etag"])
    manager.views["inception"] = replace(manager.views["inception"], requests=5)
    changed = changer.get(ONE, headers={"if-none-match": first.headers["etag"]})
    assert (changed.status_code, changed.json()["bill"]["requests"]) == (200, 5)


def test_numbers_that_json_has_no_word_for_are_null(changer: httpx.Client, manager: FakeManager) -> None:
    view = manager.views["inception"]
    manager.views["inception"] = replace(
        view, rps=0.0, requests=0, slo=replace(view.slo, error_budget_left=-float("inf"))
    )
    said = changer.get(ONE).json()
    assert said["slo"]["error_budget_left"] is None
    assert said["bill"]["usd_per_million_requests"] is None
    assert said["bill"]["usd_per_million_requests_now"] is None


def test_before_the_first_plan_there_is_none(changer: httpx.Client, manager: FakeManager) -> None:
    manager.views["inception"] = replace(manager.views["inception"], plan=None, forecast=None, rps=None)
    assert changer.get(f"{ONE}/plan").json() is None
    assert changer.get(f"{ONE}/forecast").json() is None
    assert changer.get(ONE).json()["plan"] is None


def test_pause_resume_and_limits_reach_the_manager_and_are_logged(
    changer: httpx.Client, manager: FakeManager, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "mark.api")
    for _ in range(2):
        assert changer.post(f"{ONE}/pause").status_code == 204
        assert manager.view("inception").mode == "paused"
    assert changer.post(f"{ONE}/resume").status_code == 204
    assert manager.view("inception").mode == "acting"
    wanted = {"max_instances": 7, "max_usd_per_hour": 1.5}
    assert changer.put(f"{ONE}/limits", json=wanted).json() == wanted
    assert manager.view("inception").limits == Limits(7, 1.5)
    assert changer.get(f"{ONE}/limits").json() == wanted
    made = [(r.getMessage(), vars(r)["service"], vars(r)["by"]) for r in caplog.records if r.name == "mark.api"]
    assert made == [(what, "inception", "change") for what in ("paused", "paused", "resumed", "limits set")]


def test_a_rollback_and_another_try_reach_the_manager(changer: httpx.Client, manager: FakeManager) -> None:
    assert changer.get(ONE).json()["rollout"] is None
    assert changer.post(f"{ONE}/rollback").status_code == 204
    assert changer.get(ONE).json()["rollout"]["stage"] == "stopped"
    assert changer.post(f"{ONE}/rollout").status_code == 204
    assert changer.get(ONE).json()["rollout"]["stage"] == "canary"
    assert manager.view("inception").rollout is not None


@pytest.mark.parametrize(
    "limits",
    [
        {},
        {"max_instances": 7},
        {"max_instances": 0, "max_usd_per_hour": 1.0},
        {"max_instances": 1.5, "max_usd_per_hour": 1.0},
        {"max_instances": "7", "max_usd_per_hour": 1.0},
        {"max_instances": True, "max_usd_per_hour": 1.0},
        {"max_instances": 7, "max_usd_per_hour": 0},
        {"max_instances": 7, "max_usd_per_hour": -1},
        {"max_instances": 7, "max_usd_per_hour": 1e9},
        {"max_instances": 7, "max_usd_per_hour": 1.0, "more": 1},
        {"max_instances": 7, "max_usd_per_hour": 0.01},  # the manager refuses
        [],
    ],
)
def test_limits_out_of_range_change_nothing(changer: httpx.Client, manager: FakeManager, limits: object) -> None:
    before = manager.view("inception").limits
    said = changer.put(f"{ONE}/limits", json=limits)
    assert said.status_code == 400
    assert list(said.json()) == ["error"]
    assert "\n" not in said.json()["error"]
    assert manager.view("inception").limits == before


@pytest.mark.parametrize("body", [b"", b"{", b"NaN", b'{"max_instances": 7, "max_usd_per_hour": NaN}', b"\xff\xfe"])
def test_a_body_that_is_no_json_is_refused(changer: httpx.Client, body: bytes) -> None:
    said = changer.put(f"{ONE}/limits", content=body, headers={"content-type": "application/json"})
    assert (said.status_code, list(said.json())) == (400, ["error"])


@pytest.mark.parametrize("chunked", [False, True])
def test_a_body_that_is_too_long_is_refused(changer: httpx.Client, chunked: bool) -> None:
    body = iter([b"[" * 9000, b"[" * 9000]) if chunked else b"[" * 18_000
    said = changer.put(f"{ONE}/limits", content=body, headers={"content-type": "application/json"})
    assert (said.status_code, list(said.json())) == (413, ["error"])


@pytest.mark.parametrize(
    ("method", "path", "status"),
    [
        ("GET", "/api/v1/services/absent", 404),
        ("POST", "/api/v1/services/absent/pause", 404),
        ("PUT", "/api/v1/services/absent/limits", 404),
        ("GET", "/api/v1/services/%2e%2e/plan", 404),
        ("GET", "/nothing", 404),
        ("GET", "/../pyproject.toml", 404),
        ("GET", "/docs", 404),
        ("DELETE", "/api/v1/services", 405),
        ("POST", f"{ONE}/plan", 405),
        ("GET", f"{ONE}/history?hours=25", 400),
        ("GET", f"{ONE}/history?hours=nan", 400),
        ("GET", f"{ONE}/history?points=1", 400),
        ("GET", f"{ONE}/history?points=1e9", 400),
        ("GET", f"{ONE}/decisions?count=0", 400),
        ("GET", f"{ONE}/decisions?before=-1", 400),
        ("GET", f"{ONE}/fleet?after=x", 400),
        ("GET", f"{ONE}/fleet?after={10**400}", 400),
    ],
)
def test_errors_are_one_line_of_json_with_the_right_status(
    changer: httpx.Client, method: str, path: str, status: int
) -> None:
    body = {"max_instances": 7, "max_usd_per_hour": 1.5} if method == "PUT" else None
    said = changer.request(method, path, json=body)
    assert said.status_code == status
    assert list(said.json()) == ["error"]
    assert ("allow" in said.headers) == (status == 405)


def test_a_standby_controller_shows_everything_and_changes_nothing(changer: httpx.Client, manager: FakeManager) -> None:
    manager.leading = False
    assert changer.get("/api/v1/services").json()["leads"] is False
    assert changer.get(ONE).json()["mode"] == "standing by"
    assert changer.post(f"{ONE}/pause").status_code == 409
    assert changer.put(f"{ONE}/limits", json={"max_instances": 7, "max_usd_per_hour": 1.5}).status_code == 409
    assert manager.views["inception"].mode == "acting"


def test_a_manager_failure_is_a_500_that_leaks_no_details(changer: httpx.Client, manager: FakeManager) -> None:
    manager.broken = True
    said = changer.get(ONE)
    assert (said.status_code, list(said.json())) == (500, ["error"])
    assert "broken" not in said.text
    assert said.headers["x-content-type-options"] == "nosniff"
    manager.broken = False
    assert changer.get(ONE).status_code == 200


def test_health_reports_whether_the_loop_runs_and_leadership(manager: FakeManager) -> None:
    alive = True
    with served(manager, None, lambda: alive) as url, client(url, None) as one:
        assert (one.get("/healthz").status_code, one.get("/healthz").json()) == (200, {"live": True})
        assert one.get("/readyz").json() == {"ready": "leads"}
        alive, manager.leading = False, False
        assert (one.get("/healthz").status_code, one.get("/healthz").json()) == (503, {"live": False})
        assert (one.get("/readyz").status_code, one.get("/readyz").json()) == (200, {"ready": "stands by"})


def test_two_hundred_services_and_two_thousand_instances_make_small_answers() -> None:
    """Each has less than 200 kB before compression."""
    paths = ("/services", "/services/inception", "/services/inception/fleet", "/services/inception/history?hours=24")
    manager = FakeManager(200, instances=10)
    manager.views["inception"] = FakeManager(1, instances=2000).view("inception")
    with served(manager, None) as url, client(url, None) as one:
        for path in (*paths, "/services/inception/history?hours=24&points=1440"):
            said = one.get(f"/api/v1{path}")
            assert said.status_code == 200
            assert len(said.content) < 200_000, path
            assert said.headers["content-encoding"] == "gzip"
