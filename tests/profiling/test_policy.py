"""Batch size, window and capacity from a profile and an SLO."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mark.domain.errors import BadInput
from mark.domain.profile import Candidate, Profile, ProfileRow
from mark.domain.service import MOST_TAIL
from mark.domain.slo import Slo
from mark.profiling.policy import candidate, paper_window_s, sigma_of, unbatched, with_tail
from mark.profiling.table import load_profiles


def slo(rt_max_ms: float) -> Slo:
    return Slo(rt_max_ms / 1e3, 0.98)


def profile(*latencies_ms: tuple[int, float], workers: int = 1, overhead_ms: float = 0.0) -> Profile:
    return Profile(
        "m", "x", tuple(ProfileRow(b, ms, workers=workers, overhead_ms=overhead_ms) for b, ms in latencies_ms)
    )


def able(found: Candidate | str) -> Candidate:
    assert isinstance(found, Candidate), found
    return found


def test_inception_on_the_gpu_has_the_paper_window() -> None:
    gpu = load_profiles()["inception-v3"]["p2.xlarge"]
    found = able(candidate(gpu, slo(600), "paper"))
    assert found.policy.n_batch == 8
    assert found.policy.w_batch_s == pytest.approx(0.2002, abs=5e-5)
    assert paper_window_s(gpu, slo(600), 8) == pytest.approx(0.2002, abs=5e-5)
    assert found.capacity_rps == pytest.approx(8 * 415 / 60)


def test_two_of_the_largest_batch_fit_into_rt_max() -> None:
    """The paper's 8 or 16 cannot hold: a request that just missed a batch waits for it and then takes its own."""
    shipped = load_profiles()
    for model, rt_max_ms, n_batch in (("nasnet", 1000, 5), ("opennmt-ende", 1400, 7)):
        gpu = shipped[model]["p2.xlarge"]
        found = able(candidate(gpu, slo(rt_max_ms)))
        assert found.policy.n_batch == n_batch
        assert 2e3 * found.service_s[n_batch] <= rt_max_ms < 2e3 * gpu.latency_s(n_batch + 1)


def test_work_conserving_has_a_window_only_if_measured() -> None:
    assert able(candidate(profile((1, 40), (4, 100)), slo(600))).policy.w_batch_s == 0.0
    measured = Profile("m", "x", (ProfileRow(1, 40), ProfileRow(4, 100, w_batch_ms=30)))
    for batching in ("work-conserving", "paper"):
        assert able(candidate(measured, slo(600), batching)).policy.w_batch_s == pytest.approx(0.03)


def test_a_measured_window_shrinks_to_what_rt_max_leaves() -> None:
    measured = Profile("m", "x", (ProfileRow(1, 40), ProfileRow(4, 100, w_batch_ms=300)))
    assert able(candidate(measured, slo(250))).policy.w_batch_s == pytest.approx(0.15)


def test_a_single_request_needs_no_row() -> None:
    """OpenNMT on c5.4xlarge: 800 ms twice do not fit into 1,400, but one request does."""
    found = able(candidate(profile((2, 800)), slo(1400)))
    assert found.policy.n_batch == 1
    assert found.capacity_rps == pytest.approx(1.25)
    assert found.ceiling_rps == pytest.approx(2.5)


def test_a_type_is_skipped_when_one_request_is_too_slow() -> None:
    assert isinstance(candidate(profile((1, 100)), slo(100)), Candidate)
    assert candidate(profile((1, 100)), slo(99)) == "one request takes 100.0 ms, RT_max is 99 ms"
    assert candidate(profile((1, 95), overhead_ms=6), slo(100)) == "one request takes 101.0 ms, RT_max is 100 ms"


def test_the_fixed_overhead_counts_against_batch_and_window() -> None:
    rows = ((1, 40.0), (4, 100.0))
    assert able(candidate(profile(*rows), slo(200))).policy.n_batch == 4
    assert able(candidate(profile(*rows, overhead_ms=1), slo(200))).policy.n_batch == 1
    window_s = able(candidate(profile(*rows, overhead_ms=350), slo(600), "paper")).policy.w_batch_s
    assert window_s == pytest.approx(0.06)
    assert able(candidate(profile((1, 200), (4, 100), overhead_ms=300), slo(600), "paper")).policy.w_batch_s == (
        pytest.approx(0.1)  # a request alone takes 200 ms
    )


def test_a_larger_batch_that_serves_fewer_is_not_taken() -> None:
    assert able(candidate(profile((1, 10), (2, 15), (4, 40)), slo(600))).policy.n_batch == 2
    # Throughputs are equal, so the larger batch wins, which also copes with bursts.
    assert able(candidate(profile((1, 10), (2, 20)), slo(600))).policy.n_batch == 2


def test_window_leaves_time_for_a_small_batch_that_was_measured_slower() -> None:
    """Otherwise a request alone in its batch could not be in time after the window, and all would be refused."""
    rows = ((1, 23.4), (8, 27.1), (32, 21.2))
    policy = able(candidate(profile(*rows), slo(100), "paper")).policy
    assert (policy.n_batch, policy.w_batch_s) == (32, pytest.approx(0.0729, abs=1e-6))
    measured = Profile("m", "x", (ProfileRow(1, 30.0), ProfileRow(4, 20.0, w_batch_ms=75.0)))
    assert able(candidate(measured, slo(100))).policy.w_batch_s == pytest.approx(0.07, abs=1e-6)


def test_window_leaves_time_for_the_tail_of_a_full_batch() -> None:
    """With the mean, half of all full batches would be late: 0.1 s x exp(2.054 x 0.1814 - 0.1814^2 / 2) at 98 %."""
    scattered = Profile("m", "x", (ProfileRow(1, 60.0, p99_ms=90.0), ProfileRow(4, 100.0, p99_ms=150.0)))
    certain = Profile("m", "x", (ProfileRow(1, 60.0), ProfileRow(4, 100.0)))
    assert able(candidate(certain, slo(220), "paper")).policy.w_batch_s == pytest.approx(0.12)
    assert able(candidate(scattered, slo(220), "paper")).policy.w_batch_s == pytest.approx(0.22 - 0.14277, abs=1e-5)


def test_workers_multiply_capacity_and_speed_divides_times() -> None:
    found = able(candidate(profile((1, 100), workers=3), slo(600), speed=0.5))
    assert found.service_s.tolist() == [0.0, 0.2]
    assert (found.capacity_rps, found.ceiling_rps) == (pytest.approx(15.0), pytest.approx(15.0))


def test_unbatched_serves_one_by_one_beyond_the_slo() -> None:
    found = unbatched(profile((1, 900), (8, 1200)), slo(600))
    assert (found.policy.n_batch, found.policy.w_batch_s) == (1, 0.0)
    assert found.capacity_rps == pytest.approx(1 / 0.9)


def test_wrong_arguments_are_bad_input() -> None:
    with pytest.raises(BadInput, match="batching"):
        candidate(profile((1, 1)), slo(600), "greedy")
    for speed in (0.0, -1.0, math.nan):
        with pytest.raises(BadInput, match="speed"):
            candidate(profile((1, 1)), slo(600), speed=speed)


@given(st.floats(0.1, 1e4), st.floats(1.0, 14.9))
def test_sigma_gives_back_mean_and_p99(mean_ms: float, ratio: float) -> None:
    sigma = sigma_of(ProfileRow(1, mean_ms, p99_ms=mean_ms * ratio))
    assert 0.0 <= sigma <= 2.33
    assert math.exp(2.3263478740408408 * sigma - sigma * sigma / 2.0) == pytest.approx(ratio, rel=1e-6)


def test_a_candidate_has_the_widest_sigma_in_use() -> None:
    rows = (ProfileRow(1, 10, p99_ms=12), ProfileRow(2, 12, p99_ms=24), ProfileRow(64, 900, p99_ms=9000))
    assert able(candidate(Profile("m", "x", rows), slo(600))).sigma == sigma_of(rows[1])
    assert able(candidate(profile((1, 10)), slo(600))).sigma == 0.0
    with pytest.raises(BadInput, match="p99"):
        sigma_of(ProfileRow(1, 10, p99_ms=150))


@st.composite
def profiles(draw: st.DrawFn) -> Profile:
    sizes = sorted(draw(st.sets(st.integers(1, 32), min_size=1, max_size=6)))
    overhead_ms = draw(st.floats(0.0, 50.0))
    workers = draw(st.integers(1, 4))
    latencies = draw(st.lists(st.floats(1.0, 800.0), min_size=len(sizes), max_size=len(sizes)))
    return profile(*zip(sizes, latencies, strict=True), workers=workers, overhead_ms=overhead_ms)


@given(profiles(), st.floats(50.0, 2000.0), st.sampled_from(["work-conserving", "paper"]))
def test_every_candidate_keeps_the_conditions_it_is_derived_from(
    found_profile: Profile, rt_max_ms: float, batching: str
) -> None:
    promise = slo(rt_max_ms)
    one_s, limit_s = found_profile.latency_s(1), promise.rt_max_s - found_profile.overhead_s
    found = candidate(found_profile, promise, batching)
    if isinstance(found, str):
        assert one_s > limit_s
        return
    n, w_s, n_s = found.policy.n_batch, found.policy.w_batch_s, float(found.service_s[found.policy.n_batch])
    assert one_s <= limit_s + 1e-9
    assert w_s >= 0.0
    assert n == 1 or n in {row.batch for row in found_profile.rows}
    if n == 1:
        assert w_s == 0.0
    else:
        assert n_s + max(w_s, n_s) <= limit_s + 2e-9
        assert w_s + n_s <= n * one_s * (1.0 + 1e-9) + 1e-9
        assert w_s == 0.0 or w_s + found.service_s.max() <= limit_s + 2e-9
    # Batching never costs throughput, and the bound's capacity is never below the planned one.
    assert found.capacity_rps >= found_profile.workers / one_s * (1.0 - 1e-9)
    assert found.ceiling_rps >= found.capacity_rps * (1.0 - 1e-9)
    assert found.service_s.shape == (n + 1,)
    assert np.all(found.service_s[1:] > 0.0)


def test_a_stated_tail_spares_rows_with_a_p99() -> None:
    stated = with_tail(Profile("m", "c5.large", (ProfileRow(1, 100.0), ProfileRow(2, 150.0, p99_ms=180.0))), 1.5)
    assert [(row.p99_ms, row.tail_derived) for row in stated.rows] == [(150.0, True), (180.0, False)]
    assert [row.latency_ms for row in stated.rows] == [100.0, 150.0]


def test_a_stated_tail_leaves_functions_as_they_are() -> None:
    function = Profile("m", "lambda:3008", (ProfileRow(1, 100.0),))
    assert with_tail(function, 1.5) is function


@pytest.mark.parametrize("ratio", [1.0 + 1e-9, 1.5, MOST_TAIL])
def test_every_allowed_tail_is_one_of_a_lognormal(ratio: float) -> None:
    found = able(candidate(with_tail(profile((1, 100.0)), ratio), slo(10_000.0)))
    assert math.exp(2.3263478740408408 * found.sigma - found.sigma**2 / 2.0) == pytest.approx(ratio)
