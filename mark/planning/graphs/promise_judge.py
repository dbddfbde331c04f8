"""Whether configurations keep a promise: by a sample of queries, and with confidence for new traffic by resamples."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import numpy as np

from mark.domain.pipeline import Pipeline
from mark.domain.slo import Slo
from mark.planning.graphs.estimate import MEMORY_BYTES, Choices, PipelineEstimator, QuerySample
from mark.planning.graphs.resample import least_limit, miss_limit, new_traffic

# Confidence that new traffic keeps the promise
CONFIDENCE = 0.99
# After the first number of resamples a configuration is rejected if their mean exceeds the allowed share, or its miss
# limit exceeds the second multiple of that.
_FEW, _HOPELESS = 4, 2.0


def keeps_up(choices: Choices, calls_per_s: Sequence[float]) -> bool:
    """Return whether each stage can serve its `calls_per_s`, in its best batches, for as long as they come."""
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
    """Return for each configuration the limit that the miss share of new traffic stays below with this confidence.

    Uses the resamples of a search with the same seed; with 0 resamples the sample is trusted.
    """
    estimators = _resamples(pipeline, sample, slo, resamples, seed)
    estimators = estimators or [PipelineEstimator(pipeline, sample, slo_s=slo.rt_max_s)]
    least = least_limit(len(sample.arrivals_s), confidence) if resamples else 0.0
    return [
        max(least, miss_limit([one.miss_share(choices) for one in estimators], confidence))
        for choices in configurations
    ]


class PromiseJudge:
    """The judge of a search's configurations. It remembers its judgements and bounds the calls simulated for them.

    It trusts the sample, as if new traffic were the same, until `ask_resamples`. A configuration that keeps the promise
    can also serve `lasting_calls_per_s` at each stage.
    """

    def __init__(
        self,
        pipeline: Pipeline,
        sample: QuerySample,
        slo: Slo,
        *,
        resamples: int,
        confidence: float,
        seed: int,
        lasting_calls_per_s: Sequence[float],
    ) -> None:
        self._slo, self._confidence, self._lasting_calls_per_s = slo, confidence, lasting_calls_per_s
        self._estimator = PipelineEstimator(pipeline, sample, slo_s=slo.rt_max_s)
        # Used lazily: most configurations fail the sample itself.
        self._others = _resamples(pipeline, sample, slo, resamples, seed)
        self._least_limit = least_limit(len(sample.arrivals_s), confidence)
        self._trusting = True
        self._most_now = math.inf  # limit of the simulated calls
        self._kept: dict[Choices, bool] = {}
        self._misses: dict[tuple[PipelineEstimator, Choices], float] = {}

    @property
    def resamples(self) -> int:
        return len(self._others)

    @property
    def calls_simulated(self) -> int:
        return sum(one.calls_simulated for one in (self._estimator, *self._others))

    def ask_resamples(self) -> None:
        """Ask the resamples from now on."""
        self._trusting = False
        self._kept.clear()

    def within(self, most_calls: int, search: Callable[[], None]) -> bool:
        """Run the search; return whether it ended before `most_calls` calls were simulated since the beginning."""
        self._most_now = most_calls
        try:
            search()
        except _OutOfWork:
            return False
        finally:
            self._most_now = math.inf
        return True

    def kept(self, choices: Choices) -> bool:
        """Return whether the choices keep the promise by the sample and, after `ask_resamples`, by the resamples."""
        if choices not in self._kept:
            self._kept[choices] = (
                keeps_up(choices, self._lasting_calls_per_s)
                and self._by_the_sample(choices)
                and (self._trusting or self.limit(choices) <= 1.0 - self._slo.attainment + 1e-12)
            )
        return self._kept[choices]

    def limit(self, choices: Choices) -> float:
        """Return the highest miss share of new traffic; for hopeless choices by the first few resamples only."""
        shares: list[float] = []
        allowed = 1.0 - self._slo.attainment
        for estimator in self._others or [self._estimator]:
            shares.append(self.missed(estimator, choices))
            if len(shares) >= _FEW and (
                sum(shares) > len(shares) * allowed or miss_limit(shares, self._confidence) > _HOPELESS * allowed
            ):
                break
        return miss_limit(shares, self._confidence)

    def strictest(self, choices: Choices) -> PipelineEstimator:
        """Return the sample by which misses are counted: the recorded one if it misses too many, else the worst
        resample.
        """
        if self._trusting or not self._by_the_sample(choices):
            return self._estimator
        return max(self._others, key=lambda one: self._misses.get((one, choices), -1.0))

    def missed(self, estimator: PipelineEstimator, choices: Choices) -> float:
        """Return the share of the estimator's queries that are late."""
        key = estimator, choices
        if key not in self._misses:
            self._misses[key] = estimator.miss_share(choices)
            self._count()
        return self._misses[key]

    def shares(self, choices: Choices) -> tuple[float, float]:
        """Return the miss share of the sample, and the limit for new traffic (the same if the sample is trusted)."""
        share = self._estimator.miss_share(choices)
        return share, max(self.limit(choices), self._least_limit) if self._others else share

    def _by_the_sample(self, choices: Choices) -> bool:
        kept = self._estimator.feasible(choices, self._slo.attainment)
        self._count()
        return kept

    def _count(self) -> None:
        if self.calls_simulated > self._most_now:
            raise _OutOfWork


class _OutOfWork(Exception):
    """The bound on simulated calls is reached."""


def _resamples(pipeline: Pipeline, sample: QuerySample, slo: Slo, resamples: int, seed: int) -> list[PipelineEstimator]:
    rng = np.random.default_rng(seed)
    memory_bytes = 2 * MEMORY_BYTES // max(1, resamples)  # with less memory, known outcomes would be simulated again
    return [
        PipelineEstimator(
            pipeline, new_traffic(sample, rng), slo_s=slo.rt_max_s, memory_bytes=memory_bytes, seed=1 + number
        )
        for number in range(resamples)
    ]
