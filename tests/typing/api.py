"""What users write against mark, typed. mypy checks this file (`make types`); nothing runs it.

A line marked `type: ignore` is a misuse that the types must refuse: mypy reports an ignore that hides nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, assert_type

import numpy as np

import mark
from mark.control.ports import Clock, Cloud, Functions, Lease, Store, Telemetry
from mark.domain.load import LEVELS, Forecast, Load
from mark.domain.plan import Plan, Target
from mark.domain.service import ResolvedService
from mark.planning.planner import Planner, PlanningContext, Policy
from mark.planning.policies.policy_registry import make_policy
from mark.profiling.measure import Measured
from mark.sdk.running import ServeProcess
from mark.simulation.result import SimulationResult
from mark.studies.pipeline_plan import PlannedPipeline
from mark.studies.pipeline_result import PipelineRun
from mark.testing.fakes import FakeCloud, FakeFunctions, FakeLease, FakeStore, FakeTelemetry, ManualClock
from mark.traffic.forecast.predictor import Predictor


class Ranker(mark.Model):
    inputs = (mark.TensorSpec("features", "FP32", (3,)),)

    def predict(self, batch: list[Any]) -> Sequence[Any]:
        return [features.sum() for features in batch]


@mark.pipeline
async def bare(query: str, models: mark.StageModels) -> Any:
    return await models.rank(query)


@mark.pipeline(slo_ms=300)
async def promised(query: str, models: mark.StageModels) -> str:
    return str(await models.rank(query))


@mark.pipeline  # type: ignore[arg-type]
def no_coroutine(query: str, models: mark.StageModels) -> str:
    return query


class Last:
    """A predictor: the last rate stays."""

    name = "last"

    def fit(self, history: Load) -> None:
        self.update(history)

    def update(self, observed: Load) -> None:
        self._end_s, self._rate_rps = observed.end_s, float(observed.mean_rps[-1])

    def predict(self, steps: int) -> Forecast:
        rates = np.full((len(LEVELS), steps), self._rate_rps)
        return Forecast(self._end_s, 60.0, LEVELS, rates, rates, self.name)


class One:
    """A policy: one instance of the first offer; its memory counts the plans."""

    name = "one"
    needs_forecast = monitors_slo = replans = False

    def begin(self) -> int:
        return 0

    def plan(self, context: PlanningContext, memory: int) -> tuple[Plan, int]:
        offer = context.resolved.offers[0].name
        return Plan(context.now_s, (Target(offer, 1, "one is enough"),)), memory + 1


def a_service(folder: Path) -> None:
    service = mark.Service(name="ranker", model=Ranker, slo_ms=50, slo_attainment=0.98, catalog="aws-2026")
    assert_type(service.name, str)
    assert_type(service.simulate("trace.csv", "reactive", duration_s=300.0), SimulationResult)
    assert_type(service.compare("trace.csv", ["mark", "reactive"], processes=2), dict[str, SimulationResult])
    assert_type(service.running(port=8080), ServeProcess)
    service.profile(folder / "profile.csv", batches=(1, 4))
    mark.Service("service.toml")
    mark.Service(slo="fast")  # type: ignore[call-overload]
    mark.Service(slo_ms="fast")  # type: ignore[call-overload]
    service.simulate("trace.csv", seconds=300.0)  # type: ignore[call-arg]
    service.compare("trace.csv", ["mark"], processes="two")  # type: ignore[arg-type]
    mark.TensorSpec("features", 32)  # type: ignore[arg-type]


def a_pipeline(folder: Path, queries: list[dict[str, Any]]) -> None:
    service = mark.Service(
        name="ranks",
        pipeline=promised,
        slo_attainment=0.99,
        stages={"rank": Ranker, "again": {"model": "ranker:Ranker", "slo_ms": 20.0}},
    )
    assert_type(service.simulate("trace.csv", queries=queries), PipelineRun)
    assert_type(service.compare("trace.csv", ["mark", "tuned"], queries="queries.jsonl"), dict[str, PipelineRun])
    assert_type(service.plan("trace.csv", lineage=folder / "lineage.csv"), PlannedPipeline)
    assert_type(service.profile(queries=queries), list[Measured])
    mark.Service(stages={"rank": Ranker}, model=Ranker)  # type: ignore[call-overload]
    mark.Service(stages={"rank": {"model": Ranker, "behind": ["rank"]}})  # type: ignore[dict-item]
    of_file: mark.Service[PipelineRun, PlannedPipeline, list[Measured]] = mark.Service("pipeline.toml")
    assert_type(of_file.simulate("trace.csv"), PipelineRun)


def a_predictor() -> Predictor:
    return Last()


def no_predictor() -> Predictor:
    return Ranker()  # type: ignore[return-value]


def a_policy(resolved: ResolvedService, expected: Load) -> tuple[Policy, Policy]:
    planner: Planner = One()
    return Policy(planner, resolved, bouncers=True), make_policy("reactive", resolved, expected)


def fakes() -> tuple[Cloud, Clock, Store, Telemetry, Functions, Lease]:
    clock = ManualClock()
    return FakeCloud(clock), clock, FakeStore(), FakeTelemetry(), FakeFunctions(), FakeLease()
