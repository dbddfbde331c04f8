"""Loads that change: their shapes, and the parts that plans know."""

from __future__ import annotations

import numpy as np
import pytest
from mark_papers.inferline.pipelines import PIPELINES
from mark_papers.inferline.workloads import AUTOSCALE_LIKE, autoscale_like, transition

LAW = PIPELINES["social"][1]


@pytest.mark.parametrize("name", AUTOSCALE_LIKE)
def test_loads_like_autoscales_last_30_minutes_and_peak_at_300(name: str) -> None:
    load = autoscale_like(name, LAW, 0)
    rates = np.histogram(load.queries.arrivals_s, np.arange(0.0, 1801.0, 30.0))[0] / 30.0
    assert rates.max() == pytest.approx(300.0, rel=0.05)
    assert (load.begin_s, load.end_s) == (450.0, 1800.0)
    assert (np.diff(load.queries.arrivals_s) >= 0.0).all()
    assert rates[:15].max() < 0.6 * rates.max()  # the part that plans know does not show the spike


def test_the_first_quarter_is_planned_on_the_rest_served() -> None:
    load = autoscale_like("big spike", LAW, 0)
    assert load.sample.arrivals_s.max() < 450.0 <= load.served.arrivals_s.min()
    assert len(load.sample.arrivals_s) + len(load.served.arrivals_s) == len(load.queries.arrivals_s)
    assert len(load.sample.calls) == len(load.sample.arrivals_s)


def test_the_same_seed_is_the_same_load() -> None:
    one, other, third = (autoscale_like("rise and fall", LAW, seed) for seed in (3, 3, 4))
    assert one.queries.arrivals_s.tolist() == other.queries.arrivals_s.tolist()
    assert one.queries.calls.tolist() == other.queries.calls.tolist()
    assert one.queries.arrivals_s.tolist() != third.queries.arrivals_s.tolist()


def test_a_transition_moves_rate_and_variation() -> None:
    load = transition("x", LAW, rates=(150.0, 250.0), cvs=(1.0, 4.0), transition_s=60.0, seed=1)
    assert (load.begin_s, load.end_s) == (300.0, 1020.0)
    before, after = (np.diff(load.queries.arrivals_s[part]) for part in _parts(load.queries.arrivals_s, 420.0, 480.0))
    assert 1.0 / before.mean() == pytest.approx(150.0, rel=0.05)
    assert 1.0 / after.mean() == pytest.approx(250.0, rel=0.1)
    assert before.std() / before.mean() == pytest.approx(1.0, rel=0.05)
    assert after.std() / after.mean() == pytest.approx(4.0, rel=0.1)


def _parts(arrivals_s: np.ndarray, begin_s: float, end_s: float) -> tuple[np.ndarray, np.ndarray]:
    return arrivals_s < begin_s, arrivals_s > end_s
