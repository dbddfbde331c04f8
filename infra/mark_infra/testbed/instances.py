"""The life of the testbed's instances: a state machine that boots, bills, interrupts, stops and ends them.

    launch -> pending -> running -> stopping -> stopped -> pending ...
    pending, running, stopping, stopped -> shutting-down -> terminated -> forgotten

Time comes in with every call (Unix seconds); delays are control seconds, `scale` of them to a second. What happens goes
to a `EventSink` (the cloud's API: states and events) and to the machines. Billing runs by the whole seconds that the
events carry, so that whoever reads the events can check the bill to the cent. Not thread-safe.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass
from enum import IntEnum
from heapq import heappop, heappush
from random import Random
from typing import Protocol

from mark.billing.meter import Meter
from mark.domain.offer import Market, Offer
from mark_infra.testbed.credits import STEP_S, CreditAccount, LaunchCredits
from mark_infra.testbed.machines_port import Machine, Machines
from mark_infra.testbed.supply import Supply

UNBILLED_PENDING_S = 20.0  # docs/semantics.md, 9
NOTICE_S = 120.0
STOPPING_S = 10.0
SHUTTING_DOWN_S = 5.0
FORGOTTEN_S = 3600.0  # how long a terminated instance is still described
_AGAIN_S = 1.0  # wall seconds; until a machine that has not ended yet is looked at again

PENDING, RUNNING, STOPPING, STOPPED = "pending", "running", "stopping", "stopped"
SHUTTING_DOWN, TERMINATED = "shutting-down", "terminated"

CODES = {PENDING: 0, RUNNING: 16, SHUTTING_DOWN: 32, TERMINATED: 48, STOPPING: 64, STOPPED: 80}  # AWS's

WARNING = "EC2 Spot Instance Interruption Warning"
REBALANCE = "EC2 Instance Rebalance Recommendation"
STATE_CHANGE = "EC2 Instance State-change Notification"

# Why an instance stops or ends: the code and message of its StateReason, and who its StateTransitionReason names.
BY_USER = ("Client.UserInitiatedShutdown", "User initiated shutdown", "User")
BY_SPOT = ("Server.SpotInstanceTermination", "Spot instance termination", "Service")
BY_FAULT = ("Server.InternalError", "Internal error on launch", "Service")
Reason = tuple[str, str, str]


class NotInState(Exception):
    """The instance cannot do that now; `code` is AWS's."""

    def __init__(self, code: str, message: str) -> None:
        super().__init__(message)
        self.code = code


class EventSink(Protocol):
    """Where lives are seen."""

    def show(self, instance_id: str, state: str, at_unix_s: int, reason: Reason | None) -> None:
        """This is its state from now on; the reason, where there is one, holds until it starts again."""
        ...

    def emit(self, detail_type: str, instance_id: str, zone: str, detail: dict[str, str], at_unix_s: int) -> None:
        """EventBridge says so."""
        ...

    def forget(self, instance_id: str) -> None:
        """It is described no more."""
        ...


class _Event(IntEnum):
    """What happens by itself. The value is the priority among events of one time: losses before gains."""

    GONE = 0
    RUNNING = 1
    STOPPED = 2
    TERMINATED = 3
    SHARE = 4
    NOTICE = 5
    CREDITS = 6
    FORGOTTEN = 7


_ACTIVE = (PENDING, RUNNING, STOPPING)
_GOOD_FOR = {
    _Event.GONE: _ACTIVE,
    _Event.NOTICE: _ACTIVE,
    _Event.RUNNING: (PENDING,),
    _Event.STOPPED: (STOPPING,),
    _Event.TERMINATED: (SHUTTING_DOWN,),
    _Event.CREDITS: (RUNNING,),
    _Event.FORGOTTEN: (TERMINATED,),
}  # in another state the event is void


@dataclass(slots=True)
class EmulatedInstance:
    """One instance. Times in Unix seconds."""

    instance_id: str
    number: int
    of_service: int  # its number among the launches of its service
    index: int  # of its offer
    offer: Offer
    zone: str
    address: str
    service: str
    persistent: bool  # a spot request that may be stopped
    launched_s: float
    state: str = PENDING
    start: int = 0  # 0: launched, 1: resumed once, ...; events of an earlier start are void
    billed_from_s: int | None = None
    doomed_s: float | None = None
    reason: Reason = BY_USER
    credits: CreditAccount | None = None
    credits_at_s: float = 0.0
    busy_s: float = 0.0  # what the account has paid for

    @property
    def active(self) -> bool:
        """Does it use capacity?"""
        return self.state in _ACTIVE


class InstanceLifecycle:
    """All instances of the cloud, its meter, and `billed`: (instance id, from, to) in Unix seconds, as it happened."""

    def __init__(
        self, supply: Supply, machines: Machines, stage: EventSink, *, began_s: int, scale: float = 1.0,
        bills_disks: bool = False,
    ) -> None:  # fmt: skip
        self.supply, self._machines, self._stage = supply, machines, stage
        self._began_s, self.scale = began_s, scale
        self.meter = Meter(supply.offers, supply.costs(), end_s=math.inf, bills_disks=bills_disks)
        self.alive: dict[str, EmulatedInstance] = {}  # described: terminated ones too, for a while
        self.billed: list[tuple[str, int, int]] = []
        self.ended_s: dict[str, int] = {}  # Unix seconds of shutting-down
        self.launched = self.interrupted = 0
        self._launched_of: Counter[str] = Counter()  # by service
        self.peak = 0  # the most at a time, neither stopped nor gone
        self.busy: Callable[[str], float] = lambda instance_id: 0.0
        self._launch_credits = LaunchCredits()
        self._events: list[tuple[float, int, int, str, int]] = []  # time, priority, order, instance id or zone, start
        self._order = 0
        for zone, steps in supply.shares.items():
            for t_s in steps.times_s[1:]:
                self._push(began_s + t_s / scale, _Event.SHARE, zone, 0)

    # Time

    def control_s(self, at_unix_s: float) -> float:
        """Control seconds since the cloud's beginning."""
        return (at_unix_s - self._began_s) * self.scale

    def next_s(self) -> float:
        """When something happens by itself next, in Unix seconds; inf when nothing will."""
        while self._events and self._is_void(self._events[0]):
            heappop(self._events)
        return self._events[0][0] if self._events else math.inf

    def advance(self, now_s: float) -> None:
        """Everything that is due happens, in order, each at its own time."""
        while self._events and self._events[0][0] <= now_s:
            event = heappop(self._events)
            if not self._is_void(event):
                self._fire(event)

    # What is asked for

    def room(self, index: int, count: int, now_s: float, planned: int = 0) -> int:
        """How many of `count` more of an offer can be had, besides those planned."""
        zone = self.supply.offers[index].zone
        active = [life for life in self.alive.values() if life.active]
        return self.supply.room(
            index,
            count,
            of_offer=sum(life.index == index for life in active) + planned,
            spot_in_zone=sum(1 for _ in self._spot_in(zone)) + planned,
            t_s=self.control_s(now_s),
        )

    def launch(
        self, instance_id: str, index: int, now_s: float, *, zone: str, address: str, service: str,
        persistent: bool = False, unlimited: bool | None = None,
    ) -> None:  # fmt: skip
        """It is there, pending. `unlimited`: how its CPU credits work; None: as the catalogue has it."""
        offer = self.supply.offers[index]
        self.launched += 1
        self._launched_of[service] += 1
        of_service = self._launched_of[service]
        life = EmulatedInstance(
            instance_id, self.launched, of_service, index, offer, zone, address, service, persistent, now_s
        )
        if offer.credits is not None:
            if unlimited is None:
                unlimited = offer.credits.surplus_usd_per_vcpu_hour is not None
            life.credits = CreditAccount(offer.credits, offer.vcpu, unlimited=unlimited)
        self.alive[instance_id] = life
        self.meter.disks(1, self.control_s(math.floor(now_s)))
        self._boot(life, now_s)

    def start(self, instance_id: str, now_s: float) -> str:
        """Boot it again; returns the state it was in. Raises NotInState."""
        life = self.alive[instance_id]
        if life.state in (PENDING, RUNNING):
            return life.state
        if life.state != STOPPED:
            raise _not(life, "started")
        if self.room(life.index, 1, now_s) < 1:
            raise NotInState("InsufficientInstanceCapacity", f"There is no capacity for {life.offer.name}.")
        life.start += 1
        life.launched_s, life.reason, life.doomed_s = now_s, BY_USER, None
        self._boot(life, now_s)
        return STOPPED

    def stop(self, instance_id: str, now_s: float) -> str:
        """Stop it; returns the state it was in. Raises NotInState."""
        life = self.alive[instance_id]
        before = life.state
        if life.offer.market is Market.SPOT and not life.persistent:
            raise NotInState(
                "UnsupportedOperation",
                f"You can't stop the Spot Instance '{instance_id}' because it is associated with a one-time Spot "
                "Instance request. You can only stop Spot Instances associated with persistent Spot Instance requests.",
            )
        if before in (STOPPING, STOPPED):
            return before
        if before != RUNNING:
            raise _not(life, "stopped")
        self._leave(life, now_s, taken=False)
        self._go(life, STOPPING, now_s)
        self._push(now_s + STOPPING_S / self.scale, _Event.STOPPED, instance_id, life.start)
        return before

    def terminate(self, instance_id: str, now_s: float, reason: Reason = BY_USER) -> str:
        """End it; returns the state it was in. Repeatable."""
        life = self.alive[instance_id]
        before = life.state
        if before in (SHUTTING_DOWN, TERMINATED):
            return before
        life.reason = reason
        self._leave(life, now_s, taken=reason is BY_SPOT)
        self.meter.disks(-1, self.control_s(math.floor(now_s)))
        self.ended_s[instance_id] = math.floor(now_s)
        self._go(life, SHUTTING_DOWN, now_s)
        self._push(now_s + SHUTTING_DOWN_S / self.scale, _Event.TERMINATED, instance_id, life.start)
        return before

    def interrupt(self, instance_id: str, now_s: float) -> None:
        """Announce that this spot instance is taken back; it goes two minutes later. Repeatable."""
        life = self.alive[instance_id]
        if life.doomed_s is not None or not life.active:
            return
        self.interrupted += 1
        life.doomed_s = math.floor(now_s) + NOTICE_S / self.scale
        detail = {"instance-id": instance_id}
        self._stage.emit(REBALANCE, instance_id, life.zone, detail, math.floor(now_s))
        warned = {**detail, "instance-action": "terminate"}
        self._stage.emit(WARNING, instance_id, life.zone, warned, math.floor(now_s))
        if life.service:
            with suppress(KeyError):  # it crashed, or ended by itself
                self._machines.announce(instance_id, "rebalance", now_s)
                self._machines.announce(instance_id, "terminate", life.doomed_s)
        self._push(life.doomed_s, _Event.GONE, instance_id, life.start)

    def interrupt_share(self, share: float, seed: int, now_s: float) -> tuple[str, ...]:
        """Announce it to this share of the running spot instances, drawn; returns their ids."""
        running = sorted(self._spot_in(None), key=lambda life: life.number)
        running = [life for life in running if life.state == RUNNING]
        chosen = Random(seed).sample(running, min(len(running), math.floor(len(running) * share + 0.5)))
        for life in chosen:
            self.interrupt(life.instance_id, now_s)
        return tuple(life.instance_id for life in chosen)

    def states(self) -> Counter[str]:
        """How many instances are in which state."""
        return Counter(life.state for life in self.alive.values())

    # What happens

    def _push(self, at_s: float, event: _Event, of: str, start: int) -> None:
        if math.isfinite(at_s):
            self._order += 1
            heappush(self._events, (at_s, int(event), self._order, of, start))

    def _is_void(self, event: tuple[float, int, int, str, int]) -> bool:
        _, kind, _, of, start = event
        if kind == _Event.SHARE:
            return False
        life = self.alive.get(of)
        if life is None or life.start != start:
            return True
        return life.state not in _GOOD_FOR[_Event(kind)]

    def _fire(self, event: tuple[float, int, int, str, int]) -> None:
        at_s, kind, _, of, start = event
        if kind == _Event.SHARE:
            self._change_share(of, at_s)
            return
        life = self.alive[of]
        if kind == _Event.RUNNING:
            self._run(life, at_s)
        elif kind == _Event.CREDITS:
            self._settle(life, at_s)
            self._push(at_s + STEP_S / self.scale, _Event.CREDITS, of, start)
        elif kind == _Event.NOTICE:
            self.interrupt(of, at_s)
        elif kind == _Event.GONE:
            self.terminate(of, at_s, BY_SPOT)
        elif kind == _Event.FORGOTTEN:
            del self.alive[of]
            self._stage.forget(of)
        elif of in self._machines.running():
            self._push(at_s + _AGAIN_S, _Event(kind), of, start)
        elif kind == _Event.STOPPED:
            self._go(life, STOPPED, at_s)
        else:
            self._go(life, TERMINATED, at_s)
            self._push(at_s + FORGOTTEN_S / self.scale, _Event.FORGOTTEN, of, start)

    def _go(self, life: EmulatedInstance, state: str, at_s: float) -> None:
        life.state = state
        second = math.floor(at_s)
        reason = life.reason if state in (STOPPING, SHUTTING_DOWN) else None
        self._stage.show(life.instance_id, state, second, reason)
        detail = {"instance-id": life.instance_id, "state": state}
        self._stage.emit(STATE_CHANGE, life.instance_id, life.zone, detail, second)

    def _boot(self, life: EmulatedInstance, now_s: float) -> None:
        self._go(life, PENDING, now_s)
        self.peak = max(self.peak, sum(one.active for one in self.alive.values()))
        boot_s = self.supply.boot_s(life.index, life.service, life.of_service, life.start)
        if life.credits is not None:
            self._launch_credits.grant(life.credits, self.control_s(now_s))
        self._push(now_s + min(UNBILLED_PENDING_S, boot_s) / self.scale, _Event.RUNNING, life.instance_id, life.start)
        life_s = self.supply.life_s(life.index, life.service, life.of_service, life.start)
        self._push(now_s + life_s / self.scale, _Event.NOTICE, life.instance_id, life.start)
        if life.service:
            machine = Machine(
                life.instance_id, life.offer.instance, life.address, life.service, boot_s / self.scale, life.zone,
                life.offer.market is Market.SPOT,
            )  # fmt: skip
            try:
                self._machines.boot(machine)
            except (OSError, ValueError):
                self.terminate(life.instance_id, now_s, BY_FAULT)

    def _run(self, life: EmulatedInstance, at_s: float) -> None:
        life.billed_from_s = math.floor(at_s)
        self.meter.open(life.index, self.control_s(life.billed_from_s))
        self._go(life, RUNNING, at_s)
        if life.credits is not None:
            life.credits_at_s, life.busy_s = at_s, self.busy(life.instance_id)
            self._push(at_s + STEP_S / self.scale, _Event.CREDITS, life.instance_id, life.start)

    def _leave(self, life: EmulatedInstance, now_s: float, *, taken: bool) -> None:
        """It runs no more: its account is settled, its machine ends."""
        if life.state == RUNNING and life.credits is not None:
            self._settle(life, now_s)
            life.credits.stopped()
        if life.billed_from_s is not None:
            from_s, to_s = life.billed_from_s, math.floor(now_s)
            self.meter.close(life.index, self.control_s(from_s), self.control_s(to_s), taken=taken)
            self.billed.append((life.instance_id, from_s, to_s))
            life.billed_from_s = None
        if life.service and life.state in (PENDING, RUNNING):
            self._machines.end(life.instance_id)

    def _settle(self, life: EmulatedInstance, at_s: float) -> None:
        assert life.credits is not None
        busy_s, before = self.busy(life.instance_id), life.credits.speed
        # A machine that was started anew counts from zero again.
        worked_s = busy_s - life.busy_s if busy_s >= life.busy_s else busy_s
        usd = life.credits.settle((at_s - life.credits_at_s) * self.scale, worked_s * self.scale)
        life.credits_at_s, life.busy_s = at_s, busy_s
        if usd:
            self.meter.surplus(life.index, usd)
        if life.credits.speed != before and life.service:
            with suppress(KeyError):
                self._machines.set_speed(life.instance_id, life.credits.speed)

    def _change_share(self, zone: str, at_s: float) -> None:
        steps = self.supply.shares[zone]
        t_s = self.control_s(at_s)
        # 1e-3: the time may have lost a little by its rounding.
        i = max(k for k, step_s in enumerate(steps.times_s) if step_s <= t_s + 1e-3)
        held = sorted(self._spot_in(zone), key=lambda life: (life.launched_s, life.number))
        for life in held[: self.supply.lost(zone, steps.shares[i - 1], steps.shares[i], len(held))]:
            self.interrupt(life.instance_id, at_s)

    def _spot_in(self, zone: str | None) -> Iterable[EmulatedInstance]:
        for life in self.alive.values():
            if life.offer.market is Market.SPOT and life.active and life.doomed_s is None and zone in (None, life.zone):
                yield life


def _not(life: EmulatedInstance, done: str) -> NotInState:
    message = f"The instance '{life.instance_id}' is not in a state from which it can be {done}."
    return NotInState("IncorrectInstanceState", message)
