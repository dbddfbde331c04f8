"""A whole controller over moto: which instances it launches or leaves alone, and how another one takes over."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from threading import Event
from types import SimpleNamespace
from typing import Any

import boto3
import numpy as np
import pytest
from mark_infra.aws.cloudwatch import ATTAINMENT, HEARTBEAT, NAMESPACE, UNSTORED, MetricChanges
from mark_infra.aws.gate import Gate, _until_s
from mark_infra.aws.inventory import DescribedInstance, InventorySnapshot
from mark_infra.aws.live_prices import PriceKeeper
from mark_infra.aws.notices import StateChange
from mark_infra.aws.pools import templates_of
from mark_infra.aws.price_list_api import Prices
from mark_infra.aws.site import Site, SitePipeline, TemplateVersion
from mark_infra.controller.load_history import joined, over
from mark_infra.controller.site_control import ServiceSpec, SiteControl, _Led, oldest_unstored_s, open_control
from mark_infra.controller.site_parts import SiteParts, site_parts
from mark_infra.controller.state_changes import StateChanges
from mark_infra.store.sqlite import SqliteTable
from mark_infra.telemetry.balancer_counts import ServingNow
from mark_infra.telemetry.counters import BouncerCounters, read_bouncer, read_whole
from mark_infra.telemetry.telemetry import ScrapeTarget

from mark.config.pipeline_file import load_pipeline
from mark.control.lease import FencedLease
from mark.control.memory_store import MemoryStore
from mark.control.ports import Ran, RecentAnswers
from mark.control.views import DecisionSchema, ServiceView
from mark.domain.errors import LostLease, StoreError
from mark.domain.load import Load
from mark.domain.price_list import PriceList
from mark.domain.service import FeedbackSettings, ResolvedService
from mark.domain.time import DAY_S
from mark.planning.planner import Policy
from mark.planning.policies.policy_registry import make_policy
from mark.serving.backend.peer_header import HEADER
from mark.serving.backend.price_header import headers_of
from mark.testing.fakes import FakeTelemetry
from mark.traffic.forecast.predictor import Predictor
from mark.traffic.forecast.predictor_registry import make_predictor
from tests.config.test_pipeline_file import GRAPH, HEAD, PARTS, with_parts
from tests.control.control_fakes import ON_DEMAND, Bench, resolved
from tests.infra.aws.bench import Place

NOTHING = Load(0.0, 60.0, np.empty(0), np.empty(0))


def charge() -> ServiceSpec:
    def policy(within: ResolvedService) -> Policy:
        return make_policy("greedy", within, NOTHING)

    return ServiceSpec(
        resolved(ON_DEMAND, min_instances=1), policy, lambda: make_predictor("seasonal-naive", 0, 60.0), NOTHING
    )


@pytest.fixture
def site(place: Place, tmp_path: Path) -> Site:
    return replace(place.site(), store=f"sqlite:{tmp_path / 'state.db'}")


Begin = Callable[..., SiteControl]


class SteppedLease(FencedLease):
    """A lease on the test's own time."""

    def __init__(self, lease: FencedLease) -> None:
        self.told_s = 0.0
        super().__init__(lease._terms, lease.name, monotonic_s=lambda: self.told_s)

    def hold(self, now_s: float) -> int | None:
        self.told_s = now_s
        return super().hold(now_s)


@pytest.fixture
def begin(place: Place, site: Site) -> Iterator[Begin]:
    begun: list[SiteControl] = []

    def one(*, dry_run: bool = False) -> SiteControl:
        parts = site_parts(site, options=place.server.options, dry_run=dry_run)
        parts = replace(parts, lease=SteppedLease(parts.lease))
        begun.append(SiteControl(site, [charge()], parts=parts, dry_run=dry_run))
        begun[-1].start()
        return begun[-1]

    yield one
    for control in begun:
        control.close()


NOW = time.time()  # the lease's clock, so that a slow test does not end it


def step(control: SiteControl, later_s: float = 0.0) -> None:
    control.step(NOW + later_s)
    control.manager.wait()


def launches(control: SiteControl) -> int:
    return sum(decision.verb == "launch" for decision in control.manager.decisions("inception", None, 10))


def test_the_next_controller_finds_the_first_fleet(place: Place, site: Site, begin: Begin) -> None:
    """The second stands by until the first one's term is over; then it leads without a launch."""
    first, second = begin(), begin()
    step(first)
    step(second)
    assert len(place.instances(site)) == 1
    assert [c.manager.view("inception").mode for c in (first, second)] == ["acting", "standing by"]
    assert launches(first) == 1
    step(second, 16.0)  # as if the first one had slept
    view = second.manager.view("inception")
    assert (view.mode, view.conditions) == ("acting", ())
    assert [i.offer for i in view.instances] == [ON_DEMAND.name]
    assert [i.number for i in view.instances] == [i.number for i in first.manager.view("inception").instances]
    assert len(place.instances(site)) == 1
    assert launches(second) == 1


def test_bouncers_hear_the_prices_of_a_controller_that_acts(begin: Begin) -> None:
    """The prices are the last round's. Bouncers hear no prices before the first round or in a dry run."""
    acting, dry = begin(), begin(dry_run=True)
    assert acting._services["inception"].told() == {}
    step(acting)
    step(dry)
    assert acting._services["inception"].told() == headers_of(acting.manager.view("inception").price_list) != {}
    assert headers_of(dry.manager.view("inception").price_list) != {}
    assert dry._services["inception"].told() == {}


def test_servers_that_take_feedback_are_told_of_each_other(begin: Begin) -> None:
    acting = begin()
    step(acting)
    service = acting._services["inception"]
    targets = [ScrapeTarget(f"i-{n}", f"http://10.0.0.{n}:80", "", 0.0) for n in (2, 1)]
    service._targets = lambda: targets  # type: ignore[method-assign]
    prices = service.told()
    assert prices
    assert HEADER not in prices
    resolved = service.spec.resolved
    taking = replace(resolved, service=replace(resolved.service, feedback=FeedbackSettings("l")))
    service.spec = replace(service.spec, resolved=taking)
    assert service.told() == prices | {HEADER: "http://10.0.0.1:80 http://10.0.0.2:80"}


def test_conductors_are_told_of_each_other(
    place: Place, site: Site, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They hear the result of the last look; a dry run tells them nothing."""

    class Two:
        def __init__(self, gate: Gate, group: str) -> None: ...

        def addresses(self) -> dict[str, str]:
            return {"i-2": "10.0.0.2", "i-1": "10.0.0.1"}

    monkeypatch.setattr("mark_infra.controller.site_control.Conductors", Two)
    (tmp_path / "two.toml").write_text(PIPELINE)
    alone = charge()
    stage = replace(alone.resolved, service=replace(alone.resolved.service, name="two-first"))
    of_stage = {"two-first": site.service("inception")}
    there = replace(site, services=of_stage, pipelines={"two": SitePipeline("mark-two-conductors")})
    heard = []
    for dry_run in (False, True):
        parts = site_parts(there, options=place.server.options)
        pipelines = [load_pipeline(str(tmp_path / "two.toml"))]
        spec = replace(alone, resolved=stage)
        control = SiteControl(there, [spec], parts=parts, pipelines=pipelines, dry_run=dry_run)
        control.scraper.watch = lambda clock, targets, gateway, sink, told, read: (  # type: ignore[method-assign, assignment, misc]
            heard.append([told(), len(targets()), told()])
        )
        control._watch_conductors("two", control.conducted["two"])
        control.close()
    port = site.bouncer_port
    told = {HEADER: f"http://10.0.0.1:{port} http://10.0.0.2:{port}"}
    assert heard == [[{}, 2, told], [{}, 2, {}]]


def test_stage_is_planned_by_the_calls_that_a_selection_wants(
    place: Place, site: Site, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Before conductors count such calls they hear no marginal price, which would prevent calls that nobody sees."""
    monkeypatch.setattr("mark_infra.controller.site_control.Conductors", lambda gate, group: None)
    (tmp_path / "two.toml").write_text(PIPELINE)
    alone = charge()
    stage = replace(alone.resolved, service=replace(alone.resolved.service, name="two-first"))
    there = replace(
        site,
        services={"two-first": site.service("inception")},
        pipelines={"two": SitePipeline("mark-two-conductors")},
    )
    parts = site_parts(there, options=place.server.options)
    pipelines = [load_pipeline(str(tmp_path / "two.toml"))]
    control = SiteControl(there, [replace(alone, resolved=stage)], parts=parts, pipelines=pipelines)
    prices = PriceList(2e-5, 1e-3, 1e-5)
    monkeypatch.setattr(
        control.manager, "view", lambda name: SimpleNamespace(price_list=prices, usd_per_hour=1.0, capacity_rps=2.0)
    )
    watches: list[Callable[[], dict[str, str]]] = []
    control.scraper.watch = lambda clock, targets, gateway, sink, told, read: watches.append(told)  # type: ignore[method-assign, assignment, misc]
    control._watch_conductors("two", control.conducted["two"])
    assert watches[0]()["mark-prices"] == "first.usd_per_planned_request=1e-05"
    assert control.coming("two-first") is None
    for window, count in enumerate((0.0, 50.0)):
        counted = BouncerCounters(wanted=(("first", count),))
        control.conducted["two"].close_window(window, ["i-1"], {"i-1": counted})
    assert watches[0]()["mark-prices"] == "first.usd_per_request=2e-05;first.usd_per_planned_request=1e-05"
    coming = control.coming("two-first")
    assert coming is not None
    assert coming.last_minute_rps() == pytest.approx(10.0)
    control.close()


def test_controller_that_stands_by_says_nothing_of_parity_fleets(place: Place, site: Site, tmp_path: Path) -> None:
    """It does not know them. Conductors that hear of no capacity would insure no query."""
    (tmp_path / "two.toml").write_text(PIPELINE)
    alone = charge()
    stage = replace(alone.resolved, service=replace(alone.resolved.service, name="two-first"))
    of_stage = {"two-first": site.service("inception")}
    there = replace(site, services=of_stage, pipelines={"two": SitePipeline("mark-two-conductors")})
    parts = site_parts(there, options=place.server.options)
    parts = replace(parts, lease=SteppedLease(parts.lease))
    pipelines = [load_pipeline(str(tmp_path / "two.toml"))]
    control = SiteControl(there, [replace(alone, resolved=stage)], parts=parts, pipelines=pipelines)
    control._insured = {"two"}
    watches: list[Callable[[], dict[str, str]]] = []

    def watch(clock: object, targets: object, gateway: object, sink: object, told: Any, read: object) -> Any:
        watches.append(told)
        return lambda: None

    control.scraper.watch = watch  # type: ignore[method-assign, assignment]
    control._watch_conductors("two", control.conducted["two"])
    assert watches[0]() == {}
    step(control)
    assert "first.ready_rps=0" in watches[0]()["mark-prices"]
    control.close()


class Watched:
    """A scraper that only keeps how it should read each watch's pages."""

    def __init__(self) -> None:
        self.reads: list[object] = []

    def watch(
        self, clock: object, targets: object, gateway: object, sink: object, told: object, read: object
    ) -> object:
        self.reads.append(read)
        return lambda: None

    def close(self) -> None:
        pass


@pytest.mark.parametrize(("whole", "read"), [((), read_bouncer), (("small", "large"), read_whole)])
def test_queries_are_counted_where_every_instance_serves_a_whole_pipeline(
    place: Place, site: Site, whole: tuple[str, ...], read: object
) -> None:
    one = charge()
    service = replace(one.resolved.service, whole=whole)
    parts = site_parts(site, options=place.server.options)
    control = SiteControl(site, [replace(one, resolved=replace(one.resolved, service=service))], parts=parts)
    control.scraper.close()
    control.scraper = watched = Watched()  # type: ignore[assignment]
    control.start()
    step(control)
    control.close()
    assert watched.reads == [read]


def test_a_stage_knows_what_stages_before_it_refuse(place: Place, site: Site, tmp_path: Path) -> None:
    """The first stage's refusals and calls per query show it, while that stage has a controller."""
    file = tmp_path / "social.toml"
    file.write_text(with_parts(HEAD + GRAPH, PARTS))
    config = load_pipeline(str(file))
    names = [service.name for service in config.stage_services()]
    one = charge()
    specs = [
        replace(one, resolved=replace(one.resolved, service=replace(one.resolved.service, name=name))) for name in names
    ]
    there = replace(site, services=dict.fromkeys(names, site.service("inception")))
    control = SiteControl(there, specs, parts=site_parts(there, options=place.server.options), pipelines=[config])
    control.start()
    services = control._services
    for name in names:
        telemetry = FakeTelemetry()
        telemetry.windows = [150.0] * 12
        services[name]._led = _Led(telemetry, Bench().controller)  # type: ignore[arg-type]
    assert [control.coming(name) for name in (*names, "inception")] == [None] * 5
    services[names[0]]._led.telemetry.latest = RecentAnswers(1000, 500)  # type: ignore[union-attr]
    rates = [None if (coming := control.coming(name)) is None else coming.last_minute_rps() for name in names]
    assert rates == [None, pytest.approx(90.0), pytest.approx(60.0), pytest.approx(150.0)]
    services[names[0]]._led = None
    assert [control.coming(name) for name in names] == [None] * 4
    control.close()


def test_stages_bought_together_know_what_comes_to_their_lead(place: Place, site: Site, tmp_path: Path) -> None:
    """The first and the last stage stand alone; the two between are bought together."""
    file = tmp_path / "social.toml"
    text = with_parts(HEAD + GRAPH, PARTS).replace('function = "lambda:*"\n', "")
    file.write_text(text + '[packs]\ntogether = [["vision", "translate"]]\n')
    config = load_pipeline(str(file))
    names = [service.name for service in config.bought_services()]
    assert names == ["social-language", "social-vision-translate", "social-categorise"]
    one = charge()
    specs = [
        replace(one, resolved=replace(one.resolved, service=replace(one.resolved.service, name=name))) for name in names
    ]
    there = replace(site, services=dict.fromkeys(names, site.service("inception")))
    control = SiteControl(there, specs, parts=site_parts(there, options=place.server.options), pipelines=[config])
    control.start()
    for name in names:
        telemetry = FakeTelemetry()
        telemetry.windows = [150.0] * 12
        control._services[name]._led = _Led(telemetry, Bench().controller)  # type: ignore[arg-type]
    assert [control.coming(name) for name in names] == [None] * 3
    control._services[names[0]]._led.telemetry.latest = RecentAnswers(1000, 500)  # type: ignore[union-attr]
    rates = [None if (coming := control.coming(name)) is None else coming.last_minute_rps() for name in names]
    assert rates == [None, pytest.approx(90.0), pytest.approx(150.0)], (
        "calls of vision, the lead: of 60 % of the queries"
    )
    control.close()


def test_a_release_keeps_what_its_platforms_boot_by(place: Place, site: Site) -> None:
    """They serve a roll-back to it. A release from before platforms existed has only its template."""
    there, x86 = site.service("inception"), TemplateVersion(place.template, "1")
    of_release: dict[str, dict[str, TemplateVersion]] = {
        "a": {},
        "b": {"x86_64": x86},
        "c": {"x86_64": x86, "arm64": TemplateVersion("lt-2", "5")},
    }
    for release, platforms in of_release.items():
        named = replace(there, release=release, launch_template_version="1", platforms=platforms)
        now = replace(site, services={"inception": named})
        control = SiteControl(now, [charge()], parts=site_parts(now, options=place.server.options))
        control.start()
        step(control)
        term = control.present_term()
        assert term is not None
        store, cloud = control.store("inception", term.fence), term.clouds["inception"]
        assert cloud.platforms == (store.get("platforms") or {})
        control.close()
    assert cloud.templates == dict.fromkeys(of_release, "1")
    assert templates_of(there, "a", cloud.templates, cloud.platforms) == {"": x86}
    for release in ("b", "c"):
        assert templates_of(there, release, cloud.templates, cloud.platforms) == of_release[release]


def test_only_the_leader_has_a_heartbeat(place: Place, site: Site, begin: Begin) -> None:
    """So a missing heartbeat means that no controller leads."""
    first, second = begin(), begin()
    for later_s in (0.0, 1.0, 2.0):
        step(first, later_s)
        step(second, later_s)
    first.close()
    second.close()
    assert beats(place, site) == 1.0, "once a minute"


def test_heartbeat_goes_on_after_the_wall_clock_was_set_back(place: Place, site: Site, begin: Begin) -> None:
    control = begin()
    step(control, 300.0)
    step(control)
    control.close()
    assert beats(place, site) == 2.0


class RecordedMetrics:
    """The calls of a `CloudWatchMetrics`."""

    def __init__(self) -> None:
        self.calls: list[str] = []

    def __getattr__(self, name: str) -> Callable[..., None]:
        return lambda *args: self.calls.append(name)


def test_other_metrics_are_sent_although_decisions_of_a_service_cannot_be_read(
    site: Site, begin: Begin, monkeypatch: pytest.MonkeyPatch
) -> None:
    control = begin()
    metrics = RecordedMetrics()
    monkeypatch.setattr(control, "_metrics", metrics)

    def fail(service: str, before_id: int | None, count: int) -> list[DecisionSchema]:
        raise StoreError("the store does not answer")

    monkeypatch.setattr(control.manager, "decisions", fail)
    control.unstored_s["two"] = 61.5
    step(control)
    assert metrics.calls == ["beat", "put_unstored"]


def test_stage_that_could_not_be_started_has_no_present_state(begin: Begin, monkeypatch: pytest.MonkeyPatch) -> None:
    """Otherwise other stages would be planned by it for as long as this process stands by."""

    def fail(*args: object) -> None:
        raise StoreError("the store does not answer")

    monkeypatch.setattr("mark_infra.controller.site_control.StateChanges", fail)
    control = begin()
    step(control)
    assert control.manager.view("inception").conditions == ("the store does not answer",)
    assert control._services["inception"].now() is None


def test_age_of_unstored_facts_ends_with_the_term(begin: Begin) -> None:
    """The next leader hears it from the servers; it would be hours old when this process leads again."""
    control = begin()
    step(control)
    service = control._services["inception"]
    assert service._led is not None
    service._led.unstored_s = 61.5
    assert service.unstored_s() == 61.5
    control.manager._runtimes["inception"].reconcile(None, NOW)
    assert service.unstored_s() is None


def lead_again(control: SiteControl, other: SiteControl, later_s: float) -> None:
    """Let the other process lead from `later_s` after NOW, and this one again 20 s later."""
    step(other, later_s - 16.0)
    step(other, later_s)
    step(control, later_s)
    assert (control.manager.leads(), other.manager.leads()) == (False, True)
    other.manager.close()
    step(control, later_s + 20.0)
    assert control.manager.leads()


def test_each_term_has_its_own_clouds_and_orphans(begin: Begin) -> None:
    """The other process may have changed the balancer, and may know the services of orphans."""
    control, other = begin(), begin()
    step(control)
    first = control.present_term()
    step(control, 5.0)
    assert control.present_term() is first is not None
    lead_again(control, other, 30.0)
    second = control.present_term()
    assert second is not None
    assert second.clouds["inception"] is not first.clouds["inception"]
    assert second.clouds["inception"]._balancer is not first.clouds["inception"]._balancer
    assert second.reconciler is not first.reconciler


def test_round_of_an_earlier_term_sends_no_command_in_a_later_one(begin: Begin) -> None:
    """It may have hung while the other process led, and knows nothing of that."""
    control, other = begin(), begin()
    step(control)
    term = control.manager._runtimes["inception"].term
    assert term is not None
    lead_again(control, other, 30.0)
    with pytest.raises(LostLease):
        term.parts.controller._cloud.drain(1)


def test_a_start_that_lasts_into_a_later_term_writes_nothing(begin: Begin, monkeypatch: pytest.MonkeyPatch) -> None:
    """EC2 hangs while the other process leads. The start's clock is that of the earlier term."""
    control, other = begin(), begin()
    step(control)
    fence, refresh, hangs = control.manager.fence(), control.inventory.refresh, [True]
    assert fence is not None

    def hanging(*, at_once: bool = False) -> None:
        if at_once and hangs and hangs.pop():
            lead_again(control, other, 30.0)
        refresh(at_once=at_once)

    monkeypatch.setattr(control.inventory, "refresh", hanging)
    parts = control._services["inception"].start(fence, lambda store: store)
    assert control.manager.fence() != fence
    with pytest.raises(LostLease):
        parts.store.put("paused", True)
    parts.close()


def test_metrics_of_a_term_do_not_count_since_an_earlier_one(begin: Begin, monkeypatch: pytest.MonkeyPatch) -> None:
    """Another process has sent the failed launches and function dollars in between."""
    control, other = begin(), begin()
    step(control)
    put: list[MetricChanges] = []
    metrics = SimpleNamespace(
        beat=lambda now: None, put=lambda view, decisions, changes: put.append(changes), close=lambda: None
    )
    monkeypatch.setattr(control, "_metrics", metrics)
    step(control, 10.0)
    step(control, 60.0)
    lead_again(control, other, 80.0)
    step(control, 130.0)
    assert len(put) == 2
    assert put[0] is not put[1]


def test_first_metrics_of_a_term_do_not_show_the_view_of_the_one_before(
    begin: Begin, monkeypatch: pytest.MonkeyPatch
) -> None:
    """This process stalls, the other one leads in between, and the next step finds the second term at once."""
    control, other = begin(), begin()
    step(control)
    put: list[ServiceView] = []
    metrics = SimpleNamespace(
        beat=lambda now: None, put=lambda view, decisions, changes: put.append(view), close=lambda: None
    )
    monkeypatch.setattr(control, "_metrics", metrics)
    step(control, 10.0)
    first = control.manager.fence()
    step(other, 14.0)
    step(other, 80.0)
    other.manager.close()
    step(control, 85.0)
    assert (control.manager.fence(), first) == (3, 1)
    step(control, 145.0)
    assert [view.at_s > 0.0 for view in put] == [False, True]


def beats(place: Place, site: Site) -> float:
    """Return the number of heartbeats."""
    found = place.server.client("cloudwatch").get_metric_statistics(
        Namespace=NAMESPACE,
        MetricName=HEARTBEAT,
        Dimensions=[{"Name": "Site", "Value": site.name}],
        StartTime=datetime.fromtimestamp(NOW - 600.0, UTC),
        EndTime=datetime.fromtimestamp(NOW + 600.0, UTC),
        Period=3600,
        Statistics=["SampleCount"],
    )["Datapoints"]
    return float(sum(point["SampleCount"] for point in found))


PIPELINE = """
[service]
name = "two"
slo_ms = 600
slo_attainment = 0.98
pipeline = "driver:run"
[stage.first]
model = "echo:Echo"
slo_ms = 600
"""


def test_how_many_whole_queries_were_in_time_is_told(place: Place, site: Site, tmp_path: Path) -> None:
    """Conductors count them, by the pipeline's name, and report the age of facts that they have not stored."""
    (tmp_path / "two.toml").write_text(PIPELINE)
    config, alone = load_pipeline(str(tmp_path / "two.toml")), charge()
    stage = replace(alone.resolved, service=replace(alone.resolved.service, name="two-first"))
    of_stage = {"two-first": site.service("inception")}
    there = replace(site, services=of_stage, pipelines={"two": SitePipeline("mark-two-conductors")})
    parts = site_parts(there, options=place.server.options)
    control = SiteControl(there, [replace(alone, resolved=stage)], parts=parts, pipelines=[config])
    for window, (requests, misses) in enumerate(((100.0, 50.0), (300.0, 56.0))):
        counted = BouncerCounters(requests=requests, misses=misses)
        control.conducted["two"].close_window(window, ["i-1"], {"i-1": counted})
    facts = {"i-1": BouncerCounters(unstored_s=61.5), "i-2": BouncerCounters(unstored_s=2.0)}
    control.unstored_s = {"two": oldest_unstored_s(facts), "one": oldest_unstored_s({"i-3": BouncerCounters()})}
    control.start()
    step(control)
    control.close()
    points = {
        (name, of): place.server.client("cloudwatch").get_metric_statistics(
            Namespace=NAMESPACE,
            MetricName=name,
            Dimensions=[{"Name": "Site", "Value": site.name}, {"Name": "Service", "Value": of}],
            StartTime=datetime.fromtimestamp(NOW - 600.0, UTC),
            EndTime=datetime.fromtimestamp(NOW + 600.0, UTC),
            Period=3600,
            Statistics=["Average"],
        )["Datapoints"]
        for name, of in ((ATTAINMENT, "two"), (UNSTORED, "two"), (UNSTORED, "one"))
    }
    found = {at: [point["Average"] for point in there] for at, there in points.items()}
    assert found == {(ATTAINMENT, "two"): [97.0], (UNSTORED, "two"): [61.5], (UNSTORED, "one"): []}


def test_a_dry_run_launches_nothing_and_leaves_the_state_alone(place: Place, site: Site, begin: Begin) -> None:
    """It runs beside a controller that acts."""
    dry = begin(dry_run=True)
    step(dry)
    assert place.instances(site) == {}
    view = dry.manager.view("inception")
    assert (view.mode, [i.offer for i in view.instances]) == ("dry-run", [ON_DEMAND.name])
    assert all(one.outcome.startswith("dry run: would be done") for one in dry.manager.decisions("inception", None, 9))
    assert launches(dry) == 1
    acting = begin()
    step(acting)
    assert acting.manager.view("inception").mode == "acting"
    assert len(place.instances(site)) == 1


def test_fitting_a_predictor_does_not_use_up_call_time(place: Place, site: Site) -> None:
    """Otherwise a long history would never be learned: every start would be cut off after it, and begin again."""
    until_s: list[float] = []

    def predictor() -> Predictor:
        learns = make_predictor("seasonal-naive", 0, 60.0)
        fit = learns.fit

        def slow(history: Load) -> None:
            until_s.append(_until_s.get())
            Event().wait(0.05)
            fit(history)

        learns.fit = slow  # type: ignore[method-assign]
        return learns

    def policy(within: ResolvedService) -> Policy:
        until_s.append(_until_s.get())
        return make_policy("greedy", within, NOTHING)

    parts = site_parts(site, options=place.server.options)
    control = SiteControl(site, [replace(charge(), predictor=predictor, policy=policy)], parts=parts)
    try:
        control.start()
        step(control)
        assert until_s[1] >= until_s[0] + 0.05
    finally:
        control.close()


def test_prices_that_hang_do_not_keep_the_lease(place: Place, site: Site, begin: Begin) -> None:
    """The next controller leads while the last one still waits for an answer."""
    led: list[bool] = []

    class Hanging(PriceKeeper):
        def close(self) -> None:
            super().close()
            second = begin()
            step(second)
            led.append(second.manager.leads())

    catalog = resolved(ON_DEMAND).catalog
    hanging = Hanging(Prices(catalog, site.region, options=place.server.options))
    parts = site_parts(site, options=place.server.options)
    control = SiteControl(site, [replace(charge(), prices=hanging)], parts=parts)
    control.start()
    step(control)
    assert control.manager.leads()
    control.close()
    assert led == [True]


def test_an_unreachable_cloud_is_a_condition_not_an_exit(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is asked again at the next look."""
    monkeypatch.setattr("mark_infra.aws.gate._ATTEMPTS", 1)  # fail without retries
    control = SiteControl(site, [charge()], parts=site_parts(site, options={**DEAD, "region_name": "us-east-1"}))
    try:
        control.start()
        step(control)
        (trouble,) = control.manager.view("inception").conditions
        assert "EndpointConnectionError" in trouble or "Could not connect" in trouble
    finally:
        control.close()


def test_an_unreachable_store_is_retried_until_interrupted(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each retry logs one clear line."""
    monkeypatch.setattr("mark_infra.aws.gate._ATTEMPTS", 1)
    for name, value in {
        "AWS_ENDPOINT_URL": DEAD["endpoint_url"], "AWS_ACCESS_KEY_ID": "test", "AWS_SECRET_ACCESS_KEY": "test",
    }.items():  # fmt: skip
        monkeypatch.setenv(name, value)
    said: list[str] = []
    there = replace(site, store="dynamodb:mark-state")
    waits = iter((False, True))
    assert open_control(there, [charge()], dry_run=False, wait=lambda _: next(waits), tell=said.append) is None
    assert len(said) == 2
    assert all(line.startswith("cannot begin, and tries again in ") and "\n" not in line for line in said)


def test_each_try_to_begin_closes_its_tables(place: Place, site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    """An outage of the store lasts hundreds of tries."""
    opened, closed = [], []

    def parts_of(site: Site, **_: Any) -> SiteParts:
        parts = site_parts(site, options=place.server.options)
        opened.append(parts)

        def close() -> None:
            closed.append(opened[-1])
            parts.close()

        return replace(parts, close=close)

    def fail(*_: object) -> float:
        raise StoreError("the store does not answer")

    monkeypatch.setattr("mark_infra.controller.site_control.site_parts", parts_of)
    monkeypatch.setattr(SqliteTable, "origin_unix_s", fail)
    waits = iter((False, False, True))
    assert open_control(site, [charge()], dry_run=False, wait=lambda _: next(waits), tell=lambda _: None) is None
    assert len(opened) == 3
    assert closed == opened


def test_a_site_is_controlled_with_the_session_given(place: Place, site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its gates use it, and so do the pings of functions."""
    monkeypatch.setenv("AWS_ENDPOINT_URL", place.server.url)
    session = boto3.Session("AKIAMINE", "s3cret")
    control = open_control(site, [charge()], dry_run=True, wait=lambda _: True, tell=print, session=session)
    assert control is not None
    control.close()
    assert control.session is session
    assert control._parts.gate(None).client("sts")._get_credentials().access_key == "AKIAMINE"


def test_history_and_what_was_seen_since_are_one_load() -> None:
    """The minutes between the two are missing."""
    rates = np.array([1.0, 2.0])
    load = joined(Load(-120.0, 60.0, rates, rates), Load(60.0, 60.0, rates * 3, rates * 4))
    assert (load.start_s, load.end_s) == (-120.0, 180.0)
    assert np.array_equal(load.mean_rps, [1.0, 2.0, np.nan, 3.0, 6.0], equal_nan=True)
    assert joined(load, NOTHING) is load


def test_a_history_that_is_too_old_is_left_out() -> None:
    """Its distance from the observed load must be no more than a clock may have jumped."""
    old, ten_years_s = Load(-120.0, 60.0, np.ones(2), np.ones(2)), 10 * 365 * 86400.0
    seen = Load(ten_years_s, 60.0, np.ones(3), np.ones(3))
    assert joined(old, seen) is seen
    assert len(joined(old, replace(seen, start_s=35 * 86400.0))) == 2 + 35 * 1440 + 3


def test_only_steps_that_are_over_are_kept() -> None:
    load = Load(120.0, 60.0, np.arange(3.0), np.arange(3.0))
    assert over(load, 1e9).mean_rps.tolist() == [0.0, 1.0, 2.0]
    assert over(load, 299.0).mean_rps.tolist() == [0.0, 1.0]
    assert len(over(load, 0.0)) == len(over(load, 179.0)) == 0


DEAD = {"endpoint_url": "http://127.0.0.1:9", "aws_access_key_id": "test", "aws_secret_access_key": "test"}


def test_process_that_leads_again_reports_no_change_older_than_a_day() -> None:
    told = [StateChange(1, "i-1", "running", 0.0), StateChange(2, "i-1", "shutting-down", 1.5 * DAY_S)]
    notices, nothing = SimpleNamespace(changes=lambda after: told), SimpleNamespace(snapshot=InventorySnapshot)
    kept = MemoryStore()
    kept.put("told", {"i-1": (7, "c5.large/on-demand")})
    at = SimpleNamespace(now_s=lambda: 2.0 * DAY_S, at_s=float, unix_s=float)
    changes = StateChanges(notices, SimpleNamespace(service="inception"), nothing, at, kept)  # type: ignore[arg-type]
    assert changes.ran() == (Ran(7, "c5.large/on-demand", False, 1.5 * DAY_S),)


class FailingOnce(MemoryStore):
    """A store whose first write fails."""

    failing = True

    def put(self, key: str, value: Any) -> None:
        if self.failing:
            self.failing = False
            raise StoreError("the store does not answer")
        super().put(key, value)


def test_numbers_of_instances_are_stored_after_the_store_failed() -> None:
    """Otherwise the next controller could not bill the end of an instance that is gone by then."""
    machine = DescribedInstance("i-1", "inception", ON_DEMAND.name, "t", "running", 0.0)
    inventory = SimpleNamespace(snapshot=lambda: InventorySnapshot({"inception": (machine,)}))
    numbers = SimpleNamespace(service="inception", numbers=lambda ids: dict.fromkeys(ids, 7))
    notices, at = SimpleNamespace(changes=lambda after: []), SimpleNamespace(now_s=lambda: 0.0, unix_s=float)
    store = FailingOnce()
    changes = StateChanges(notices, numbers, inventory, at, store)  # type: ignore[arg-type]
    with pytest.raises(StoreError):
        changes.ran()
    assert changes.ran() == ()
    assert store.get("told") == {"i-1": (7, ON_DEMAND.name)}


def test_the_balancer_is_asked_for_what_no_bouncer_saw(place: Place, site: Site) -> None:
    """This holds for a service behind its rules. A gateway counts all requests itself, so its balancer is not asked."""
    rule = "arn:aws:elasticloadbalancing:us-east-1:1:listener-rule/app/mark/b/l/r"
    behind = replace(site.service("inception"), target_groups=tuple(place.groups[:1]), listener_rules=(rule,))
    for there, asked in ((behind, True), (replace(behind, gateway="http://127.0.0.1:1"), False)):
        found = replace(site, services={"inception": there})
        parts = site_parts(found, options=place.server.options)
        control = SiteControl(found, [charge()], parts=parts)
        try:
            assert (control.unseen.services == ("inception",)) is asked
            assert control.serving() == {"inception": ServingNow(ready=False)}
        finally:
            control.close()
