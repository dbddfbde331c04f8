"""Which hardware, largest batch and number of replicas each stage of a pipeline gets: the least dollars for a promise.

InferLine's planner (SoCC '20, Algorithm 2; `inferline` here) makes single moves from one beginning. That leaves dollars
where two stages would have to move together, and it trusts one sample. Here:

1. of each stage alone, what each option and batch needs so that the stage itself keeps the promise with all others at
   their fastest: its *own need*. What is dominated in dollars and in time goes;
2. combinations are tried in order of the sum of their own needs, which hardly any bill is below, until that sum is
   above the best bill found. Where stages share instances that sum is by prices of resources, as workers take them, and
   the bill by whole instances (`mark.pipelines.packs`). Each grows by the replica that removes most misses per dollar
   until the promise is kept, and then sheds what it can do without;
3. pairs of moves from the best: another option at one stage, one replica less here and some more there;
4. all that by the recorded sample. The best few then grow until new traffic would keep the promise with some
   confidence, by resamples (`mark.pipelines.resample`), and moves go on from the best of these.

Nothing is random but the resamples, and nothing looks at a clock: `most_calls` bounds the work after the own needs, and
what is best by then is the answer. A first one is found in any case: where the work ends before there is one, all
stages grow by the same factor.
"""

from __future__ import annotations

import heapq
import itertools
import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np

from mark.domain.errors import BadInput, Infeasible
from mark.domain.pipeline import Pipeline, PipelineStage
from mark.domain.slo import Slo
from mark.pipelines.estimate import (
    MEMORY_BYTES,
    Choices,
    PipelineEstimator,
    QuerySample,
    StageChoice,
    StageOption,
    least_usd_per_hour,
    usd_per_hour,
    with_choice,
    with_more,
)
from mark.pipelines.paths import pattern_path_s
from mark.pipelines.resample import least_limit, miss_limit, new_traffic
from mark.rules.admission import TOLERANCE_S

# A second or two on one core (benchmarks/pipelines.py)
MOST_CALLS = 40_000_000
# That new traffic keeps the promise
CONFIDENCE = 0.99
# Of combinations whose own needs are below the best bill only so many in a row may disappoint.
_PATIENCE = 32
# Of the price of the dearest replica: what a step of growth costs at each stage
_STEP = 0.25
# Combinations among which one is looked for that is fast enough, where there is no time for a search
_EARLY = 1_000
# The best by the sample, from which those are made that keep the promise for new traffic
_KEPT = 6
# Resamples that may settle that new traffic would miss too much: at once where it would miss that many times too much
_FEW, _HOPELESS = 4, 2.0
# Times what comes (when most does) that a stage can do, from which on more of it alone does not help
_AMPLE = 2.0
# Quantile 0.999 of the standard normal distribution
_Z999 = 3.090232306167813
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

    New traffic keeps the promise with this `confidence`, by so many `resamples`; 0 trusts the sample. Few queries (of
    99 % with 99 % confidence less than 600) cannot show that: their `miss_limit` is above what the promise allows.

    A sample that is short against RT_max hides a queue that grows all the time: with `lasting_calls_per_s` each stage
    can do as many, for as long as they come, whatever its queue is by the end of the sample. Raises Infeasible where no
    configuration was found that keeps the promise, and says which came closest; BadInput for a stage without options.
    """
    for stage, offered in zip(pipeline.names, options, strict=True):
        if not offered:
            raise BadInput("may run on nothing", f"options of {stage}")
    search = _Search(
        pipeline, sample, options, slo, resamples, confidence, seed, most_calls, lasting_calls_per_s, start
    )
    return search.run()


def keeps_up(choices: Choices, calls_per_s: Sequence[float]) -> bool:
    """Can each stage do so many calls, in batches of its best size, for as long as they come?"""
    return all(choice.calls_per_s >= calls * (1.0 - 1e-9) for choice, calls in zip(choices, calls_per_s, strict=True))


def miss_limits(
    pipeline: Pipeline,
    sample: QuerySample,
    configurations: Sequence[Choices],
    slo: Slo,
    *,
    resamples: int = 20,
    confidence: float = CONFIDENCE,
    seed: int = 0,
) -> list[float]:
    """Of each configuration the miss share that new traffic stays below with this confidence.

    By the resamples that `configure` uses with the same seed; 0 trusts the sample.
    """
    estimators = _resamples(pipeline, sample, slo, resamples, seed)
    estimators = estimators or [PipelineEstimator(pipeline, sample, slo_s=slo.rt_max_s)]
    least = least_limit(len(sample.arrivals_s), confidence) if resamples else 0.0
    return [
        max(least, miss_limit([one.miss_share(choices) for one in estimators], confidence))
        for choices in configurations
    ]


def _resamples(pipeline: Pipeline, sample: QuerySample, slo: Slo, resamples: int, seed: int) -> list[PipelineEstimator]:
    rng = np.random.default_rng(seed)
    memory_bytes = 2 * MEMORY_BYTES // max(1, resamples)  # less, and what was known is simulated again
    return [
        PipelineEstimator(
            pipeline, new_traffic(sample, rng), slo_s=slo.rt_max_s, memory_bytes=memory_bytes, seed=1 + number
        )
        for number in range(resamples)
    ]


class _OutOfWork(Exception):
    """The bound on simulated calls is reached."""


class _Search:
    def __init__(
        self,
        pipeline: Pipeline,
        sample: QuerySample,
        options: Sequence[Sequence[StageOption]],
        slo: Slo,
        resamples: int,
        confidence: float,
        seed: int,
        most_calls: int,
        lasting_calls_per_s: Sequence[float] | None,
        start: Choices | None,
    ) -> None:
        self._start = start
        self._lasting_calls_per_s = lasting_calls_per_s or [0.0] * len(options)
        self._pipeline, self._options, self._slo, self._most_calls = pipeline, options, slo, most_calls
        self._sample, self._confidence = sample, confidence
        self._estimator = PipelineEstimator(pipeline, sample, slo_s=slo.rt_max_s)
        # Lazily used: most configurations fail the sample itself.
        self._others = _resamples(pipeline, sample, slo, resamples, seed)
        self._alone: list[PipelineEstimator] = []
        self._patterns, self._queries = np.unique(sample.calls, axis=0, return_counts=True)
        self._misses_allowed = math.floor((1.0 - slo.attainment) * len(sample.arrivals_s) + 1e-9)
        # In windows of RT_max
        self._most_calls_per_s = [
            _most_within(QuerySample(sample.arrivals_s, sample.calls[:, [stage]]), slo.rt_max_s) / slo.rt_max_s
            for stage in range(len(options))
        ]
        self._trusting = True  # the sample, as if new traffic were just so
        self._needs: list[list[StageChoice]] = []
        self._best: Choices | None = None
        self._most_now = math.inf  # calls that may be simulated: own needs and a first answer are found in any case
        self._found: list[Choices] = []  # each better than the one before
        self._closest: tuple[float, Choices] | None = None
        self._cut_off = False  # combinations were left that might have been cheaper
        self._seen: dict[Choices, bool] = {}
        self._misses: dict[tuple[PipelineEstimator, Choices], float] = {}

    def run(self) -> Configuration:
        self._needs = self._own_needs()
        needs = self._work()
        half = self._most_calls // 2 if self._others else self._most_calls
        complete = self._within(needs + half, self._by_the_sample)
        if self._best is None:
            self._first(self._fast_needs())
            self._within(needs + half + half // 2, self._shed_best)
        if self._best is not None and self._others:
            best_first = self._found[::-1][:_KEPT]
            self._best, self._trusting = None, False
            self._seen.clear()
            complete &= self._within(needs + self._most_calls, lambda: self._by_resamples(best_first))
            if self._best is None:
                self._first(best_first[0])
        if self._start is not None and usd_per_hour(self._start) < self._best_usd() and self._kept(self._start):
            self._best = self._start  # the search ended before it
        if self._best is None:
            raise Infeasible(self._why())
        self._best = self._filled(self._best)
        share = self._estimator.miss_share(self._best)
        limit = share
        if self._others:
            limit = max(self._limit(self._best), least_limit(len(self._sample.arrivals_s), self._confidence))
        return Configuration(self._best, share, limit, self._work(), complete and not self._cut_off)

    def _shed_best(self) -> None:
        if self._best is not None:
            self._better(self._shed(self._best))

    def _within(self, most_calls: int, search: Callable[[], None]) -> bool:
        """Did the search end before that many calls were simulated?"""
        self._most_now = most_calls
        try:
            search()
        except _OutOfWork:
            return False
        finally:
            self._most_now = math.inf
        return True

    def _first(self, choices: Choices) -> None:
        """An answer in any case: everything larger by the same factor, in a few steps, and without a search."""
        low, high = 1.0, 1.0
        while not self._kept(_times(choices, high)):
            if all(self._headroom(s, _times(choices, high)) > _AMPLE for s in range(len(choices))):
                self._note(self._missed(self._judge(choices), choices), choices)
                return
            low, high = high, 1.25 * high
        while high / low > 1.05:
            middle = math.sqrt(low * high)
            low, high = (low, middle) if self._kept(_times(choices, middle)) else (middle, high)
        self._better(_times(choices, high))

    # -- 1: own needs --------------------------------------------------------------------------------------------------

    def _own_needs(self) -> list[list[StageChoice]]:
        """Of each stage what is not dominated, the cheapest first; replicas are those of its own need."""
        fastest = [min(float(option.service_s[1]) for option in options) for options in self._options]
        awaited = self._pipeline.awaited
        found = []
        for stage in range(len(self._options)):
            visits = self._patterns[:, stage] > 0
            if not visits.any():
                cheapest = min(self._options[stage], key=lambda option: option.usd_per_hour)
                found.append([StageChoice(cheapest, 1, self._lasting(stage, cheapest, 1))])
                continue
            # What is left for this stage where all others take their least time and nothing waits: RT_max without the
            # rest of the longest path through it. A time that no other path reaches makes it the longest.
            longest_s = sum(fastest) + self._slo.rt_max_s
            times_s = [longest_s if at == stage else time_s for at, time_s in enumerate(fastest)]
            rest_s = float(pattern_path_s(self._pipeline, self._patterns[visits], times_s).min()) - longest_s
            slack_s = self._slo.rt_max_s - max(rest_s, 0.0)
            if awaited[stage] and int(self._queries[visits].sum()) > self._misses_allowed:
                found.append(self._own_needs_of(stage, slack_s))
            else:
                found.append(self._few_needs_of(stage, slack_s))
        return found

    def _own_needs_of(self, stage: int, slack_s: float) -> list[StageChoice]:
        name = self._pipeline.names[stage]
        short = f"{name} has {slack_s * 1e3:.0f} of {self._slo.rt_max_s * 1e3:g} ms, the others at their fastest"
        if slack_s <= 0.0:
            raise Infeasible(short)
        if all(option.service_s[1] > slack_s + TOLERANCE_S for option in self._options[stage]):
            fastest = min(self._options[stage], key=lambda option: float(option.service_s[1]))
            closest = f"{float(fastest.service_s[1]) * 1e3:.0f} ms on {fastest.hardware}, the fastest it may run on"
            raise Infeasible(f"{short}, and takes {closest}")
        if not (needs := self._enough_alone(stage, slack_s)):
            raise Infeasible(f"{short}, and no number of replicas is enough")
        return _ascending(_undominated(needs))

    def _few_needs_of(self, stage: int, slack_s: float) -> list[StageChoice]:
        """Where the promise does not hang on the stage: few queries visit it, or a join goes on without its answer.

        Then it may be as slow and as scarce as it likes. What would be enough is tried as well: joins gain by answers.
        """
        enough = self._enough_alone(stage, slack_s) if slack_s > 0.0 else []
        least = [
            StageChoice(option, batch, self._lasting(stage, option, batch))
            for option in self._options[stage]
            for batch in _batches(option)
        ]
        return _ascending(list(dict.fromkeys([*_undominated(least), *_undominated(enough)])))

    def _enough_alone(self, stage: int, slack_s: float) -> list[StageChoice]:
        """Of each option and batch the least replicas with which the stage alone keeps the promise, if any number."""
        calls = self._sample.calls[:, stage]
        sample = QuerySample(self._sample.arrivals_s, calls[:, None])
        name = self._pipeline.names[stage]
        alone = PipelineEstimator(Pipeline((PipelineStage(name, name),)), sample, slo_s=slack_s, memory_bytes=0)
        self._alone.append(alone)
        # All calls but those of queries that may miss have to be done by then.
        in_time = int(np.sort(calls)[: len(calls) - self._misses_allowed].sum())
        until_s = float(np.ptp(sample.arrivals_s)) + slack_s
        fluid = []
        for option in self._options[stage]:
            if option.service_s[1] > slack_s + TOLERANCE_S:
                continue
            for batch in _batches(option):
                busy = math.ceil(in_time / until_s / option.calls_per_s(batch) * (1.0 - 1e-9))
                fluid.append(StageChoice(option, batch, max(busy, self._lasting(stage, option, batch))))
        return [need for choice in _undominated(fluid) if (need := self._enough(alone, choice, sample)) is not None]

    def _lasting(self, stage: int, option: StageOption, batch: int) -> int:
        """The least replicas that keep up for as long as the load lasts."""
        return max(1, math.ceil(self._lasting_calls_per_s[stage] / option.calls_per_s(batch) - 1e-9))

    def _enough(self, alone: PipelineEstimator, choice: StageChoice, sample: QuerySample) -> StageChoice | None:
        """The least replicas, from those of the choice on, with which the stage alone keeps the promise."""
        # With so many none ever waits for a worker, or hardly ever, so that more change nothing.
        window_s = _slowest_s(choice)
        most = max(choice.replicas, -(-_most_within(sample, window_s) // choice.option.workers))
        low, high = choice.replicas - 1, choice.replicas
        while not self._keeps(alone, (replace(choice, replicas=high),)):
            if high >= most:
                return None
            low, high = high, min(most, high + max(1, high // 4))
        while high - low > 1:
            middle = (low + high) // 2
            if self._keeps(alone, (replace(choice, replicas=middle),)):
                high = middle
            else:
                low = middle
        return replace(choice, replicas=high)

    # -- 2: combinations -----------------------------------------------------------------------------------------------

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
        early = itertools.islice(_by_cost(self._needs), _EARLY)
        return next((choices for choices in early if self._fast_enough(choices)), self._fastest_needs())

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
        for number, choices in enumerate(_by_cost(self._needs)):
            if number == _MOST_COMBINATIONS:
                self._cut_off = True
                break
            if least_usd_per_hour(choices) >= self._best_usd() or disappointing >= _PATIENCE:
                break
            if usd_per_hour(choices) < self._best_usd() and self._fast_enough(choices):
                disappointing = 0 if self._try(choices) else disappointing + 1

    def _try(self, choices: Choices, step: float = _STEP) -> bool:
        """Is what it grows to better than the best?"""
        grown = self._grown(choices, step)
        return grown is not None and self._better(self._shed(grown))

    def _fast_enough(self, choices: Choices) -> bool:
        """Could enough queries be in time if nothing waited?"""
        path_s = pattern_path_s(self._pipeline, self._patterns, [float(c.option.service_s[1]) for c in choices])
        return int(self._queries[path_s > self._slo.rt_max_s + TOLERANCE_S].sum()) <= self._misses_allowed

    def _grown(self, choices: Choices, step: float) -> Choices | None:
        """More replicas where they remove most misses per dollar, until the promise is kept; None: not below the best.

        A few cheap ones at a time, so that a step costs about as much at every stage; `_shed` takes back too many.
        """
        step_usd = step * max(choice.option.usd_per_hour for choice in choices)
        while not self._kept(choices):
            judge = self._judge(choices)
            missed = self._missed(judge, choices)
            self._note(missed, choices)
            tried: list[tuple[float, float, int, Choices]] = []
            for stage, choice in enumerate(choices):
                usd = choice.option.usd_per_hour
                more = with_more(choices, stage, max(1, int(step_usd / usd)) if usd > 0.0 else choice.replicas)
                more = _with_free(more, stage)
                if usd_per_hour(more) < self._best_usd():
                    removed = missed - self._missed(judge, more)
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
                if choices[stage].replicas > step and self._kept(less := with_more(choices, stage, -step)):
                    choices = less
                else:
                    step //= 2
        return choices

    def _filled(self, choices: Choices) -> Choices:
        """With workers in the room that bought instances have left, the busiest stage first, if no more is missed."""
        filled = choices
        for stage in sorted(range(len(choices)), key=lambda stage: (self._headroom(stage, choices), stage)):
            filled = _with_free(filled, stage)
        if filled == choices or not self._kept(filled) or self._limit(filled) > self._limit(choices):
            return choices
        return filled

    # -- 3: moves from the best ----------------------------------------------------------------------------------------

    def _improve(self) -> None:
        """Moves of one and of two stages, from the best, until none is cheaper."""
        improved = True
        while improved:
            improved = False
            best = self._best
            assert best is not None
            for moved in self._neighbours(best):
                if usd_per_hour(moved) < self._best_usd() - 1e-12 and self._try(moved, 0.0):
                    improved = True
                    break

    def _neighbours(self, best: Choices) -> Iterator[Choices]:
        for stage in range(len(best)):  # one less here, and what that costs elsewhere
            if (less := _with_less(best, stage)) is not None:
                yield less
        for stage, choice in enumerate(best):  # another option or batch
            for other in self._needs[stage]:
                if (other.option, other.batch) != (choice.option, choice.batch):
                    yield with_choice(best, stage, other)
        for stage, choice in enumerate(best):  # another option here, one less there
            for other in self._needs[stage]:
                if other.option is choice.option:
                    continue
                for second in range(len(best)):
                    if second != stage and (less := _with_less(with_choice(best, stage, other), second)) is not None:
                        yield less

        for stage, choice in enumerate(best):  # into the room that instances of other stages have left
            for option in self._options[stage]:
                known = {one.placement.host for one, _ in choice.parts if one.placement is not None}
                if option.placement is None or option.placement.host in known:
                    continue
                spread = _with_free_beside(best, stage, option)
                if spread is not None and (less := _with_less(spread, stage)) is not None:
                    yield less

    # -- the promise ---------------------------------------------------------------------------------------------------

    def _kept(self, choices: Choices) -> bool:
        """By the sample, and once that is not trusted any more, by resamples with confidence."""
        if choices not in self._seen:
            self._seen[choices] = (
                self._lasts(choices)
                and self._keeps(self._estimator, choices)
                and (self._trusting or self._limit(choices) <= 1.0 - self._slo.attainment + 1e-12)
            )
        return self._seen[choices]

    def _lasts(self, choices: Choices) -> bool:
        return keeps_up(choices, self._lasting_calls_per_s)

    def _limit(self, choices: Choices) -> float:
        """What new traffic misses at most; of hopeless choices by the first few resamples."""
        shares: list[float] = []
        allowed = 1.0 - self._slo.attainment
        for estimator in self._others or [self._estimator]:
            shares.append(self._missed(estimator, choices))
            if len(shares) >= _FEW and (
                sum(shares) > len(shares) * allowed or miss_limit(shares, self._confidence) > _HOPELESS * allowed
            ):
                break
        return miss_limit(shares, self._confidence)

    def _keeps(self, estimator: PipelineEstimator, choices: Choices) -> bool:
        kept = estimator.feasible(choices, self._slo.attainment)
        self._count()
        return kept

    def _judge(self, choices: Choices) -> PipelineEstimator:
        """By which sample misses are counted: the recorded one where it misses too many, else the worst resample."""
        if self._trusting or not self._keeps(self._estimator, choices):
            return self._estimator
        return max(self._others, key=lambda one: self._misses.get((one, choices), -1.0))

    def _missed(self, judge: PipelineEstimator, choices: Choices) -> float:
        key = judge, choices
        if key not in self._misses:
            self._misses[key] = judge.miss_share(choices)
            self._count()
        return self._misses[key]

    def _work(self) -> int:
        return sum(one.calls_simulated for one in (self._estimator, *self._others, *self._alone))

    def _count(self) -> None:
        if self._work() > self._most_now:
            raise _OutOfWork

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


def _slowest_s(choice: StageChoice) -> float:
    """Of a batch up to the largest; where times have a spread, of all but some in a thousand."""
    mean_s = float(choice.option.service_s[1 : choice.batch + 1].max())
    return mean_s * math.exp(_Z999 * choice.option.sigma - choice.option.sigma**2 / 2.0)


def _times(choices: Choices, factor: float) -> Choices:
    return tuple(replace(choice, replicas=math.ceil(factor * choice.replicas - 1e-9)) for choice in choices)


def _with_free(choices: Choices, stage: int) -> Choices:
    """With as many replicas more as cost nothing, since instances that are bought anyway have room for them."""
    if choices[stage].option.placement is None:
        return choices
    usd = usd_per_hour(choices)
    while usd_per_hour(more := with_more(choices, stage, 1)) <= usd:
        choices = more
    return choices


def _with_free_beside(choices: Choices, stage: int, option: StageOption) -> Choices | None:
    """With as many replicas of another option beside as cost nothing; None: there is no room for one."""
    usd, found, count = usd_per_hour(choices), None, 1
    choice = choices[stage]
    while usd_per_hour(more := with_choice(choices, stage, _with_beside(choice, option, count))) <= usd:
        found, count = more, count + 1
    return found


def _with_beside(choice: StageChoice, option: StageOption, count: int) -> StageChoice:
    return replace(choice, beside=(*choice.beside, (option, count)))


def _with_less(choices: Choices, stage: int) -> Choices | None:
    """With the fewest replicas less that cost less; None: there are none."""
    usd = usd_per_hour(choices)
    placed = choices[stage].option.placement is not None
    for less in range(1, choices[stage].replicas if placed else min(2, choices[stage].replicas)):
        if usd_per_hour(fewer := with_more(choices, stage, -less)) < usd or not placed:
            return fewer
    return None


def _batches(option: StageOption) -> list[int]:
    """Powers of two, and the largest that there is a time for."""
    powers = [1 << n for n in range(option.largest_batch.bit_length())]
    return powers if powers[-1] == option.largest_batch else [*powers, option.largest_batch]


def _undominated(choices: Sequence[StageChoice]) -> list[StageChoice]:
    """Those that no other is better than in dollars, time of a call alone and time of its largest batch.

    In dollars by one replica at least: that many more the better one may need beside other stages. Of those that are
    free and equally good, the first stays. On another type that is shared it may be free beside another stage.
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


def _most_within(sample: QuerySample, window_s: float) -> int:
    """Calls of the sample's one stage in the window of this length, its ends included, that has most of them."""
    order = np.argsort(sample.arrivals_s, kind="stable")
    arrivals_s, calls = sample.arrivals_s[order], np.concatenate([[0], np.cumsum(sample.calls[order, 0])])
    behind = np.searchsorted(arrivals_s, arrivals_s + window_s + TOLERANCE_S, side="right")
    return int((calls[behind] - calls[:-1]).max())


def _by_cost(needs: Sequence[Sequence[StageChoice]]) -> Iterator[Choices]:
    """Every combination, in order of its options' dollars, made as it is asked for; `needs` ascend in them."""
    first = (0,) * len(needs)
    heap = [(least_usd_per_hour(tuple(of[0] for of in needs)), first)]
    seen = {first}
    while heap:
        _, at = heapq.heappop(heap)
        yield tuple(of[n] for of, n in zip(needs, at, strict=True))
        for stage in range(len(needs)):
            if at[stage] + 1 < len(needs[stage]):
                after = (*at[:stage], at[stage] + 1, *at[stage + 1 :])
                if after not in seen:
                    seen.add(after)
                    heapq.heappush(
                        heap, (least_usd_per_hour(tuple(of[n] for of, n in zip(needs, after, strict=True))), after)
                    )
