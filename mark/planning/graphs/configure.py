"""Which hardware, largest batch and number of replicas each stage of a pipeline gets: the least dollars for a promise.

InferLine's planner (SoCC '20, Algorithm 2; `inferline` here) makes single moves from one beginning. That leaves dollars
where two stages would have to move together, and it trusts one sample. Here:

1. of each stage alone, what each option and batch needs so that the stage itself keeps the promise with all others at
   their fastest: its *own need* (`mark.planning.graphs.stage_minimum`). What is dominated in dollars and in time goes;
2. combinations are tried in order of the sum of their own needs, which hardly any bill is below, until that sum is
   above the best bill found. Where stages share instances that sum is by prices of resources, as workers take them, and
   the bill by whole instances (`mark.planning.graphs.packing`). Each grows by the replica that removes most misses per
   dollar until the promise is kept, and then sheds what it can do without;
3. pairs of moves from the best (`mark.planning.graphs.neighbours`): another option at one stage, one replica less
   here and some more there;
4. all that by the recorded sample. The best few then grow until new traffic would keep the promise with some
   confidence, by resamples (`mark.planning.graphs.slo_test`), and moves go on from the best of these.

Nothing is random but the resamples, and nothing looks at a clock: `most_calls` bounds the work after the own needs, and
what is best by then is the answer. A first one is found in any case: where the work ends before there is one, all
stages grow by the same factor.
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
from mark.planning.graphs.slo_test import CONFIDENCE, PromiseJudge
from mark.planning.graphs.stage_minimum import most_calls_within, own_needs
from mark.planning.graphs.stage_slack import SamplePaths

# A second or two on one core (benchmarks/planner/pipelines.py)
MOST_CALLS = 40_000_000
# Of combinations whose own needs are below the best bill only this many in a row may disappoint.
_PATIENCE = 32
# Of the price of the dearest replica: what a step of growth costs at each stage
_STEP = 0.25
# Combinations among which one is looked for that is fast enough, where there is no time for a search
_EARLY = 1_000
# The best by the sample, from which those are made that keep the promise for new traffic
_KEPT = 6
# Times what comes (when most does) that a stage can do, from which on more of it alone does not help
_AMPLE = 2.0
# That are looked at: where instances are shared the sum of own needs may be far below any bill
_MOST_COMBINATIONS = 20_000


@dataclass(frozen=True, slots=True)
class Configuration:
    """What each stage gets, in the order of the pipeline."""

    choices: Choices
    miss_share: float  # of the sample's queries
    miss_limit: float  # what that of new traffic stays below, with the confidence asked for
    calls_simulated: int
    complete: bool  # the search ended by itself, not for its bounds on work

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
    """The cheapest configuration found; `options[s]` are the hardware that stage s may run on.

    Where `start` keeps the promise, what is found is no dearer.

    New traffic keeps the promise with this `confidence`, by that many `resamples`; 0 trusts the sample. Few queries (of
    99 % with 99 % confidence less than 600) cannot show that: their `miss_limit` is above what the promise allows.

    A sample that is short against RT_max hides a queue that grows all the time: with `lasting_calls_per_s` each stage
    can do as many, for as long as they come, whatever its queue is by the end of the sample. Raises Infeasible where no
    configuration was found that keeps the promise, and says which came closest; BadInput for a stage without options.
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
        # In windows of RT_max
        self._most_calls_per_s = [
            most_calls_within(sample, stage, slo.rt_max_s) / slo.rt_max_s for stage in range(len(options))
        ]
        own = own_needs(pipeline, sample, options, slo, lasting_calls_per_s)
        self._needs, self._needs_simulated = own.of_stage, own.calls_simulated
        self._best: Choices | None = None
        self._found: list[Choices] = []  # each better than the one before
        self._closest: tuple[float, Choices] | None = None
        self._cut_off = False  # combinations were left that might have been cheaper

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
            self._best = self._start  # the search ended before it
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
        """An answer in any case: everything larger by the same factor, in a few steps, and without a search."""
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
        if self._best is None:  # those that come first are slow, too
            self._try(self._fastest_needs())
        if self._best is not None:
            self._improve()

    def _fast_needs(self) -> Choices:
        """The first that are fast enough together, if there are some early on."""
        early = itertools.islice(by_cost(self._needs), _EARLY)
        return next((choices for choices in early if self._paths.fast_enough(choices)), self._fastest_needs())

    def _fastest_needs(self) -> Choices:
        """Where even a batch of the largest size takes least."""
        return tuple(min(of, key=lambda choice: float(choice.option.service_s[choice.batch])) for of in self._needs)

    def _by_resamples(self, found: Sequence[Choices]) -> None:
        """What the sample allows grows until new traffic would, too; and the search goes on below that."""
        for choices in found:
            self._try(choices, 0.0)
        if self._best is not None:
            self._improve()
            self._combine()
            self._improve()

    def _combine(self) -> None:
        """Own needs of all stages together, grown, in order of dollars, while any may be below the best."""
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
        """Is what it grows to better than the best?"""
        grown = self._grown(choices, step)
        return grown is not None and self._better(self._shed(grown))

    def _grown(self, choices: Choices, step: float) -> Choices | None:
        """More replicas where they remove most misses per dollar, until the promise is kept; None: not below the best.

        A few cheap ones at a time, so that a step costs about as much at every stage; `_shed` takes back too many.
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
                # Nothing helps alone where two stages are swamped: the one that lags most gets it, if one does.
                best = min(tried, key=lambda one: self._headroom(one[2], choices))
                if self._headroom(best[2], choices) > _AMPLE:
                    return None
            choices = best[3]
        return choices

    def _headroom(self, stage: int, choices: Choices) -> float:
        """Calls/s that the stage can do for each that come when most do."""
        most_per_s = self._most_calls_per_s[stage]
        return choices[stage].calls_per_s / most_per_s if most_per_s > 0.0 else math.inf

    def _shed(self, choices: Choices) -> Choices:
        """Without replicas that are not needed: of the dearest stage first, many at a time and then fewer."""
        for stage in sorted(range(len(choices)), key=lambda stage: (-choices[stage].option.usd_per_hour, stage)):
            step = 1 << max(0, choices[stage].replicas.bit_length() - 2)
            while step:
                if choices[stage].replicas > step and self._judge.kept(less := with_more(choices, stage, -step)):
                    choices = less
                else:
                    step //= 2
        return choices

    def _filled(self, choices: Choices) -> Choices:
        """With workers in the room that bought instances have left, the busiest stage first, if no more is missed."""
        filled = choices
        for stage in sorted(range(len(choices)), key=lambda stage: (self._headroom(stage, choices), stage)):
            filled = with_free(filled, stage)
        if filled == choices or not self._judge.kept(filled) or self._judge.limit(filled) > self._judge.limit(choices):
            return choices
        return filled

    # -- moves from the best -------------------------------------------------------------------------------------------

    def _improve(self) -> None:
        """Moves of one and of two stages, from the best, until none is cheaper."""
        improved = True
        while improved:
            assert self._best is not None
            improved = any(
                usd_per_hour(moved) < self._best_usd() - 1e-12 and self._try(moved, 0.0)
                for moved in neighbours(self._best, self._needs, self._options)
            )

    # -- what is known -------------------------------------------------------------------------------------------------

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
