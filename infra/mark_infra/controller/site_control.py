"""Everything that a controller runs for a site: the manager, and the threads that supply its ports."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from threading import Lock
from typing import Any

from mark.config.pipeline_config import PipelineConfig
from mark.control.coming_calls import ComingCalls, PipelineCalls, StageNow, stage_now
from mark.control.controller import Controller, Leadership, known_rollout
from mark.control.dry_run import DryRunCloud, DryRunFunctions
from mark.control.manager import ControllerManager
from mark.control.memory_store import MemoryStore
from mark.control.ports import WINDOW_S, Changes, Cloud, Functions, Store
from mark.control.service_runtime import ServiceRuntime
from mark.control.service_term import RuntimePorts
from mark.control.shared_limits import limited, pipeline_limits
from mark.control.views import Limits, ServiceView
from mark.domain.errors import CloudError, LostLease
from mark.domain.load import Load
from mark.domain.price_list import PriceList
from mark.domain.service import ResolvedService
from mark.domain.time import DAY_S, STEP_S
from mark.planning.graphs.lineage_file import called_by_all, calls_per_query
from mark.planning.planner import Policy
from mark.serving.backend import peer_header
from mark.serving.backend.price_header import headers_of
from mark.traffic.forecast.predictor import Predictor
from mark.traffic.forecast.supervised import Supervised
from mark.traffic.forecast.turns import taking_turns
from mark_infra.aws.balancer import Balancer
from mark_infra.aws.cloudwatch import DECISIONS, PERIOD_S, CloudWatchMetrics, MetricChanges
from mark_infra.aws.conductors import Conductors
from mark_infra.aws.ec2_cloud import Ec2Cloud, InstancePorts
from mark_infra.aws.gate import computing
from mark_infra.aws.inventory import Inventory, takes_requests
from mark_infra.aws.keeper import Keeper
from mark_infra.aws.live_prices import PriceKeeper
from mark_infra.aws.look_pace import LookPace
from mark_infra.aws.minute_sums import minute_sums
from mark_infra.aws.notices import WAIT_S, Interruption, NoticeListener
from mark_infra.aws.orphans import Reconciler
from mark_infra.aws.readiness import AskedBouncers, headers
from mark_infra.aws.released_functions import ReleasedFunctions
from mark_infra.aws.scheduled_events import ScheduledEvents
from mark_infra.aws.site import Site
from mark_infra.aws.warming import LambdaWarming
from mark_infra.controller.coming_to_stages import ComingToStages, stages_alone
from mark_infra.controller.door import has_descriptors
from mark_infra.controller.load_history import joined, last_rps, over
from mark_infra.controller.release_versions import know_release
from mark_infra.controller.service_prices import ServicePrices
from mark_infra.controller.site_parts import SiteParts, site_parts
from mark_infra.controller.state_changes import StateChanges
from mark_infra.store.dynamo_table import LOAD_DAYS, Fence
from mark_infra.store.store import ServiceStore
from mark_infra.telemetry.balancer_counts import BalancerCounts, BehindBalancer, ServingNow, behind_balancer
from mark_infra.telemetry.clock import WallClock
from mark_infra.telemetry.conducted import ConductedQueries
from mark_infra.telemetry.counters import BouncerCounters, GatewayCounts, read_bouncer, read_conductor, read_whole
from mark_infra.telemetry.scraper import Scraper
from mark_infra.telemetry.telemetry import BilledFunction, HistoryEnd, ScrapedTelemetry, ScrapeTarget, UnseenSource

_log = logging.getLogger("mark.control")


@dataclass(frozen=True, slots=True)
class ServiceSpec:
    """One service to run. `policy` makes its policy, for any limits; `predictor` makes a fresh predictor.

    `history` is the load before the service's second 0, in steps of a minute. `prices` are refreshed while the service
    runs; without them the resolved service's prices hold. If the service is several stages bought together, bouncers
    and gateway count `calls_per_request` calls for each of its requests, on average.
    """

    resolved: ResolvedService
    policy: Callable[[ResolvedService], Policy]
    predictor: Callable[[], Predictor]
    history: Load
    prices: PriceKeeper | None = None
    calls_per_request: float = 1.0


class SiteControl:
    """The control of a site, in one process. Building it reads the store and raises CloudError or BadInput.

    A dry run reads the same cloud and load but takes no notice out of the queue. It writes only the service's origin
    and the numbers of its instances, which all controllers share. The stages of each pipeline share its limits.

    `conducted` counts whole queries, not calls of stages, for each pipeline whose conductors the site knows, by name.
    """

    def __init__(
        self,
        site: Site,
        specs: Sequence[ServiceSpec],
        *,
        dry_run: bool = False,
        parts: SiteParts | None = None,
        pipelines: Sequence[PipelineConfig] = (),
    ) -> None:
        self.site, self.dry_run, self.services = site, dry_run, len(specs)
        self._parts = parts = site_parts(site, dry_run=dry_run) if parts is None else parts
        self.session, self.lease = parts.session, parts.lease
        self.gate = gate = parts.gate(None)
        gate.buy_while(parts.lease.lasts)
        self.inventory, self.events = Inventory(parts.gate(None), site), ScheduledEvents(parts.gate(None))
        self.bouncers = AskedBouncers(site)
        self.notices = (
            NoticeListener(parts.gate(WAIT_S + 2.0), site, leads=lambda: self.manager.leads())
            if site.queue_url and not dry_run
            else None
        )
        self.pace = LookPace()
        services = []
        for n, spec in enumerate(specs):
            name = spec.resolved.service.name
            # The minutes of each service begin at another time, so that not all plan at the same moment; their windows
            # still end together.
            origin = parts.table.origin_unix_s(name, time.time() - n * WINDOW_S % STEP_S / site.time_scale)
            services.append(_Service(spec, origin, ServiceStore(parts.table, name), self))
        self._services = {service.name: service for service in services}
        self.scraper = Scraper(headers(site))
        behind: dict[str, BehindBalancer] = {}
        for name in self._services:
            there = site.service(name)
            one = behind_balancer(there.listener_rules, there.function_group)
            if one is not None and there.gateway is None:  # a gateway counts all requests itself
                behind[name] = one
        self.unseen = BalancerCounts(partial(minute_sums, parts.gate(None)), behind, self.serving)
        members = [ServiceRuntime(s.name, s.spec.resolved, s.start, dry_run=dry_run) for s in services]
        together = [(pipeline_limits(one), [bought.name for bought in one.bought_services()]) for one in pipelines]
        self.manager = ControllerManager(members, parts.lease, parts.pool, together, able=has_descriptors)
        self._metrics = None if dry_run else CloudWatchMetrics(parts.gate(None), site.name)
        self._metrics_unix_s = 0.0
        self._conductor_clock = clock = WallClock(time.time(), site.time_scale)
        self.conducted = {
            one.name: ConductedQueries(one.slo.rt_max_s, clock.unix_s)
            for one in pipelines
            if one.name in site.pipelines
        }
        self.unstored_s: dict[str, float | None] = {}  # by pipeline, as last reported by its conductors
        self._prices = [spec.prices for spec in specs if spec.prices is not None]
        self._insured = {one.name for one in pipelines if one.insured is not None}
        self._alone = {one.name: stages_alone(one, {service.name for service in services}) for one in pipelines}
        self._pipelines = [
            ComingToStages(one, PipelineCalls(per_query, called_by_all(one)))
            for one in pipelines
            if (per_query := calls_per_query(one)) is not None
        ]
        self._term: SiteTerm | None = None  # the last one that began
        self._terms = Lock()
        self._keeper = Keeper(
            self.inventory,
            self.bouncers,
            tuple(self._services),
            lambda: None if dry_run else self.present_term(),
            self.events,
        )

    def start(self) -> None:
        """Start to observe the cloud; returns after the first observation."""
        if self.notices is not None:
            self.notices.start()
        self._keeper.start()
        self.unseen.start()
        if self._metrics is not None:
            self._metrics.start()
        for name, conducted in self.conducted.items():
            self._watch_conductors(name, conducted)
        for prices in self._prices:
            prices.start()

    def step(self, now_unix_s: float) -> None:
        """Step the manager; once a minute, send its metrics to CloudWatch."""
        self.manager.step(now_unix_s)
        since_s = now_unix_s - self._metrics_unix_s  # negative after the wall clock was set back
        term = self.present_term()
        if self._metrics is not None and term is not None and not 0.0 <= since_s < PERIOD_S:
            self._metrics_unix_s = now_unix_s
            self._metrics.beat(now_unix_s)
            for service in self.manager.services():
                try:
                    decisions = self.manager.decisions(service, None, DECISIONS)
                    self._metrics.put(self.manager.view(service), decisions, term.changes)
                except CloudError as error:  # concerns this service only
                    _log.warning("no metrics of %s are sent: %s", service, error)
            for pipeline, conducted in self.conducted.items():
                self._metrics.put_pipeline(pipeline, conducted.recent(), now_unix_s)
            ages_s = self.unstored_s | {name: service.unstored_s() for name, service in self._services.items()}
            for name, unstored_s in ages_s.items():
                if unstored_s is not None:
                    self._metrics.put_unstored(name, unstored_s, now_unix_s)

    def _watch_conductors(self, pipeline: str, conducted: ConductedQueries) -> None:
        """Scrape the pipeline's conductors for whole queries, and tell them prices and each other's addresses."""
        site, there = self.site, self.site.pipelines[pipeline]
        conductors = None if there.address else Conductors(self._parts.gate(None), there.conductors)
        urls: list[str] = []  # of the last look

        def targets() -> list[ScrapeTarget]:
            if conductors is None:
                urls[:] = there.address.split()
                return [ScrapeTarget(url, url, "", 0.0) for url in urls]
            found = {id: f"{there.scheme}://{at}:{site.bouncer_port}" for id, at in conductors.addresses().items()}
            urls[:] = found.values()
            return [ScrapeTarget(id, url, "", 0.0) for id, url in found.items()]

        def told() -> dict[str, str]:
            if self.dry_run:
                return {}
            prices = {
                stage: _told_of_stage(
                    self.manager.view(name),
                    wanted=conducted.wanted_rps(stage) is not None,
                    fleet=pipeline in self._insured,
                )
                for stage, name in self._alone.get(pipeline, {}).items()
            }
            return headers_of(PriceList(), prices) | peer_header.headers_of(urls)

        def heard(
            window: int,
            asked: Sequence[ScrapeTarget],
            answered: Mapping[str, BouncerCounters],
            gateway: GatewayCounts | None,
        ) -> None:
            conducted.close_window(window, [target.id for target in asked], answered)
            self.unstored_s[pipeline] = oldest_unstored_s(answered)

        self.scraper.watch(self._conductor_clock, targets, None, heard, told, read=read_conductor)

    def close(self) -> None:
        """Stop everything in order, so that nothing acts after the lease is released."""
        self._keeper.close()
        self.unseen.close()
        self.manager.end(time.time)
        self.manager.close()
        self._parts.pool.shutdown()
        self.scraper.close()
        if self.notices is not None:
            self.notices.close()
        if self._metrics is not None:
            self._metrics.close()
        self._parts.close()
        # After the lease, because a hanging call may take a while.
        for prices in self._prices:
            prices.close()

    # -- called by its services ----------------------------------------------------------------------------------------

    def store(self, service: str, fence: int) -> ServiceStore:
        """Return the service's store in the term with this number."""
        return ServiceStore(self._parts.table, service, Fence(self._parts.lease.name, fence))

    def serving(self) -> dict[str, ServingNow]:
        """Return every service's present state, by which the balancer's lost requests are divided among services."""
        snapshot = self.inventory.snapshot()
        return {
            name: ServingNow(any(map(takes_requests, snapshot.of(name))), one.rps())
            for name, one in self._services.items()
        }

    def coming(self, service: str) -> ComingCalls | None:
        """Return the calls that a pipeline's stage will get; None if the calls that arrive there already show them."""
        for pipeline, conducted in self.conducted.items():
            for stage, name in self._alone.get(pipeline, {}).items():
                if name == service and (wanted_rps := conducted.wanted_rps(stage)) is not None:
                    return ComingCalls(wanted_rps, 1.0)
        for stages in self._pipelines:
            if service in stages.services:
                return stages.coming(service, {name: self._services[name].now() for name in stages.services})
        return None

    def present_term(self) -> SiteTerm | None:
        """Return the present term, which begins with the first call; None while another process leads."""
        with self._terms:
            fence = self.manager.fence()
            if fence is None:
                return None
            if self._term is None or self._term.fence != fence:
                self._term = SiteTerm(self, tuple(self._services.values()), fence)
            return self._term

    def term(self, fence: int) -> SiteTerm:
        """Return the term. Raises LostLease if it is over."""
        term = self.present_term()
        if term is None or term.fence != fence:
            raise LostLease("the term ended before the service could begin")
        return term


class SiteTerm:
    """The parts of a site that end with the term `fence` of this process; clocks and clouds by service."""

    def __init__(self, control: SiteControl, services: Sequence[_Service], fence: int) -> None:
        self.fence = fence
        self.clocks = {service.name: service.new_clock() for service in services}
        self.clouds: Mapping[str, Ec2Cloud] = {one.name: one.new_cloud(self.clocks[one.name]) for one in services}
        self.reconciler = Reconciler(control.gate, control.inventory, control.site)
        self.changes = MetricChanges()


@dataclass(slots=True)
class _Led:
    """The parts of a service that others ask while this process leads."""

    telemetry: ScrapedTelemetry
    controller: Controller
    unstored_s: float | None = None  # as last reported by its servers


class _Service:
    """One service's ports, and how its parts are built when this process begins to lead. `numbers` needs no lease."""

    def __init__(self, spec: ServiceSpec, origin_unix_s: float, numbers: ServiceStore, control: SiteControl) -> None:
        self.name = spec.resolved.service.name
        self.spec, self._origin_unix_s, self._numbers, self._control = spec, origin_unix_s, numbers, control
        self._led: _Led | None = None

    def new_clock(self) -> WallClock:
        return WallClock(self._origin_unix_s, self._control.site.time_scale)

    def new_cloud(self, clock: WallClock) -> Ec2Cloud:
        control, resolved = self._control, self.spec.resolved
        capacity_rps = {o.name: c.capacity_rps for o, c in zip(resolved.offers, resolved.candidates, strict=True)}
        balancer = Balancer(control.gate, control.site.service(self.name), capacity_rps, pace=control.pace)
        around = InstancePorts(control.bouncers, balancer, control.notices or _NoNotices(), control.events)
        return Ec2Cloud(
            self.name, resolved.offers, control.site, control.gate, control.inventory, self._numbers, clock, around
        )

    def now(self) -> StageNow | None:
        """Return the service's present state as a stage of a pipeline."""
        led = self._led
        return None if led is None else stage_now(led.telemetry, led.controller.last_plan, self.spec.resolved)

    def rps(self) -> float | None:
        """Return the last known rate."""
        led = self._led
        return None if led is None else led.telemetry.last_minute_rps()

    def unstored_s(self) -> float | None:
        """Return the age of the oldest fact that servers have learned but not stored."""
        led = self._led
        return None if led is None else led.unstored_s

    def told(self) -> dict[str, str]:
        """Return the headers that tell bouncers prices and each other's addresses.

        A dry run sends none, because it changes nothing.
        """
        if self._control.dry_run:
            return {}
        prices = headers_of(self._control.manager.view(self.name).price_list)
        if self.spec.resolved.service.feedback is None:  # without feedback, bouncers learn nothing to share
            return prices
        return prices | peer_header.headers_of([target.url for target in self._targets()])

    def start(self, fence: int, wrapped: Callable[[Store], Store]) -> RuntimePorts:
        """Build the service's parts. Raises CloudError."""
        control, spec, term = self._control, self.spec, self._control.term(fence)
        clock, ec2 = term.clocks[self.name], term.clouds[self.name]
        # The previous leader may have launched instances since the last refresh.
        control.inventory.refresh(at_once=True)
        kept = control.store(self.name, fence)
        now_s = clock.now_s()
        history = joined(spec.history, kept.load_since(max(0.0, now_s - LOAD_DAYS * DAY_S), now_s))
        store = wrapped(MemoryStore() if control.dry_run else kept)
        there = control.site.service(self.name)
        known = know_release(there, kept, store)
        ec2.templates, ec2.platforms = dict(known.templates), dict(known.platforms)
        function = spec.resolved.function
        gateway = there.gateway
        warming, functions = None, None
        if function is not None and there.function is not None and not control.dry_run:
            rollout = known_rollout(kept)
            serving = there.function if rollout is None else known.functions.get(rollout.release, there.function)
            warming = LambdaWarming(
                serving,
                function.offer.keep_alive_s,
                clock,
                region=control.site.region,
                session=control.session,
            )
            functions = ReleasedFunctions(warming, control.gate, known.functions, there.function_alias)
        spent = None if warming is None else lambda: (warming.spent.calls, warming.spent.billed_s)
        unseen = UnseenSource(lambda: control.unseen.so_far(self.name), 0.0 if function is None else function.warm_s)
        telemetry = ScrapedTelemetry(
            store,
            now_s=now_s,
            history=HistoryEnd(history.end_s, last_rps(history)),
            scale=clock.scale,
            gateway=gateway is not None,
            function=None if function is None else BilledFunction(function.offer, spent),
            look_back=spec.resolved.service.slo_monitor.window,
            keep_load=(lambda _: None) if control.dry_run else lambda load: kept.append_load(over(load, clock.now_s())),
            unseen=None if gateway is not None else unseen,
            calls_per_request=spec.calls_per_request,
        )
        predictor = Supervised(taking_turns(spec.predictor(), control.services), clock=time.monotonic)
        with computing():
            predictor.fit(history)
        cloud: Cloud = ec2
        ported: Functions | None = functions
        if control.dry_run:
            cloud, ported = DryRunCloud(cloud, spec.resolved.offers, clock), DryRunFunctions()

        live = None if spec.prices is None else ServicePrices(spec.prices, spec.resolved, clock)

        def policy(limits: Limits) -> Policy:
            new = None if live is None else live.repriced()
            own = spec.resolved if new is None else new.resolved
            return spec.policy(limited(own, limits))

        controller = Controller(
            spec.policy(spec.resolved),
            predictor,
            cloud,
            ported,
            clock,
            store,
            telemetry,
            leadership=Leadership(int(clock.origin_unix_s), partial(control.lease.lasts_as, fence)),
            release=there.release,
            coming=partial(control.coming, self.name),
        )
        changes: Changes = StateChanges(control.notices, kept, control.inventory, clock, store)
        led = _Led(telemetry, controller)

        def heard(
            window: int,
            asked: Sequence[ScrapeTarget],
            answered: Mapping[str, BouncerCounters],
            gateway: GatewayCounts | None,
        ) -> None:
            control.bouncers.scraped([target.id for target in asked], answered)
            telemetry.close_window(window, asked, answered, gateway)
            led.unstored_s = oldest_unstored_s(answered)

        read = read_whole if spec.resolved.service.whole else read_bouncer
        stop = control.scraper.watch(clock, self._targets, gateway, heard, self.told, read)
        self._led = led  # last, because a failed start has no `close`

        def close() -> None:
            stop()
            self._led = None
            if warming is not None:
                warming.close()

        return RuntimePorts(controller, cloud, telemetry, changes, store, clock, clock.unix_s, policy, close, live)

    def _targets(self) -> list[ScrapeTarget]:
        site, at_s = self._control.site, self.new_clock().at_s
        return [
            ScrapeTarget(m.id, site.bouncer_url(self.name, m.address), m.offer, at_s(m.ready_unix_s), m.release)
            for m in self._control.inventory.snapshot().of(self.name)
            if m.state == "running" and m.ready_unix_s is not None
        ]


class _NoNotices:
    """No interruption is announced without a queue."""

    def interruptions(self) -> list[Interruption]:
        return []


def oldest_unstored_s(answered: Mapping[str, BouncerCounters]) -> float | None:
    """Return the age of the oldest fact that servers have learned but not stored; None if they store no facts."""
    return max((one.unstored_s for one in answered.values() if one.unstored_s is not None), default=None)


def _told_of_stage(view: ServiceView, *, wanted: bool, fleet: bool) -> PriceList:
    """Return the prices of a stage for the conductors; with `fleet` also cost and capacity, for parity models.

    The marginal price is included only if conductors count the `wanted` calls, those that they would make at planned
    prices. Otherwise the price would hide the calls it prevents from the planner, which would then buy nothing.
    """
    found = view.price_list
    told = PriceList(found.usd_per_request if wanted else None, None, found.usd_per_planned_request)
    if not fleet or view.plan is None:  # without a plan, this process does not lead, or has just begun to
        return told
    return replace(told, usd_per_hour=view.usd_per_hour, ready_rps=view.capacity_rps)


def open_control(
    site: Site,
    specs: Sequence[ServiceSpec],
    *,
    dry_run: bool,
    wait: Callable[[float], bool],
    tell: Callable[[str], None],
    session: Any = None,
    pipelines: Sequence[PipelineConfig] = (),
) -> SiteControl | None:
    """Build and start the control, retrying after a CloudError; None if `wait(seconds)` returns True to give up.

    See `site_parts` for `session` and `SiteControl` for `pipelines`.
    """
    pause_s = 1.0
    while True:
        try:
            parts = site_parts(site, dry_run=dry_run, session=session)
            try:
                control = SiteControl(site, specs, dry_run=dry_run, parts=parts, pipelines=pipelines)
            except CloudError:
                parts.close()
                raise
            control.start()
            return control
        except CloudError as error:
            tell(f"cannot begin, and tries again in {pause_s:.0f} s: {' '.join(str(error).split())}")
        if wait(pause_s):
            return None
        pause_s = min(30.0, 2.0 * pause_s)
