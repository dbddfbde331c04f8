"""The replicas that a planned pipeline needs at other loads, and the traffic that they bear, from little to a lot.

Hardware and batches stay as planned. InferLine's tuner (SoCC '20, section 5) scales every stage in proportion to the
rate, with the slack of the plan. Bursts grow slower than rates, whole replicas have slack of their own, and the stages
share one promise: here each level is simulated instead.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np

from mark.domain.arrays import FloatArray, IntArray
from mark.domain.errors import BadInput, Infeasible
from mark.domain.pipeline import Pipeline
from mark.domain.slo import Slo
from mark.planning.graphs.critical_paths import longest_path_s
from mark.planning.graphs.envelope import envelope_windows_s, most_within
from mark.planning.graphs.estimate import Choices, PipelineEstimator, QuerySample, with_more

# A level is this many times the rate of the one below.
RATIO = 1.06
# The lowest and the highest level, in multiples of the sample's mean rate
LOWEST, HIGHEST = 0.2, 4.0
# The rate within a sample is taken as constant over this time.
EVEN_S = 30.0
# Steady load may use this share of the misses that the promise allows; the other misses are for changes of the load.
CALM_SHARE = 0.2
# Enough queries to measure a miss share of 0.1 %
MOST_QUERIES = 50_000
# This multiple of the replicas that keep up, plus this number, leaves no query waiting.
_MANY = 100
# limit of the replicas that a level needs beyond the level below
_MOST_STEPS = 400


@dataclass(frozen=True, eq=False, slots=True)
class LoadLevels:
    """L levels of load, each with the replicas of S stages and the envelope that identifies it."""

    rates: FloatArray  # (L,) queries/s, ascending
    replicas: IntArray  # (L, S), never fewer than at the level below
    windows_s: FloatArray  # (W,)
    counts: IntArray  # (L, W) the most queries within a window of each length

    def rate_of(self, counts: IntArray) -> float:
        """Return the rate of the lowest level whose counts suffice in every window; beyond the highest in
        proportion.
        """
        enough = (self.counts >= counts).all(axis=1)
        if enough.any():
            return float(self.rates[enough.argmax()])
        return float(self.rates[-1] * (counts / self.counts[-1]).max())

    def replicas_at(self, rate: float) -> IntArray:
        """Return the replicas for the lowest level not below this rate, shape (S,); beyond the highest in
        proportion.
        """
        level = int(np.searchsorted(self.rates, rate * (1.0 - 1e-9)))
        if level < len(self.rates):
            return np.asarray(self.replicas[level], dtype=np.int64)
        return np.asarray(np.ceil(self.replicas[-1] * (rate / self.rates[-1]) - 1e-9), dtype=np.int64)


def load_levels(pipeline: Pipeline, sample: QuerySample, choices: Choices, slo: Slo) -> LoadLevels:
    """Return the levels of a configuration that was planned on this sample, each with a fifth of the allowed misses.

    That is a fifth of the misses that replicas can avoid: queries that are late even if nothing waits may all be late.
    A level has the sample's queries, evened to one rate and compressed to the level's rate. Raises BadInput for a
    sample of less than two queries, Infeasible if no number of replicas keeps the promise.
    """
    even, rate = _even(sample)
    calls_per_query = even.calls.mean(axis=0)
    windows_s = envelope_windows_s(
        longest_path_s(pipeline, [float(choice.option.service_s[choice.batch]) for choice in choices])
    )
    count = math.ceil(math.log(HIGHEST / LOWEST) / math.log(RATIO)) + 1
    rates = np.asarray(rate * LOWEST * RATIO ** np.arange(count), dtype=np.float64)
    replicas, counts = [], []
    here = tuple(replace(choice, replicas=1) for choice in choices)
    lowest = QuerySample(even.arrivals_s / rates[0], even.calls)
    always_late = _late_without_waiting(pipeline, lowest, here, slo, rates[0] * calls_per_query)
    allowed = 1.0 - slo.attainment
    strict = Slo(slo.rt_max_s, 1.0 - min(allowed, always_late + CALM_SHARE * (allowed - always_late)))
    for level in rates:
        arrivals_s = even.arrivals_s / level
        here = _enough(pipeline, QuerySample(arrivals_s, even.calls), here, strict, level * calls_per_query)
        replicas.append([choice.replicas for choice in here])
        counts.append(most_within(_lasting(arrivals_s, level, float(windows_s[-1])), windows_s))
    return LoadLevels(rates, np.array(replicas), windows_s, np.array(counts))


def _lasting(arrivals_s: FloatArray, rate: float, longest_s: float) -> FloatArray:
    """Return arrivals at this rate, repeated if they are shorter than the longest window, which would miss some."""
    span_s = len(arrivals_s) / rate
    times = 1 if span_s >= longest_s else math.ceil(longest_s / span_s) + 1
    return np.concatenate([arrivals_s + span_s * n for n in range(times)])


def _even(sample: QuerySample) -> tuple[QuerySample, float]:
    """Return the sample with the rate of each half minute evened to one query a second, and the sample's mean rate."""
    order = np.argsort(sample.arrivals_s, kind="stable")
    arrivals_s, calls = sample.arrivals_s[order], sample.calls[order]
    long_s = float(np.ptp(arrivals_s))
    if not long_s > 0.0:
        raise BadInput("must span some time", "arrivals_s", long_s)
    bins = max(1, round(long_s / EVEN_S))
    edges_s = np.linspace(arrivals_s[0], arrivals_s[-1], bins + 1)
    before = np.searchsorted(arrivals_s, edges_s)
    before[-1] = len(arrivals_s)
    even_s = np.interp(arrivals_s, edges_s, before)
    return QuerySample(even_s[:MOST_QUERIES], calls[:MOST_QUERIES]), (len(arrivals_s) - 1) / long_s


def _late_without_waiting(
    pipeline: Pipeline, sample: QuerySample, choices: Choices, slo: Slo, calls_per_s: FloatArray
) -> float:
    """Return the share of the queries that are late even if none waits, by chance or by the stages that they call."""
    many = [
        _MANY * calls / choice.option.calls_per_s(1) + _MANY for choice, calls in zip(choices, calls_per_s, strict=True)
    ]
    ample = tuple(replace(choice, replicas=math.ceil(count)) for choice, count in zip(choices, many, strict=True))
    return PipelineEstimator(pipeline, sample, slo_s=slo.rt_max_s).miss_share(ample)


def _enough(pipeline: Pipeline, sample: QuerySample, choices: Choices, slo: Slo, calls_per_s: FloatArray) -> Choices:
    """Add the replica that removes most misses per dollar, one after the other, until the promise is kept."""
    for stage, choice in enumerate(choices):
        lasting = math.ceil(calls_per_s[stage] / choice.option.calls_per_s(choice.batch) - 1e-9)
        choices = with_more(choices, stage, max(0, lasting - choice.replicas))
    estimator = PipelineEstimator(pipeline, sample, slo_s=slo.rt_max_s)
    late = estimator.miss_share(choices)
    for _ in range(_MOST_STEPS):
        if late <= 1.0 - slo.attainment + 1e-9:
            return choices
        tried = [with_more(choices, stage, 1) for stage in range(len(choices))]
        misses = [estimator.miss_share(one) for one in tried]
        best = max(
            range(len(tried)), key=lambda stage: (late - misses[stage]) / (choices[stage].option.usd_per_hour + 1e-9)
        )
        choices, late = tried[best], misses[best]
    raise Infeasible(f"{100.0 * late:.2f} % of the queries are late with {_MOST_STEPS} replicas more")
