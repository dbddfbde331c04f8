"""The cheapest hardware, largest batch and number of replicas of each stage with which a pipeline keeps its promise.

InferLine's planner (SoCC '20, Algorithm 2; `inferline` here) makes single moves from one beginning. That leaves dollars
where two stages would have to move together, and it trusts one sample. Here:

1. each stage gets its *own need* for each option and batch: the replicas with which the stage keeps the promise while
all others are at their fastest (`mark.planning.graphs.stage_minimum`). Needs that are dominated in dollars and in time
are left out;
2. combinations are tried in order of the sum of their own needs, which hardly any bill is below, until that sum is
above the best bill found. Where stages share instances that sum is by prices of resources, as workers take them, and
the bill by whole instances (`mark.planning.graphs.packing`). Each combination grows by the replica that removes most
misses per dollar until the promise is kept, and then sheds the replicas that it does not need;
3. pairs of moves are tried from the best (`mark.planning.graphs.neighbours`): another option at one stage, or one
replica less here and some more there;
4. all this uses the recorded sample. The best few then grow until new traffic would keep the promise with some
confidence, by resamples (`mark.planning.graphs.promise_judge`), and moves go on from the best of these.

Only the resamples are random, and no clock is read: `most_calls` bounds the work after the own needs, and the best
configuration found within it is the answer. If the work ends before the search has found any, all stages grow by the
same factor to find one.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

from mark.domain.errors import BadInput, Infeasible
from mark.domain.pipeline import Pipeline
from mark.domain.slo import Slo
from mark.planning.graphs.combinations import by_cost
from mark.planning.graphs.estimate import Choices, QuerySample, StageOption, least_usd_per_hour, usd_per_hour, with_more
from mark.planning.graphs.neighbours import neighbours, with_free
from mark.planning.graphs.promise_judge import CONFIDENCE, PromiseJudge
from mark.planning.graphs.stage_minimum import most_calls_within, own_needs
from mark.planning.graphs.stage_slack import SamplePaths

# A second or two on one core (benchmarks/planner/pipelines.py)
MOST_CALLS = 40_000_000
# Stop after this many successive combinations that by their own needs could beat the best bill, but did not.
_PATIENCE = 32
# Dollars of a step of growth at each stage, as a share of the price of the dearest replica
_STEP = 0.25
# Number of combinations searched for a fast one, if there is too little time for the full search
_EARLY = 1_000
# Number of the best by the sample that grow until they keep the promise for new traffic
_KEPT = 6
# A stage that can serve this multiple of its peak rate does not help by growing alone.
_AMPLE = 2.0
# Limit, because with shared instances the sum of own needs may be far below any bill
_MOST_COMBINATIONS = 20_000


@dataclass(frozen=True, slots=True)
class Configuration:
    """The choice of each stage, in the order of the pipeline."""

    choices: Choices
    miss_share: float  # of the sample's queries
    miss_limit: float  # the miss share of new traffic stays below this with the given confidence
    calls_simulated: int
    complete: bool  # the search ended by itself, not at its bound on work

    @property
    def usd_per_hour(self) -> float:
        return usd_per_hour(self.choices)


def configure(
    pipeline: Pipeline,
    sample: QuerySample,
    options: Sequence[Sequence[StageOption]],
    slo: Slo,
    *,
    resamples: int = 20,
    confidence: float = CONFIDENCE,
    seed: int = 0,
    most_calls: int = MOST_CALLS,
    lasting_calls_per_s: Sequence[float] | None = None,
    start: Choices | None = None,
) -> Configuration:
    """Return the cheapest configuration found; `options[s]` are the hardware that stage s may run on.

    If `start` keeps the promise, the result costs no more than it. New traffic keeps the promise with this
    `confidence`, by `resamples` resamples; with 0 the sample is trusted. Few queries (fewer than 600 for 99 % with 99 %
    confidence) cannot show that: their `miss_limit` is above the share that the promise allows.

    A sample that is short against RT_max hides a queue that grows all the time: with `lasting_calls_per_s` each stage
    can serve that rate for as long as it lasts, whatever its queue is at the end of the sample. Raises Infeasible if no
    configuration was found that keeps the promise, and names the closest; BadInput for a stage without options.
    """
    for stage, offered in zip(pipeline.names, options, strict=True):
        if not offered:
            raise BadInput("may run on nothing", f"options of {stage}")
    lasting = lasting_calls_per_s or [0.0] * len(options)
    judge = PromiseJudge(
        pipeline, sample, slo, resamples=resamples, confidence=confidence, seed=seed, lasting_calls_per_s=lasting
    )
    return _Search(pipeline, sample, options, slo, judge, most_calls, lasting, start).run()


class _Search:
    def __init__(
        self,
        pipeline: Pipeline,
        sample: QuerySample,
        options: Sequence[Sequence[StageOption]],
        slo: Slo,
        judge: PromiseJudge,
        most_calls: int,
        lasting_calls_per_s: Sequence[float],
        start: Choices | None,
    ) -> None:
        self._pipeline, self._options, self._judge = pipeline, options, judge
        self._most_calls, self._start = most_calls, start
        self._paths = SamplePaths(pipeline, sample, slo)
        # Peak rates in windows of RT_max
        self._most_calls_per_s = [
            most_calls_within(sample, stage, slo.rt_max_s) / slo.rt_max_s for stage in range(len(options))
        ]
        own = own_needs(pipeline, sample, options, slo, lasting_calls_per_s)
        self._needs, self._needs_simulated = own.of_stage, own.calls_simulated
        self._best: Choices | None = None
        self._found: list[Choices] = []  # each cheaper than the one before
        self._closest: tuple[float, Choices] | None = None
        self._cut_off = False  # some combinations that might have been cheaper were not tried

    def run(self) -> Configuration:
        judge, most = self._judge, self._most_calls
        half = most // 2 if judge.resamples else most
        complete = judge.within(half, self._by_the_sample)
        if self._best is None:
            self._first(self._fast_needs())
            judge.within(half + half // 2, self._shed_best)
        if self._best is not None and judge.resamples:
            best_first = self._found[::-1][:_KEPT]
            self._best = None
            judge.ask_resamples()
            complete &= judge.within(most, lambda: self._by_resamples(best_first))
            if self._best is None:
                self._first(best_first[0])
        if self._start is not None and usd_per_hour(self._start) < self._best_usd() and judge.kept(self._start):
            self._best = self._start  # the search ended before it tried the start
        if self._best is None:
            raise Infeasible(self._why())
        self._best = self._filled(self._best)
        share, limit = judge.shares(self._best)
        work = self._needs_simulated + judge.calls_simulated
        return Configuration(self._best, share, limit, work, complete and not self._cut_off)

    def _shed_best(self) -> None:
        if self._best is not None:
            self._better(self._shed(self._best))

    def _first(self, choices: Choices) -> None:
        """Keep an answer in any case: grow all stages by the same factor, in a few steps and without a search."""
        low, high = 1.0, 1.0
        while not self._judge.kept(_times(choices, high)):
            if all(self._headroom(s, _times(choices, high)) > _AMPLE for s in range(len(choices))):
                self._note(self._judge.missed(self._judge.strictest(choices), choices), choices)
                return
            low, high = high, 1.25 * high
        while high / low > 1.05:
            middle = math.sqrt(low * high)
            low, high = (low, middle) if self._judge.kept(_times(choices, middle)) else (middle, high)
        self._better(_times(choices, high))

    # -- combinations --------------------------------------------------------------------------------------------------

    def _by_the_sample(self) -> None:
        if self._start is not None:
            self._try(self._start, 0.0)
        self._combine()
        if self._best is None:  # the combinations that come first are too slow
            self._try(self._fastest_needs())
        if self._best is not None:
            self._improve()

    def _fast_needs(self) -> Choices:
        """Return the first combination that is fast enough, or the fastest one if none of the early ones is."""
        early = itertools.islice(by_cost(self._needs), _EARLY)
        return next((choices for choices in early if self._paths.fast_enough(choices)), self._fastest_needs())

    def _fastest_needs(self) -> Choices:
        """Return the combination in which each stage has the option whose largest batch takes least."""
        return tuple(min(of, key=lambda choice: float(choice.option.service_s[choice.batch])) for of in self._needs)

    def _by_resamples(self, found: Sequence[Choices]) -> None:
        """Grow the configurations found until new traffic keeps the promise too, then look for cheaper ones."""
        for choices in found:
            self._try(choices, 0.0)
        if self._best is not None:
            self._improve()
            self._combine()
            self._improve()

    def _combine(self) -> None:
        """Try combinations of own needs in order of dollars, while their least bill is below the best bill."""
        disappointing = 0
        for number, choices in enumerate(by_cost(self._needs)):
            if number == _MOST_COMBINATIONS:
                self._cut_off = True
                break
            if least_usd_per_hour(choices) >= self._best_usd() or disappointing >= _PATIENCE:
                break
            if usd_per_hour(choices) < self._best_usd() and self._paths.fast_enough(choices):
                disappointing = 0 if self._try(choices) else disappointing + 1

    def _try(self, choices: Choices, step: float = _STEP) -> bool:
        """Grow the choices; return whether the result is cheaper than the best."""
        grown = self._grown(choices, step)
        return grown is not None and self._better(self._shed(grown))

    def _grown(self, choices: Choices, step: float) -> Choices | None:
        """Add replicas where they remove most misses per dollar until the promise is kept; None if that costs too much.

        Each step adds a few cheap replicas, so that it costs about as much at every stage; `_shed` takes back surplus
        ones. None: the result would not be cheaper than the best.
        """
        step_usd = step * max(choice.option.usd_per_hour for choice in choices)
        judge = self._judge
        while not judge.kept(choices):
            strictest = judge.strictest(choices)
            missed = judge.missed(strictest, choices)
            self._note(missed, choices)
            tried: list[tuple[float, float, int, Choices]] = []
            for stage, choice in enumerate(choices):
                usd = choice.option.usd_per_hour
                more = with_more(choices, stage, max(1, int(step_usd / usd)) if usd > 0.0 else choice.replicas)
                more = with_free(more, stage)
                if usd_per_hour(more) < self._best_usd():
                    removed = missed - judge.missed(strictest, more)
                    tried.append((-removed / max(usd_per_hour(more) - usd_per_hour(choices), 1e-9), usd, stage, more))
            if not tried:
                return None
            best = min(tried)
            if best[0] >= 0.0:
                # If two stages are swamped, neither helps alone: grow the stage that lags most, if one lags.
                best = min(tried, key=lambda one: self._headroom(one[2], choices))
                if self._headroom(best[2], choices) > _AMPLE:
                    return None
            choices = best[3]
        return choices

    def _headroom(self, stage: int, choices: Choices) -> float:
        """Return the calls/s that the stage can serve, as a multiple of its peak rate."""
        most_per_s = self._most_calls_per_s[stage]
        return choices[stage].calls_per_s / most_per_s if most_per_s > 0.0 else math.inf

    def _shed(self, choices: Choices) -> Choices:
        """Remove replicas that are not needed, from the dearest stage first: many at a time, then fewer."""
        for stage in sorted(range(len(choices)), key=lambda stage: (-choices[stage].option.usd_per_hour, stage)):
            step = 1 << max(0, choices[stage].replicas.bit_length() - 2)
            while step:
                if choices[stage].replicas > step and self._judge.kept(less := with_more(choices, stage, -step)):
                    choices = less
                else:
                    step //= 2
        return choices

    def _filled(self, choices: Choices) -> Choices:
        """Fill instances that are already paid for with workers, the busiest stage first, if no more queries are
        missed.
        """
        filled = choices
        for stage in sorted(range(len(choices)), key=lambda stage: (self._headroom(stage, choices), stage)):
            filled = with_free(filled, stage)
        if filled == choices or not self._judge.kept(filled) or self._judge.limit(filled) > self._judge.limit(choices):
            return choices
        return filled

    # -- moves from the best -------------------------------------------------------------------------------------------

    def _improve(self) -> None:
        """Move one or two stages of the best configuration, until no move is cheaper."""
        improved = True
        while improved:
            assert self._best is not None
            improved = any(
                usd_per_hour(moved) < self._best_usd() - 1e-12 and self._try(moved, 0.0)
                for moved in neighbours(self._best, self._needs, self._options)
            )

    # -- known results -------------------------------------------------------------------------------------------------

    def _better(self, choices: Choices) -> bool:
        if usd_per_hour(choices) < self._best_usd() - 1e-12:
            self._best = choices
            self._found.append(choices)
            return True
        return False

    def _best_usd(self) -> float:
        return math.inf if self._best is None else usd_per_hour(self._best)

    def _note(self, missed: float, choices: Choices) -> None:
        if self._closest is None or missed < self._closest[0]:
            self._closest = missed, choices

    def _why(self) -> str:
        if self._closest is None:
            return "no combination of hardware is fast enough, even if nothing waited"
        missed, choices = self._closest
        named = ", ".join(
            f"{stage} {choice.replicas} x {choice.option.hardware} in batches of {choice.batch}"
            for stage, choice in zip(self._pipeline.names, choices, strict=True)
        )
        return f"nothing keeps the promise; closest came {named}, which misses {100.0 * missed:.2f} %"


def _times(choices: Choices, factor: float) -> Choices:
    return tuple(replace(choice, replicas=math.ceil(factor * choice.replicas - 1e-9)) for choice in choices)
