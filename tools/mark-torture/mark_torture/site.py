"""The services of the simulated world: four offers, and a policy that plans in microseconds.

The policy stands in for mark's, whose optimisation takes milliseconds for each plan. The test is about carrying plans
out, not about making them.
"""

from __future__ import annotations

import math

import numpy as np

from mark.control.views import Limits
from mark.domain.function_offer import FunctionOffer
from mark.domain.load import Forecast, Load
from mark.domain.offer import BurstCredits, Catalog, Delay, Market, Offer
from mark.domain.plan import Plan, Target
from mark.domain.profile import BatchPolicy, Candidate, Profile, ProfileRow
from mark.domain.service import FunctionUse, ResolvedService, ServiceConfig
from mark.domain.slo import Slo
from mark.domain.time import STEP_S
from mark.planning.planner import PlanningContext
from mark.traffic.forecast.fallback import LastValue
from mark.traffic.forecast.supervised import Supervised
from mark_torture.drawn_faults import STAND_IN

_LEVELS = np.array([0.1, 0.5, 0.9])
CAPACITY_RPS = 10.0  # of an instance of any offer
LIMITS = Limits(14, 1.0)
_BOOT = Delay(90.0, 180.0)
OFFERS = (
    Offer("c5.large", Market.SPOT, 0.034, zone="a", boot=_BOOT, vcpu=2.0),
    Offer("c5.large", Market.SPOT, 0.034, zone="b", boot=_BOOT, vcpu=2.0),
    Offer("c5.large", Market.ON_DEMAND, 0.085, boot=_BOOT, vcpu=2.0),
    Offer("m5.large", Market.ON_DEMAND, 0.096, boot=_BOOT, vcpu=2.0),
)
STANDBY = Offer(
    "t3.large", Market.BURSTABLE, 0.0832, boot=_BOOT, vcpu=2.0, resume=Delay(27.0, 60.0),
    credits=BurstCredits(baseline=0.3, credits_per_hour=36.0, max_credits=864.0, launch_credits=30.0),
)  # fmt: skip
_FOR_EACH_STANDBY = 5  # instances for each standby


def site_service(name: str, warm_pool: int = 0, *, standbys: bool = False) -> ResolvedService:
    """Return a service within `LIMITS` with at least one instance and up to `warm_pool` stopped ones.

    With `standbys`, burstable instances may stand by.
    """
    offers = (*OFFERS, STANDBY) if standbys else OFFERS
    markets = (Market.SPOT, Market.ON_DEMAND, Market.BURSTABLE)[: 3 if standbys else 2]
    service = ServiceConfig(
        name, "inception-v3", Slo(0.6, 0.98), "torture", markets, ("*",),
        LIMITS.max_instances, LIMITS.max_usd_per_hour, ("lambda:3008",), min_instances=1, warm_pool=warm_pool,
    )  # fmt: skip
    profile = Profile("inception-v3", "any", (ProfileRow(1, 1e3 / CAPACITY_RPS),))
    step = np.array([0.0, 1.0 / CAPACITY_RPS])
    candidate = Candidate(profile, BatchPolicy(1, 0.0), step, CAPACITY_RPS, CAPACITY_RPS)
    function = FunctionUse(FunctionOffer(3008, 1.66667e-5, 0.2, 100.0, 1000, 500.0, 900.0), 0.38, 2.86, "measured")
    return ResolvedService(
        service, Catalog("torture", offers, (function.offer,)), offers, (candidate,) * len(offers), function
    )


def dollars_of(instances: int) -> float:
    """Return an upper bound in USD/h on the price of this many instances, at the initial prices."""
    return 0.1 * instances


class SteadyPlanner:
    """A planner that wants the load's capacity plus a quarter, within the limits.

    It keeps the instances that run, then adds the cheapest offer with capacity. With burstable offers, some instances
    stand by. Implements `mark.planning.planner.Planner`; its memory is the last number of instances.
    """

    name = STAND_IN
    needs_forecast = True
    monitors_slo = True
    replans = True

    def begin(self) -> int:
        return 1

    def plan(self, context: PlanningContext, memory: int) -> tuple[Plan, int]:
        wanted, rps = memory, context.last_minute_rps
        if rps is not None and math.isfinite(rps):
            wanted = max(1, math.ceil(1.25 * rps / CAPACITY_RPS))
            if wanted < memory <= math.ceil(1.6 * rps / CAPACITY_RPS):
                wanted = memory
        wanted = min(wanted, context.resolved.service.max_instances)
        counts: dict[str, int] = {}
        left, left_usd = wanted, context.resolved.service.max_usd_per_hour * (1.0 + 1e-9)
        offers = context.resolved.offers
        ranked = [
            (name, usd)
            for usd, name in sorted((o.usd_per_hour, o.name) for o in offers if o.market is not Market.BURSTABLE)
        ]
        live = context.fleet.live()
        for name, usd in ranked:
            counts[name] = count = max(0, min(left, live[name], int(left_usd / usd)))
            left, left_usd = left - count, left_usd - count * usd
        put_off = {name for name, known in context.beliefs.items() if context.now_s < known.until_s}
        best = next(((name, usd) for name, usd in ranked if name not in put_off), None)
        if best is not None:
            counts[best[0]] += max(0, min(left, int(left_usd / best[1])))
        reason = f"{wanted} instances for {0.0 if rps is None else rps:.1f} requests/s"
        targets = tuple(Target(name, count, reason) for name, count in counts.items() if count)
        standbys = tuple(
            Target(o.name, math.ceil(wanted / _FOR_EACH_STANDBY), f"one for each {_FOR_EACH_STANDBY} instances")
            for o in offers
            if o.market is Market.BURSTABLE
        )
        return Plan(context.now_s, targets, standbys=standbys, warm=1, capacity_rps=wanted * CAPACITY_RPS), wanted


class LastRate(Supervised):
    """A predictor that repeats the last observed rate, because predictions are not under test."""

    def __init__(self) -> None:
        super().__init__(LastValue())
        self._from_s = self._last_rps = 0.0

    def update(self, observed: Load) -> None:
        self._from_s = observed.end_s
        self._last_rps = next((r for r in reversed(observed.mean_rps.tolist()) if math.isfinite(r)), self._last_rps)

    def predict(self, steps: int, recent_rps: float | None = None) -> Forecast:
        known = recent_rps is not None and math.isfinite(recent_rps)
        rates = np.full((len(_LEVELS), steps), recent_rps if known else self._last_rps)
        return Forecast(self._from_s, STEP_S, _LEVELS, rates, rates, self.name)
