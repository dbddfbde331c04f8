"""The decision whether a configuration keeps the promise: by the sample, and by resamples."""

from __future__ import annotations

import pytest

from mark.domain.slo import Slo
from mark.planning.graphs.configure import configure
from mark.planning.graphs.estimate import StageChoice, estimate, usd_per_hour
from mark.planning.graphs.inferline import inferline_plan
from mark.planning.graphs.promise_judge import PromiseJudge, keeps_up, miss_limits
from tests.planning.graphs.planned import chain, option, traffic

CPU, GPU = option("cpu", 0.1, 0.0, 0.020, 1), option("gpu", 0.7, 0.004, 0.003)
SLOW_CPU = option("cpu", 0.1, 0.0, 0.050, 1)
PIPELINE, SLO = chain("a", "b"), Slo(0.2, 0.99)
SAMPLE = traffic(1000, 60.0, 2.0, (1.0, 0.5), seed=1)


def judge(resamples: int = 20, lasting_calls_per_s: tuple[float, float] = (0.0, 0.0)) -> PromiseJudge:
    return PromiseJudge(
        PIPELINE, SAMPLE, SLO, resamples=resamples, confidence=0.99, seed=3, lasting_calls_per_s=lasting_calls_per_s
    )


def test_limits_of_other_configurations_are_those_of_the_search() -> None:
    pipeline, options, slo = chain("a", "b"), [[CPU], [SLOW_CPU, GPU]], Slo(0.2, 0.99)
    sample = traffic(1000, 60.0, 2.0, (1.0, 0.5), seed=1)
    found = configure(pipeline, sample, options, slo, seed=3)
    single, _ = inferline_plan(pipeline, sample, options, slo)
    ours, theirs = miss_limits(pipeline, sample, [found.choices, single], slo, seed=3)
    assert ours == pytest.approx(found.miss_limit)
    assert theirs > 0.01 or usd_per_hour(single) >= found.usd_per_hour
    (trusting,) = miss_limits(pipeline, sample, [single], slo, resamples=0)
    assert trusting == estimate(pipeline, sample, single).miss_share(slo.rt_max_s)


def by_the_sample() -> tuple[StageChoice, ...]:
    """Return the choices that are just enough for the sample."""
    return configure(PIPELINE, SAMPLE, [[CPU], [GPU]], SLO, resamples=0).choices


def test_just_enough_for_the_sample_is_kept_until_resamples_judge() -> None:
    choices, found = by_the_sample(), judge()
    assert found.kept(choices)
    assert found.limit(choices) > 0.01
    found.ask_resamples()
    assert not found.kept(choices)
    share, limit = found.shares(choices)
    assert share <= 0.01 < limit


def test_without_resamples_the_sample_is_trusted() -> None:
    choices, found = by_the_sample(), judge(resamples=0)
    share, limit = found.shares(choices)
    assert (share, found.resamples) == (limit, 0)
    assert found.missed(found.strictest(choices), choices) == share


def test_what_does_not_keep_up_for_long_is_not_kept() -> None:
    choices = by_the_sample()
    calls_per_s = choices[0].calls_per_s, choices[1].calls_per_s
    assert keeps_up(choices, calls_per_s)
    assert judge(lasting_calls_per_s=calls_per_s).kept(choices)
    assert not judge(lasting_calls_per_s=(1.01 * calls_per_s[0], 0.0)).kept(choices)


def test_a_search_ends_with_its_work_and_may_resume() -> None:
    """The bound counts all calls so far, and results found before it are kept."""
    found, tried = judge(), list[int]()

    def search() -> None:
        for replicas in range(1, 100):
            found.kept((StageChoice(SLOW_CPU, 1, replicas), StageChoice(GPU, 1, 1)))
            tried.append(replicas)

    assert not found.within(10_000, search)
    assert 0 < len(tried) < 99
    assert found.calls_simulated > 10_000
    assert found.within(10**9, search)
    assert tried[-1] == 99
