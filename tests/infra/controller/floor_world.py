"""Workloads in memory, and a floor's control over them on a virtual clock."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from mark_infra.controller.floor_control import FloorControl, FloorSpec
from mark_infra.store.sqlite import SqliteTable
from mark_infra.telemetry.watched_workload import WorkloadMinutes, WorkloadNow

from mark.config.service_file import load_service
from mark.control.floor import Floor
from mark.domain.catalog.tables import load_catalog
from mark.domain.errors import CloudError
from mark.domain.load import Load
from mark.domain.offer import Market
from mark.domain.service import ResolvedService
from mark.planning.policies.policy_registry import make_policy
from mark.planning.resolve import resolve
from mark.profiling.version_profiles import service_profiles
from mark.traffic.forecast.predictor_registry import make_predictor
from tests.control.manager_fakes import InlinePool

BEGIN_UNIX_S = 1_760_000_040.0  # not on a whole minute
DAY_MINUTES = 1440
_NO_LOAD = Load(0.0, 60.0, np.empty(0), np.empty(0))


def daily_rps(unix_s: float) -> float:
    """A daily pattern between 20 and 420 requests/s."""
    return 220.0 - 200.0 * math.cos(2.0 * math.pi * unix_s / 86400.0)


def one_offer(name: str = "ranker", **changes: Any) -> ResolvedService:
    """Return a shipped service on one on-demand type, without functions."""
    service = replace(
        load_service("inception-v3-2026"), name=name, markets=(Market.ON_DEMAND,), instances=("g6.xlarge",),
        functions=(), warm_pool=0, **changes,
    )  # fmt: skip
    return resolve(service, load_catalog(service.catalog), service_profiles(service))


class FakeWorkload:
    """The port `WatchedWorkload`, from functions of Prometheus' time. `failing` is the reason of a missing answer."""

    def __init__(self, prometheus_unix_s: Callable[[], float], rps: Callable[[float], float | None]) -> None:
        self.unix_s, self.rps = prometheus_unix_s, rps
        self.replicas: int | None = 3
        self.in_time_share = math.nan
        self.failing = ""
        self.asked = 0

    def now(self) -> WorkloadNow:
        self._ask()
        at_s = self.unix_s()
        rps, share = self.rps(at_s), self.in_time_share
        if rps is None or math.isnan(share):
            return WorkloadNow(at_s, rps, self.replicas)
        return WorkloadNow(at_s, rps, self.replicas, 120.0 * rps, 120.0 * rps * share)

    def minutes(self, begin_unix_s: float, count: int) -> WorkloadMinutes:
        self._ask()
        ends = begin_unix_s + 60.0 * np.arange(1, count + 1)
        now_s = self.unix_s()
        rates = [self.rps(end - 30.0) if end <= now_s + 1.0 else None for end in ends.tolist()]
        rps = np.array([math.nan if rate is None else rate for rate in rates], dtype=np.float64)
        return WorkloadMinutes(rps, np.full(count, self.in_time_share))

    def _ask(self) -> None:
        self.asked += 1
        if self.failing:
            raise CloudError(self.failing)


class FloorWorld:
    """Prometheus, the machine's clocks and the state file outlive the process, `control`."""

    def __init__(self, folder: Path, *resolved: ResolvedService, **more: Any) -> None:
        self.file, self.resolved, self.more = folder / "advise.db", resolved or (one_offer(),), more
        self.monotonic_s = 1000.0
        self.wall_off_s = self.prometheus_off_s = 0.0  # difference of each clock from the true time
        self.workloads = {one.service.name: FakeWorkload(self.prometheus_s, daily_rps) for one in self.resolved}
        self.control = self._begun()

    @property
    def workload(self) -> FakeWorkload:
        return next(iter(self.workloads.values()))

    def prometheus_s(self) -> float:
        return BEGIN_UNIX_S + self.monotonic_s + self.prometheus_off_s

    def wall_s(self) -> float:
        return BEGIN_UNIX_S + self.monotonic_s + self.wall_off_s

    def _begun(self) -> FloorControl:
        specs = [
            FloorSpec(
                one,
                lambda within: make_policy("mark", within, _NO_LOAD),
                lambda: make_predictor("seasonal-naive", 0, 60.0),
                self.workloads[one.service.name],
                2 * DAY_MINUTES,
                **self.more,
            )
            for one in self.resolved
        ]
        return FloorControl(
            specs, SqliteTable(self.file), InlinePool(), InlinePool(),
            monotonic=lambda: self.monotonic_s, unix_s=self.wall_s,
        )  # fmt: skip

    def run(self, seconds: float, each: Callable[[], None] = lambda: None) -> None:
        """Take a step each second."""
        for _ in range(round(seconds)):
            self.monotonic_s += 1.0
            self.control.step(self.wall_s())
            each()

    def trouble(self) -> str:
        """Return why the last look of the first service failed, or ""."""
        led = next(iter(self.control._services.values()))._led
        assert led is not None
        return led.trouble

    def restart(self, *, orderly: bool = True) -> None:
        """Start another process over the same file; without `orderly` the first one was killed."""
        if orderly:
            self.control.close()
        self.control = self._begun()

    def floor(self) -> Floor | None:
        found = self.control.floors()
        assert len(found) <= 1
        return found[0] if found else None
