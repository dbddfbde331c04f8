"""A controller with made-up services and a day behind them, to test the API with and to look at the page.

python -m tests.api.fake_manager [PORT] [SERVICES]     serves the page on loopback, without keys, with a pipeline, too
"""

from __future__ import annotations

import math
import random
import sys
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Literal

from mark.config.pipeline_config import PipelineConfig
from mark.config.pipeline_file import load_pipeline
from mark.control.views import (
    DecisionSchema,
    ForecastSchema,
    HistorySchema,
    Limits,
    Mode,
    QueriesHistorySchema,
    QueriesSchema,
    RolloutSchema,
    ServiceView,
    SloSchema,
)
from mark.domain.bill import Bill
from mark.domain.catalog.tables import load_catalog
from mark.domain.errors import BadInput
from mark.domain.fleet import Instance, Phase
from mark.domain.plan import Plan, Target
from mark.domain.price_list import PriceList, PromiseEstimate, SloPrice
from mark.planning.next_day import BillInterval, KeptProbability, NextDay
from mark.planning.promise_cost import PromiseCost
from mark.planning.resolve import resolve
from mark.profiling.version_profiles import service_profiles

NOON_UNIX_S = 1_750_000_020.0
MINUTES = 24 * 60
LEVELS = (0.05, 0.25, 0.5, 0.75, 0.95)
OFFERS = {  # $/h, requests/s
    "c5.large/on-demand": (0.085, 38.0),
    "c5.xlarge/spot/us-east-1a": (0.0651, 74.0),
    "c5.large/spot/us-east-1b": (0.0337, 38.0),
    "t3.medium/burstable": (0.0416, 24.0),
}
NEXT_DAY = NextDay(BillInterval(9.0, 21.0, 14.0, False, 0), KeptProbability(0.93, False))
PARTS_MS = {"language": 20.0, "vision": 220.0, "translate": 150.0, "categorise": 60.0}
MODES: dict[str, Mode] = {"sentiment": "dry-run", "translate": "paused"}
NAMES = ("inception", "sentiment", "translate", "ranker", "caption", "whisper", "detect", "embed")


class FakeManager:
    """Satisfies `mark.api.manager_port.Manager`. Tests set its state: `views`, `troubles`, `leading`, `broken`."""

    def __init__(
        self,
        services: int = 3,
        now_unix_s: float = NOON_UNIX_S,
        instances: int | None = None,
        pipelines: Sequence[PipelineConfig] = (),
    ) -> None:
        names = [NAMES[i] if i < len(NAMES) else f"{NAMES[i % 8]}-{i // 8 + 1}" for i in range(services)]
        stages = {service.name: service for config in pipelines for service in config.stage_services()}
        shares = {f"{config.name}-{stage.name}": stage.share for config in pipelines for stage in config.stages}
        self.now_unix_s = now_unix_s
        self.leading = True
        self.broken = False
        names += stages
        days = [Day(place, now_unix_s) for place in range(min(len(names), len(Day.SCALES)))]
        self._costs = {
            name: PromiseCost(resolve(one, load_catalog(one.catalog), service_profiles(one)))
            for name, one in stages.items()
        }
        self.days = {name: days[place % len(days)] for place, name in enumerate(names)}
        self.views = {name: day.view(name, instances) for name, day in self.days.items()}
        for name, service in stages.items():
            slo, view = service.slo, self.views[name]
            shown = replace(
                view.slo,
                rt_max_ms=slo.rt_max_s * 1e3,
                target=slo.attainment,
                recent=0.9992,
                recent_ms=470.0 * slo.rt_max_s,
                recent_p50_ms=390.0 * slo.rt_max_s,
                recent_p99_ms=930.0 * slo.rt_max_s,
            )
            self.views[name] = replace(view, rps=shares[name] * 151.0, slo=shown)

    def services(self) -> list[str]:
        return list(self.views)

    def view(self, service: str) -> ServiceView:
        if self.broken:
            raise RuntimeError("the manager is broken")
        view = self.views[service]
        return view if self.leading else replace(view, mode="standing by")

    def decisions(self, service: str, before_id: int | None, count: int) -> list[DecisionSchema]:
        found = self.days[service].decisions
        return [d for d in reversed(found) if before_id is None or d.id < before_id][:count]

    def history(self, service: str, hours: float, points: int) -> HistorySchema:
        return self.days[service].history(hours, points)

    def promise_cost(self, service: str) -> PromiseCost:
        """Return the cost of the promise, for stages of pipelines only."""
        return self._costs[service]

    def pause(self, service: str, paused: bool) -> None:
        self.views[service] = replace(self.views[service], mode="paused" if paused else "acting")

    def roll_back(self, service: str) -> None:
        self._roll(service, "stopped")

    def roll_out_again(self, service: str) -> None:
        self._roll(service, "canary")

    def _roll(self, service: str, stage: Literal["canary", "stopped"]) -> None:
        rollout = RolloutSchema("b", "a", stage, "", "", {"a": 3})
        self.views[service] = replace(self.views[service], rollout=rollout)

    def set_limits(self, service: str, limits: Limits) -> None:
        if limits.max_usd_per_hour < 0.05:
            raise BadInput("no instance is that cheap", "max_usd_per_hour", limits.max_usd_per_hour)
        self.views[service] = replace(self.views[service], limits=limits)

    def leads(self) -> bool:
        return self.leading


class FakeQueries:
    """Whole queries of a pipeline, for a day: satisfies `mark.api.manager_port.Conducted`."""

    def __init__(self, day: Day) -> None:
        self._day = day
        self.now = QueriesSchema(per_s=148.3, recent=0.993, recent_ms=131.0, recent_p50_ms=118.0, recent_p99_ms=282.0)

    def view(self) -> QueriesSchema:
        return self.now

    def history(self, hours: float, points: int) -> QueriesHistorySchema:
        seen = self._day.history(hours, points)
        p50_ms = tuple(None if rps is None else 100.0 + 0.06 * rps for rps in seen.rps)
        late = [None if share is None else 1.0 - share for share in seen.attainment]
        p99_ms = tuple(None if share is None else 270.0 + 1500.0 * share for share in late)
        return QueriesHistorySchema(seen.start_unix_s, seen.step_s, seen.rps, seen.attainment, p50_ms, p99_ms)


class Day:
    """The past of one service, by minute, and the values computed from it."""

    SCALES = (1.0, 0.34, 0.6, 2.2, 0.2)

    def __init__(self, place: int, now_unix_s: float) -> None:
        self.start_unix_s = now_unix_s - MINUTES * 60.0
        self.now_unix_s = now_unix_s
        self.random = random.Random(place)
        self.scale = self.SCALES[place]
        self.rps: list[float | None] = [self._rps(minute) for minute in range(MINUTES)]
        for minute in range(MINUTES // 3, MINUTES // 3 + 9):  # the controller was away
            self.rps[minute] = None
        self.counts: dict[str, list[int | None]] = {offer: [] for offer in OFFERS}
        self.decisions: list[DecisionSchema] = []
        for minute in range(MINUTES):
            self._step(minute)
        self.attainment = [
            None if r is None else min(1.0, 1.0 - 0.002 * self.random.random() - self._surge(m) * 0.05)
            for m, r in enumerate(self.rps)
        ]

    def _surge(self, minute: int) -> float:
        return math.exp(-(((minute - MINUTES * 0.82) / 14.0) ** 2))

    def _mean(self, minute: float) -> float:
        return self.scale * (210.0 - 130.0 * math.cos((minute / MINUTES - 0.7) * 2 * math.pi))

    def _rps(self, minute: int) -> float:
        noise = 1.0 + 0.05 * self.random.gauss(0, 1) + 0.06 * math.sin(minute / 11.0)
        return max(0.0, (self._mean(minute) + 190.0 * self.scale * self._surge(minute)) * noise)

    def _step(self, minute: int) -> None:
        rps = self.rps[minute]
        if rps is None:
            for counts in self.counts.values():
                counts.append(None)
            return
        needed = 1.18 * max(self._mean(minute + 6), rps * 0.97 if self._surge(minute) > 0.1 else 0.0)
        wanted = {"c5.large/on-demand": 1 + round(self.scale), "t3.medium/burstable": int(self._surge(minute) > 0.5)}
        rest = needed - sum(OFFERS[o][1] * n for o, n in wanted.items())
        wanted["c5.xlarge/spot/us-east-1a"] = max(0, math.ceil(rest * 0.7 / 74.0))
        wanted["c5.large/spot/us-east-1b"] = max(0, math.ceil(rest * 0.3 / 38.0))
        for offer, (price, _) in OFFERS.items():
            before = next((n for n in reversed(self.counts[offer]) if n is not None), None)
            now = wanted[offer]
            if before is not None and minute % 7:  # held until the next look
                now = before
            self.counts[offer].append(now)
            if before is not None and now != before:
                self._decide(minute, offer, now - before, price)

    def _decide(self, minute: int, offer: str, more: int, price: float) -> None:
        expected = self._mean(minute + 6)
        if more > 0:
            overflow = 0.31 * more * self.scale
            why = f"{expected:.0f} requests/s expected in 5 min; their overflow would cost {overflow:.2f} $/h"
            text = f"launch {more} {offer}, {more * price:+.2f} $/h: {why}"
            verb = "launch"
        else:
            text = f"drain #{12 + minute // 40} {offer}, {more * price:+.2f} $/h: not needed before 30 min are over"
            verb = "drain"
        outcome = "done" if self.random.random() > 0.04 else "CapacityError: no c5 left in us-east-1a"
        at_unix_s = self.start_unix_s + minute * 60.0
        decision = DecisionSchema(len(self.decisions) + 1, at_unix_s, verb, text, outcome, more * price, None, 0)
        self.decisions.append(decision)

    def history(self, hours: float, points: int) -> HistorySchema:
        minutes = min(MINUTES, max(1, round(hours * 60)))
        group = math.ceil(minutes / points)
        begin = MINUTES - minutes // group * group if minutes >= group else MINUTES - minutes
        groups = [range(m, min(m + group, MINUTES)) for m in range(begin, MINUTES, group)]

        def mean(values: list[float | None]) -> tuple[float | None, ...]:
            kept = [[v for m in g if (v := values[m]) is not None] for g in groups]
            return tuple(sum(k) / len(k) if k else None for k in kept)

        def total(weights: int) -> list[float | None]:
            per_minute = zip(*self.counts.values(), strict=True)
            return [
                None if n[0] is None else sum((c or 0) * o[weights] for c, o in zip(n, OFFERS.values(), strict=True))
                for n in per_minute
            ]

        instances = {
            o: tuple(None if (c := counts[g[0]]) is None else c for g in groups) for o, counts in self.counts.items()
        }
        overflow = [None if r is None else 0.002 + 0.04 * self._surge(m) for m, r in enumerate(self.rps)]
        return HistorySchema(
            self.start_unix_s + begin * 60.0,
            group * 60.0,
            mean(self.rps),
            mean(total(1)),
            mean(total(0)),
            mean(list(self.attainment)),
            mean(overflow),
            instances,
        )

    def view(self, service: str, instances: int | None) -> ServiceView:
        fleet = self._fleet() if instances is None else _many(instances)
        usd = sum(OFFERS[i.offer][0] for i in fleet if i.phase is not Phase.STOPPED)
        ready = sum(OFFERS[i.offer][1] for i in fleet if i.phase is Phase.READY)
        requests = round(sum(60.0 * r for r in self.rps if r is not None))
        hours = sum(r is not None for r in self.rps) / 60.0
        late = 0.0121 if service == "sentiment" else 0.0052
        troubles = ("no c5 left in us-east-1a for the last 4 min: c5.large/spot/us-east-1b instead",)
        return ServiceView(
            service=service,
            mode=MODES.get(service, "acting"),
            at_unix_s=self.now_unix_s,
            at_s=MINUTES * 60.0,
            rps=self.rps[-1],
            capacity_rps=ready,
            usd_per_hour=usd,
            instances=fleet,
            prices={offer: price for offer, (price, _) in OFFERS.items()},
            plan=self._plan(fleet),
            forecast=self._forecast(),
            slo=SloSchema(250.0, 0.99, 1.0 - late, 0.996, 1.0 - late / 0.01, None, None, None),
            bill=Bill(
                0.17 * hours * self.scale, 0.31 * hours * self.scale, 0.02, 0.41 * self.scale, 0.0, 0.0225 * hours
            ),
            requests=requests,
            limits=Limits(20, 5.0),
            conditions=troubles if service == "inception" else (),
            next_day=None if service == "translate" else NEXT_DAY,
            price_list=PriceList() if service == "translate" else PriceList(1.17e-6, 1.978e-5),
            promise=PromiseEstimate(self.rps[-1], 0.61, (SloPrice(0.2375, 0.68), SloPrice(0.2625, 0.61))),
        )

    def _fleet(self) -> tuple[Instance, ...]:
        fleet: list[Instance] = []
        for offer, counts in self.counts.items():
            for _ in range(counts[-1] or 0):
                n = len(fleet) + 41
                launched_s = MINUTES * 60.0 - 900.0 * (len(fleet) + 1) ** 1.3
                fleet.append(Instance(n, offer, Phase.READY, launched_s, launched_s + 95.0))
        now_s = MINUTES * 60.0
        fleet[-1] = replace(fleet[-1], interruption_at_s=now_s + 84.0)
        fleet.append(Instance(58, "c5.large/spot/us-east-1b", Phase.PENDING, now_s - 40.0, now_s + 52.0))
        fleet.append(Instance(59, "c5.large/spot/us-east-1b", Phase.DRAINING, now_s - 7_300.0, now_s - 7_200.0))
        fleet.append(
            Instance(60, "t3.medium/burstable", Phase.STOPPED, now_s - 50_000.0, now_s - 49_900.0, None, True, 57.0)
        )
        return tuple(sorted(fleet, key=lambda i: i.number))

    def _plan(self, fleet: tuple[Instance, ...]) -> Plan:
        counts = {offer: sum(i.offer == offer and i.phase is Phase.READY for i in fleet) for offer in OFFERS}
        reasons = {
            "c5.large/on-demand": "the floor: kept through any interruption of spot",
            "c5.xlarge/spot/us-east-1a": f"{self._mean(MINUTES):.0f} requests/s at 0.24 $ per million, cheapest of all",
            "c5.large/spot/us-east-1b": "a second market: one interruption takes less than a third",
        }
        targets = tuple(
            Target(offer, counts[offer] + (offer.endswith("1b")), reason, int(offer.endswith("1b")))
            for offer, reason in reasons.items()
        )
        standby = Target("t3.medium/burstable", 1, "bridges the boot of a replacement for 0.004 $/h")
        return Plan(
            MINUTES * 60.0 - 31.0,
            targets,
            "seasonal-naive",
            (standby,),
            2,
            ("us-east-1a is believed to run short: 2.1 interruptions/h",),
            sum(t.count * OFFERS[t.offer][1] for t in targets),
            "highs, proven within 0.3 %",
        )

    def _forecast(self) -> ForecastSchema:
        now = self.rps[-1] or 0.0
        rows = []
        for level in LEVELS:
            z = {0.05: -1.64, 0.25: -0.67, 0.5: 0.0, 0.75: 0.67, 0.95: 1.64}[level]
            rows.append(
                tuple(
                    (self._mean(MINUTES + s) + (now - self._mean(MINUTES)) * math.exp(-s / 10.0))
                    * (1.0 + z * 0.05 * math.sqrt(1.0 + s / 6.0))
                    for s in range(1, 61)
                )
            )
        return ForecastSchema(self.now_unix_s, 60.0, "seasonal-naive", LEVELS, tuple(rows))


def _many(count: int) -> tuple[Instance, ...]:
    offers = list(OFFERS)
    return tuple(Instance(n, offers[n % len(offers)], Phase.READY, 60.0 * n, 60.0 * n + 90.0) for n in range(count))


def social() -> PipelineConfig:
    """Return the example's pipeline, with a part of the time for each stage."""
    config = load_pipeline(str(Path(__file__).parents[2] / "examples" / "pipeline" / "social.toml"))
    return replace(config, stages=tuple(replace(s, rt_max_s=PARTS_MS[s.name] / 1e3) for s in config.stages))


def digits() -> PipelineConfig:
    """Return a pipeline whose driver decides which stages are called."""
    return load_pipeline(str(Path(__file__).parents[2] / "examples" / "pipeline" / "digits_fleets.toml"))


def main(port: int = 8800, services: int = 3) -> None:
    import uvicorn

    from mark.api.app import app

    pipelines = social(), digits()
    manager = FakeManager(services, time.time(), pipelines=pipelines)
    conducted = {"social": FakeQueries(manager.days["social-vision"])}
    made = app(manager, None, pipelines=pipelines, conducted=conducted)
    uvicorn.run(made, host="127.0.0.1", port=port, log_level="info")


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
