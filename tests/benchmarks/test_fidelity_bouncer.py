"""The parts of the fidelity benchmark that need no second process."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import pytest

from mark.domain.profile import Candidate, Profile, ProfileRow
from mark.domain.slo import Slo
from mark.profiling.policy import candidate, sigma_of

sys.path.insert(0, str(Path(__file__).parents[2] / "benchmarks" / "fidelity"))
import fidelity_bouncer as fidelity
import load


@pytest.fixture
def kind() -> Candidate:
    rows = tuple(ProfileRow(b, fidelity.nominal_ms(b), overhead_ms=0.5) for b in fidelity.SIZES)
    made = candidate(Profile("m", "x", rows), Slo(fidelity.RT_MAX_MS / 1e3, 0.98))
    assert isinstance(made, Candidate)
    return made


def test_each_stream_has_the_rate_and_burstiness_it_names() -> None:
    for stream, cv in (("poisson", 1.0), ("bursty", fidelity.CV)):
        times = fidelity.arrivals(stream, 500.0, 400.0, seed=1)
        gaps = np.diff(times)
        assert len(times) / 400.0 == pytest.approx(500.0, rel=0.05)
        assert gaps.std() / gaps.mean() == pytest.approx(cv, rel=0.05)
        assert (gaps >= 0.0).all()
        np.testing.assert_array_equal(times, fidelity.arrivals(stream, 500.0, 400.0, seed=1))


def test_lone_requests_take_their_service_and_the_overhead(kind: Candidate) -> None:
    seen = fidelity.simulated(kind, np.arange(100) * 0.05)
    assert seen == {**dict.fromkeys(fidelity.QUANTILES, pytest.approx(6.0)), "refused": 0.0, "late": 0.0}


def test_what_is_too_much_is_refused(kind: Candidate) -> None:
    """Twice the capacity: half of it, and admitted requests are in time."""
    seen = fidelity.simulated(kind, np.arange(20_000) / (2.0 * kind.capacity_rps))
    assert seen["refused"] == pytest.approx(0.5, abs=0.02)
    assert seen["p99"] <= fidelity.RT_MAX_MS


def answered(arrivals_s: load.FloatArray, full_s: float) -> load.Answers:
    """By one worker that takes 6 ms + 0.5 ms x b for a batch that is not full, and stalls for 50 ms in one of 200; the
    answers of a batch are 0.05 ms apart."""
    answers = np.zeros(len(arrivals_s), load.ANSWERS)
    answers["scheduled_s"] = answers["sent_s"] = arrivals_s
    answers["status"] = 200
    free_s, served, batches = 0.0, 0, 0
    while served < len(arrivals_s):
        start_s = max(free_s, arrivals_s[served])
        here = min(served + fidelity.LARGEST, int(np.searchsorted(arrivals_s, start_s, "right")))
        items = here - served
        batches += 1
        free_s = start_s + (full_s if items == fidelity.LARGEST else 6e-3 + 0.5e-3 * items)
        free_s += 0.05 * (batches % 200 == 0)
        answers["answered_s"][served:here] = free_s + 5e-5 * np.arange(items)
        served = here
    return answers


def test_batches_are_told_apart_by_their_answers() -> None:
    """Only those whose worker had no rest before, for others began later than the last one ended."""
    arrivals_s = np.array([0.0, 0.001, 0.002, 0.1, 0.101, 0.104, 0.2])
    items, taken_s = fidelity.batches(answered(arrivals_s, 0.01))
    assert items.tolist() == [2.0, 2.0]
    np.testing.assert_allclose(taken_s, [7e-3, 7e-3], atol=1e-9)


def test_partial_batches_are_profiled_with_their_workers_times() -> None:
    parts = [answered(load.poisson(rate_rps, 20.0, seed=1), 0.011) for rate_rps in (400.0, 700.0, 900.0)]
    for batch in fidelity.SIZES[:-1]:
        assert fidelity.part_ms(parts, batch) == pytest.approx(6.0 + 0.5 * batch, rel=0.01)


def test_the_calmest_rounds_count() -> None:
    rounds = [(row(10.0) | {"lag_p99": lag}, row(10.0)) for lag in (0.3, 9.0, 0.1, 0.2)]
    assert [seen["lag_p99"] for seen, _ in fidelity.calmest(rounds, 2)] == [0.1, 0.2]


def row(p50: float, refused: float = 0.0, late: float = 0.0) -> fidelity.Row:
    return {"p50": p50, "p95": 2.0 * p50, "p99": 3.0 * p50, "refused": refused, "late": late, "lag_p99": 0.1}


def test_a_table_shows_the_median_round_and_flags_deviations() -> None:
    rounds = [(row(10.0), row(10.0)), (row(50.0), row(10.0)), (row(21.0), row(20.0))]
    cell = fidelity.compared(rounds)
    assert (cell["measured_p50"], cell["simulated_p50"]) == (21.0, 20.0)
    assert cell["off_p99"] == pytest.approx(0.05)
    assert fidelity.agrees(cell)
    slow = fidelity.compared([(row(11.2), row(10.0))])
    refusing = fidelity.compared([(row(10.0, 0.05), row(10.0, 0.02))])
    assert not fidelity.agrees(slow)
    assert not fidelity.agrees(refusing)
    text = fidelity.markdown({("poisson", 0.3): cell, ("bursty", 1.2): refusing})
    assert "| poisson | 30% | 21.0 / 20.0 (+5.0%) |" in text
    assert "5.0% / 2.0%" in text
    assert text.count("apart") == 1


def test_with_a_tail_the_late_shares_are_compared() -> None:
    near = fidelity.compared([(row(20.0, late=0.054), row(10.0, late=0.05))])
    apart = fidelity.compared([(row(10.0, late=0.056), row(10.0, late=0.05))])
    assert fidelity.agrees(near, tail=3.0)
    assert not fidelity.agrees(apart, tail=3.0)
    assert "5.6% / 5.0%" in fidelity.markdown({("poisson", 0.9): apart}, tail=3.0)


def test_a_tail_is_of_the_models_part_of_a_batch() -> None:
    """Lognormals of 5.5 ms and of 0.5 ms more: the same standard deviation, and a lower p99 over mean."""
    sigmas = [sigma_of(ProfileRow(1, mean_ms, p99_ms=fidelity.p99_ms(1, mean_ms, 3.0))) for mean_ms in (5.5, 6.0)]
    spreads_ms = [mean_ms * np.sqrt(np.expm1(s**2)) for mean_ms, s in zip((5.5, 6.0), sigmas, strict=True)]
    assert fidelity.p99_ms(1, 5.5, 3.0) == pytest.approx(16.5)
    assert spreads_ms[0] == pytest.approx(spreads_ms[1])


def test_the_plot_is_a_page_of_its_own(tmp_path: Path) -> None:
    cell = fidelity.compared([(row(10.0), row(10.0))])
    fidelity.plot({("poisson", 0.3): cell, ("poisson", 0.6): cell}, tmp_path / "plot.html")
    assert "p99 simulated" in (tmp_path / "plot.html").read_text()
