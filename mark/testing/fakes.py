"""Fakes of the control loop's ports. Each holds state, fails on request and can be reset."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from mark.cloud.machine import InstanceLife
from mark.control.memory_store import MemoryStore
from mark.control.ports import (
    Clock,
    Cloud,
    Functions,
    Launched,
    Lease,
    OverflowTotals,
    RecentAnswers,
    Recorded,
    ReleaseCounts,
    Result,
    Store,
    Telemetry,
)
from mark.domain.arrays import FloatArray
from mark.domain.command import Command
from mark.domain.ec2_limits import INTERRUPTION_NOTICE_S
from mark.domain.errors import CapacityError, CloudError, NotFoundError, StoreError
from mark.domain.fleet import EndedAtLaunch, Fleet, Instance, Notice, Phase, ScheduledEvent
from mark.domain.load import Forecast, Load
from mark.domain.plan import Plan, Target
from mark.models.registry import ObjectStore
from mark.planning.planner import PlanningContext


class ManualClock:
    """The port Clock: time stands still until a test sets `t_s`."""

    def __init__(self) -> None:
        self.reset()

    def reset(self) -> None:
        """Return to second 0."""
        self.t_s = 0.0

    def now_s(self) -> float:
        return self.t_s


class _Life(InstanceLife):
    """A life whose fields a test may set: its view is then renewed."""

    def __setattr__(self, name: str, value: object) -> None:
        super().__setattr__("_view", None)
        super().__setattr__(name, value)


class FakeCloud:
    """The port Cloud without time: instances stay pending until `boot()`. A test may change `lives`.

    `fail` maps an offer or a verb to the error that it raises, `left` an offer to its remaining capacity. If a launch
    is filled partly, `why` is the reason for the rest. Instances of offers in `unsold` may not be bought any more: they
    are leaving. Instances of offers in `ends` end right after launch, for the given reason.
    """

    def __init__(self, clock: ManualClock) -> None:
        self.clock = clock
        self.reset()

    def reset(self) -> None:
        """Forget all instances, calls and faults."""
        self.calls: list[tuple[Any, ...]] = []
        self.fail: dict[str, CloudError] = {}
        self.left: dict[str, int] = {}
        self.why: CapacityError | None = None
        self.unsold: set[str] = set()
        self.ends: dict[str, CapacityError] = {}
        self.ended: list[EndedAtLaunch] = []
        self.lives: dict[int, InstanceLife] = {}  # all instances that are not gone
        self._tokens: dict[str, Launched] = {}
        self._notices: list[Notice] = []
        self._last = 0

    @property
    def instances(self) -> dict[int, Instance]:
        """All instances as the controller sees them, by number."""
        return {number: life.view for number, life in self.lives.items()}

    def fleet(self) -> Fleet:
        there = self.instances.values()
        return Fleet(
            tuple(i for i in there if i.offer not in self.unsold),
            tuple(i for i in there if i.offer in self.unsold),
            tuple(self.ended),
        )

    def launch(
        self,
        offer: str,
        count: int,
        token: str,
        *,
        standby: bool = False,
        release: str = "",
        alternatives: tuple[str, ...] = (),
    ) -> Launched:
        self.calls.append(("launch", offer, count, token))
        if token in self._tokens:
            return self._tokens[token]
        names = (offer, *alternatives)
        refused = [self.fail[name] for name in names if name in self.fail]
        if len(refused) == len(names):
            raise refused[0]
        given: list[str] = []
        for name in names:
            if name not in self.fail:
                some = min(count - len(given), self.left.get(name, count))
                if name in self.left:
                    self.left[name] -= some
                given += [name] * some
        if not given:
            raise CapacityError(f"out of {offer}")
        numbers = tuple(range(self._last + 1, self._last + len(given) + 1))
        self._last += len(given)
        for n, name in zip(numbers, given, strict=True):
            self.lives[n] = _Life(n, name, self.clock.t_s, standby=standby, release=release)
            if (why := self.ends.get(name)) is not None:
                self.end_at_launch(n, why)
        short = self.why or CapacityError(f"out of {offer}")
        self._tokens[token] = Launched(numbers, short if len(numbers) < count else None)
        return self._tokens[token]

    def drain(self, number: int) -> None:
        life = self._called("drain", number)
        if life.phase is not Phase.DRAINING:
            life.drain()
            life.finish()

    def terminate(self, number: int) -> None:
        if number in self.lives or not 0 < number <= self._last:
            self._called("terminate", number).end()
            del self.lives[number]
        else:
            self._call("terminate", number)

    def stop(self, number: int) -> None:
        life = self._called("stop", number)
        if life.phase is not Phase.STOPPED:
            life.stop(self.clock.t_s)

    def resume(self, number: int) -> None:
        self._called("resume", number).resume(self.clock.t_s)

    def notices(self) -> tuple[Notice, ...]:
        found, self._notices = tuple(self._notices), []
        return found

    # Called by tests.

    def boot(self) -> None:
        """Let pending instances become ready; new standbys stop."""
        for number, life in self.lives.items():
            if life.phase is Phase.PENDING:
                self.serve(number)

    def serve(self, number: int) -> None:
        """Let the pending instance become ready, or stop if it is a new standby."""
        life, now_s = self.lives[number], self.clock.t_s
        life.run(now_s)
        if life.standby and life.start == 0:
            life.stop(now_s)
        else:
            life.serve(now_s)

    def interrupt(self, number: int) -> None:
        """Announce that the instance is interrupted in two minutes."""
        life, now_s = self.lives[number], self.clock.t_s
        life.interrupt(now_s + INTERRUPTION_NOTICE_S)
        self._notices.append(Notice(number, life.offer_name, now_s, now_s + INTERRUPTION_NOTICE_S))

    def schedule(self, number: int, code: str, at_s: float) -> None:
        """Announce that the instance will be stopped, ended or restarted at `at_s`."""
        self.lives[number].event = ScheduledEvent(code, at_s)

    def end_at_launch(self, number: int, why: CapacityError) -> None:
        """End the instance before it ran, for this reason."""
        life = self.lives.pop(number)
        self.ended.append(EndedAtLaunch(number, life.offer_name, life.launched_s, str(why), why.scope, life.release))

    def _call(self, verb: str, number: int) -> None:
        self.calls.append((verb, number))
        if verb in self.fail:
            raise self.fail[verb]

    def _called(self, verb: str, number: int) -> InstanceLife:
        """Record the call, and return the instance that it concerns."""
        self._call(verb, number)
        if number not in self.lives:
            raise NotFoundError(f"there is no instance #{number}")
        return self.lives[number]


class FakeFunctions:
    """The port Functions: `warmed` and `switched` record the calls; raises `error` if one is set.

    A release in `without` lacks a function.
    """

    def __init__(self) -> None:
        self.reset()

    def reset(self) -> None:
        """Forget all calls, environments and faults."""
        self.warmed: list[int] = []
        self.switched: list[str] = []
        self.without: set[str] = set()
        self.error: CloudError | None = None

    def warm(self, environments: int) -> int:
        if self.error is not None:
            raise self.error
        self.warmed.append(environments)
        return environments

    def switch(self, release: str) -> bool:
        if self.error is not None:
            raise self.error
        if release in self.without:
            return False
        self.switched.append(release)
        return True


class FakeTelemetry:
    """The port Telemetry: answers from attributes that a test sets; raises `error` if one is set."""

    def __init__(self) -> None:
        self.reset()

    def reset(self) -> None:
        """Set 25 requests/s over the last minute, the last 1,000 in time, and no complete step."""
        self.error: CloudError | None = None
        self.rps: float | None = 25.0
        self.steps: list[float] = []
        self.windows: list[float] = []
        self.start_s, self.step_s = 0.0, 60.0
        self.latest = RecentAnswers(1000, 1000)
        self.total = RecentAnswers(0, 0)
        self.overflowed = OverflowTotals(0, 0.0)
        self.by_release: dict[str, dict[str, ReleaseCounts]] = {}
        self.busy: dict[str, float] = {}

    def load(self) -> Load:
        self._check()
        rates = np.array(self.steps, dtype=np.float64)
        return Load(self.start_s, self.step_s, rates, rates)

    def last_minute_rps(self) -> float | None:
        self._check()
        return self.rps

    def windows_rps(self) -> FloatArray:
        self._check()
        return np.array(self.windows, dtype=np.float64)

    def recent(self) -> RecentAnswers:
        self._check()
        return self.latest

    def answers(self) -> RecentAnswers:
        self._check()
        return self.total

    def utilization(self) -> Mapping[str, float]:
        self._check()
        return self.busy

    def overflow(self) -> OverflowTotals:
        self._check()
        return self.overflowed

    def releases(self) -> Mapping[str, Mapping[str, ReleaseCounts]]:
        self._check()
        return self.by_release

    def _check(self) -> None:
        if self.error is not None:
            raise self.error


class FakeStore(MemoryStore):
    """The port Store in memory; every call raises `error` if one is set."""

    def __init__(self) -> None:
        self.reset()

    def reset(self) -> None:
        """Become an empty store that answers."""
        super().__init__()
        self.error: StoreError | None = None

    def get(self, key: str) -> Any | None:
        self._check()
        return super().get(key)

    def put(self, key: str, value: Any) -> None:
        self._check()
        super().put(key, value)

    def record(self, at_s: float, command: Command, outcome: str, result: Result, started: int) -> None:
        self._check()
        super().record(at_s, command, outcome, result, started)

    def recorded(self, before_id: int | None, count: int) -> list[Recorded]:
        self._check()
        return super().recorded(before_id, count)

    def _check(self) -> None:
        if self.error is not None:
            raise self.error


class FakeLease:
    """The port Lease: held unless `other_leads`; the fencing number rises with every change of the holder."""

    def __init__(self) -> None:
        self.reset()

    def reset(self) -> None:
        """Become a free lease that was never held."""
        self.other_leads = False
        self.fence = 0
        self._held = False

    def hold(self, now_s: float) -> int | None:
        if self.other_leads:
            self.fence += self._held
            self._held = False
            return None
        self.fence += not self._held
        self._held = True
        return self.fence

    def lasts(self) -> bool:
        return self._held and not self.other_leads

    def release(self) -> None:
        self._held = False


class ScriptedPlanner:
    """The port Planner: wants the counts that a test set in `wanted`; keeps every context."""

    name = "scripted"

    def __init__(self, *, needs_forecast: bool = False, monitors_slo: bool = False, replans: bool = False) -> None:
        self.needs_forecast, self.monitors_slo, self.replans = needs_forecast, monitors_slo, replans
        self.reset()

    def reset(self) -> None:
        """Want no instances, and forget all contexts."""
        self.wanted: dict[str, int] = {}
        self.standbys: dict[str, int] = {}
        self.warm, self.capacity_rps = 0, 0.0
        self.contexts: list[PlanningContext] = []

    def begin(self) -> int:
        return 0

    def plan(self, context: PlanningContext, memory: int) -> tuple[Plan, int]:
        self.contexts.append(context)
        targets = tuple(Target(o, n, "forecast 25 requests/s against capacity 0") for o, n in self.wanted.items())
        standbys = tuple(Target(o, n, "stands by") for o, n in self.standbys.items())
        return Plan(
            context.now_s, targets, standbys=standbys, warm=self.warm, capacity_rps=self.capacity_rps
        ), memory + 1


class RampPredictor:
    """The port Predictor: step h of the forecast is h, so that a shift by one step shows. Raises `error` if set."""

    name = "ramp"

    def __init__(self, origin_s: float = 0.0, step_s: float = 60.0) -> None:
        self.origin_s, self.step_s = origin_s, step_s
        self.reset()

    def reset(self) -> None:
        """Forget all updates and faults."""
        self.updates: list[Load] = []
        self.error: Exception | None = None
        self.asked = 0

    def fit(self, history: Load) -> None: ...

    def update(self, observed: Load) -> None:
        self.updates.append(observed)

    def predict(self, steps: int) -> Forecast:
        self.asked = steps
        if self.error is not None:
            raise self.error
        rates = np.tile(np.arange(steps, dtype=np.float64), (2, 1))
        return Forecast(self.origin_s, self.step_s, np.array([0.1, 0.9]), rates, rates, self.name, rates.copy())


class FakeObjects:
    """The port ObjectStore in memory; `created` has the keys in the order of their creation."""

    def __init__(self) -> None:
        self.reset()

    def reset(self) -> None:
        """Forget all objects."""
        self.objects: dict[str, bytes] = {}
        self.created: list[str] = []

    def read(self, key: str) -> bytes | None:
        return self.objects.get(key)

    def fetch(self, key: str, to: Path) -> bool:
        if key not in self.objects:
            return False
        to.write_bytes(self.objects[key])
        return True

    def create(self, key: str, content: bytes | Path) -> bool:
        if key in self.objects:
            return False
        self.objects[key] = content if isinstance(content, bytes) else content.read_bytes()
        self.created.append(key)
        return True

    def keys(self, prefix: str) -> list[str]:
        return sorted(key for key in self.objects if key.startswith(prefix))


_ports: tuple[
    type[Clock], type[Cloud], type[Functions], type[Telemetry], type[Store], type[Lease], type[ObjectStore]
] = (ManualClock, FakeCloud, FakeFunctions, FakeTelemetry, FakeStore, FakeLease, FakeObjects)
