"""Builders of results, in which a test names only the values that matter to it."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from mark.domain.bill import Bill
from mark.domain.function_offer import FunctionCalls
from mark.domain.slo import Slo
from mark.simulation.result import (
    Decision,
    FleetResult,
    Latency,
    Requests,
    SimulationResult,
    SloResult,
    Speed,
    Timeline,
    TraceInfo,
)


def timeline(minutes: int = 60, rps: float = 100.0, offers: tuple[str, ...] = ("c5.large/on-demand",)) -> Timeline:
    """Return a run of constant load on a constant fleet; spending grows evenly to 1 $ on-demand and 0.1 $ functions."""
    ones = np.ones(minutes)
    return Timeline(
        t_s=60.0 * np.arange(float(minutes)),
        arrival_rps=rps * ones,
        capacity_rps=1.2 * rps * ones,
        overflow_rps=0.01 * rps * ones,
        attainment=0.99 * ones,
        instances={offer: np.full(minutes, 2.0) for offer in offers},
        spent_usd={"on_demand": np.linspace(0.0, 1.0, minutes), "functions": np.linspace(0.0, 0.1, minutes)},
    )


def result(
    policy: str = "mark", usd: float = 10.0, attainment: float | None = 0.99, **changes: Any
) -> SimulationResult:
    """Return a day of 1,000,000 requests with 2 % overflow, `usd` on-demand and 0.5 $ of functions."""
    slower = np.geomspace(1.0, 1e-5, 50)
    built = SimulationResult(
        service="inception-v3",
        policy=policy,
        predictor="auto",
        seed=0,
        trace=TraceInfo("day.csv.gz", 1_000_000, 86400.0),
        slo=Slo(0.6, 0.98),
        requests=Requests(instances=980_000, functions=20_000, rejected=0),
        slo_result=SloResult(attainment, None if attainment is None else attainment - 0.05, 3),
        latency_ms=Latency(mean=210.0, p50=190.0, p95=400.0, p98=480.0, p99=530.0, p999=590.0, max=640.0),
        bill=Bill(on_demand=usd, functions=0.5),
        functions=FunctionCalls(20_000, 40, 30, 0, 22_500.0),
        fleet=FleetResult(12, 10, 1, 6, {"c5.large/on-demand": 96.0}),
        speed=Speed(0.5, 0.2, 0.1, 0.1, 2e6, 240.0),
        timeline=timeline(),
        ccdf_ms=np.geomspace(40.0, 640.0, 50),
        ccdf_share=slower,
        decisions=(Decision(60.0, "launch", "launch 2 c5.large/on-demand, +0.17 $/h: forecast 120", "done", 0.17),),
        bound_usd=8.0,
        regret=1.25,
    )
    return replace(built, **changes)
