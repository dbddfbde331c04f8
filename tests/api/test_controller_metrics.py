"""The controller's page for Prometheus."""

from __future__ import annotations

from dataclasses import replace

from prometheus_client.parser import text_string_to_metric_families

from mark.api.controller_metrics import ControllerMetrics
from mark.api.sited_pipeline import SitedPipeline
from mark.domain.bill import Bill
from mark.domain.fleet import Phase
from mark.domain.price_list import PriceList
from tests.api.fake_manager import FakeManager, FakeQueries, social


def samples(manager: FakeManager, **pipelines: SitedPipeline) -> dict[tuple[str, ...], float]:
    """Return (name, service, the other labels' values by name...) -> value."""
    page = ControllerMetrics(manager, pipelines).page().decode()
    families = text_string_to_metric_families(page)
    return {(s.name, *_values(s.labels)): s.value for family in families for s in family.samples}


def _values(labels: dict[str, str]) -> list[str]:
    return [labels[name] for name in sorted(labels, key=lambda name: (name != "service", name))]


def test_the_page_says_what_the_views_say(manager: FakeManager) -> None:
    view, found = manager.view("inception"), samples(manager)
    assert view.plan is not None
    assert found["mark_controller_leads",] == 1.0
    assert found["mark_controller_load_rps", "inception"] == view.rps
    assert found["mark_controller_usd_per_hour", "inception"] == view.usd_per_hour
    assert found["mark_controller_usd_per_request", "inception"] == view.price_list.usd_per_request
    assert found["mark_controller_usd_per_miss", "inception"] == view.price_list.usd_per_miss
    assert found["mark_controller_bill_usd_total", "inception", "spot"] == view.bill.spot
    billed = [v for k, v in found.items() if k[:2] == ("mark_controller_bill_usd_total", "inception")]
    assert sum(billed) == view.bill.total
    assert found["mark_controller_requests_total", "inception"] == view.requests
    assert found["mark_controller_mode", "sentiment", "dry-run"] == 1.0
    assert found["mark_controller_forecast_rps", "inception", "0.5"] == view.forecast.rps[2][0]
    for offer, count in view.plan.counts.items():
        assert found["mark_controller_instances_wanted", "inception", offer] == count
    shown = sum(v for k, v in found.items() if k[:2] == ("mark_controller_instances", "inception"))
    assert shown == sum(i.phase is not Phase.GONE for i in view.instances)


def test_what_is_not_known_is_left_out(manager: FakeManager) -> None:
    view = manager.views["inception"]
    slo = replace(view.slo, recent=None, attainment=None, error_budget_left=None)
    manager.views["inception"] = replace(view, rps=None, plan=None, forecast=None, slo=slo, price_list=PriceList())
    found = {key[0] for key in samples(manager) if "inception" in key}
    assert "mark_controller_capacity_rps" in found
    for name in ("load_rps", "planned_capacity_rps", "forecast_rps", "slo_recent", "instances_wanted", "usd_per_miss"):
        assert f"mark_controller_{name}" not in found


def test_nothing_is_counted_before_the_first_round_of_a_term(manager: FakeManager) -> None:
    """A counter that restarts from zero at each take-over would count the whole bill again in `increase()`."""
    view = manager.views["inception"]
    manager.views["inception"] = replace(
        view, at_s=0.0, rps=None, capacity_rps=0.0, usd_per_hour=0.0, bill=Bill(), requests=0, conditions=("no answer",)
    )
    found = {key[0]: value for key, value in samples(manager).items() if "inception" in key}
    assert found["mark_controller_troubles"] == 1.0
    for name in ("capacity_rps", "usd_per_hour", "bill_usd_total", "requests_total"):
        assert f"mark_controller_{name}" not in found


def test_a_phase_without_instances_is_reported_as_zero(manager: FakeManager) -> None:
    """Otherwise a line in a plot would end instead of falling."""
    assert samples(manager)["mark_controller_instances", "inception", "c5.large/on-demand", "draining"] == 0.0


def test_pipelines_are_reported_as_a_whole(manager: FakeManager) -> None:
    counted = FakeQueries(manager.days["inception"])
    found = samples(manager, social=SitedPipeline(social(), counted))
    of = {key[0].removeprefix("mark_controller_pipeline_"): value for key, value in found.items() if "social" in key}
    assert (of["load_qps"], of["slo_recent"], of["slo_target"], of["slo_rt_max_seconds"]) == (148.3, 0.993, 0.99, 0.3)
    latencies = [found["mark_controller_pipeline_latency_seconds", "social", q] for q in ("0.5", "0.99")]
    assert latencies == [0.118, 0.282]
    prices = [found["mark_controller_pipeline_promise_usd_per_hour", "social", ms] for ms in ("290", "300", "310")]
    assert prices == sorted(prices, reverse=True)
    counted.now = replace(counted.now, recent=None, recent_p50_ms=None, recent_p99_ms=None)
    names = {key[0] for key in samples(manager, social=SitedPipeline(social(), counted))}
    assert not {"mark_controller_pipeline_slo_recent", "mark_controller_pipeline_latency_seconds"} & names


def test_dollars_of_a_pipeline_need_all_of_its_stages(manager: FakeManager) -> None:
    """After a take-over some stages begin later than others."""
    view = manager.views["social-vision"]
    manager.views["social-vision"] = replace(view, at_s=0.0, usd_per_hour=0.0, instances=(), mode="standing by")
    found = {key[0] for key in samples(manager, social=SitedPipeline(social())) if "social" in key}
    assert "mark_controller_pipeline_slo_target" in found
    assert "mark_controller_pipeline_usd_per_hour" not in found
