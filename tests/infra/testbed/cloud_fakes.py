"""Fakes of the cloud's parts on the testbed: time, machines, gateways; and a cloud over them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from mark_infra.testbed.machines_port import Machine, MachineState

from mark.domain.errors import MarkError
from mark.domain.offer import BurstCredits, Catalog, Delay, Market, Offer

BOOT, RESUME = Delay(60.0, 60.0), Delay(30.0, 30.0)
ON_DEMAND = Offer("c5.large", Market.ON_DEMAND, 0.09, BOOT, vcpu=2.0, memory_gib=4.0)
LARGER = Offer("c5.xlarge", Market.ON_DEMAND, 0.18, BOOT, vcpu=4.0, memory_gib=8.0)
SPOT_A = Offer("c5.large", Market.SPOT, 0.036, BOOT, zone="us-east-1a", vcpu=2.0, memory_gib=4.0)
SPOT_B = Offer("c5.large", Market.SPOT, 0.0324, BOOT, zone="us-east-1b", vcpu=2.0, memory_gib=4.0)
CREDITS = BurstCredits(baseline=0.2, credits_per_hour=12.0, max_credits=288.0, launch_credits=1.0)
BURSTABLE = Offer("t2.small", Market.BURSTABLE, 0.0225, BOOT, vcpu=1.0, memory_gib=2.0, resume=RESUME, credits=CREDITS)
UNLIMITED = Offer(
    "t3.small", Market.BURSTABLE, 0.0207, BOOT, vcpu=2.0, memory_gib=2.0, resume=RESUME,
    credits=BurstCredits(0.2, 24.0, 576.0, 0.0, surplus_usd_per_vcpu_hour=0.05),
)  # fmt: skip
CATALOG = Catalog("test", (ON_DEMAND, LARGER, SPOT_A, SPOT_B, BURSTABLE, UNLIMITED), ())

BEGAN_S = 1_800_000_000.25


class ManualTime:
    """Unix seconds that pass when told."""

    def __init__(self) -> None:
        self.s = BEGAN_S

    def __call__(self) -> float:
        return self.s


@dataclass
class FakeMachines:
    """The port Machines; `said` has its calls in order. A machine that `lingers` does not end until let go."""

    said: list[tuple[Any, ...]] = field(default_factory=list)
    there: dict[str, Machine] = field(default_factory=dict)
    lingers: bool = False
    fails: bool = False
    cannot_end: bool = False

    def boot(self, machine: Machine) -> None:
        if self.fails:
            raise OSError("no process can be started")
        if machine.instance_id in self.there or machine.address in {m.address for m in self.there.values()}:
            raise ValueError(f"{machine.instance_id} or its address is taken")
        self.said.append(("boot", machine))
        self.there[machine.instance_id] = machine

    def announce(self, instance_id: str, action: str, at_unix_s: float) -> None:
        if instance_id not in self.there:
            raise KeyError(instance_id)
        self.said.append(("announce", instance_id, action, at_unix_s))

    def set_speed(self, instance_id: str, speed: float) -> None:
        if instance_id not in self.there:
            raise KeyError(instance_id)
        self.said.append(("speed", instance_id, speed))

    def crash(self, instance_id: str) -> None:
        if instance_id not in self.there:
            raise KeyError(instance_id)
        self.said.append(("crash", instance_id))

    def end(self, instance_id: str) -> None:
        if self.cannot_end:
            raise OSError("a machine cannot be ended")
        if not self.lingers:
            self.there.pop(instance_id, None)
        self.said.append(("end", instance_id))

    def running(self) -> Mapping[str, MachineState]:
        return {instance_id: MachineState(machine) for instance_id, machine in self.there.items()}


class FakeGateway:
    """A gateway whose replicas are ready when they are in `answering`."""

    def __init__(self, url: str, answering: set[str]) -> None:
        self.url, self.answering, self.replicas, self.groups = url, answering, dict[str, float](), dict[str, str]()
        self.running, self.reachable = True, True

    def put(self, weights: Mapping[str, float], groups: Mapping[str, str]) -> None:
        self._ask()
        self.replicas, self.groups = dict(weights), dict(groups)

    def state(self) -> Mapping[str, Any]:
        self._ask()
        return {"replicas": {url: {"ready": url in self.answering} for url in self.replicas}}

    def alive(self) -> bool:
        return self.running

    def end(self) -> None:
        self.running = False

    def _ask(self) -> None:
        if not (self.running and self.reachable):
            raise MarkError(f"{self.url} does not answer")


@dataclass
class FakeGateways:
    """Starts fake gateways; `started` by target group, the newest last."""

    answering: set[str] = field(default_factory=set)
    started: dict[str, list[FakeGateway]] = field(default_factory=dict)

    def start(self, target_group: str) -> FakeGateway:
        gateway = FakeGateway(f"http://gateway-of-{target_group}", self.answering)
        self.started.setdefault(target_group, []).append(gateway)
        return gateway


class IdlePlane:
    """A simulated data plane without any work: `added_s` has the time when each instance began to take requests."""

    def __init__(self) -> None:
        self.added_s: dict[int, float] = {}

    def add(self, number: int, offer_index: int, at_s: float) -> None:
        self.added_s[number] = at_s

    def drain(self, number: int, at_s: float) -> None: ...
    def remove(self, number: int, at_s: float) -> None: ...
    def set_speed(self, number: int, factor: float, at_s: float) -> None: ...

    def idle_at(self, number: int) -> float:
        return 0.0

    def busy_s(self, number: int) -> float:
        return 0.0
