"""A tick of `mark advise --serve`: processor seconds and memory of the controllers behind many floors.

    python benchmarks/planner/advise_tick.py [--services 20] [--minutes 30] [--days 14] [--json FILE]

One process with one thread runs on a virtual clock and takes a step each second, as the real loop does. The workloads
are arrays in memory: days of a daily and weekly pattern with noise, for one replica up to twenty. A tick is one minute
of all services: four looks, twelve rounds between minutes and a full round of each. The first minutes, in which
predictors learn in turns, are reported separately. Exits with 1 if the 95th percentile of the ticks is more than 1 s,
or the process takes more than 300 MB.
"""

from __future__ import annotations

import argparse
import json
import resource
import sys
import tempfile
import time
from concurrent.futures import Executor, Future
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from mark_infra.controller.floor_control import FloorControl, FloorSpec
from mark_infra.store.sqlite import SqliteTable
from mark_infra.telemetry.watched_workload import WorkloadMinutes, WorkloadNow

from mark.config.service_file import load_service
from mark.domain.catalog.tables import load_catalog
from mark.domain.load import Load
from mark.domain.offer import Market
from mark.domain.service import ResolvedService
from mark.planning.policies.policy_registry import make_policy
from mark.planning.resolve import resolve
from mark.profiling.version_profiles import service_profiles
from mark.traffic.forecast.predictor_registry import make_predictor

BEGIN_UNIX_S = 1_790_000_040.0
MOST_TICK_S, MOST_MB = 1.0, 300.0
_NO_LOAD = Load(0.0, 60.0, np.empty(0), np.empty(0))


class Inline(Executor):
    """Runs each task when it is submitted."""

    def submit(self, fn: Any, /, *args: Any, **kwargs: Any) -> Future[Any]:
        done: Future[Any] = Future()
        done.set_result(fn(*args, **kwargs))
        return done


class Clock:
    """Seconds since the beginning, as this process's monotonic clock tells them."""

    def __init__(self) -> None:
        self.t_s = 0.0

    def monotonic(self) -> float:
        return self.t_s

    def unix_s(self) -> float:
        return BEGIN_UNIX_S + self.t_s


class ArrayWorkload:
    """The port `WatchedWorkload` over an array of minutes, which begins `before` minutes ago."""

    def __init__(self, clock: Clock, rps: np.ndarray, before: int) -> None:
        self._clock, self._rps, self._before = clock, rps, before

    def now(self) -> WorkloadNow:
        rps = float(self._rps[self._before + int(self._clock.t_s // 60.0)])
        return WorkloadNow(self._clock.unix_s(), rps, 3, 120.0 * rps, 119.0 * rps)

    def minutes(self, begin_unix_s: float, count: int) -> WorkloadMinutes:
        first = self._before + int((begin_unix_s - BEGIN_UNIX_S) // 60.0)
        found = np.full(count, np.nan)
        known = self._rps[max(0, first) : first + count]
        found[count - len(known) :] = known
        return WorkloadMinutes(found, np.full(count, 0.995))


def service_of(number: int) -> ResolvedService:
    """Return a shipped service on one type on demand."""
    shipped = replace(load_service("inception-v3-2026"), name=f"service-{number}", instances=("g6.xlarge",))
    alone = replace(shipped, markets=(Market.ON_DEMAND,), functions=(), warm_pool=0)
    return resolve(alone, load_catalog(alone.catalog), service_profiles(alone))


def traffic(number: int, minutes: int) -> np.ndarray:
    """Return the requests/s by minute: a mean of 100 up to 2,000, quieter at the weekend."""
    random = np.random.default_rng(number)
    at = np.arange(minutes) / 1440.0
    daily = 1.0 - 0.7 * np.cos(2.0 * np.pi * (at - number / 40.0))
    weekly = np.where(at % 7.0 < 5.0, 1.0, 0.6)
    return np.asarray(100.0 * (1 + number) * daily * weekly * random.gamma(50.0, 1.0 / 50.0, minutes))


def run(services: int, minutes: int, days: int) -> dict[str, Any]:
    """Return the processor seconds by tick, and the peak memory of the process."""
    clock, before = Clock(), days * 1440
    with tempfile.TemporaryDirectory() as folder:
        specs = [
            FloorSpec(
                service_of(n),
                lambda within: make_policy("mark", within, _NO_LOAD),
                lambda: make_predictor("auto", 0, 60.0),
                ArrayWorkload(clock, traffic(n, before + minutes + 120), before),
                before,
            )
            for n in range(services)
        ]
        control = FloorControl(
            specs, SqliteTable(Path(folder) / "state.db"), Inline(), Inline(),
            monotonic=clock.monotonic, unix_s=clock.unix_s,
        )  # fmt: skip
        # One service learns every 5 s, so that each service has had several turns after these minutes.
        warm_up = 5 + services
        ticks_s = []
        for _ in range(warm_up + minutes):
            began_s = time.process_time()
            for _ in range(60):
                clock.t_s += 1.0
                control.step(clock.unix_s())
            ticks_s.append(time.process_time() - began_s)
        published = len(control.floors())
        control.close()
    first_s, later_s = ticks_s[:warm_up], ticks_s[warm_up:]
    return {
        "services": services,
        "days": days,
        "published": published,
        "start_s": first_s[0],
        "worst_learning_tick_s": max(first_s[1:]),
        "tick_s": {"mean": float(np.mean(later_s)), "p95": float(np.percentile(later_s, 95)), "max": max(later_s)},
        "memory_mb": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024.0,
    }


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--services", type=int, default=20)
    parser.add_argument("--minutes", type=int, default=30)
    parser.add_argument("--days", type=int, default=14)
    parser.add_argument("--json", type=Path)
    args = parser.parse_args(argv)
    found = run(args.services, args.minutes, args.days)
    print(json.dumps(found, indent=2))
    if args.json is not None:
        args.json.write_text(json.dumps(found, indent=2) + "\n")
    kept = found["tick_s"]["p95"] <= MOST_TICK_S and found["memory_mb"] <= MOST_MB
    return 0 if kept and found["published"] == found["services"] else 1


if __name__ == "__main__":
    sys.exit(main())
