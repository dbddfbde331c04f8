"""The speed of the estimator of pipelines: calls of stages per second, and the time of an answer in a search.

    python benchmarks/planner/pipelines.py [--rounds 7]

The traffic is an hour at 150 queries/s through four stages (a diamond; 40 % of the queries visit one of its branches),
with gamma inter-arrivals of CV 1 and 4. CV is sigma / mu here; InferLine's text (SoCC '20) has sigma^2 / mu^2, so that
a CV of 4 there is 2 here. The assertions do not depend on the machine: the estimator simulates each call once; a search
simulates only changed stages and the stages after them, and gives up early. Times are the best of all rounds, in
processor seconds of one core, because other work on the machine disturbed the best round least.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from mark.domain.pipeline import Pipeline, PipelineStage
from mark.kernel.central_queues import PipelineQueries, PipelineSimulation
from mark.planning.graphs.estimate import Estimate, PipelineEstimator, QuerySample, StageChoice, StageOption

RATE, HOUR_S, SLO_S, ATTAINMENT = 150.0, 3600.0, 0.3, 0.99
DIAMOND = Pipeline(
    (
        PipelineStage("language", "lid"),
        PipelineStage("translate", "nmt", ("language",)),
        PipelineStage("vision", "resnet152", ("language",)),
        PipelineStage("categorise", "topics", ("translate", "vision")),
    )
)
SHARES = (1.0, 0.4, 1.0, 1.0)


def option(hardware: str, usd_per_hour: float, fixed_s: float, each_s: float, largest: int) -> StageOption:
    return StageOption(hardware, usd_per_hour, np.array([0.0, *(fixed_s + each_s * b for b in range(1, largest + 1))]))


# In the style of the paper's profiles: a CPU gains nothing by batches, a GPU a lot.
CPU = option("vCPU", 0.05, 0.002, 0.018, 1)
GPU = option("K80", 0.70, 0.03, 0.003, 32)


@dataclass(frozen=True)
class Scenario:
    name: str
    cv: float  # sigma / mu
    choices: tuple[StageChoice, ...]


def replicas(option: StageOption, batch: int, *numbers: int) -> tuple[StageChoice, ...]:
    return tuple(StageChoice(option, batch, number) for number in numbers)


SCENARIOS = (
    Scenario("CPUs, one by one", 1.0, replicas(CPU, 1, 5, 3, 5, 5)),
    Scenario("GPUs, batches up to 16", 1.0, replicas(GPU, 16, 2, 1, 2, 2)),
    Scenario("CPUs, one by one", 4.0, replicas(CPU, 1, 12, 6, 12, 12)),
    Scenario("GPUs, batches up to 16", 4.0, replicas(GPU, 16, 4, 2, 4, 4)),
)


def sample(cv: float, seconds: float, seed: int = 1) -> QuerySample:
    rng = np.random.default_rng(seed)
    n = int(RATE * seconds)
    shape = 1.0 / cv**2
    arrivals = np.cumsum(rng.gamma(shape, 1.0 / (RATE * shape), n))
    return QuerySample(arrivals, (rng.random((n, len(SHARES))) < SHARES).astype(np.int64))


def best_s(rounds: int, work: Callable[[], object]) -> float:
    """Return the fewest processor seconds of the rounds."""
    times = []
    for _ in range(rounds):
        began = time.process_time()
        work()
        times.append(time.process_time() - began)
    return min(times)


def estimate_hour(scenario: Scenario, rounds: int) -> tuple[int, float, float, Estimate]:
    """Return the calls, the best seconds of the compiled loop and of a whole estimate, and the estimate."""
    queries = sample(scenario.cv, HOUR_S)
    calls = int(queries.calls.sum())
    numbered = PipelineQueries.of(queries.arrivals_s, queries.calls, queries.arrivals_s + SLO_S)
    loops = []
    for _ in range(rounds + 1):  # the first one may compile
        simulated = PipelineSimulation(
            numbered,
            DIAMOND.predecessors,
            [stage.join for stage in DIAMOND.stages],
            [choice.option.service_s[: choice.batch + 1] for choice in scenario.choices],
        )
        for stage, choice in enumerate(scenario.choices):
            for _ in range(choice.replicas):
                simulated.add(stage, stage, 0.0)
        loops.append(best_s(1, simulated.advance))
        assert sum(simulated.outcome(stage).started for stage in range(len(scenario.choices))) == calls
    seen: list[Estimate] = []

    def whole() -> None:
        estimator = PipelineEstimator(DIAMOND, queries, slo_s=SLO_S, memory_bytes=0)
        seen.append(estimator.estimate(scenario.choices))
        assert estimator.calls_simulated == calls

    return calls, min(loops), best_s(rounds, whole), seen[0]


def search(cv: float, rounds: int) -> dict[str, tuple[int, float]]:
    """Return the calls of a configuration search on two minutes of traffic, and the best seconds, by question."""
    queries = sample(cv, 120.0)
    calls = queries.calls.sum(axis=0)
    base = replicas(GPU, 16, 4, 2, 4, 4)
    found = {}
    for name, stage, choice, expected in (
        ("all stages are new", 0, StageChoice(GPU, 16, 5), calls.sum()),
        ("only the last stage is new", 3, StageChoice(GPU, 16, 5), calls[3]),
        ("the first stage is far too small", 0, StageChoice(CPU, 1, 1), None),
    ):
        choices = [choice if n == stage else c for n, c in enumerate(base)]
        times, work = [], 0
        for _ in range(rounds):
            estimator = PipelineEstimator(DIAMOND, queries, slo_s=SLO_S)
            estimator.estimate(base)
            before = estimator.calls_simulated
            times.append(best_s(1, lambda e=estimator, c=choices: e.feasible(c, ATTAINMENT)))
            work = estimator.calls_simulated - before
        assert work == expected if expected is not None else work < 0.2 * calls.sum(), (name, work)
        found[name] = work, min(times)
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=7)
    rounds = parser.parse_args().rounds
    out = sys.stdout.write
    out(f"an hour at {RATE:g} queries/s, four stages, best of {rounds}\n")
    out("CV (sigma/mu)  configuration                calls  loop (s)  million calls/s  whole estimate (s)")
    out(f"  p99 (s)  missed at {SLO_S:g} s  $/h\n")
    for scenario in SCENARIOS:
        calls, loop_s, whole_s, seen = estimate_hour(scenario, rounds)
        out(f"{scenario.cv:>13g}  {scenario.name:<22} {calls:>11,} {loop_s:>9.3f} {calls / loop_s / 1e6:>16.1f}")
        out(f" {whole_s:>19.3f} {seen.quantile_s(0.99):>8.3f} {seen.miss_share(SLO_S):>16.2%}")
        out(f" {seen.usd_per_hour:>5.2f}\n")
    out(f"\na search over two minutes: is {ATTAINMENT:.0%} answered within {SLO_S:g} s?\n")
    for cv in (1.0, 4.0):
        for name, (calls, seconds) in search(cv, rounds).items():
            out(f"{cv:>13g}  {name:<34} {calls:>7,} calls {seconds * 1e3:>7.2f} ms\n")


if __name__ == "__main__":
    main()
