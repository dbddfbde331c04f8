"""InferLine's planner as printed (SoCC '20, section 4.3), with its listing's slips mended: a reference beside ours.

Algorithm 1 begins with the fastest hardware, batches of one and one replica a stage, and gives the stage of least
throughput one more until the promise is kept. Algorithm 2 then repeatedly takes the cheapest single move that keeps the
promise: twice the batch, one replica less, or the next cheaper hardware. The printed listing cannot be run: line 6 of
Algorithm 1 has its sign the wrong way, `best.cost` of no best is undefined, and a larger batch costs the same, so "less
than the best" would never take it. Here moves are compared with the pipeline as it is, and a larger batch is taken
where nothing cheaper is feasible.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace

import numpy as np

from mark.domain.errors import Infeasible
from mark.domain.pipeline import Pipeline
from mark.domain.rules.admission import TOLERANCE_S
from mark.domain.slo import Slo
from mark.planning.graphs.critical_paths import longest_path_s, pattern_path_s
from mark.planning.graphs.estimate import (
    Choices,
    PipelineEstimator,
    QuerySample,
    StageChoice,
    StageOption,
    usd_per_hour,
    with_choice,
    with_more,
)


def inferline_plan(
    pipeline: Pipeline, sample: QuerySample, options: Sequence[Sequence[StageOption]], slo: Slo
) -> tuple[Choices, int]:
    """Return a choice for each stage, and the calls simulated for it; `options[s]` are the hardware for stage s.

    Raises Infeasible if the longest path takes more than RT_max on the fastest hardware, or too many queries do.
    """
    return _Planner(pipeline, sample, options, slo).plan()


class _Planner:
    def __init__(
        self, pipeline: Pipeline, sample: QuerySample, options: Sequence[Sequence[StageOption]], slo: Slo
    ) -> None:
        self._pipeline, self._options, self._slo = pipeline, options, slo
        self._estimator = PipelineEstimator(pipeline, sample, slo_s=slo.rt_max_s)
        self._sample = sample
        self._calls_per_query = sample.calls.mean(axis=0)

    def plan(self) -> tuple[Choices, int]:
        choices = self._initial()
        while True:
            moves = [new for new in self._moves(choices) if self._feasible(new)]
            cheaper = [new for new in moves if usd_per_hour(new) < usd_per_hour(choices)]
            if cheaper:
                choices = min(cheaper, key=usd_per_hour)
            elif larger := [new for new in moves if usd_per_hour(new) == usd_per_hour(choices)]:
                choices = larger[0]
            else:
                return choices, self._estimator.calls_simulated

    def _initial(self) -> Choices:
        """Return the choices of Algorithm 1."""
        fastest = [min(options, key=lambda option: option.service_s[1]) for options in self._options]
        path_s = longest_path_s(self._pipeline, [option.service_s[1] for option in fastest])
        if path_s > self._slo.rt_max_s + TOLERANCE_S:
            told = f"the longest path takes {path_s * 1e3:.0f} ms on the fastest hardware"
            raise Infeasible(f"{told}, RT_max is {self._slo.rt_max_s * 1e3:g} ms")
        # A join that goes on with the first answer is quick only for queries that visit a quick stage.
        alone_s = pattern_path_s(self._pipeline, self._sample.calls, [float(option.service_s[1]) for option in fastest])
        late = float(np.mean(alone_s > self._slo.rt_max_s + TOLERANCE_S))
        if late > 1.0 - self._slo.attainment + 1e-9:
            raise Infeasible(f"{100.0 * late:.2f} % of the queries are late on the fastest hardware, if nothing waits")
        choices = tuple(StageChoice(option, 1, 1) for option in fastest)
        # One more at a time, as printed. Feasibility is checked after 1, 2, 4, 8, ... steps and then in between,
        # because checking each step would take forever for a burst of thousands.
        steps = [choices]
        while not self._feasible(steps[-1]):
            for _ in range(len(steps)):
                steps.append(self._with_one_more(steps[-1]))
        return steps[_first(lambda n: self._feasible(steps[n]), len(steps) // 2, len(steps) - 1)]

    def _with_one_more(self, choices: Choices) -> Choices:
        stage = min(range(len(choices)), key=lambda stage: self._queries_per_s(stage, choices[stage]))
        return with_more(choices, stage, 1)

    def _moves(self, choices: Choices) -> Iterator[Choices]:
        """Yield the results of Algorithm 2's actions on each stage."""
        for stage, choice in enumerate(choices):
            for moved in (_twice_the_batch(choice), _one_replica_less(choice)):
                if moved is not None:
                    yield with_choice(choices, stage, moved)
            if (cheaper := self._downgraded(choices, stage)) is not None:
                yield cheaper

    def _downgraded(self, choices: Choices, stage: int) -> Choices | None:
        """Return the choices with the next cheaper hardware, initialised and minimised while other stages stay."""
        here = choices[stage]
        below = [option for option in self._options[stage] if option.usd_per_hour < here.option.usd_per_hour]
        if not below:
            return None
        option = max(below, key=lambda option: option.usd_per_hour)
        most = self._affordable(choices, stage, option)
        if most < 1:
            return None
        new = with_choice(choices, stage, StageChoice(option, 1, most))
        if self._feasible(new):
            return self._minimised(self._with_fewest(new, stage), stage)
        # If the initial replicas cost more than the present ones, a larger batch may still end below.
        batch = 2
        while batch <= option.largest_batch:
            if self._feasible(tried := with_choice(new, stage, StageChoice(option, batch, most))):
                return self._minimised(self._with_fewest(tried, stage), stage)
            batch *= 2
        return None

    def _affordable(self, choices: Choices, stage: int, option: StageOption) -> int:
        """Return the most replicas that leave the pipeline cheaper than it is, at most one for each call."""
        calls = int(self._sample.calls[:, stage].sum())
        if not option.usd_per_hour:
            return max(1, calls)
        most = int(choices[stage].usd_per_hour / option.usd_per_hour) + 1
        while most and usd_per_hour(with_choice(choices, stage, StageChoice(option, 1, most))) >= usd_per_hour(choices):
            most -= 1
        return min(most, max(1, calls))

    def _with_fewest(self, choices: Choices, stage: int) -> Choices:
        """Return the choices with the fewest replicas of a stage, given that the present ones are enough."""

        def less(replicas: int) -> Choices:
            return with_choice(choices, stage, replace(choices[stage], replicas=replicas))

        return less(_first(lambda replicas: self._feasible(less(replicas)), 1, choices[stage].replicas))

    def _minimised(self, choices: Choices, stage: int) -> Choices:
        """Run Algorithm 2 on one stage, without other hardware."""
        while True:
            less = _one_replica_less(choices[stage])
            if less is not None and self._feasible(new := with_choice(choices, stage, less)):
                choices = new
                continue
            more = _twice_the_batch(choices[stage])
            if more is None or not self._feasible(new := with_choice(choices, stage, more)):
                return choices
            choices = new

    def _queries_per_s(self, stage: int, choice: StageChoice) -> float:
        calls = self._calls_per_query[stage]
        most = choice.option.calls_per_s(choice.batch) * choice.replicas
        return most / calls if calls > 0.0 else np.inf

    def _feasible(self, choices: Choices) -> bool:
        return self._estimator.feasible(choices, self._slo.attainment)


def _first(enough: Callable[[int], bool], low: int, high: int) -> int:
    """Return the least value from `low` on that is enough, given that `high` is."""
    while low < high:
        middle = (low + high) // 2
        low, high = (low, middle) if enough(middle) else (middle + 1, high)
    return high


def _twice_the_batch(choice: StageChoice) -> StageChoice | None:
    return replace(choice, batch=2 * choice.batch) if 2 * choice.batch <= choice.option.largest_batch else None


def _one_replica_less(choice: StageChoice) -> StageChoice | None:
    return replace(choice, replicas=choice.replicas - 1) if choice.replicas > 1 else None
