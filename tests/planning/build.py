"""Deployments, forecasts and fleets with defaults, so that a test shows only the values that matter to it."""

from __future__ import annotations

import math
from collections.abc import Mapping

import numpy as np

from mark.domain.arrays import FloatArray
from mark.domain.fleet import Fleet, Instance, Phase
from mark.domain.function_offer import FunctionOffer
from mark.domain.load import LEVELS, Forecast, Load
from mark.domain.offer import BurstCredits, Catalog, Delay, Market, Offer
from mark.domain.profile import Profile, ProfileRow
from mark.domain.service import AsIsPolicy, FunctionUse, ResolvedService, ServiceConfig
from mark.domain.slo import Slo
from mark.planning.planner import Planner, PlanningContext
from mark.profiling.policy import candidate

LAMBDA = FunctionOffer(3008, 1.66667e-5, 0.2, 100.0, 3000, 500.0, 2700.0)


def sold(instance: str, usd_per_hour: float, market: Market = Market.ON_DEMAND, zone: str = "") -> Offer:
    credits = BurstCredits(0.2, 24.0, 576.0, 60.0) if market is Market.BURSTABLE else None
    return Offer(instance, market, usd_per_hour, Delay(180.0, 300.0), zone=zone, vcpu=2.0, credits=credits)


def resolved(
    *offers: Offer,
    latencies_ms: Mapping[str, float],
    function_ms: float | None = 380.0,
    rt_max_s: float = 0.6,
    model: str = "some-model",
    batch: Mapping[str, tuple[int, float]] | None = None,
    min_instances: int = 1,
    max_instances: int = 500,
    max_usd_per_hour: float = 1000.0,
    max_function_usd_per_hour: float = math.inf,
    as_is: AsIsPolicy | None = None,
) -> ResolvedService:
    """Return a service of these offers.

    `latencies_ms` are those of batch 1 by instance type, `batch` is a further row (size, ms). Types of ml.* are only
    sold.
    """
    slo = Slo(rt_max_s, 0.98)
    profiles = {
        instance: Profile(
            model,
            instance,
            (ProfileRow(1, ms), *([ProfileRow(*batch[instance])] if batch and instance in batch else [])),
        )
        for instance, ms in latencies_ms.items()
    }
    own = [o for o in offers if o.market is not Market.SAGEMAKER and o.instance in profiles]
    found = [(offer, candidate(profiles[offer.instance], slo)) for offer in own]
    able = [(offer, c) for offer, c in found if not isinstance(c, str)]
    return ResolvedService(
        service=ServiceConfig(
            name="test",
            model=model,
            slo=slo,
            catalog="test",
            markets=(Market.ON_DEMAND, Market.SPOT, Market.BURSTABLE),
            instances=("*",),
            min_instances=min_instances,
            max_instances=max_instances,
            max_usd_per_hour=max_usd_per_hour,
            functions=("lambda:3008",),
            max_function_usd_per_hour=max_function_usd_per_hour,
            as_is=as_is,
            source="test.toml",
        ),
        catalog=Catalog("test", offers, (LAMBDA,)),
        offers=tuple(offer for offer, _ in able),
        candidates=tuple(c for _, c in able),
        function=None if function_ms is None else FunctionUse(LAMBDA, function_ms / 1e3, 2.0, "measured"),
        profiles=profiles,
    )


def usual(**changes: object) -> ResolvedService:
    """Return a small and a large type, on-demand: 10 requests/s at 0.2 $/h, and 100 requests/s at 1.5 $/h."""
    return resolved(
        sold("large", 1.5),
        sold("small", 0.2),
        latencies_ms={"large": 10.0, "small": 100.0},
        **changes,  # type: ignore[arg-type]
    )


def forecast(rate_rps: FloatArray | float, spread: float = 0.0, peak: float = 1.0, steps: int = 60) -> Forecast:
    """Return a forecast with quantiles spread evenly by +-`spread` around the rate.

    The 5 s peak is `peak` times the mean.
    """
    middle = np.broadcast_to(np.asarray(rate_rps, dtype=np.float64), (steps,))
    mean = (1.0 + spread * (2.0 * LEVELS[:, None] - 1.0)) * middle
    return Forecast(0.0, 60.0, LEVELS, mean, peak * mean, "test")


def load(*rates_rps: float) -> Load:
    rates = np.array(rates_rps, dtype=np.float64)
    return Load(0.0, 60.0, rates, rates)


def fleet(counts: Mapping[str, int], pending: Mapping[str, int] | None = None) -> Fleet:
    phases = [(offer, Phase.READY, n) for offer, n in counts.items()]
    phases += [(offer, Phase.PENDING, n) for offer, n in (pending or {}).items()]
    every = [(offer, phase) for offer, phase, n in phases for _ in range(n)]
    return Fleet(tuple(Instance(i, offer, phase, 0.0, 0.0) for i, (offer, phase) in enumerate(every)))


class Minutes:
    """A planner played minute by minute: launches are ready after `boot` minutes, surplus ones leave immediately."""

    def __init__(self, planner: Planner, of: ResolvedService, boot: int = 5) -> None:
        self.planner, self.of, self.boot = planner, of, boot
        self.memory = planner.begin()
        self.now = 0
        self.ready: dict[str, int] = {}
        self.booting: list[tuple[int, str]] = []

    def first(self, context: PlanningContext) -> dict[str, int]:
        plan, self.memory = self.planner.plan(context, self.memory)
        self.ready = dict(plan.counts)
        return self.ready

    def minute(self, rate_rps: float | None, **more: object) -> dict[str, int]:
        """Play one tick after a minute at `rate_rps`, and return the wanted counts."""
        self.now += 1
        for due, offer in [b for b in self.booting if b[0] <= self.now]:
            self.booting.remove((due, offer))
            self.ready[offer] = self.ready.get(offer, 0) + 1
        pending: dict[str, int] = {}
        for _, offer in self.booting:
            pending[offer] = pending.get(offer, 0) + 1
        context = PlanningContext(
            60.0 * self.now,
            self.of,
            fleet(self.ready, pending),
            last_minute_rps=rate_rps,
            **more,  # type: ignore[arg-type]
        )
        plan, self.memory = self.planner.plan(context, self.memory)
        for offer in {*plan.counts, *self.ready}:
            missing = plan.counts.get(offer, 0) - self.ready.get(offer, 0) - pending.get(offer, 0)
            self.booting += [(self.now + self.boot, offer)] * max(0, missing)
            while missing < 0 and (old := next((b for b in reversed(self.booting) if b[1] == offer), None)):
                self.booting.remove(old)
                missing += 1
            self.ready[offer] = self.ready.get(offer, 0) + min(0, missing)
        return plan.counts
