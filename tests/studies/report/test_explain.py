"""One decision in dollars."""

from __future__ import annotations

from dataclasses import replace

import pytest

from mark.domain.plan import Plan, Target
from mark.domain.price_list import PriceList, SloPrice
from mark.planning.planner import PlanningContext
from mark.planning.policies.alternatives import KEPT
from mark.simulation.inputs import open_service
from mark.simulation.request import RunRequest
from mark.studies.report.explain import Explanation, explain, plan_report, saved_words
from tests.planning.build import fleet, forecast
from tests.studies.report.test_simulate_report import plain

INCEPTION = open_service(RunRequest(trace="", service="inception-v3"))
P2, C5 = "p2.xlarge/on-demand", "c5.large/on-demand"


def explained(counts: dict[str, int], running: dict[str, int] | None = None, rps: float = 100.0) -> Explanation:
    plan = Plan(0.0, tuple(Target(name, n, "because") for name, n in counts.items()), notes=("a [note]",))
    seen = PlanningContext(0.0, INCEPTION, fleet(running or {}), forecast(rps, 0.1), first=running is None)
    return explain(plan, seen, 3600.0)


def words(shown: Explanation) -> str:
    return " ".join(plain(plan_report(shown)).split())


def test_the_table_shows_beliefs_costs_and_alternatives() -> None:
    shown = explained({P2: 2}, running={P2: 1})
    text = words(shown)
    assert "the minute from +3 min, when a launch made now can serve (test): 100 requests/s" in text
    assert "nine times out of ten between 91 and 109" in text
    assert "the fleet as it is" in text
    assert "functions alone" in text
    assert "one p2.xlarge/on-demand more" in text
    assert "than leaving the fleet as it is" in text
    assert "a [note]" in text
    assert max(len(line.rstrip()) for line in plain(plan_report(shown)).splitlines()) <= 80


def test_the_json_has_belief_choice_alternatives_and_saving() -> None:
    shown = explained({P2: 2}, running={P2: 1})
    data = shown.as_json()
    assert data["forecast"]["mean_rps"]["0.5"] == 100.0
    assert (data["forecast"]["lead_s"], data["forecast"]["horizon_s"]) == (180.0, 240.0)
    assert data["chosen"]["fleet"] == "2 p2.xlarge/on-demand"
    assert data["chosen"]["usd_per_hour"] == pytest.approx(
        data["chosen"]["instances_usd_per_hour"]
        + data["chosen"]["launches_usd_per_hour"]
        + data["chosen"]["overflow_usd_per_hour"]
    )
    prices = [one["usd_per_hour"] for one in data["alternatives"]]
    assert prices == sorted(prices)
    assert data["saved_usd_per_hour"] == pytest.approx(prices[0] - data["chosen"]["usd_per_hour"])


def test_the_solver_is_named() -> None:
    shown = explained({P2: 2})
    assert (shown.as_json()["solver"], "solved by" in words(shown)) == ("", False)
    solved = replace(shown, plan=replace(shown.plan, solver="dp, proven"))
    assert solved.as_json()["solver"] == "dp, proven"
    assert "note: solved by dp, proven" in words(solved)


def test_the_window_stands_beside_the_one_of_the_paper() -> None:
    """Batches of 8 on p2.xlarge: the paper waits 200 ms for Inception-v3, we do not wait."""
    shown = explained({P2: 1, C5: 1})
    assert set(shown.batches) == {P2}
    batches = shown.batches[P2]
    assert (batches.n_batch, batches.w_batch_ms, round(batches.paper_w_batch_ms)) == (8, 0.0, 200)
    assert "by the MArk paper's rule: 200 ms" in words(shown)


def test_where_functions_are_too_slow_the_late_ones_are_told() -> None:
    nasnet = open_service(RunRequest(trace="", service="nasnet"))
    plan = Plan(0.0, (Target(P2, 5, "because"),))
    shown = explain(plan, PlanningContext(0.0, nasnet, fleet({}), forecast(100.0, 0.1), first=True), 0.0)
    assert "no function answers in time" in words(shown)
    assert "as priced" in words(shown)


def test_what_is_committed_stands_beside_the_decision() -> None:
    committed = replace(INCEPTION, committed={P2: 1}, committed_usd_per_hour=0.6)
    plan = Plan(0.0, (Target(P2, 2, "because"),))
    shown = explain(plan, PlanningContext(0.0, committed, fleet({}), forecast(100.0, 0.1), first=True), 0.0)
    assert "$0.60/h are committed" in words(shown)
    assert shown.as_json()["committed_usd_per_hour"] == 0.6


def test_a_policy_without_forecast_is_explained_without_one() -> None:
    plan = Plan(0.0, (Target("x/on-demand", 1, "by hand"),))
    shown = explain(plan, PlanningContext(0.0, INCEPTION, fleet({"y": 2})), 60.0)
    assert "makes no forecast" in words(shown)
    assert "by hand" in words(shown)
    assert shown.as_json()["forecast"] is None
    assert shown.as_json()["chosen"] is None


def test_a_choice_that_looks_dearer_than_another_says_so() -> None:
    weighed = explained({P2: 9}).weighed
    assert weighed is not None
    dearer = saved_words(weighed)
    assert dearer.startswith(
        "The best alternative is priced $0.16/h lower; unlike the plan, these prices let an instance stop"
    )
    assert "Expected to cost" not in dearer
    kept = replace(
        weighed.alternatives[-1], label=KEPT, overflow_usd_per_hour=weighed.chosen.overflow_usd_per_hour + 90
    )
    held = saved_words(replace(weighed, alternatives=(weighed.alternatives[0], kept)))
    assert held.startswith(f"{dearer} The plan costs $")
    assert held.endswith("/h less than leaving the fleet as it is.")
    assert saved_words(replace(weighed, alternatives=())) == "There was no alternative."
    fewer = saved_words(replace(weighed, min_instances=9))
    assert fewer == "The best alternative is priced $0.16/h lower, but min_instances is 9."


def test_an_empty_plan_is_a_sentence_not_an_empty_table() -> None:
    text = words(explained({}))
    assert "Nothing is to run, and nothing does." in text
    assert "want have" not in text


def test_a_fleet_held_in_part_says_its_price() -> None:
    shown = explained({C5: 2}, rps=6.0)
    assert "while it runs" not in words(shown)
    assert shown.weighed is not None
    brief = replace(shown.weighed.chosen, instances_usd_per_hour=0.0042)
    text = words(replace(shown, weighed=replace(shown.weighed, chosen=brief)))
    assert "the present plan costs $0.17/h while it runs" in text


def test_an_alternative_below_the_price_of_its_fleet_says_why() -> None:
    """Another instance that is released as soon as it is not needed costs less than an hour of it."""
    shown = explained({C5: 2}, rps=6.0)
    assert shown.weighed is not None
    assert "unneeded" not in words(replace(shown, weighed=replace(shown.weighed, alternatives=())))
    one_more = replace(shown.weighed.chosen, label="one c5.large more", counts={C5: 3}, instances_usd_per_hour=0.172)
    text = words(replace(shown, weighed=replace(shown.weighed, alternatives=(one_more,))))
    assert "assume that unneeded instances end and missing ones are launched" in text
    assert "(one c5.large more, $0.26/h if it were kept)" in text


def test_the_prices_are_three_lines_and_an_object() -> None:
    """They are a request, a miss and a millisecond, on separate lines under one head."""
    shown = explained({P2: 2})
    assert shown.weighed is not None
    own = shown.weighed.chosen.usd_per_hour
    others = (SloPrice(0.57, own + 0.30), SloPrice(0.63, own))
    full = replace(shown, price_list=PriceList(1.17e-6, 19.5e-6), other_slos=others)
    text = words(full)
    assert "Price of one more" in text
    assert "A request: $1.17 a million: 6.0 % of them would find no room." in text
    assert "A miss: $19.50 a million, a function's call avoids it." in text
    assert "A millisecond of RT_max: $0.0050/h; within 570 ms $0.30/h more, within 630 ms the same." in text
    assert full.as_json()["prices"] == {
        "usd_per_planned_request": None,
        "usd_per_request": 1.17e-6,
        "usd_per_miss": 19.5e-6,
        "usd_per_hour_per_ms": pytest.approx(0.005),
        "other_slos": [other.as_json(own) for other in others],
    }
    free = words(replace(full, price_list=PriceList(0.0, 19.5e-6)))
    assert "A request: nothing now: ready capacity has room for it." in free


def test_an_unknown_price_is_left_out_and_null() -> None:
    plan = Plan(0.0, (Target("x/on-demand", 1, "by hand"),))
    shown = explain(plan, PlanningContext(0.0, open_service(RunRequest(trace="", service="nasnet")), fleet({})), 60.0)
    assert "Price of one more" not in words(shown)
    planned = shown.as_json()["prices"].pop("usd_per_planned_request")
    assert planned == pytest.approx(2.207e-5, rel=1e-3), "of instances whose capacity is used; it needs no forecast"
    assert shown.as_json()["prices"] | {"usd_per_planned_request": None} == {
        "usd_per_planned_request": None,
        "usd_per_request": None,
        "usd_per_miss": None,
        "usd_per_hour_per_ms": None,
        "other_slos": [],
    }


def test_an_infeasible_promise_is_named_without_a_price_per_millisecond() -> None:
    shown = explained({P2: 2})
    assert shown.weighed is not None
    others = (SloPrice(0.57, None), SloPrice(0.63, shown.weighed.chosen.usd_per_hour - 0.1))
    text = words(replace(shown, other_slos=others))
    assert "A millisecond of RT_max: within 570 ms not possible, within 630 ms $0.10/h less." in text


def test_late_requests_are_priced_by_the_budget() -> None:
    nasnet = open_service(RunRequest(trace="", service="nasnet"))
    plan = Plan(0.0, (Target(P2, 5, "because"),))
    shown = explain(plan, PlanningContext(0.0, nasnet, fleet({}), forecast(100.0, 0.1), first=True), 0.0)
    assert "a million, by the SLO's budget of misses." in words(shown)
