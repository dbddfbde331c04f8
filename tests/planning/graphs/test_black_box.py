"""The black box: one batch size, units of a replica a stage."""

from __future__ import annotations

import numpy as np
import pytest

from mark.domain.errors import BadInput, Infeasible
from mark.domain.slo import Slo
from mark.planning.graphs.black_box import CoarseTuner, coarse_plan
from mark.planning.graphs.estimate import QuerySample, StageChoice
from mark.planning.graphs.tuner import Tuner
from tests.planning.graphs.planned import chain, option

OPTIONS = [[option("cpu", 0.1, 0.0, 0.5, 4), option("gpu", 1.0, 0.01, 0.01, 4)], [option("gpu", 1.0, 0.0, 0.02, 4)]]
# 100 queries/s for 4 s
STEADY = QuerySample(np.arange(400) / 100.0, np.ones((400, 2), dtype=np.int64))

_FITS: Tuner = CoarseTuner((1,), 1.0)


@pytest.mark.parametrize(("slo_s", "batch"), [(0.13, 4), (0.129, 2), (0.08, 2), (0.06, 1)])
def test_the_largest_batch_that_fits_and_units_for_the_mean(slo_s: float, batch: int) -> None:
    """Whole batches of 4, 2 and 1 take 130, 70 and 40 ms. Stage b does 50 queries/s a unit, and 100.25 come."""
    choices = coarse_plan(chain("a", "b"), STEADY, OPTIONS, Slo(slo_s, 0.99), by="mean")
    assert [(one.option.hardware, one.batch, one.replicas) for one in choices] == [("gpu", batch, 3)] * 2


def test_the_peak_counts_windows_of_one_promise() -> None:
    bursty = QuerySample(
        np.sort(np.concatenate([STEADY.arrivals_s, 2.0 + np.arange(20) / 1e3])), np.ones((420, 2), int)
    )
    by_peak = coarse_plan(chain("a", "b"), bursty, OPTIONS, Slo(0.1, 0.99), by="peak")
    assert by_peak[0].replicas == 6  # 30 in 100 ms are 300 queries/s


def test_what_a_query_skips_needs_less() -> None:
    calls = np.ones((400, 2), dtype=np.int64)
    calls[::2, 1] = 0
    choices = coarse_plan(chain("a", "b"), QuerySample(STEADY.arrivals_s, calls), OPTIONS, Slo(0.13, 0.99), by="mean")
    assert choices[0].replicas == choices[1].replicas == 2  # a does 80 queries/s in batches of four, b 100


def test_refusals() -> None:
    with pytest.raises(Infeasible):
        coarse_plan(chain("a", "b"), STEADY, OPTIONS, Slo(0.039, 0.99), by="mean")
    with pytest.raises(BadInput, match='by: must be "mean" or "peak": median'):
        coarse_plan(chain("a", "b"), STEADY, OPTIONS, Slo(0.1, 0.99), by="median")


def test_workers_of_an_instance_share_its_load() -> None:
    """Stage b does 50 queries/s a worker: 100.25 need three of one worker, two of two."""
    options = [[option("gpu", 1.0, 0.0, 0.001, 1)], [option("cpu", 1.0, 0.0, 0.02, 1, workers=2)]]
    choices = coarse_plan(chain("a", "b"), STEADY, options, Slo(0.1, 0.99), by="mean")
    assert [one.replicas for one in choices] == [2, 2]


def test_the_coarse_tuner_follows_the_mean_rate_in_units() -> None:
    """Three units do 3 x 66.7 queries/s; the tuner sees the arrivals of the last half minute."""
    choices = coarse_plan(chain("a", "b"), STEADY, OPTIONS, Slo(0.13, 0.99), by="mean")
    tuner = CoarseTuner.of(STEADY, choices)
    unit = tuner.queries_per_s / 3
    state, arrivals_s = tuner.begin(), np.arange(0.0, 60.0, 1.0 / (5.5 * unit))
    for now_s, units in ((30.0, 6), (60.0, 6), (75.0, 6), (179.0, 6), (181.0, 3), (210.0, 1)):
        replicas, state = tuner.step(state, arrivals_s[arrivals_s < now_s], now_s)
        assert replicas == (units, units), now_s


def test_the_coarse_tuner_scales_another_plan_in_its_proportions() -> None:
    choices = (StageChoice(OPTIONS[0][1], 4, 2), StageChoice(OPTIONS[1][0], 4, 6))
    tuner = CoarseTuner.of(STEADY, choices)
    assert tuner.queries_per_s == pytest.approx(2 * 4 / 0.05)  # the slower of the two
    arrivals_s = np.arange(0.0, 30.0, 1.0 / (1.5 * tuner.queries_per_s))
    assert tuner.step(tuner.begin(), arrivals_s, 30.0)[0] == (3, 9)
