"""Changes of a serving site: another release, other types, other zones, and back.

The healthy capacity to which the balancer sends requests is never below the plan's.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from itertools import groupby
from typing import Any

import pytest
from mark_infra.aws.balancer import Balancer
from mark_infra.aws.ec2_cloud import Ec2Cloud, InstancePorts
from mark_infra.aws.gate import Gate
from mark_infra.aws.inventory import Inventory

from mark.control.controller import Controller
from mark.control.memory_store import MemoryStore
from mark.control.rollout import RolloutStage
from mark.domain.offer import Market, Offer
from mark.domain.service import RolloutSettings
from mark.planning.planner import Policy
from mark.testing.fakes import FakeFunctions, FakeTelemetry, ScriptedPlanner
from tests.control.control_fakes import ON_DEMAND, offer, resolved
from tests.infra.aws.bench import Bench, Place, Time
from tests.infra.aws.fake_elb import FakeElb

OTHER = offer("c5.xlarge", usd_per_hour=0.17)
SPOT_A, SPOT_B = (offer(market=Market.SPOT, usd_per_hour=0.034, zone=zone) for zone in "ab")
STEP_S, BOOT_S, CHECKS_S = 5.0, 60.0, 10.0


class ClockedEc2:
    """moto's EC2 with launch times by the test's clock."""

    def __init__(self, client: Any, time: Time) -> None:
        self._client, self._time = client, time
        self._seen_s: dict[str, float] = {}

    def __getattr__(self, name: str) -> Any:
        return getattr(self._client, name)

    def describe_instances(self, **asked: Any) -> Any:
        answer = self._client.describe_instances(**asked)
        for instance in (i for r in answer["Reservations"] for i in r["Instances"]):
            seen_s = self._seen_s.setdefault(instance["InstanceId"], self._time.t_s)
            instance["LaunchTime"] = datetime.fromtimestamp(seen_s, UTC)
        return answer


class Session:
    def __init__(self, **clients: Any) -> None:
        self._clients = clients

    def client(self, service: str, **_: Any) -> Any:
        return self._clients[service]


class Changing(Bench):
    """A controller over EC2 and a balancer. Instances boot within BOOT_S, and health checks of a target take CHECKS_S.

    OTHER is of another class than the other types. Each change is a new controller over one store. `short` lists
    moments at which the balancer sent requests to less capacity than the plan wanted.
    """

    def __init__(self, place: Place) -> None:
        self.offers: Sequence[Offer] = (ON_DEMAND,)
        self.release, self.templates = "a", {"a": "1"}
        self.wanted: dict[str, int] = {}
        self.short: list[tuple[float, int, int]] = []
        self.kept, self.telemetry = MemoryStore(), FakeTelemetry()
        self.elb = FakeElb(["small", "large"], ["path"])
        self.since_s: dict[str, float] = {}  # when each target was registered
        self.ec2: ClockedEc2 | None = None
        super().__init__(place, groups=["small", "large"], rules=["path"])

    def begin_again(self, **changes: object) -> None:
        """Start a new controller, which knows only the contents of EC2 and the store."""
        self.site = replace(self.site, **changes)  # type: ignore[arg-type]
        if self.ec2 is None:
            self.ec2 = ClockedEc2(self.place.server.client("ec2"), self.time)
        self.gate = Gate(self.site, session=Session(ec2=self.ec2, elbv2=self.elb))
        self.inventory = Inventory(self.gate, self.site, monotonic=self.time.unix_s)
        there = self.site.service("inception")
        capacity_rps = {one.name: 40.0 if one == OTHER else 10.0 for one in (ON_DEMAND, OTHER, *self.offers)}
        self.balancer = Balancer(self.gate, there, capacity_rps, monotonic=self.time.unix_s)
        self.cloud = Ec2Cloud(
            "inception",
            self.offers,
            self.site,
            self.gate,
            self.inventory,
            self.numbers,
            self.time,
            InstancePorts(self.bouncers, self.balancer, self.notices),
            unix_s=self.time.unix_s,
        )
        self.cloud.templates = dict(self.templates)
        plain = resolved(*self.offers, min_instances=1)
        service = replace(plain.service, rollout=RolloutSettings(canary_s=30.0))
        planner = ScriptedPlanner()
        planner.wanted = self.wanted
        self.controller = Controller(
            Policy(planner, replace(plain, service=service), bouncers=True), None, self.cloud, FakeFunctions(),
            self.time, self.kept, self.telemetry, release=self.release,
        )  # fmt: skip

    def change(self, wanted: Mapping[str, int], offers: Sequence[Offer] | None = None, release: str = "") -> None:
        """Deploy, and tick until nothing changes any more."""
        self.offers, self.release, self.wanted = offers or self.offers, release or self.release, dict(wanted)
        if self.release not in self.templates:
            data = {"ImageId": self.place.server.client("ec2").describe_images(Owners=["self"])["Images"][0]["ImageId"]}
            made = self.place.server.client("ec2").create_launch_template_version(
                LaunchTemplateId=self.place.template, LaunchTemplateData=data
            )
            self.templates[self.release] = str(made["LaunchTemplateVersion"]["VersionNumber"])
        self.place.forget_terminated()
        self.begin_again()
        for _ in range(200):
            self._step()
            if self._settled():
                return
        raise AssertionError(f"never settled: {self.controller.state.rollout}, {self.cloud.fleet()}")

    def serving(self) -> set[str]:
        """Return ids of healthy instances to which the balancer sends requests."""
        return self.elb.routed("path")

    def tags(self, key: str) -> set[str]:
        return {t["Value"] for i in self.place.instances(self.site).values() for t in i["Tags"] if t["Key"] == key}

    def subnets(self) -> set[str]:
        return {instance["SubnetId"] for instance in self.place.instances(self.site).values()}

    def templates_used(self) -> list[str]:
        """Return the versions of the launch template that launches named, in order."""
        key = "LaunchTemplateConfigs.1.LaunchTemplateSpecification.Version"
        return [version for version, _ in groupby(fleet[key] for fleet in self.place.market.fleets)]

    def _step(self) -> None:
        was = len(self.serving())
        self.time.t_s += STEP_S
        self.inventory.refresh()
        running = [m for m in self.inventory.snapshot().of("inception") if m.state == "running"]
        self.bouncers.serving = {m.id for m in running if self.time.t_s - m.launched_unix_s >= BOOT_S}
        self._check_health()
        self.cloud.upkeep()
        self.controller.fast()
        if self.time.t_s % 60.0 == 0.0:
            self.controller.tick()
        now, needed = len(self.serving()), min(was, sum(self.wanted.values()))
        if now < needed:
            self.short.append((self.time.now_s(), now, needed))

    def _check_health(self) -> None:
        targets = {id for targets in self.elb.targets.values() for id in targets}
        self.since_s = {id: self.since_s.get(id, self.time.t_s - STEP_S) for id in targets}
        self.elb.pass_checks({id for id, since_s in self.since_s.items() if self.time.t_s - since_s >= CHECKS_S})
        for group in self.elb.targets.values():
            for id in group.keys() - self.bouncers.serving:
                del group[id]  # a balancer drops terminated targets by itself

    def _settled(self) -> bool:
        rollout, fleet = self.controller.state.rollout, self.cloud.fleet()
        ready = fleet.ready()
        return (
            rollout is not None
            and rollout.stage is RolloutStage.DONE
            and (rollout.release == self.release or self.release in rollout.refused)
            and not fleet.leaving
            and dict(ready) == self.wanted
            and len(fleet.instances) == sum(self.wanted.values()) == len(self.serving())
        )


@pytest.fixture
def site(place: Place) -> Changing:
    place.market.left = {}
    place.market.fleets.clear()
    return Changing(place)


@pytest.mark.slow
def test_no_change_leaves_less_ready_than_is_planned(site: Changing) -> None:
    site.change({ON_DEMAND.name: 3})
    first = set(site.serving())
    site.change({ON_DEMAND.name: 3})  # only the controller is new
    assert set(site.serving()) == first
    site.change({ON_DEMAND.name: 3}, release="b")
    assert site.tags("mark:release") == {"b"}
    assert site.templates_used() == ["1", "2"]
    assert first.isdisjoint(site.serving())
    assert site.short == []
    site.change({OTHER.name: 2}, (OTHER,))
    site.change({SPOT_A.name: 2}, (SPOT_A, SPOT_B))
    site.change({SPOT_B.name: 2}, (SPOT_B,))
    site.change({ON_DEMAND.name: 3}, (ON_DEMAND,), release="a")
    assert site.tags("mark:release") == {"a"}
    assert site.templates_used()[-2:] == ["2", "1"]
    assert site.tags("mark:offer") == {ON_DEMAND.name}
    assert site.short == []
    assert site.elb.lost == []


def test_a_zone_is_left_once_others_serve(site: Changing) -> None:
    """This includes offers that are sold in all zones alike."""
    site.change({ON_DEMAND.name: 3})
    first, (zone_a, zone_b) = set(site.serving()), site.site.service("inception").subnets.items()
    assert site.subnets() == {zone_a[1], zone_b[1]}, "spread over both"
    for zone in (zone_b, zone_a):
        there = replace(site.site.service("inception"), subnets=dict([zone]))
        site.site = replace(site.site, services={"inception": there})
        site.change({ON_DEMAND.name: 3})
        assert site.subnets() == {zone[1]}
    assert first.isdisjoint(site.serving())
    assert site.short == []
    assert site.elb.lost == []


def test_an_unknown_release_is_no_launch(site: Changing) -> None:
    """The store forgot the version of its template, and the controller does not guess."""
    site.change({ON_DEMAND.name: 1})
    site.templates.clear()
    site.begin_again()
    site.wanted[ON_DEMAND.name] = 2
    for _ in range(24):
        site._step()
    assert len(site.place.instances(site.site)) == 1
    assert any("no version of the launch template" in outcome for *_, outcome in site.kept.journal)
