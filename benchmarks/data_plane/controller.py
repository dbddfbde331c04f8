"""The seconds of a tick and the memory of a controller with 200 services and 2,000 instances.

    python benchmarks/data_plane/controller.py [--services 200] [--instances 10] [--minutes 5] [--policy greedy]
        [--predictor auto] [--days 1]

Every service has the real controller, predictor and planner over a simulated cloud, and days of history. All services
plan at the same moment, which is the worst case: a real controller spreads the plans over the minute. Predictors learn
in turns, one every window of 5 s. All are fitted after one window for each service, or after a few windows for each
if the history is long. The benchmark asserts the work (plans made, instances held, no service skipped) and prints
seconds and memory beside their targets (5 s on 2 cores, 500 MB).
"""

from __future__ import annotations

import argparse
import os
import resource
import time
from collections import Counter
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from statistics import median

import numpy as np

from mark.config.service_file import load_service
from mark.control.controller import Controller
from mark.control.lease import FencedLease, MemoryTerms
from mark.control.manager import ControllerManager
from mark.control.memory_store import MemoryStore
from mark.control.ports import WINDOW_S, OverflowTotals, Ran, RecentAnswers, ReleaseCounts, Store
from mark.control.service_runtime import ServiceRuntime
from mark.control.service_term import LAG_S, RuntimePorts
from mark.control.views import Limits
from mark.domain.arrays import FloatArray
from mark.domain.catalog.tables import load_catalog
from mark.domain.fleet import Phase
from mark.domain.load import Load
from mark.planning.planner import Policy
from mark.planning.policies.policy_registry import make_policy
from mark.planning.resolve import resolve
from mark.profiling.table import load_profiles
from mark.simulation.world.simulated_cloud import SimulatedCloud
from mark.traffic.forecast.predictor_registry import make_predictor
from mark.traffic.forecast.supervised import Supervised
from mark.traffic.forecast.turns import taking_turns

DAY_MINUTES = 1440
INSTANCES = ("c5.large", "c5.xlarge")  # small instances, so that there are many


class IdlePlane:
    """Instances without simulated requests."""

    def add(self, number: int, offer_index: int, at_s: float) -> None: ...
    def drain(self, number: int, at_s: float) -> None: ...
    def remove(self, number: int, at_s: float) -> None: ...
    def set_speed(self, number: int, factor: float, at_s: float) -> None: ...

    def idle_at(self, number: int) -> float:
        return 0.0

    def busy_s(self, number: int) -> float:
        return 0.0


class DailyTelemetry:
    """Load by the time of day, with noise from a seed."""

    def __init__(self, clock: SimulatedCloud, mean_rps: float, seed: int) -> None:
        self._clock, self._mean_rps, self._seed, self._given = clock, mean_rps, seed, 0

    def rates(self, first: int, last: int) -> FloatArray:
        minutes = np.arange(first, last)
        noise = np.random.default_rng((self._seed, first + 100 * DAY_MINUTES)).normal(1.0, 0.05, len(minutes))
        return self._mean_rps * (1.0 + 0.2 * np.sin(2.0 * np.pi * minutes / DAY_MINUTES)) * noise

    def load(self) -> Load:
        first, self._given = self._given, int(self._clock.now_s() // 60.0)
        rates = self.rates(first, self._given)
        return Load(first * 60.0, 60.0, rates, rates * 1.2)

    def last_minute_rps(self) -> float | None:
        return float(self.rates(self._given, self._given + 1)[0])

    def windows_rps(self) -> FloatArray:
        return np.full(12, self.last_minute_rps())

    def recent(self) -> RecentAnswers:
        return RecentAnswers(1000, 995)

    def answers(self) -> RecentAnswers:
        total = round(self._clock.now_s() * self._mean_rps)
        return RecentAnswers(total, round(total * 0.995))

    def utilization(self) -> Mapping[str, float]:
        return {}

    def overflow(self) -> OverflowTotals:
        return OverflowTotals(0, 0.0)

    def releases(self) -> Mapping[str, Mapping[str, ReleaseCounts]]:
        return {}


class NoChanges:
    def ran(self) -> tuple[Ran, ...]:
        return ()


class Service:
    """One service of the benchmark; `planned` counts its plans."""

    def __init__(self, number: int, args: argparse.Namespace) -> None:
        self.name, self.planned = f"service-{number:03d}", 0
        self._args, self._number = args, number
        service = replace(load_service("inception-v3"), instances=INSTANCES)
        self.resolved = resolve(service, load_catalog(service.catalog), load_profiles(None))
        capacity_rps = {
            o.instance: c.capacity_rps for o, c in zip(self.resolved.offers, self.resolved.candidates, strict=True)
        }
        self.cloud = SimulatedCloud(self.resolved.offers, IdlePlane(), seed=number, end_s=1e9)
        self.telemetry = DailyTelemetry(self.cloud, args.instances * capacity_rps["c5.large"], number)

    def start(self, fence: int, wrapped: Callable[[Store], Store]) -> RuntimePorts:
        minutes = self._args.days * DAY_MINUTES
        rates = self.telemetry.rates(-minutes, 0)
        made = make_predictor(self._args.predictor, 0, 60.0)
        predictor = Supervised(taking_turns(made, self._args.services), clock=time.monotonic)
        predictor.fit(Load(-minutes * 60.0, 60.0, rates, rates * 1.2))
        store = wrapped(MemoryStore())
        controller = Controller(
            self.policy(Limits(500, 1000.0)), predictor, self.cloud, None, self.cloud, store, self.telemetry
        )
        return RuntimePorts(
            controller, self.cloud, self.telemetry, NoChanges(), store, self.cloud, float, self.policy, lambda: None
        )  # fmt: skip

    def policy(self, limits: Limits) -> Policy:
        made = make_policy(self._args.policy, self.resolved, Load(0.0, 60.0, np.empty(0), np.empty(0)))
        plan = made.planner.plan

        def counted(context: object, memory: object) -> object:
            self.planned += 1
            return plan(context, memory)  # type: ignore[arg-type]

        made.planner.plan = counted  # type: ignore[method-assign, assignment]
        return made


class Bench:
    def __init__(self, args: argparse.Namespace) -> None:
        self.services = [Service(n, args) for n in range(args.services)]
        self.pool = ThreadPoolExecutor(4)
        members = [ServiceRuntime(s.name, s.resolved, s.start) for s in self.services]
        self.now_s = 0.0
        lease = FencedLease(MemoryTerms(), "bench", monotonic_s=lambda: self.now_s)
        self.room = ControllerManager(members, lease, self.pool)

    def step(self, now_s: float) -> tuple[float, float]:
        """Step all services together; return seconds on the wall and of the processor."""
        for service in self.services:
            service.cloud.advance(now_s)
        wall, cpu = time.perf_counter(), time.process_time()
        self.now_s = now_s
        self.room.step(now_s)
        self.room.wait()
        return time.perf_counter() - wall, time.process_time() - cpu

    def planned(self) -> int:
        return sum(service.planned for service in self.services)

    def forecasters(self) -> Counter[str]:
        """Return the services by the predictor behind their last plan."""
        plans = [self.room.view(service.name).plan for service in self.services]
        return Counter(plan.predictor for plan in plans if plan is not None)

    def instances(self) -> int:
        return sum(i.phase is not Phase.STOPPED for s in self.services for i in s.cloud.fleet().instances)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--services", type=int, default=200)
    parser.add_argument(
        "--instances", type=int, default=10, help="instances of c5.large that the load of each service needs"
    )
    parser.add_argument("--minutes", type=int, default=20)
    parser.add_argument("--policy", default="greedy")
    parser.add_argument("--predictor", default="auto")
    parser.add_argument("--days", type=int, default=1, help="days of history")
    args = parser.parse_args()
    bench = Bench(args)
    print(f"{args.services} services, {args.policy}, {args.predictor}, {args.days} d of history, {os.cpu_count()} CPUs")
    print(f"{'':32} {'times':>6} {'median s':>9} {'worst s':>9} {'cpu s':>8} {'plans':>7} {'instances':>10}")
    took: dict[str, list[tuple[float, float, int]]] = {}
    for window in range(1, 12 * (args.minutes + 1) + 1):
        before, by_name = bench.planned(), bench.forecasters()
        wall_s, cpu_s = bench.step(window * WINDOW_S + LAG_S)
        plans = bench.planned() - before
        what = "start, first plan" if window == 1 else "tick, all at once" if window % 12 == 0 else "fast, all at once"
        if window > 1 and any(name != args.predictor for name in by_name):
            what += ", some not yet fitted"
        took.setdefault(what, []).append((wall_s, cpu_s, plans))
        assert window % 12 or plans >= args.services, f"{plans} plans"
    for what, rows in took.items():
        wall, cpu, plan = zip(*rows, strict=True)
        print(
            f"{what:32} {len(rows):6d} {median(wall):9.2f} {max(wall):9.2f} {max(cpu):8.2f} {sum(plan):7d}"
            f" {bench.instances():10d}"
        )
    print("forecasts by", ", ".join(f"{name}: {count} services" for name, count in bench.forecasters().items()))
    troubles = [trouble for s in bench.services for trouble in bench.room.view(s.name).conditions]
    assert not troubles, troubles[0]
    assert bench.instances() >= 0.5 * args.services * args.instances, f"{bench.instances()} instances"
    peak_mb = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024.0
    worst_s = max(row[0] for what, rows in took.items() for row in rows if what.startswith("tick"))
    print(f"memory {peak_mb:.0f} MB (asked for: 500), worst tick {worst_s:.2f} s (asked for: 5)")
    bench.room.close()
    bench.pool.shutdown()


if __name__ == "__main__":
    main()
