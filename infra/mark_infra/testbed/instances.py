"""The life cycle of the testbed's instances: EC2's behaviour (mark.cloud.ec2), in real time and with real machines.

Time comes in with every call (Unix seconds); delays are control seconds, `scale` per second. Changes go to an
`EventSink` (the cloud's API: states and events) and to the machines. Bills count the whole seconds in the events, so
that the bill can be checked against the events to the cent. Not thread-safe.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from random import Random
from typing import Protocol

from mark.cloud.billing.meter import Meter, disks_of
from mark.cloud.ec2.cpu_credits import CREDIT_STEP_S, CreditAccount, LaunchCredits
from mark.cloud.ec2.events import InstanceEvent
from mark.cloud.ec2.lifecycle import HOLDS_CAPACITY, State
from mark.cloud.machine import InstanceLife, LifeEvents
from mark.domain.ec2_limits import INTERRUPTION_NOTICE_S, TERMINATED_DESCRIBED_S, UNBILLED_PENDING_S
from mark.domain.offer import Market, Offer
from mark.profiling.played_faults import FaultStream
from mark_infra.testbed.machines_port import Machine, Machines
from mark_infra.testbed.supply import Supply

STOPPING_S = 10.0
SHUTTING_DOWN_S = 5.0
_AGAIN_S = 1.0  # wall seconds until the state of a machine that is ending is checked again

WARNING = "EC2 Spot Instance Interruption Warning"
REBALANCE = "EC2 Instance Rebalance Recommendation"
STATE_CHANGE = "EC2 Instance State-change Notification"

# Reasons why an instance stops or ends: code and message of StateReason, and the initiator in StateTransitionReason.
BY_USER = ("Client.UserInitiatedShutdown", "User initiated shutdown", "User")
BY_SPOT = ("Server.SpotInstanceTermination", "Spot instance termination", "Service")
BY_FAULT = ("Server.InternalError", "Internal error on launch", "Service")
Reason = tuple[str, str, str]


class NotInState(Exception):
    """The instance's state forbids the action; `code` is AWS's."""

    def __init__(self, code: str, message: str) -> None:
        super().__init__(message)
        self.code = code


class EventSink(Protocol):
    """The receiver of states and events."""

    def show(self, instance_id: str, state: State, at_unix_s: int, reason: Reason | None) -> None:
        """Set the instance's state. A reason holds until the instance starts again."""

    def emit(self, detail_type: str, instance_id: str, zone: str, detail: dict[str, str], at_unix_s: int) -> None:
        """Send an event to EventBridge."""

    def forget(self, instance_id: str) -> None:
        """Stop describing the instance."""


@dataclass(slots=True, kw_only=True)
class EmulatedInstance(InstanceLife):
    """One instance. Times in Unix seconds, but `credits_at_s` in control seconds."""

    instance_id: str
    of_service: int  # its number among the launches of its service
    index: int  # of its offer
    offer: Offer
    zone: str
    address: str
    service: str
    persistent: bool  # a spot request whose instance may be stopped
    reason: Reason = BY_USER

    @property
    def active(self) -> bool:
        """Return whether the instance uses capacity."""
        return self.state in HOLDS_CAPACITY


class InstanceLifecycle:
    """All instances of the cloud, its meter, and `billed`: (instance id, from, to) in Unix seconds, in order.

    `crashes_per_hour` by service: crashes of a serving instance, which the cloud does not notice.
    """

    def __init__(
        self, supply: Supply, machines: Machines, sink: EventSink, *, began_s: int, scale: float = 1.0,
        bills_disks: bool = False, crashes_per_hour: Mapping[str, float] | None = None,
    ) -> None:  # fmt: skip
        self._crashes_per_hour = crashes_per_hour or {}
        self.supply, self._machines, self._sink = supply, machines, sink
        self._began_s, self.scale = began_s, scale
        self.meter = Meter(supply.offers, supply.costs, end_s=math.inf, bills_disks=bills_disks)
        self.instances: dict[str, EmulatedInstance] = {}  # described ones, including recently terminated ones
        self.billed: list[tuple[str, int, int]] = []
        self.ended_s: dict[str, int] = {}  # Unix seconds of shutting-down
        self.launched = self.interrupted = self.crashed = 0
        self._launched_of: Counter[str] = Counter()  # by service
        self.peak = 0  # the most instances at a time that were neither stopped nor gone
        self.busy: Callable[[str], float] = lambda instance_id: 0.0
        self._launch_credits = LaunchCredits()
        self._events: LifeEvents[EmulatedInstance] = LifeEvents()
        self._zones = tuple(supply.zones)
        for zone in range(len(self._zones)):
            self._watch_share(zone)

    # Time

    def control_s(self, at_unix_s: float) -> float:
        """Return the control seconds since the cloud's beginning."""
        return (at_unix_s - self._began_s) * self.scale

    def next_s(self) -> float:
        """Return the time of the next event in Unix seconds, or inf if there is none."""
        return self._events.next_s()

    def advance(self, now_s: float) -> None:
        """Carry out all due events in order, each at its own time."""
        for at_s, event, instance, zone in self._events.due(now_s):
            if instance is None:
                self._change_share(zone, at_s)
            else:
                self._fire(event, instance, at_s)

    # Requests

    def room(self, index: int, count: int, planned: int = 0) -> int:
        """Return how many of `count` more instances of an offer are available, besides the planned ones."""
        zone = self.supply.offers[index].zone
        active = [instance for instance in self.instances.values() if instance.active]
        return self.supply.room(
            index,
            count,
            of_offer=sum(instance.index == index for instance in active) + planned,
            spot_in_zone=sum(1 for _ in self._spot_in(zone)) + planned,
        )

    def launch(
        self, instance_id: str, index: int, now_s: float, *, zone: str, address: str, service: str,
        persistent: bool = False, unlimited: bool | None = None, release: str = "",
    ) -> None:  # fmt: skip
        """Add a pending instance. `unlimited`: its CPU credits' mode; None: the catalogue's."""
        offer = self.supply.offers[index]
        self.launched += 1
        self._launched_of[service] += 1
        instance = EmulatedInstance(
            self.launched,
            offer.name,
            now_s,
            release=release,
            credits=None if offer.credits is None else CreditAccount(offer, unlimited=unlimited),
            instance_id=instance_id,
            of_service=self._launched_of[service],
            index=index,
            offer=offer,
            zone=zone,
            address=address,
            service=service,
            persistent=persistent,
        )
        self.instances[instance_id] = instance
        self._tell(instance, now_s)
        self.meter.disks(disks_of(offer), self.control_s(math.floor(now_s)))
        self._boot(instance, now_s)

    def start(self, instance_id: str, now_s: float) -> State:
        """Boot a stopped instance; return its state before. Raises NotInState."""
        instance = self.instances[instance_id]
        if instance.state in (State.PENDING, State.RUNNING):
            return instance.state
        if instance.state != State.STOPPED:
            raise _not(instance, "started")
        if self.room(instance.index, 1) < 1:
            raise NotInState("InsufficientInstanceCapacity", f"There is no capacity for {instance.offer.name}.")
        instance.resume(now_s)
        instance.reason = BY_USER
        self._tell(instance, now_s)
        self._boot(instance, now_s)
        return State.STOPPED

    def stop(self, instance_id: str, now_s: float) -> State:
        """Stop an instance; return its state before. Raises NotInState."""
        instance = self.instances[instance_id]
        before = instance.state
        if instance.offer.market is Market.SPOT and not instance.persistent:
            raise NotInState(
                "UnsupportedOperation",
                f"You can't stop the Spot Instance '{instance_id}' because it is associated with a one-time Spot "
                "Instance request. You can only stop Spot Instances associated with persistent Spot Instance requests.",
            )
        if before in (State.STOPPING, State.STOPPED):
            return before
        if before != State.RUNNING:
            raise _not(instance, "stopped")
        self._leave(instance, now_s)
        stopped_s = now_s + STOPPING_S / self.scale
        self._bill(instance, instance.stop(stopped_s), now_s, taken=False)
        self._tell(instance, now_s)
        self._events.push(stopped_s, InstanceEvent.STOPPED, instance)
        return before

    def terminate(self, instance_id: str, now_s: float, reason: Reason = BY_USER) -> State:
        """Terminate an instance; return its state before. Repeatable."""
        instance = self.instances[instance_id]
        before = instance.state
        if before in (State.SHUTTING_DOWN, State.TERMINATED):
            return before
        instance.reason = reason
        self._leave(instance, now_s)
        self._bill(instance, instance.end(), now_s, taken=reason is BY_SPOT)
        self.meter.disks(-disks_of(instance.offer), self.control_s(math.floor(now_s)))
        self.ended_s[instance_id] = math.floor(now_s)
        self._tell(instance, now_s)
        self._events.push(now_s + SHUTTING_DOWN_S / self.scale, InstanceEvent.TERMINATED, instance)
        return before

    def interrupt(self, instance_id: str, now_s: float) -> None:
        """Announce the interruption of this spot instance, which ends two minutes later. Repeatable."""
        instance = self.instances[instance_id]
        gone_s = math.floor(now_s) + INTERRUPTION_NOTICE_S / self.scale
        if not instance.interrupt(gone_s):
            return
        self.interrupted += 1
        detail = {"instance-id": instance_id}
        self._sink.emit(REBALANCE, instance_id, instance.zone, detail, math.floor(now_s))
        warned = {**detail, "instance-action": "terminate"}
        self._sink.emit(WARNING, instance_id, instance.zone, warned, math.floor(now_s))
        if instance.service:
            with suppress(KeyError):  # it crashed, or ended by itself
                self._machines.announce(instance_id, "rebalance", now_s)
                self._machines.announce(instance_id, "terminate", gone_s)
        self._events.push(gone_s, InstanceEvent.GONE, instance)

    def interrupt_share(self, share: float, seed: int, now_s: float) -> tuple[str, ...]:
        """Announce an interruption to this share of the running spot instances, drawn; return their ids."""
        running = sorted(self._spot_in(None), key=lambda instance: instance.number)
        running = [instance for instance in running if instance.state == State.RUNNING]
        chosen = Random(seed).sample(running, min(len(running), math.floor(len(running) * share + 0.5)))
        for instance in chosen:
            self.interrupt(instance.instance_id, now_s)
        return tuple(instance.instance_id for instance in chosen)

    def states(self) -> Counter[State]:
        """Return the number of instances by state."""
        return Counter(instance.state for instance in self.instances.values())

    # Events

    def _fire(self, event: InstanceEvent, instance: EmulatedInstance, at_s: float) -> None:
        instance_id = instance.instance_id
        if event is InstanceEvent.RUNNING:
            self._run(instance, at_s)
        elif event is InstanceEvent.CREDITS:
            self._settle(instance, at_s)
            self._events.push(at_s + CREDIT_STEP_S / self.scale, event, instance)
        elif event is InstanceEvent.NOTICE:
            self.interrupt(instance_id, at_s)
        elif event is InstanceEvent.CRASHED:
            self.crashed += 1
            with suppress(KeyError):  # it ended by itself
                self._machines.crash(instance_id)
        elif event is InstanceEvent.GONE:
            self.terminate(instance_id, at_s, BY_SPOT)
        elif event is InstanceEvent.FORGOTTEN:
            del self.instances[instance_id]
            self._sink.forget(instance_id)
        elif instance_id in self._machines.running():
            self._events.push(at_s + _AGAIN_S, event, instance)
        else:
            instance.complete()
            self._tell(instance, at_s)
            if instance.state is State.TERMINATED:
                self._events.push(at_s + TERMINATED_DESCRIBED_S / self.scale, InstanceEvent.FORGOTTEN, instance)

    def _tell(self, instance: EmulatedInstance, at_s: float) -> None:
        state, second = instance.state, math.floor(at_s)
        reason = instance.reason if state in (State.STOPPING, State.SHUTTING_DOWN) else None
        self._sink.show(instance.instance_id, state, second, reason)
        detail = {"instance-id": instance.instance_id, "state": state}
        self._sink.emit(STATE_CHANGE, instance.instance_id, instance.zone, detail, second)

    def _boot(self, instance: EmulatedInstance, now_s: float) -> None:
        self.peak = max(self.peak, sum(one.active for one in self.instances.values()))
        if instance.start == 0 and (said := self.supply.ends_at_launch.get(instance.offer.name)) is not None:
            self.terminate(instance.instance_id, now_s, (*said, "Service"))
            return
        start = self.supply.start(instance.service, instance.of_service, instance.start)
        boot_s = start.boot_s(instance.offer)
        if instance.credits is not None:
            self._launch_credits.grant(instance.credits, self.control_s(now_s))
        until_s = {
            InstanceEvent.RUNNING: min(UNBILLED_PENDING_S, boot_s),
            InstanceEvent.NOTICE: self.supply.until_interruption_s(instance.index, start),
            InstanceEvent.CRASHED: boot_s + start.until_crash_s(self._crashes_per_hour.get(instance.service, 0.0)),
        }
        for event, delay_s in until_s.items():
            self._events.push(now_s + delay_s / self.scale, event, instance)
        if instance.service:
            machine = Machine(
                instance.instance_id, instance.offer.instance, instance.address, instance.service,
                boot_s / self.scale, instance.zone, instance.offer.market is Market.SPOT, instance.release,
                FaultStream(self._began_s, start.seed, start.number, self.scale),
            )  # fmt: skip
            try:
                self._machines.boot(machine)
            except (OSError, ValueError):
                self.terminate(instance.instance_id, now_s, BY_FAULT)

    def _run(self, instance: EmulatedInstance, at_s: float) -> None:
        second = math.floor(at_s)
        instance.run(second)
        self.meter.open(instance.index, self.control_s(second))
        self._tell(instance, at_s)
        if instance.credits is not None:
            instance.credits_at_s, instance.busy_s = self.control_s(at_s), self._worked_s(instance)
            self._events.push(at_s + CREDIT_STEP_S / self.scale, InstanceEvent.CREDITS, instance)

    def _leave(self, instance: EmulatedInstance, now_s: float) -> None:
        """Settle the credits of an instance that stops running, and end its machine."""
        if instance.state is State.RUNNING and instance.credits is not None:
            self._settle(instance, now_s)
        if instance.service and instance.state in (State.PENDING, State.RUNNING):
            self._machines.end(instance.instance_id)

    def _bill(self, instance: EmulatedInstance, from_s: float | None, now_s: float, *, taken: bool) -> None:
        """End the billed time that began at `from_s`, if any."""
        if from_s is not None:
            to_s = math.floor(now_s)
            self.meter.close(instance.index, self.control_s(from_s), self.control_s(to_s), taken=taken)
            self.billed.append((instance.instance_id, math.floor(from_s), to_s))

    def _worked_s(self, instance: EmulatedInstance) -> float:
        """Return the machine's computing time so far, in control seconds."""
        return self.busy(instance.instance_id) * self.scale

    def _settle(self, instance: EmulatedInstance, at_s: float) -> None:
        assert instance.credits is not None
        worked_s, before = self._worked_s(instance), instance.credits.speed
        if worked_s < instance.busy_s:
            instance.busy_s = 0.0  # a machine that was restarted counts from zero again
        if usd := instance.settle(self.control_s(at_s), worked_s):
            self.meter.surplus(instance.index, usd)
        if instance.credits.speed != before and instance.service:
            with suppress(KeyError):
                self._machines.set_speed(instance.instance_id, instance.credits.speed)

    def _watch_share(self, zone: int) -> None:
        next_s = self.supply.zones[self._zones[zone]].next_change_s
        self._events.push_share(self._began_s + next_s / self.scale, zone)

    def _change_share(self, zone: int, at_s: float) -> None:
        name = self._zones[zone]
        for instance in self.supply.zones[name].change(self._spot_in(name)):
            self.interrupt(instance.instance_id, at_s)
        self._watch_share(zone)

    def _spot_in(self, zone: str | None) -> Iterable[EmulatedInstance]:
        for one in self.instances.values():
            held = one.offer.market is Market.SPOT and one.active and one.interruption_at_s is None
            if held and zone in (None, one.zone):
                yield one


def _not(instance: EmulatedInstance, done: str) -> NotInState:
    message = f"The instance '{instance.instance_id}' is not in a state from which it can be {done}."
    return NotInState("IncorrectInstanceState", message)
