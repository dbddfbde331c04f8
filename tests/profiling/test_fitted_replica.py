"""The capacity of a replica fitted to observations: it finds known replicas again."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mark.domain.errors import BadInput
from mark.domain.profile import Profile
from mark.domain.slo import Slo
from mark.profiling.fitted_replica import ServiceTime, fit_replica, replica_profile, rising, service_time
from mark.profiling.policy import candidate, late_alone

SLO = Slo(0.5, 0.98)


def _steps(seed: int = 1, highest: float = 12.0) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return the steps of a replica that is late for 2 % of the requests at 8 requests/s, and for more beyond."""
    random = np.random.default_rng(seed)
    load = random.uniform(0.5, highest, 2000)
    total = np.round(load * 300.0)
    late = random.binomial(total.astype(int), np.minimum(1.0, 0.02 * np.exp(1.5 * (load - 8.0)))).astype(float)
    return load, late, total


def test_fit_finds_the_load_at_which_the_promise_breaks() -> None:
    found = fit_replica(*_steps(), 0.02)
    assert found.rps == pytest.approx(8.0, rel=0.05)
    assert found.most_rps is not None
    assert found.least_rps <= found.rps <= found.most_rps
    assert found.least_rps > 7.0
    assert found.most_rps < 9.0


def test_fit_says_at_least_where_no_load_was_too_high() -> None:
    found = fit_replica(*_steps(highest=6.0), 0.02)
    assert found.most_rps is None
    assert 5.5 < found.rps <= 6.0


def test_fit_refuses_a_promise_that_no_load_keeps() -> None:
    load, _, total = _steps()
    with pytest.raises(BadInput, match="--rps-per-replica: the promise is broken at every load"):
        fit_replica(load, total, total, 0.02)


def test_fit_refuses_too_few_steps_and_leaves_out_unknown_ones() -> None:
    load, late, total = _steps()
    load[20:] = np.nan
    with pytest.raises(BadInput, match=r"too few steps .*\(20\)"):
        fit_replica(load, late, total, 0.02)


@given(st.lists(st.tuples(st.floats(0.0, 1.0), st.floats(0.1, 10.0)), min_size=1, max_size=12))
def test_rising_values_never_fall_and_keep_the_weighted_mean(pairs: list[tuple[float, float]]) -> None:
    values, weights = (np.array(column) for column in zip(*pairs, strict=True))
    found = rising(values, weights)
    assert (np.diff(found) >= -1e-12).all()
    assert np.average(found, weights=weights) == pytest.approx(np.average(values, weights=weights))


def test_rising_leaves_values_that_rise_already() -> None:
    assert rising(np.array([0.1, 0.2, 0.9]), np.ones(3)).tolist() == [0.1, 0.2, 0.9]


def test_service_time_comes_from_quiet_steps_only() -> None:
    bounds = np.array([0.1, 0.2, math.inf])
    within = np.array([[100.0, 100.0, 100.0], [0.0, 0.0, 100.0]])
    found = service_time(np.array([1.0, 9.0]), within, bounds, 10.0)
    assert found is not None
    assert found.mean_s == pytest.approx(0.05)
    assert found.tail == pytest.approx(0.099 / 0.05)


def test_service_time_is_not_known_without_answers() -> None:
    assert service_time(np.array([1.0]), np.zeros((1, 2)), np.array([0.1, math.inf]), 10.0) is None


@pytest.mark.parametrize(("rps", "workers"), [(2.0, 1), (10.0, 1), (10.1, 2), (40.0, 4)])
def test_replica_takes_as_many_requests_at_a_time_as_its_load_needs(rps: float, workers: int) -> None:
    profile = replica_profile("m", "c7i.large", 3, rps, ServiceTime(0.1), SLO)
    assert profile.workers == 3 * workers
    assert profile.rows[0].latency_ms == pytest.approx(100.0)


def test_tail_is_cut_where_it_alone_would_break_the_promise() -> None:
    profile = replica_profile("m", "c7i.large", 1, 2.0, ServiceTime(0.3, 8.0), SLO)
    assert isinstance(profile, Profile)
    able = candidate(profile, SLO)
    assert not isinstance(able, str)
    assert 0.0 < late_alone(able, SLO.rt_max_s) <= 0.01


def test_replica_with_too_many_requests_at_a_time_is_refused() -> None:
    with pytest.raises(BadInput, match="--rps-per-replica: an instance works on at most"):
        replica_profile("m", "c7i.large", 64, 1000.0, ServiceTime(0.1), SLO)
