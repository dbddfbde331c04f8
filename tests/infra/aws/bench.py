"""An Ec2Cloud over moto, among fakes: a test decides how time passes and how bouncers answer."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import replace
from typing import Any

from mark_infra.aws.balancer import Balancer
from mark_infra.aws.ec2_cloud import Ec2Cloud, InstancePorts
from mark_infra.aws.gate import Gate
from mark_infra.aws.inventory import SETTLE_S, DescribedInstance, Inventory
from mark_infra.aws.scheduled_events import PERIOD_S, ScheduledEvents
from mark_infra.aws.site import Site, SiteService

from mark.domain.fleet import Phase
from mark.domain.offer import Market as OfferMarket
from tests.control.control_fakes import BURSTABLE, ON_DEMAND, SPOT_A, offer
from tests.infra.aws.market import Market
from tests.infra.conftest import REGION, MotoServer

OTHER_SPOT = offer("m5.large", OfferMarket.SPOT, 0.034, zone="a")
OFFERS = (ON_DEMAND, SPOT_A, BURSTABLE, OTHER_SPOT)
CAPACITY_RPS = {ON_DEMAND.name: 20.0, SPOT_A.name: 20.0, BURSTABLE.name: 7.5}


class Time:
    """Unix time, a monotonic clock and control seconds in one. Unix time begins at 1.8e9 s, control time at 0."""

    ORIGIN_S = 1.8e9
    BOOT_S = ORIGIN_S - 5_000.0  # the monotonic clock at the start

    def __init__(self) -> None:
        self.t_s = self.ORIGIN_S

    def unix_s(self) -> float:
        return self.t_s

    def now_s(self) -> float:
        return self.at_s(self.t_s)

    def at_s(self, unix_s: float) -> float:
        return unix_s - self.ORIGIN_S

    def monotonic(self) -> float:
        return self.t_s - self.BOOT_S

    def at_monotonic_s(self, t_s: float) -> float:
        return self.at_s(t_s + self.BOOT_S)


class FakeNumbers:
    """Instance numbers as the store gives them. Fails on request."""

    def __init__(self) -> None:
        self.given: dict[str, int] = {}
        self.forgot: list[set[str]] = []
        self.error: Exception | None = None

    def numbers(self, ids: Sequence[str]) -> dict[str, int]:
        if self.error is not None:
            raise self.error
        for id in ids:
            self.given.setdefault(id, len(self.given) + 1)
        return {id: self.given[id] for id in ids}

    def forget_numbers(self, there: Collection[str]) -> None:
        self.forgot.append(set(self.given) - set(there))


class FakeBouncers:
    def __init__(self) -> None:
        self.serving: set[str] = set()
        self.busy: set[str] = set()
        self.silent: dict[str, float] = {}

    def ready(self, machine: DescribedInstance) -> bool:
        return machine.id in self.serving

    def idle(self, machine: DescribedInstance) -> bool:
        return machine.id not in self.busy

    def silent_since_s(self, machine: DescribedInstance) -> float | None:
        return self.silent.get(machine.id)


class FakeNotices:
    def __init__(self) -> None:
        self.told: list[tuple[str, float, float]] = []

    def interruptions(self) -> list[tuple[str, float, float]]:
        return self.told


class Place:
    """An account with a launch template and target groups, behind a market."""

    def __init__(self, server: MotoServer, market: Market) -> None:
        self.server, self.market = server, market
        ec2 = server.client("ec2")
        self.subnets = {s["AvailabilityZone"]: s["SubnetId"] for s in ec2.describe_subnets()["Subnets"]}
        vpc = ec2.describe_vpcs()["Vpcs"][0]["VpcId"]
        image = ec2.register_image(Name="plain")["ImageId"]
        made = ec2.create_launch_template(
            LaunchTemplateName="mark-inception", LaunchTemplateData={"ImageId": image, "InstanceType": "c5.large"}
        )
        self.template = made["LaunchTemplate"]["LaunchTemplateId"]
        elb = server.client("elbv2")
        self.groups = [
            elb.create_target_group(Name=name, Protocol="HTTP", Port=8080, VpcId=vpc, TargetType="instance")[
                "TargetGroups"
            ][0]["TargetGroupArn"]
            for name in ("small", "large")
        ]
        self.balancer = elb.create_load_balancer(Name="mark", Subnets=list(self.subnets.values())[:2])["LoadBalancers"][
            0
        ]["LoadBalancerArn"]
        self._sites = 0
        self.gate = Gate(self.site(), options=server.options)

    def site(self, groups: Sequence[str] = (), rules: Sequence[str] = ()) -> Site:
        """Return a new site with one service, `inception`, that sees no instances of other sites."""
        self._sites += 1
        zone_a, zone_b = (self.subnets[f"{REGION}{letter}"] for letter in "ab")
        service = SiteService(self.template, {"a": zone_a, "b": zone_b}, tuple(groups), listener_rules=tuple(rules))
        return Site(f"site-{self._sites}", REGION, "sqlite:none", services={"inception": service})

    def instances(self, site: Site) -> dict[str, dict[str, Any]]:
        """Return EC2's own view of running and stopped instances by id."""
        filters = [{"Name": "tag:mark:site", "Values": [site.name]}]
        answer = self.server.client("ec2").describe_instances(Filters=filters)
        found = [i for r in answer["Reservations"] for i in r["Instances"]]
        return {i["InstanceId"]: i for i in found if i["State"]["Name"] not in ("shutting-down", "terminated")}

    def forget_terminated(self) -> None:
        """Forget terminated instances, as EC2 does after about an hour; moto never does."""
        for reservation in self.server.backend("ec2").reservations.values():
            reservation.instances = [i for i in reservation.instances if i.state != "terminated"]

    def end_at_launch(self, instance_id: str, code: str, message: str) -> None:
        """Terminate an accepted launch, as EC2 does when it cannot start an instance."""
        self.server.client("ec2").terminate_instances(InstanceIds=[instance_id])
        reason = self.server.backend("ec2").get_instance(instance_id).state_reason
        reason.code, reason.message = code, message


class Bench:
    """One service's cloud at its own site."""

    def __init__(
        self, place: Place, *, groups: Sequence[str] = (), rules: Sequence[str] = (), url: str | None = None
    ) -> None:
        self.place, self.site = place, place.site(groups, rules)
        self.time, self.numbers = Time(), FakeNumbers()
        self.bouncers, self.notices = FakeBouncers(), FakeNotices()
        if url is None:
            self.gate = place.gate
        else:
            self.gate = Gate(self.site, options={**place.server.options, "endpoint_url": url})
        self.begin_again()

    def begin_again(self, **changes: Any) -> None:
        """Start a new controller, which knows only the contents of EC2 and the store."""
        self.site = replace(self.site, **changes)
        self.inventory = Inventory(self.gate, self.site, monotonic=self.time.unix_s)
        self.events = ScheduledEvents(self.gate, monotonic=self.time.unix_s)
        there = self.site.services.get("inception", SiteService("", {}))
        self.balancer = Balancer(self.gate, there, CAPACITY_RPS, monotonic=self.time.unix_s)
        self.cloud = Ec2Cloud(
            "inception",
            OFFERS,
            self.site,
            self.gate,
            self.inventory,
            self.numbers,
            self.time,
            InstancePorts(self.bouncers, self.balancer, self.notices, self.events),
            unix_s=self.time.unix_s,
        )

    def pass_s(self, seconds: float = SETTLE_S + 1.0) -> None:
        """Let time pass, and ask EC2 again."""
        self.time.t_s += seconds
        self.inventory.refresh()

    def schedule(self, number: int, code: str, at_s: float) -> None:
        """Let EC2 announce an event, and ask it."""
        self.place.market.schedule(self.id_of(number), code, self.time.ORIGIN_S + at_s)
        self.time.t_s += PERIOD_S
        self.events.refresh()

    def boot(self) -> None:
        """Make every booting instance ready."""
        self.pass_s()
        self.bouncers.serving.update(self.ids())
        self.cloud.upkeep()
        if self.site.service("inception").target_groups:  # moto takes registered targets for healthy
            self.pass_s(1.0)
            self.cloud.upkeep()

    def ids(self) -> list[str]:
        return list(self.place.instances(self.site))

    def id_of(self, number: int) -> str:
        return next(id for id, given in self.numbers.given.items() if given == number)

    def phases(self) -> dict[int, Phase]:
        return {i.number: i.phase for i in self.cloud.fleet().instances}
