"""The kernel's speed in simulated requests per second, by scenario, beside the same system in SimPy in the same run.

    python benchmarks/planner/kernel.py [--requests N] [--rounds R] [--routing NAME] [--json FILE|-]
    python benchmarks/planner/kernel.py --digests FILE      # hashes of all simulated results
    python benchmarks/planner/kernel.py --insured           # the simulator's cost of parity models

Rates are requests per second of processor time on one core (the kernel is single-threaded). Arrivals are ready in
memory, and the stage advances minute by minute; the cost of a call of `advance` is measured separately. Rounds go
through all scenarios in turn, so that a noisy minute affects all of them; the tables show medians. The benchmark
asserts the work: the kernel simulates every request, with the same outcome each time, and SimPy agrees request by
request, in as many batches. SimPy routes by least completion.

Then it simulates a day of the Twitter stream x 2.5 (13.8 million requests) for two services, with a fleet that policy
`mark` changes, in calls of 5 s at most, and measures the processor time of the stage alone. The trace comes from
MARK_DATA or ../shared/data; without it this part is skipped.

`--insured` simulates a fleet that straggles, and the same fleet with parity models, which takes two passes of the
kernel and the coding groups. It prints how much longer that takes.

`--digests` writes a hash for each scenario and routing: of all departures, accounts, and records of replicas and
functions. To hash another checkout: `PYTHONPATH=OTHER python benchmarks/planner/kernel.py --digests FILE`.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import statistics
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, cast

import numpy as np
import simpy
from numpy.typing import NDArray

from mark.domain.faults import Faults
from mark.domain.function_offer import FunctionOffer
from mark.domain.profile import BatchPolicy, Candidate, Profile, ProfileRow
from mark.domain.rules import admission, batching, routing
from mark.domain.service import FunctionUse
from mark.insurance.insurance_settings import DEGRADED, InsuranceSettings, ParitySettings
from mark.kernel.accounting import Accounting
from mark.kernel.stage import ROUTING, Admission, StageSimulation
from mark.simulation.coded_flow import CodedFlow, Serve, coded_answers
from mark.simulation.inputs import Inputs, open_inputs
from mark.simulation.parts import Arrivals
from mark.simulation.request import RunRequest
from mark.simulation.run import Simulation

Floats = NDArray[np.float64]

RT_MAX_S = 0.6
TICK_S = 60.0
DATA = Path(os.environ.get("MARK_DATA", Path(__file__).parents[2] / "shared" / "data"))
STREAM = DATA / "traces" / "twitter_stream_2021_d00_14_1s.csv.gz"
DAY_SERVICES, DAY_ROUNDS = ("inception-v3", "nasnet"), 3


def candidate(service_s: list[float]) -> Candidate:
    rows = tuple(ProfileRow(b, t * 1e3) for b, t in enumerate(service_s, start=1))
    rate = len(service_s) / service_s[-1]
    return Candidate(Profile("m", "i", rows), BatchPolicy(len(service_s), 0.0), np.array([0.0, *service_s]), rate, rate)


# Inception-v3 as in the paper: p2.xlarge with batches up to 8, c5.large one by one; Lambda with 3,008 MB
GPU = candidate([0.0431 + 0.0145 * b for b in range(8)])
CPU = candidate([0.2113])
LAMBDA = FunctionUse(FunctionOffer(3008, 1.66667e-5, 0.2, 100.0, 1000, 1000.0, 2700.0, 3000.0), 0.38, 2.86, "measured")


@dataclass
class Scenario:
    name: str
    fleet: list[Candidate]
    load: float
    requests: int
    function: FunctionUse | None = LAMBDA
    routing: str = "least-completion"
    rates: list[float] = field(default_factory=list)
    work: tuple[int, ...] = ()

    def arrivals_s(self, seed: int = 1) -> Floats:
        rate = self.load * sum(c.capacity_rps for c in self.fleet)
        times: Floats = np.cumsum(np.random.default_rng(seed).exponential(1.0 / rate, self.requests))
        return times

    def stage(self, arrivals_s: Floats, record: bool) -> StageSimulation:
        stage = StageSimulation(
            [GPU, CPU],
            accounts=Accounting(rt_max_s=RT_MAX_S, end_s=float(arrivals_s[-1]) + 1.0),
            function=self.function,
            routing=self.routing,
            classes=[1, 0],
            keep=record,
        )
        for number, kind in enumerate(self.fleet):
            stage.add(number, 0 if kind is GPU else 1, 0.0)
        return stage


def scenarios(requests: int, routing: str) -> list[Scenario]:
    fleets = {"gpu": lambda n: [GPU] * n, "cpu": lambda n: [CPU] * n, "mixed": lambda n: ([GPU, CPU] * n)[:n]}
    return [
        Scenario(f"{n} {kind}", fleet(n), load, requests, routing=routing)
        for n in (5, 50, 500)
        for kind, fleet in fleets.items()
        for load in (0.5, 0.9, 1.3)
    ]


def simulate(scenario: Scenario, record: bool = False) -> tuple[StageSimulation, float]:
    """Return the finished stage and the processor seconds that `advance` and `finish` took."""
    arrivals = scenario.arrivals_s()
    stage = scenario.stage(arrivals, record)
    position, until = 0, TICK_S
    began = time.process_time()
    while position < len(arrivals):
        position = stage.advance(arrivals, position, until)
        until += TICK_S
    stage.finish()
    return stage, time.process_time() - began


def outcome(stage: StageSimulation) -> tuple[int, ...]:
    return stage.arrived, stage.by_instances, stage.accounts.by_functions, stage.accounts.rejected, stage.accounts.late


def batches(stage: StageSimulation) -> int:
    recording = stage.recording()
    served = recording.slot >= 0
    return len(np.unique(np.stack([recording.slot[served].astype(float), recording.start_s[served]]), axis=1).T)


def measure(all_scenarios: list[Scenario], rounds: int) -> None:
    for scenario in all_scenarios:  # also compiles
        stage, _ = simulate(scenario, record=True)
        scenario.work = (*outcome(stage), batches(stage))
        arrived, by_instances, by_functions, rejected, _, started = scenario.work
        assert arrived == scenario.requests == by_instances + by_functions + rejected
        assert by_instances / max(c.policy.n_batch for c in scenario.fleet) <= started <= by_instances
    for _ in range(rounds):
        for scenario in all_scenarios:
            stage, cpu_s = simulate(scenario)
            assert outcome(stage) == scenario.work[:5], "the same work each time"
            scenario.rates.append(scenario.requests / cpu_s)


def digest(stage: StageSimulation, replicas: int) -> str:
    """Return a digest of all results of a recorded stage."""
    told = hashlib.sha256()
    for column in (*stage.departures(), *stage.accounts.arrays):
        told.update(np.ascontiguousarray(column).tobytes())
    work_s = [(stage.busy_s(number), stage.idle_at(number)) for number in range(replicas)]
    told.update(repr((work_s, stage.all_busy_s(), stage.function_calls(), stage.arrived)).encode())
    return told.hexdigest()


def digests(requests: int) -> dict[str, str]:
    return {
        f"{s.name}, load {s.load}, {name}": digest(simulate(s, record=True)[0], len(s.fleet))
        for name in sorted(ROUTING)
        for s in scenarios(requests, name)
    }


# -- a day, with the fleet that a policy has --------------------------------------------------------------------------


class TimedArrivals:
    """The arrivals of a run; the processor time that its stage takes for them."""

    def __init__(self, inputs: Inputs) -> None:
        self._arrivals, self.cpu_s = Arrivals(inputs), 0.0

    def advance(self, stage: StageSimulation, until_s: float) -> None:
        self._arrivals.advance(cast(StageSimulation, _Timed(stage, self)), until_s)


class _Timed:
    """The part of a stage that takes arrivals."""

    def __init__(self, stage: StageSimulation, arrivals: TimedArrivals) -> None:
        self._stage, self._arrivals = stage, arrivals
        self.reach = stage.reach

    def advance(self, *arguments: Any) -> int:
        began = time.process_time()
        try:
            return self._stage.advance(*arguments)
        finally:
            self._arrivals.cpu_s += time.process_time() - began


def day(service: str) -> dict[str, Any]:
    """Return the requests, the highest number of instances, and the rate of the stage: the median of equal runs."""
    request = RunRequest(
        str(STREAM),
        service,
        scale=2.5,
        start_s=604_800.0,
        duration_s=86_400.0,
        policy="mark",
        predictor="seasonal-naive",
        with_bound=False,
    )
    inputs = open_inputs(request)
    rates, seen = [], set()
    for _ in range(DAY_ROUNDS):
        arrivals = TimedArrivals(inputs)
        simulation = Simulation(inputs, "mark", "seasonal-naive", arrivals=arrivals)
        result = simulation.run()
        seen.add((*outcome(simulation.stage), result.fleet.peak_instances))
        rates.append(result.requests.total / arrivals.cpu_s)
    assert len(seen) == 1, "the same work each time"
    peak = seen.pop()[-1]
    return {
        "service": service,
        "requests": result.requests.total,
        "peak": peak,
        "million_rps_per_core": statistics.median(rates) / 1e6,
    }


def advance_call_us(replicas: int, changed: bool, calls: int = 2000) -> float:
    """Return the microseconds of an `advance` without arrivals; with `changed` the fleet changed before each."""
    arrivals = np.array([1e9])
    stage = Scenario("", [GPU] * replicas, 1.0, 1).stage(np.array([1e3]), record=False)
    stage.advance(arrivals, 0, 0.0)
    began = time.process_time()
    for _ in range(calls):
        if changed:
            stage.drain(0, 0.0)
            stage.add(0, 0, 0.0)
        stage.advance(arrivals, 0, 1.0)
    return (time.process_time() - began) / calls * 1e6


# -- parity models ----------------------------------------------------------------------------------------------------


def insured(requests: int, rounds: int) -> list[dict[str, float]]:
    """Return the processor seconds of a fleet of one-by-one replicas, and of the same one with parity models."""
    replicas, stragglers = 48, Faults(slow_share=0.05, slow_s=20.0, slow_factor=3.0)
    rate = 0.75 * replicas * CPU.capacity_rps
    arrivals_s: Floats = np.cumsum(np.random.default_rng(1).exponential(1.0 / rate, requests))

    def served(times_s: Floats, count: int, seed: int, keep: bool) -> StageSimulation:
        accounts = Accounting(rt_max_s=RT_MAX_S, end_s=float(arrivals_s[-1]) + 1.0)
        every = Admission(bouncers=False)
        stage = StageSimulation([CPU], accounts=accounts, admission=every, seed=seed, faults=stragglers, keep=keep)
        for number in range(count):
            stage.add(number, 0, 0.0)
        stage.advance(times_s, 0, np.inf)
        stage.finish()
        return stage

    def plain() -> None:
        assert served(arrivals_s, replicas, 0, keep=False).accounts.departed == requests

    def with_parity(k: int, r: int) -> None:
        settings = InsuranceSettings(
            ParitySettings("sum", k, r), after_s=RT_MAX_S - 0.005, accept=DEGRADED, fill_s=np.inf
        )
        flow = CodedFlow(settings, RT_MAX_S, arrivals_s, lambda at_s: np.inf)

        def serve(count: int, seed: int) -> Serve:
            return lambda times_s, limits_s: served(times_s, count, seed, keep=True).recording().finish_s

        found = coded_answers(flow, serve(replicas, 0), [serve(replicas // k, 1 + p) for p in range(r)])
        assert found.parity_calls == requests // k
        assert found.saved > 0

    def cpu_s(run: Callable[[], None]) -> float:
        began = time.process_time()
        run()
        return time.process_time() - began

    codes = [(2, 1), (3, 1), (4, 1), (4, 2)]
    runs: list[Callable[[], None]] = [plain, *(partial(with_parity, k, r) for k, r in codes)]
    for run in runs:  # also compiles
        run()
    times_s = np.array([[cpu_s(run) for run in runs] for _ in range(rounds)])
    plain_s, *insured_s = np.median(times_s, axis=0).tolist()
    return [
        {"k": k, "r": r, "plain_s": plain_s, "insured_s": own_s, "ratio": own_s / plain_s}
        for (k, r), own_s in zip(codes, insured_s, strict=True)
    ]


# -- the same system in SimPy, as quick as plain code can be ---------------------------------------------------------


class Replica:
    """One worker, work-conserving batches; `free_s` is when all closed batches are done."""

    def __init__(self, number: int, kind: Candidate) -> None:
        self.number = number
        self.service_s: list[float] = kind.service_s.tolist()
        self.n_batch = kind.policy.n_batch
        self.free_s = 0.0
        self.open: list[float] = []

    def completion_s(self, now_s: float) -> float:
        return max(self.free_s, now_s) + self.service_s[len(self.open) + 1]


class SimpyModel:
    def __init__(self, scenario: Scenario) -> None:
        self.env = simpy.Environment()
        self.replicas = [Replica(n, kind) for n, kind in enumerate(scenario.fleet)]
        self.arrivals_s: list[float] = scenario.arrivals_s().tolist()
        self.latencies_s: list[float] = []
        self.rejected = 0
        self.batches = 0

    def run(self) -> float:
        """Run the model and return the processor seconds."""
        began = time.process_time()
        self.env.process(self.arrive())
        self.env.run()
        return time.process_time() - began

    def arrive(self) -> Iterator[simpy.Event]:
        for now in self.arrivals_s:
            yield self.env.timeout(max(0.0, now - self.env.now))
            best, best_s = self.replicas[0], self.replicas[0].completion_s(now)
            for replica in self.replicas[1:]:
                finish = replica.completion_s(now)
                if finish <= best_s and routing.better(
                    finish, bool(replica.open), replica.number, best_s, bool(best.open), best.number
                ):
                    best, best_s = replica, finish
            waits = best.n_batch > 1 and not best.open and best.free_s > now
            best_s += batching.reserve_s(waits, best.service_s[1], best.service_s[best.n_batch])
            if not admission.in_time(best_s - now, RT_MAX_S):
                self.rejected += 1
                continue
            best.open.append(now)
            size = len(best.open)
            joins = size < best.n_batch and batching.joins(
                best.free_s,
                best.service_s[size],
                best.service_s[size + 1],
                best.service_s[1],
                best.open[0],
                0.0,
                RT_MAX_S,
            )
            if best.free_s <= now or not joins:
                self.start(best)
            elif size == 1:
                self.env.process(self.start_later(best, best.open, now))

    def start_later(self, replica: Replica, batch: list[float], now_s: float) -> Iterator[simpy.Event]:
        yield self.env.timeout(replica.free_s - now_s)
        if replica.open is batch:
            self.start(replica)

    def start(self, replica: Replica) -> None:
        """Start a batch now, or when the worker is free: no request may join any more."""
        batch, replica.open = replica.open, []
        start = max(replica.free_s, batch[-1])
        replica.free_s = start + replica.service_s[len(batch)]
        self.batches += 1
        self.env.process(self.answer(batch, replica.free_s))

    def answer(self, batch: list[float], finish_s: float) -> Iterator[simpy.Event]:
        yield self.env.timeout(max(0.0, finish_s - self.env.now))
        self.latencies_s.extend(finish_s - arrival for arrival in batch)


def against_simpy(replicas: int, requests: int) -> dict[str, float]:
    """Return rates of both, functions off, and the proof that both simulated the same."""
    small = Scenario(f"{replicas} gpu", [GPU] * replicas, 0.9, requests, function=None)
    model = SimpyModel(small)
    simpy_rate = requests / model.run()
    stage, _ = simulate(small, record=True)
    assert outcome(stage)[1:4] == (len(model.latencies_s), 0, model.rejected)
    assert batches(stage) == model.batches
    assert abs((stage.accounts.latency_mean_s() or 0.0) - statistics.fmean(model.latencies_s)) < 1e-9
    large = Scenario(small.name, small.fleet, 0.9, 2_000_000, function=None)
    kernel_rate = statistics.median(large.requests / simulate(large)[1] for _ in range(3))
    return {"replicas": replicas, "simpy_rps": simpy_rate, "kernel_rps": kernel_rate, "ratio": kernel_rate / simpy_rate}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--requests", type=int, default=2_000_000, help="requests in each scenario and round")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--routing", choices=sorted(ROUTING), default="least-completion")
    parser.add_argument("--json", metavar="FILE", help="write the numbers to FILE; - prints only the numbers")
    parser.add_argument(
        "--digests", metavar="FILE", help="only write hashes of the results, of a tenth of the requests"
    )
    parser.add_argument("--insured", action="store_true", help="measure only the cost of parity models")
    options = parser.parse_args()

    if options.insured:
        found = insured(options.requests, options.rounds)
        if options.json == "-":
            print(json.dumps(found))
            return
        sys.stdout.write(f"{options.requests:,} requests, seconds of one core\n k  r   plain  insured  ratio\n")
        for one in found:
            times = f"{one['plain_s']:7.2f}  {one['insured_s']:7.2f}  {one['ratio']:5.2f}"
            sys.stdout.write(f"{one['k']:>2} {one['r']:>2} {times}\n")
        return
    if options.digests:
        Path(options.digests).write_text(json.dumps(digests(options.requests // 10), indent=1) + "\n", encoding="utf-8")
        return

    all_scenarios = scenarios(options.requests, options.routing)
    measure(all_scenarios, options.rounds)
    rows = [
        {
            "fleet": s.name,
            "load": s.load,
            "requests": s.requests,
            "batches": s.work[5],
            "overflow_share": 1.0 - s.work[1] / s.requests,
            "million_rps_per_core": statistics.median(s.rates) / 1e6,
        }
        for s in all_scenarios
    ]
    calls = [
        {"replicas": n, "advance_us": advance_call_us(n, False), "after_a_change_us": advance_call_us(n, True)}
        for n in (5, 50, 500)
    ]
    simpy_rows = [against_simpy(5, 60_000), against_simpy(50, 30_000)]

    days = [day(service) for service in DAY_SERVICES] if STREAM.exists() else []

    result = {"routing": options.routing, "kernel": rows, "advance": calls, "simpy": simpy_rows, "days": days}
    if options.json == "-":
        print(json.dumps(result))
        return
    if options.json:
        with open(options.json, "w", encoding="utf-8") as file:
            json.dump(result, file, indent=1)
    out = sys.stdout.write
    out("fleet        load    batches  overflow  million requests/s per core\n")
    for s, row in zip(all_scenarios, rows, strict=True):
        out(f"{s.name:<12} {s.load:4.1f} {s.work[5]:>10,} {row['overflow_share']:>8.1%}")
        out(f"  {row['million_rps_per_core']:6.1f}\n")
    out("\nan advance without arrivals, and one after the fleet changed (microseconds)\n")
    for call in calls:
        out(f"{call['replicas']:>4} replicas {call['advance_us']:8.1f} {call['after_a_change_us']:8.1f}\n")
    out("\nthe same system in SimPy (requests/s)\n")
    for pair in simpy_rows:
        out(
            f"{pair['replicas']:>4} replicas  SimPy {pair['simpy_rps']:>10,.0f}  kernel {pair['kernel_rps']:>12,.0f}"
            f"  {pair['ratio']:,.0f} times\n"
        )
    out("\na day of the Twitter stream, the fleet as by policy mark (million requests/s per core)\n")
    for one in days:
        out(f"{one['service']:<13} {one['requests']:>11,} requests, {one['peak']} instances at most")
        out(f" {one['million_rps_per_core']:6.1f}\n")
    if not days:
        out(f"left out: there is no {STREAM}\n")


if __name__ == "__main__":
    main()
