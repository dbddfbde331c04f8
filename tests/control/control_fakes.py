"""Fakes and builders for the control loop. Every fake holds state, records its calls and fails on request."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from mark.control.controller import Controller
from mark.control.memory_store import MemoryStore
from mark.control.ports import OverflowTotals, RecentAnswers
from mark.domain.arrays import FloatArray
from mark.domain.errors import CapacityError, CloudError, NotFoundError
from mark.domain.fleet import TRANSITIONS, Fleet, Instance, Notice, Phase
from mark.domain.load import Forecast, Load
from mark.domain.offer import BurstCredits, Catalog, Delay, FunctionOffer, Market, Offer
from mark.domain.plan import Plan, Target
from mark.domain.profile import BatchPolicy, Candidate, Profile, ProfileRow
from mark.domain.service import FunctionUse, ResolvedService, ServiceConfig
from mark.domain.slo import Slo
from mark.forecasting.supervised import Supervised
from mark.planning.port import PlanningContext, Policy

BOOT = Delay(180.0, 300.0)
T2 = BurstCredits(baseline=0.2, credits_per_hour=24.0, max_credits=576.0, launch_credits=60.0)


def offer(
    instance: str = "c5.large", market: Market = Market.ON_DEMAND, usd_per_hour: float = 0.085, **more: Any
) -> Offer:
    more.setdefault("boot", BOOT)
    more.setdefault("vcpu", 2.0)
    if market is Market.BURSTABLE:
        more.setdefault("credits", T2)
        more.setdefault("resume", Delay(90.0, 120.0))
    return Offer(instance, market, usd_per_hour, **more)


ON_DEMAND = offer()
SPOT_A = offer(market=Market.SPOT, usd_per_hour=0.034, zone="a")
SPOT_B = offer(market=Market.SPOT, usd_per_hour=0.034, zone="b")
BURSTABLE = offer("t2.medium", Market.BURSTABLE, 0.0464)
SAGEMAKER = offer("ml.c5.large", Market.SAGEMAKER, 0.119)


def resolved(
    *offers: Offer, max_instances: int = 200, max_usd_per_hour: float = 100.0, capacity_rps: float = 10.0
) -> ResolvedService:
    offers = offers or (ON_DEMAND, SPOT_A, SPOT_B, BURSTABLE)
    service = ServiceConfig(
        "inception", "inception-v3", Slo(0.6, 0.98), "aws-2019", tuple(Market), ("*",), max_instances,
        max_usd_per_hour, "lambda:3008",
    )  # fmt: skip
    profile = Profile("inception-v3", "any", (ProfileRow(1, 1e3 / capacity_rps),))
    candidate = Candidate(profile, BatchPolicy(1, 0.0), np.array([0.0, 1 / capacity_rps]), capacity_rps, capacity_rps)
    function = FunctionUse(FunctionOffer(3008, 1.66667e-5, 0.2, 100.0, 1000, 500.0, 900.0), 0.38, 2.86, "measured")
    return ResolvedService(service, Catalog("aws-2019", offers, ()), offers, (candidate,) * len(offers), function)


class ManualClock:
    def __init__(self) -> None:
        self.t_s = 0.0

    def now_s(self) -> float:
        return self.t_s


class FakeCloud:
    """The port Cloud without time: instances stay pending until `boot()`. `fail` maps an offer or verb to its error."""

    def __init__(self, clock: ManualClock) -> None:
        self.clock = clock
        self.calls: list[tuple[Any, ...]] = []
        self.fail: dict[str, CloudError] = {}
        self.left: dict[str, int] = {}  # what the market still has of an offer
        self.instances: dict[int, Instance] = {}
        self._tokens: dict[str, tuple[int, ...]] = {}
        self._notices: list[Notice] = []
        self._last = 0

    def fleet(self) -> Fleet:
        return Fleet(tuple(self.instances.values()))

    def launch(self, offer: str, count: int, token: str, *, standby: bool = False) -> tuple[int, ...]:
        self.calls.append(("launch", offer, count, token))
        if token in self._tokens:
            return self._tokens[token]
        if offer in self.fail:
            raise self.fail[offer]
        count = min(count, self.left.get(offer, count))
        if count == 0:
            raise CapacityError(f"out of {offer}")
        if offer in self.left:
            self.left[offer] -= count
        numbers = tuple(range(self._last + 1, self._last + count + 1))
        self._last += count
        for n in numbers:
            self.instances[n] = Instance(n, offer, Phase.PENDING, self.clock.t_s, standby=standby)
        self._tokens[token] = numbers
        return numbers

    def drain(self, number: int) -> None:
        self._call("drain", number)
        if self._find(number).phase is not Phase.DRAINING:
            self._go(number, Phase.DRAINING, idle=True)

    def terminate(self, number: int) -> None:
        self._call("terminate", number)
        if number not in self.instances and 0 < number <= self._last:
            return
        self._find(number)
        del self.instances[number]

    def stop(self, number: int) -> None:
        self._call("stop", number)
        if self._find(number).phase is not Phase.STOPPED:
            self._go(number, Phase.STOPPED, idle=False)

    def resume(self, number: int) -> None:
        self._call("resume", number)
        self._find(number)
        self._go(number, Phase.PENDING)

    def notices(self) -> tuple[Notice, ...]:
        found, self._notices = tuple(self._notices), []
        return found

    # What a test does to it.

    def boot(self) -> None:
        """Everything pending becomes ready; new standbys stop."""
        for n, i in self.instances.items():
            if i.phase is Phase.PENDING:
                self._go(n, Phase.STOPPED if i.standby and not self._was_resumed(n) else Phase.READY)

    def interrupt(self, number: int) -> None:
        gone_s = self.clock.t_s + 120.0
        self._notices.append(Notice(number, self.instances[number].offer, self.clock.t_s, gone_s))
        self._change(number, doomed_s=gone_s)

    def _was_resumed(self, number: int) -> bool:
        return ("resume", number) in self.calls

    def _call(self, verb: str, number: int) -> None:
        self.calls.append((verb, number))
        if verb in self.fail:
            raise self.fail[verb]

    def _find(self, number: int) -> Instance:
        if number not in self.instances:
            raise NotFoundError(f"there is no instance #{number}")
        return self.instances[number]

    def _go(self, number: int, phase: Phase, **more: Any) -> None:
        before = self.instances[number].phase
        if phase not in TRANSITIONS[before]:
            raise CloudError(f"#{number} cannot go from {before} to {phase}")
        self._change(number, phase=phase, **more)

    def _change(self, number: int, **more: Any) -> None:
        fields = {name: getattr(self.instances[number], name) for name in Instance.__slots__}
        self.instances[number] = Instance(**{**fields, **more})


class FakeFunctions:
    def __init__(self) -> None:
        self.warmed: list[int] = []

    def warm(self, environments: int) -> int:
        self.warmed.append(environments)
        return environments


class FakeTelemetry:
    def __init__(self) -> None:
        self.rps: float | None = 25.0
        self.steps: list[float] = []
        self.windows: list[float] = []
        self.start_s, self.step_s = 0.0, 60.0
        self.latest = RecentAnswers(1000, 1000)
        self.total = RecentAnswers(0, 0)
        self.overflowed = OverflowTotals(0, 0.0)

    def load(self) -> Load:
        rates = np.array(self.steps, dtype=np.float64)
        return Load(self.start_s, self.step_s, rates, rates)

    def last_minute_rps(self) -> float | None:
        return self.rps

    def windows_rps(self) -> FloatArray:
        return np.array(self.windows, dtype=np.float64)

    def recent(self) -> RecentAnswers:
        return self.latest

    def answers(self) -> RecentAnswers:
        return self.total

    def utilization(self) -> Mapping[str, float]:
        return {}

    def overflow(self) -> OverflowTotals:
        return self.overflowed


class ScriptedPlanner:
    """Wants what the test last wrote into `wanted`; keeps every situation it saw."""

    name = "scripted"

    def __init__(self, *, needs_forecast: bool = False, monitors_slo: bool = False, replans: bool = False) -> None:
        self.needs_forecast, self.monitors_slo, self.replans = needs_forecast, monitors_slo, replans
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
    """Step h of the forecast is h: a shift by one step shows. Raises on request."""

    name = "ramp"

    def __init__(self, origin_s: float = 0.0, step_s: float = 60.0) -> None:
        self.origin_s, self.step_s = origin_s, step_s
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


class Bench:
    """A controller among fakes."""

    def __init__(
        self, planner: ScriptedPlanner | None = None, where: ResolvedService | None = None, **more: Any
    ) -> None:
        self.clock = ManualClock()
        self.cloud = more.pop("cloud", None) or FakeCloud(self.clock)
        self.functions, self.telemetry, self.store = FakeFunctions(), FakeTelemetry(), MemoryStore()
        self.planner = planner or ScriptedPlanner()
        self.resolved = where or resolved()
        self.controller = self.controller_again(**more)

    def controller_again(self, predictor: Any = None, floor: int = 0) -> Controller:
        """A controller that starts from what cloud and store hold."""
        policy = Policy(self.planner, self.resolved, bouncers=True)
        if predictor is not None and not isinstance(predictor, Supervised):
            predictor = Supervised(predictor)
        return Controller(
            policy, predictor, self.cloud, self.functions, self.clock, self.store, self.telemetry, seed=7, floor=floor
        )

    def tick(self, wanted: dict[str, int] | None = None, at_s: float | None = None) -> None:
        if wanted is not None:
            self.planner.wanted = wanted
        self.clock.t_s = self.clock.t_s + 60.0 if at_s is None else at_s
        self.controller.tick()

    def fast(self) -> None:
        self.clock.t_s += 5.0
        self.controller.fast()

    def phases(self) -> dict[int, str]:
        return {n: f"{i.offer} {i.phase}" for n, i in self.cloud.instances.items()}

    def journal(self) -> list[tuple[str, str]]:
        """(what, outcome) without reasons and prices."""
        return [(str(c).split(",")[0], outcome) for _, c, outcome in self.store.journal]
