"""The life of one instance as a state machine, and its future events, for every cloud that is not AWS.

A driver calls a method for each event and carries out its effects. The state machine reads no clock and has no side
effects. The simulator drives it in virtual time, the testbed in wall time, mark-torture with faults, `FakeCloud` by
hand.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, field
from heapq import heappop, heappush
from typing import Generic, TypeVar

from mark.cloud.ec2.cpu_credits import CreditAccount
from mark.cloud.ec2.events import InstanceEvent
from mark.cloud.ec2.lifecycle import HOLDS_CAPACITY, State, moved
from mark.domain.errors import CloudError
from mark.domain.fleet import TRANSITIONS, Instance, Phase, ScheduledEvent

_PHASES = {
    State.STOPPING: Phase.STOPPED,
    State.STOPPED: Phase.STOPPED,
    State.SHUTTING_DOWN: Phase.GONE,
    State.TERMINATED: Phase.GONE,
}  # the phase of each state in which an instance neither boots nor serves

_HAPPENS_IN = {
    InstanceEvent.GONE: (State.PENDING, State.RUNNING),
    InstanceEvent.NOTICE: (State.PENDING, State.RUNNING),
    InstanceEvent.RUNNING: (State.PENDING,),
    InstanceEvent.BOOTED: (State.RUNNING,),
    InstanceEvent.IDLE: (State.RUNNING,),
    InstanceEvent.CREDITS: (State.RUNNING,),
    InstanceEvent.CRASHED: (State.RUNNING,),
    InstanceEvent.STOPPED: (State.STOPPING,),
    InstanceEvent.TERMINATED: (State.SHUTTING_DOWN,),
    InstanceEvent.FORGOTTEN: (State.TERMINATED,),
}  # the states in which each event can happen; in another state it is void


@dataclass(slots=True)
class InstanceLife:
    """One instance from its launch to its end.

    An illegal call changes nothing and raises CloudError, or IllegalStateChange in `run` and `complete`. `state` is
    EC2's, `phase` is the controller's view of it. `start` counts the resumes, and events of an earlier start are void.
    `credits` are None unless the type is burstable.
    """

    number: int
    offer_name: str
    launched_s: float  # of this start
    expected_s: float | None = None  # when this start is expected to be ready
    standby: bool = False
    release: str = ""
    credits: CreditAccount | None = None
    state: State = State.PENDING
    start: int = 0
    draining: bool = False
    idle: bool = False
    ready_s: float | None = None
    silent_s: float | None = None  # since when it does not answer
    interruption_at_s: float | None = None
    startable_s: float | None = None  # when a stopped instance can be started again
    event: ScheduledEvent | None = None
    billed_from_s: float | None = None
    credits_at_s: float = 0.0  # when the credits were last settled
    busy_s: float = 0.0  # the busy worker-seconds that the credits have paid for
    _view: Instance | None = field(default=None, repr=False, compare=False)

    @property
    def phase(self) -> Phase:
        if self.state in _PHASES:
            return _PHASES[self.state]
        if self.draining:
            return Phase.DRAINING
        return Phase.PENDING if self.ready_s is None else Phase.READY

    def check(self, after: Phase) -> None:
        """Raise CloudError unless the instance can go to this phase now."""
        if after not in TRANSITIONS[self.phase]:
            raise CloudError(f"#{self.number} {self.offer_name} cannot go from {self.phase} to {after}")

    def check_start(self, at_s: float) -> None:
        """Raise CloudError unless the stopped instance can be started again now."""
        self.check(Phase.PENDING)
        if self.startable_s is not None and at_s < self.startable_s:
            raise CloudError(f"#{self.number} {self.offer_name} is still stopping")

    def run(self, at_s: float) -> None:
        """Let the pending instance run: it is billed from now on."""
        self.state = moved(self.state, State.RUNNING)
        self.billed_from_s, self._view = at_s, None

    def serve(self, at_s: float) -> None:
        """Complete the boot of a running instance."""
        self.check(Phase.READY)
        if self.state is not State.RUNNING:
            raise CloudError(f"#{self.number} {self.offer_name} cannot serve before it runs")
        self.ready_s, self._view = at_s, None

    def drain(self) -> None:
        """Take no new requests. An instance that never served is idle at once."""
        self.check(Phase.DRAINING)
        self.draining, self.idle, self._view = True, self.ready_s is None, None

    def finish(self) -> None:
        """Note that a draining instance has no request left."""
        self.idle, self._view = True, None

    def stop(self, startable_s: float) -> float | None:
        """Stop an instance, which can be started again from `startable_s`. Return the start of its billed time, if any.

        EC2 refuses to stop a pending instance. This does not, because a controller may stop any drained instance.
        """
        self.check(Phase.STOPPED)
        self.state, self.startable_s = State.STOPPING, startable_s
        self.draining = self.idle = False
        self.ready_s = self.silent_s = None
        if self.credits is not None:
            self.credits.stop()
        return self._left()

    def resume(self, at_s: float, expected_s: float | None = None) -> None:
        """Start a stopped instance again."""
        self.check_start(at_s)
        self.state, self.start = State.PENDING, self.start + 1
        self.launched_s, self.expected_s = at_s, expected_s
        self.interruption_at_s = self.startable_s = self._view = None

    def interrupt(self, gone_s: float) -> bool:
        """Announce that the cloud takes the instance back at `gone_s`.

        Return False, without a change, if an interruption is announced already, or the instance holds no capacity.
        """
        if self.interruption_at_s is not None or self.state not in HOLDS_CAPACITY:
            return False
        self.interruption_at_s, self._view = gone_s, None
        return True

    def fall_silent(self, at_s: float) -> None:
        """Stop answering from now on, although the instance still runs."""
        self.silent_s, self._view = at_s, None

    def end(self) -> float | None:
        """End the instance; return the start of its billed time, if any."""
        self.check(Phase.GONE)
        self.state = State.SHUTTING_DOWN
        return self._left()

    def complete(self) -> None:
        """Complete a stop or an end, which takes EC2 some seconds."""
        self.state = moved(self.state, State.STOPPED if self.state is State.STOPPING else State.TERMINATED)

    def settle(self, at_s: float, busy_s: float, workers: int = 1) -> float:
        """Bring the credits up to date and return the dollars owed; `busy_s` counts all worker-seconds so far.

        Work in progress may count in full, so `busy_s` may exceed the time passed; a later call pays for the excess.
        """
        assert self.credits is not None
        passed_s = at_s - self.credits_at_s
        worked_s = min(busy_s - self.busy_s, passed_s * workers)
        self.busy_s += worked_s
        self.credits_at_s, self._view = at_s, None
        return self.credits.settle(passed_s, worked_s / workers)

    def awaits(self, event: InstanceEvent, start: int) -> bool:
        """Return whether an event of this start can still happen."""
        if start != self.start or self.state not in _HAPPENS_IN[event]:
            return False
        return event is not InstanceEvent.BOOTED or self.phase is Phase.PENDING

    def credits_left(self) -> float | None:
        return None if self.credits is None else self.credits.balance

    @property
    def view(self) -> Instance:
        """The instance as a controller sees it."""
        if self._view is None:
            self._view = self._seen()
        return self._view

    def touch(self) -> None:
        """Renew `view`, because a driver has set a field."""
        self._view = None

    def _seen(self) -> Instance:
        phase = self.phase
        return Instance(
            number=self.number,
            offer=self.offer_name,
            phase=phase,
            launched_s=self.launched_s,
            ready_s=self.expected_s if phase is Phase.PENDING else self.ready_s,
            interruption_at_s=self.interruption_at_s,
            standby=self.standby,
            credits=self.credits_left(),
            idle=self.idle,
            silent_s=self.silent_s if phase is Phase.READY else None,
            resumed=self.start > 0,
            stopped_s=self.startable_s if phase is Phase.STOPPED else None,
            release=self.release,
            event=self.event,
        )

    def _left(self) -> float | None:
        from_s, self.billed_from_s, self._view = self.billed_from_s, None, None
        return from_s


_L = TypeVar("_L", bound=InstanceLife)


class LifeEvents(Generic[_L]):
    """The events ahead, in order of time, kind and instance number. Events after `end_s` are dropped."""

    def __init__(self, end_s: float = math.inf) -> None:
        self._end_s = end_s
        self._heap: list[tuple[float, InstanceEvent, int, int, _L | None, int]] = []
        self._pushed = 0  # orders equal events, so that lives are never compared

    def push(self, at_s: float, event: InstanceEvent, life: _L) -> None:
        """Add an event of the instance's current start."""
        self._push(at_s, event, life.number, life, life.start)

    def push_share(self, at_s: float, zone: int) -> None:
        """Add a change of the zone's spot capacity."""
        self._push(at_s, InstanceEvent.SHARE, zone, None, 0)

    def next_s(self) -> float:
        """Return the time of the next event that can still happen; inf without one."""
        while self._heap and self._is_void(self._heap[0]):
            heappop(self._heap)
        return self._heap[0][0] if self._heap else math.inf

    def due(self, until_s: float) -> Iterator[tuple[float, InstanceEvent, _L | None, int]]:
        """Yield (time, event, instance, number of the instance or zone) in order up to `until_s`.

        What the caller does with one event takes effect on the next: void events are left out, added ones are yielded.
        """
        while self._heap and self._heap[0][0] <= until_s:
            entry = heappop(self._heap)
            if not self._is_void(entry):
                at_s, event, number, _, life, _ = entry
                yield at_s, event, life, number

    def _push(self, at_s: float, event: InstanceEvent, number: int, life: _L | None, start: int) -> None:
        if at_s <= self._end_s and at_s < math.inf:
            self._pushed += 1
            heappush(self._heap, (at_s, event, number, self._pushed, life, start))

    @staticmethod
    def _is_void(entry: tuple[float, InstanceEvent, int, int, _L | None, int]) -> bool:
        _, event, _, _, life, start = entry
        return life is not None and not life.awaits(event, start)
