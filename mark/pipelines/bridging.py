"""Which stages of a fleet that follows its load count on their functions, by what the known load would cost with them.

A function is of use to a stage in two ways. It *stands by*: replicas are as many as without it, and it answers what
these do not begin in time. Or it *bridges*: replicas are for the mean rate only (`mark.pipelines.horizon_tuner`), and
bursts, and what comes until one more is active, are the function's. The first keeps promises when the load outgrows
all forecasts and costs next to nothing until then; the second saves replicas and pays calls.

Neither is right for every stage: a call may cost more than the replica that would have been idle, and where RT_max is
short against full batches calls leave for functions that replicas would have answered. So each is tried on the known
load, simulated query by query with functions that are cold at first: once as it is, for the bill, and once grown by
what the tuner's margin is for, with the replicas of before, since no more of them are active by then.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from mark.domain.arrays import BoolArray, IntArray
from mark.domain.pipeline import Pipeline
from mark.domain.service import FunctionUse
from mark.domain.slo import Slo
from mark.domain.time import HOUR_S
from mark.pipelines.estimate import Choices, QuerySample
from mark.pipelines.horizon_tuner import HorizonTuner
from mark.pipelines.lead_in import led_in
from mark.pipelines.tuned_run import run_tuned
from mark.pipelines.tuner import Replicas

# Of a bill: what functions that stand by may add, and what one that bridges has to save
WORTH = 0.01
# A tuner has run for so long when it says what the known load needs; all that it goes by is younger.
_LEAD_S = 600.0


@dataclass(frozen=True, slots=True)
class Bridging:
    """Of each stage the function that it uses, whether that bridges, and its replicas for the known load."""

    functions: tuple[FunctionUse | None, ...]
    bridged: tuple[bool, ...]
    replicas: Replicas


def bridging(
    pipeline: Pipeline,
    known: QuerySample,
    choices: Choices,
    tuner: HorizonTuner,
    slo: Slo,
    functions: Sequence[FunctionUse | None],
    *,
    seed: int = 0,
) -> Bridging:
    """Which of the functions to use, and how; those of stages that are better off without are None.

    `tuner` follows with replicas alone, and `functions` are those in time. The bill of the known load is at most
    `WORTH` above that of replicas alone, and no more queries of it are late than the promise allows, or than are late
    by replicas alone. Raises BadInput for a sample whose queries come all at once.
    """
    return _Search(pipeline, known, choices, tuner, slo, functions, seed).run()


@dataclass(frozen=True, slots=True)
class _Tried:
    usd_per_hour: float
    late: tuple[float, float]  # shares of the known load, and of the grown one


class _Search:
    def __init__(
        self,
        pipeline: Pipeline,
        known: QuerySample,
        choices: Choices,
        tuner: HorizonTuner,
        slo: Slo,
        functions: Sequence[FunctionUse | None],
        seed: int,
    ) -> None:
        self._pipeline, self._choices, self._slo, self._seed = pipeline, choices, slo, seed
        self._functions = tuple(functions)
        order = np.argsort(known.arrivals_s, kind="stable")
        arrivals_s, calls = known.arrivals_s[order], known.calls[order]
        growth = 1.0 + tuner.margin * math.sqrt(tuner.activation_s)
        self._loads = QuerySample(arrivals_s, calls), QuerySample(arrivals_s / growth, calls)
        end_s = float(arrivals_s[-1])
        stages = len(choices)

        def replicas(bridged: bool) -> IntArray:
            following = replace(tuner, bridged=(bridged,) * stages)
            begun, _ = led_in(choices, following, arrivals_s, max(float(arrivals_s[0]), end_s - _LEAD_S), end_s)
            return np.array([choice.replicas for choice in begun])

        self._ample, self._lean = replicas(False), replicas(True)
        self._alone = self._tried((None,) * stages, np.zeros(stages, dtype=bool))

    def run(self) -> Bridging:
        stages = range(len(self._choices))
        functions: tuple[FunctionUse | None, ...] = (None,) * len(stages)
        bridged = np.zeros(len(stages), dtype=bool)
        best = self._alone
        for stage in (stage for stage in stages if self._functions[stage] is not None):
            more = (*functions[:stage], self._functions[stage], *functions[stage + 1 :])
            tried = self._tried(more, bridged)
            if self._kept(tried) and tried.usd_per_hour <= self._alone.usd_per_hour * (1.0 + WORTH):
                functions, best = more, tried
        while True:
            found = []
            for stage in stages:
                if functions[stage] is not None and not bridged[stage]:
                    more_bridged = bridged | (np.arange(len(stages)) == stage)
                    tried = self._tried(functions, more_bridged)
                    if self._kept(tried) and tried.usd_per_hour < best.usd_per_hour * (1.0 - WORTH):
                        found.append((tried.usd_per_hour, stage, tried))
            if not found:
                break
            _, stage, best = min(found)
            bridged[stage] = True
        return Bridging(functions, tuple(bridged.tolist()), tuple(self._replicas(bridged).tolist()))

    def _replicas(self, bridged: BoolArray) -> IntArray:
        return np.where(bridged, self._lean, self._ample)

    def _kept(self, tried: _Tried) -> bool:
        allowed = 1.0 - self._slo.attainment
        return all(
            late <= max(allowed, alone) + 1e-12 for late, alone in zip(tried.late, self._alone.late, strict=True)
        )

    def _tried(self, functions: tuple[FunctionUse | None, ...], bridged: BoolArray) -> _Tried:
        replicas = self._replicas(bridged)
        fleet = tuple(
            replace(choice, replicas=int(count)) for choice, count in zip(self._choices, replicas, strict=True)
        )
        rt_max_s = self._slo.rt_max_s
        runs = []
        for load in self._loads:
            begin_s, end_s = float(load.arrivals_s[0]), float(np.nextafter(load.arrivals_s[-1], math.inf))
            run = run_tuned(
                self._pipeline, load, fleet, None, begin_s=begin_s, end_s=end_s, slo_s=rt_max_s, activation_s=0.0,
                step_s=end_s - begin_s, seed=self._seed, functions=functions,
            )  # fmt: skip
            runs.append(run)
        steady, grown = runs
        usd_per_hour = steady.total_usd / (steady.end_s - steady.begin_s) * HOUR_S
        return _Tried(usd_per_hour, (steady.miss_share(rt_max_s), grown.miss_share(rt_max_s)))
