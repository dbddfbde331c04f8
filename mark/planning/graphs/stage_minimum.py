"""The replicas that each stage of a pipeline needs to keep the promise by itself, with all others at their fastest."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from mark.domain.errors import Infeasible
from mark.domain.pipeline import Pipeline, PipelineStage
from mark.domain.rules.admission import TOLERANCE_S
from mark.domain.slo import Slo
from mark.planning.graphs.envelope import most_within
from mark.planning.graphs.estimate import PipelineEstimator, QuerySample, StageChoice, StageOption
from mark.planning.graphs.stage_slack import SamplePaths

# Quantile 0.999 of the standard normal distribution
_Z999 = 3.090232306167813


@dataclass(frozen=True, slots=True)
class OwnNeeds:
    """For each stage, in the order of the pipeline, the choices that are not dominated, the cheapest first.

    The replicas of a choice are its own need: the least with which the stage alone keeps the promise.
    """

    of_stage: tuple[tuple[StageChoice, ...], ...]
    calls_simulated: int


def own_needs(
    pipeline: Pipeline,
    sample: QuerySample,
    options: Sequence[Sequence[StageOption]],
    slo: Slo,
    lasting_calls_per_s: Sequence[float],
) -> OwnNeeds:
    """Return the own needs of each option and batch; each stage can always serve `lasting_calls_per_s`.

    Raises Infeasible for a stage that can keep the promise on no option, and says how much time it has and takes.
    """
    paths = SamplePaths(pipeline, sample, slo)
    least_s = [min(float(option.service_s[1]) for option in offered) for offered in options]
    found, simulated = [], 0
    for at, awaited in enumerate(pipeline.awaited):
        alone = QuerySample(sample.arrivals_s, sample.calls[:, [at]])
        stage = _StageAlone(pipeline.names[at], alone, options[at], slo, paths.late_allowed, lasting_calls_per_s[at])
        visitors = paths.visitors(at)
        if not visitors:
            needs = [stage.cheapest()]
        elif awaited and visitors > paths.late_allowed:
            needs = stage.needs(paths.slack_s(at, least_s))
        else:
            needs = stage.few_needs(paths.slack_s(at, least_s))
        found.append(tuple(needs))
        simulated += stage.calls_simulated
    return OwnNeeds(tuple(found), simulated)


def most_calls_within(sample: QuerySample, stage: int, window_s: float) -> int:
    """Return the most calls of a stage in any window of this length, its ends included."""
    order = np.argsort(sample.arrivals_s, kind="stable")
    called_s = np.repeat(sample.arrivals_s[order], sample.calls[order, stage])
    return int(most_within(called_s, np.array([window_s + TOLERANCE_S]))[0])


class _StageAlone:
    """One stage with its own calls of the sample; of their queries `late_allowed` may be late."""

    def __init__(
        self,
        name: str,
        sample: QuerySample,
        options: Sequence[StageOption],
        slo: Slo,
        late_allowed: int,
        lasting_calls_per_s: float,
    ) -> None:
        self._name, self._sample, self._options, self._slo = name, sample, options, slo
        self._late_allowed, self._lasting_calls_per_s = late_allowed, lasting_calls_per_s
        self.calls_simulated = 0

    def cheapest(self) -> StageChoice:
        """Return the choice for a stage that no query visits."""
        cheapest = min(self._options, key=lambda option: option.usd_per_hour)
        return StageChoice(cheapest, 1, self._lasting(cheapest, 1))

    def needs(self, slack_s: float) -> list[StageChoice]:
        """Return the choices that keep the promise within the others' remaining time. Raises Infeasible if there are
        none.
        """
        short = f"{self._name} has {slack_s * 1e3:.0f} of {self._slo.rt_max_s * 1e3:g} ms, the others at their fastest"
        if slack_s <= 0.0:
            raise Infeasible(short)
        if all(option.service_s[1] > slack_s + TOLERANCE_S for option in self._options):
            fastest = min(self._options, key=lambda option: float(option.service_s[1]))
            closest = f"{float(fastest.service_s[1]) * 1e3:.0f} ms on {fastest.hardware}, the fastest it may run on"
            raise Infeasible(f"{short}, and takes {closest}")
        if not (needs := self._enough(slack_s)):
            raise Infeasible(f"{short}, and no number of replicas is enough")
        return _ascending(_undominated(needs))

    def few_needs(self, slack_s: float) -> list[StageChoice]:
        """Return needs where the promise does not depend on the stage: few queries visit it, or joins go on without it.

        Such a stage may be arbitrarily slow and small. Choices that would keep the promise are included too, because
        joins gain from answers.
        """
        enough = self._enough(slack_s) if slack_s > 0.0 else []
        least = [
            StageChoice(option, batch, self._lasting(option, batch))
            for option in self._options
            for batch in _batches(option)
        ]
        return _ascending(list(dict.fromkeys([*_undominated(least), *_undominated(enough)])))

    def _enough(self, slack_s: float) -> list[StageChoice]:
        """Return for each option and batch the least replicas with which the stage alone keeps the promise, if any
        number does.
        """
        alone = PipelineEstimator(
            Pipeline((PipelineStage(self._name, self._name),)), self._sample, slo_s=slack_s, memory_bytes=0
        )
        # All calls, except for queries that may miss, have to be done by then.
        calls = np.sort(self._sample.calls[:, 0])
        in_time = int(calls[: len(calls) - self._late_allowed].sum())
        until_s = float(np.ptp(self._sample.arrivals_s)) + slack_s
        fluid = []
        for option in self._options:
            if option.service_s[1] > slack_s + TOLERANCE_S:
                continue
            for batch in _batches(option):
                busy = math.ceil(in_time / until_s / option.calls_per_s(batch) * (1.0 - 1e-9))
                fluid.append(StageChoice(option, batch, max(busy, self._lasting(option, batch))))
        found = [need for choice in _undominated(fluid) if (need := self._least(alone, choice)) is not None]
        self.calls_simulated += alone.calls_simulated
        return found

    def _least(self, alone: PipelineEstimator, choice: StageChoice) -> StageChoice | None:
        """Return the least replicas, from the choice's own up, with which the stage alone keeps the promise."""

        def kept(replicas: int) -> bool:
            return alone.feasible((replace(choice, replicas=replicas),), self._slo.attainment)

        # With this many no call waits for a worker, or hardly ever, so more change nothing.
        most = max(choice.replicas, -(-most_calls_within(self._sample, 0, _slowest_s(choice)) // choice.option.workers))
        low, high = choice.replicas - 1, choice.replicas
        while not kept(high):
            if high >= most:
                return None
            low, high = high, min(most, high + max(1, high // 4))
        while high - low > 1:
            middle = (low + high) // 2
            low, high = (low, middle) if kept(middle) else (middle, high)
        return replace(choice, replicas=high)

    def _lasting(self, option: StageOption, batch: int) -> int:
        """Return the least replicas that keep up for as long as the load lasts."""
        return max(1, math.ceil(self._lasting_calls_per_s / option.calls_per_s(batch) - 1e-9))


def _slowest_s(choice: StageChoice) -> float:
    """Return the longest time of a batch up to the largest; if times have a spread, of all but one in a thousand."""
    mean_s = float(choice.option.service_s[1 : choice.batch + 1].max())
    return mean_s * math.exp(_Z999 * choice.option.sigma - choice.option.sigma**2 / 2.0)


def _batches(option: StageOption) -> list[int]:
    """Return powers of two, and the largest batch that has a time."""
    powers = [1 << n for n in range(option.largest_batch.bit_length())]
    return powers if powers[-1] == option.largest_batch else [*powers, option.largest_batch]


def _undominated(choices: Sequence[StageChoice]) -> list[StageChoice]:
    """Return the choices that no other beats in dollars, time of a call alone and time of its largest batch.

    Better in dollars means cheaper by at least one replica, because the better one may need one more beside other
    stages. Among equally good free choices the first stays. Choices on different shared types are not compared, because
    one may be free beside another stage.
    """

    def better(one: StageChoice, other: StageChoice) -> bool:
        here, there = one.option.placement, other.option.placement
        return (
            (here and here.host) == (there and there.host)
            and one.usd_per_hour + one.option.usd_per_hour <= other.usd_per_hour
            and float(one.option.service_s[1]) <= float(other.option.service_s[1])
            and float(one.option.service_s[one.batch]) <= float(other.option.service_s[other.batch])
        )

    return [
        choice
        for n, choice in enumerate(choices)
        if not any(
            m != n and better(other, choice) and (m < n or not better(choice, other)) for m, other in enumerate(choices)
        )
    ]


def _ascending(choices: Sequence[StageChoice]) -> list[StageChoice]:
    return sorted(choices, key=lambda choice: (choice.usd_per_hour, choice.option.service_s[1]))
