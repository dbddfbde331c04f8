"""Levels of load: the replicas that each needs, and the envelope that identifies it."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from mark.domain.errors import BadInput
from mark.domain.slo import Slo
from mark.planning.graphs.envelope import most_within
from mark.planning.graphs.estimate import QuerySample, StageChoice, estimate
from mark.planning.graphs.load_levels import CALM_SHARE, HIGHEST, LOWEST, RATIO, LoadLevels, load_levels
from tests.planning.graphs.planned import chain, option, traffic

CHOICES = (
    StageChoice(option("cpu", 0.1, 0.0, 0.02, 1), 1, 3),
    StageChoice(option("gpu", 0.7, 0.02, 0.01, 4), 4, 2),
)
SLO = Slo(0.2, 0.98)


@pytest.fixture(scope="module")
def sample() -> QuerySample:
    return traffic(6000, 100.0, 1.0, (1.0, 0.6), seed=5)


@pytest.fixture(scope="module")
def levels(sample: QuerySample) -> LoadLevels:
    return load_levels(chain("a", "b"), sample, CHOICES, SLO)


def test_levels_go_from_little_to_a_lot_in_small_steps(levels: LoadLevels) -> None:
    assert levels.rates[0] == pytest.approx(LOWEST * 100.0, rel=0.05)
    assert levels.rates[-1] >= HIGHEST * 100.0 * 0.95
    assert (levels.rates[1:] / levels.rates[:-1]).tolist() == pytest.approx([RATIO] * (len(levels.rates) - 1))
    assert levels.replicas.shape == (len(levels.rates), 2)


def test_more_load_never_needs_less(levels: LoadLevels) -> None:
    assert (np.diff(levels.replicas, axis=0) >= 0).all()
    assert (np.diff(levels.counts, axis=0) >= 0).all()
    assert levels.replicas[0].min() >= 1
    assert levels.replicas[-1].sum() > levels.replicas[0].sum()


def test_each_level_keeps_the_promise_with_its_share_of_misses(levels: LoadLevels, sample: QuerySample) -> None:
    """It is checked on new queries at that rate, whose misses may exceed the share by chance of the sample."""
    for level in range(0, len(levels.rates), 9):
        new = traffic(20_000, float(levels.rates[level]), 1.0, (1.0, 0.6), seed=level)
        bought = tuple(
            StageChoice(one.option, one.batch, int(n)) for one, n in zip(CHOICES, levels.replicas[level], strict=True)
        )
        assert estimate(chain("a", "b"), new, bought).miss_share(SLO.rt_max_s) <= 2.5 * CALM_SHARE * 0.02


def test_levels_are_known_in_windows_longer_than_their_sample(levels: LoadLevels) -> None:
    """At 400 queries/s the sample's 6,000 queries end after 15 s."""
    expected = levels.rates * levels.windows_s[-1]
    assert levels.windows_s[-1] > 20.0
    assert levels.counts[:, -1].tolist() == pytest.approx(expected.tolist(), rel=0.15)
    assert levels.rate_of(np.array(levels.counts[len(levels.rates) // 2])) <= levels.rates[len(levels.rates) // 2]


def test_what_no_replica_helps_is_no_reason_to_buy() -> None:
    """Times vary so much that 1.5 % of the calls are late even alone, where a fifth of 2 % would be allowed."""
    choices = (StageChoice(replace(option("cpu", 0.1, 0.0, 0.05, 1), sigma=0.7), 1, 3),)
    sample = traffic(3000, 20.0, 1.0, (1.0,), seed=2)
    alone = estimate(chain("a"), sample, (replace(choices[0], replicas=50),)).miss_share(0.2)
    assert CALM_SHARE * 0.02 < alone < 0.02
    levels = load_levels(chain("a"), sample, choices, SLO)
    assert levels.replicas[-1, 0] <= 3 * levels.rates[-1] * 0.05


def test_an_uneven_sample_has_the_levels_of_an_even_one() -> None:
    """Two half minutes of 50 and of 150 queries/s are evened to 100."""
    rng = np.random.default_rng(1)
    arrivals_s = np.concatenate([np.sort(rng.uniform(0.0, 30.0, 1500)), np.sort(rng.uniform(30.0, 60.0, 4500))])
    uneven = QuerySample(arrivals_s, np.ones((6000, 1), dtype=np.int64))
    even = QuerySample(np.sort(rng.uniform(0.0, 60.0, 6000)), np.ones((6000, 1), dtype=np.int64))
    found, beside = (load_levels(chain("a"), one, CHOICES[:1], SLO) for one in (uneven, even))
    assert np.abs(found.replicas - beside.replicas).max() <= 1
    assert (found.counts[:, -1] / beside.counts[:, -1]).tolist() == pytest.approx([1.0] * len(found.rates), rel=0.1)


def test_a_load_has_the_lowest_level_that_covers_it(levels: LoadLevels) -> None:
    for level in (0, 7, len(levels.rates) - 1):
        assert levels.rate_of(levels.counts[level]) <= levels.rates[level]
        above = levels.counts[level].copy()
        above[0] = levels.counts[-1, 0]
        assert levels.rate_of(above) > levels.rates[-1] / RATIO**4  # one window of a burst is enough
    assert levels.rate_of(np.zeros_like(levels.counts[0])) == levels.rates[0]
    assert levels.rate_of(2 * levels.counts[-1]) == pytest.approx(2.0 * levels.rates[-1])


def test_burstier_traffic_of_the_same_rate_is_a_higher_level(levels: LoadLevels) -> None:
    calm, bursty = (traffic(6000, 100.0, cv, (1.0, 0.6), seed=9) for cv in (1.0, 4.0))
    of_calm, of_bursty = (levels.rate_of(most_within(one.arrivals_s, levels.windows_s)) for one in (calm, bursty))
    assert of_calm == pytest.approx(100.0, rel=0.25)
    assert of_bursty > 1.5 * of_calm


def test_replicas_are_those_of_the_level_that_is_not_below(levels: LoadLevels) -> None:
    for level in (0, 5, 20):
        assert levels.replicas_at(float(levels.rates[level])).tolist() == levels.replicas[level].tolist()
        assert levels.replicas_at(float(levels.rates[level]) * 1.01).tolist() == levels.replicas[level + 1].tolist()
    assert levels.replicas_at(0.0).tolist() == levels.replicas[0].tolist()
    assert levels.replicas_at(3.0 * float(levels.rates[-1])).tolist() == (3 * levels.replicas[-1]).tolist()


def test_a_sample_at_one_moment_has_no_rate() -> None:
    with pytest.raises(BadInput, match="span"):
        load_levels(chain("a"), QuerySample(np.ones(5), np.ones((5, 1), dtype=np.int64)), CHOICES[:1], SLO)
