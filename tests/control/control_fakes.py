"""Offers, a resolved service, and a controller among fakes."""

from __future__ import annotations

from typing import Any

import numpy as np

from mark.control.coming_calls import ComingCalls
from mark.control.controller import Controller, Leadership
from mark.control.memory_store import MemoryStore
from mark.domain.function_offer import FunctionOffer
from mark.domain.offer import BurstCredits, Catalog, Delay, Market, Offer
from mark.domain.profile import BatchPolicy, Candidate, Profile, ProfileRow
from mark.domain.service import FunctionUse, ResolvedService, ServiceConfig
from mark.domain.slo import Slo
from mark.planning.planner import Policy
from mark.testing.fakes import FakeCloud, FakeFunctions, FakeTelemetry, ManualClock, ScriptedPlanner
from mark.traffic.forecast.supervised import Supervised

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
    *offers: Offer,
    max_instances: int = 200,
    max_usd_per_hour: float = 100.0,
    capacity_rps: float = 10.0,
    min_instances: int = 0,
) -> ResolvedService:
    offers = offers or (ON_DEMAND, SPOT_A, SPOT_B, BURSTABLE)
    service = ServiceConfig(
        "inception", "inception-v3", Slo(0.6, 0.98), "aws-2019", tuple(Market), ("*",), max_instances,
        max_usd_per_hour, ("lambda:3008",), min_instances=min_instances,
    )  # fmt: skip
    profile = Profile("inception-v3", "any", (ProfileRow(1, 1e3 / capacity_rps),))
    candidate = Candidate(profile, BatchPolicy(1, 0.0), np.array([0.0, 1 / capacity_rps]), capacity_rps, capacity_rps)
    function = FunctionUse(FunctionOffer(3008, 1.66667e-5, 0.2, 100.0, 1000, 500.0, 900.0), 0.38, 2.86, "measured")
    return ResolvedService(
        service, Catalog("aws-2019", offers, (function.offer,)), offers, (candidate,) * len(offers), function
    )


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
        self.release = more.pop("release", "")
        self.coming: ComingCalls | None = None  # the latest calls that the controller is told of
        self.controller = self.controller_again(**more)

    def controller_again(self, predictor: Any = None) -> Controller:
        """Return a controller that starts from the state in the cloud and the store."""
        policy = Policy(self.planner, self.resolved, bouncers=True)
        if predictor is not None and not isinstance(predictor, Supervised):
            predictor = Supervised(predictor)
        return Controller(
            policy,
            predictor,
            self.cloud,
            self.functions,
            self.clock,
            self.store,
            self.telemetry,
            leadership=Leadership(seed=7),
            release=self.release,
            coming=lambda: self.coming,
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
        """Return (command, outcome) pairs, without reasons and prices."""
        return [(str(c).split(",")[0], outcome) for _, c, outcome in self.store.journal]
