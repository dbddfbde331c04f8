"""Generators: the meaning of their keys, and that a seed fixes them."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import pytest

from mark.domain.errors import BadInput
from mark.domain.time import DAY_S
from mark.traffic.traces import open_trace, trace_info
from mark.traffic.traces.synthetic import KEYS
from tests.traffic.traces.files import arrivals


def test_a_generator_runs_a_day_by_default() -> None:
    assert open_trace("synthetic:poisson?rate=3").duration_s == DAY_S
    assert open_trace("synthetic:poisson?rate=3", start_s=100.0, duration_s=57.0).duration_s == 157.0


@pytest.mark.parametrize("spec", ["diurnal?noise=0.3&spikes_per_day=20", "mmpp", "gamma?rate=3&cv=2", "poisson"])
def test_a_longer_run_begins_with_the_shorter_one(spec: str) -> None:
    short = open_trace(f"synthetic:{spec}", duration_s=4000.0, seed=3)
    long = open_trace(f"synthetic:{spec}", duration_s=9000.0, seed=3)
    np.testing.assert_allclose(long.load(0, 3960).mean_rps, short.load(0, 3960).mean_rps, rtol=1e-9)
    other = open_trace(f"synthetic:{spec}", duration_s=4000.0, seed=4)
    assert spec == "poisson" or not np.allclose(other.load(0, 3960).mean_rps, short.load(0, 3960).mean_rps)


def test_poisson_gaps_have_cv_one() -> None:
    trace = open_trace("synthetic:poisson?rate=20", duration_s=5000.0)
    gaps = np.diff(arrivals(trace, 0.0, 5000.0, seed=2))
    assert gaps.mean() == pytest.approx(1 / 20.0, rel=0.02)
    assert gaps.std() / gaps.mean() == pytest.approx(1.0, abs=0.02)


def test_gamma_has_its_rate_and_cv() -> None:
    info = trace_info(open_trace("synthetic:gamma?rate=50&cv=4", duration_s=20_000.0, seed=1))
    assert info["mean_rps"] == pytest.approx(50.0, rel=0.02)
    assert info["cv"] == pytest.approx(4.0, rel=0.03)
    # Over long bins the counts of a renewal process have IDC = CV^2.
    assert info["idc"] == pytest.approx(16.0, rel=0.25)


def test_gamma_moves_to_its_second_rate_and_cv() -> None:
    spec = "synthetic:gamma?rate=20&cv=0.2&rate2=80&cv2=2&transition_at_s=2000&transition_s=1000"
    times = arrivals(open_trace(spec, duration_s=8000.0), 0.0, 8000.0)
    for low, high, rate, cv in ((0, 2000, 20, 0.2), (3000, 8000, 80, 2.0)):
        gaps = np.diff(times[(times >= low) & (times < high)])
        assert 1.0 / gaps.mean() == pytest.approx(rate, rel=0.02)
        assert gaps.std() / gaps.mean() == pytest.approx(cv, rel=0.05)
    assert np.count_nonzero((times >= 2000) & (times < 3000)) == pytest.approx(50_000, rel=0.05)


def test_mmpp_stays_in_its_rates_for_its_dwell_time() -> None:
    trace = open_trace("synthetic:mmpp?rates=60,240&dwell_s=300", duration_s=40 * DAY_S, seed=1)
    rates = trace.series.counts
    pure = np.isclose(rates, 60.0) | np.isclose(rates, 240.0)
    jumps = np.count_nonzero(~pure)
    expected = 40 * DAY_S / 300.0
    assert abs(jumps - expected) < 5.0 * math.sqrt(expected) + 50
    assert np.all((rates > 60.0 - 1e-6) & (rates < 240.0 + 1e-6))
    assert rates.mean() == pytest.approx(150.0, rel=0.03)
    assert open_trace("synthetic:mmpp?rates=0,30,5").total_counts(0, DAY_S) > 0


def test_diurnal_has_its_mean_swing_and_week() -> None:
    spec = "synthetic:diurnal?rate=100&swing=5&peak_hour=13&weekend=0.5&noise=0&spikes_per_day=0"
    trace = open_trace(spec, duration_s=7 * DAY_S)
    hours = trace.load(0, 7 * DAY_S).mean_rps.reshape(7, 24, 60).mean(axis=2)
    assert hours[1].mean() == pytest.approx(100.0, rel=0.01)
    assert hours[1].max() / hours[1].min() == pytest.approx(5.0, rel=0.03)
    assert abs(int(hours[1].argmax()) - 12.5) <= 0.5
    assert hours[5, 13] / hours[4, 13] == pytest.approx(0.5)
    assert hours[6, 13] / hours[4, 13] == pytest.approx(0.5)


def test_flash_crowds_rise_in_a_minute_and_fade() -> None:
    quiet = open_trace("synthetic:diurnal?swing=1&weekend=1&noise=0&spikes_per_day=0").load(0, DAY_S)
    loud = open_trace("synthetic:diurnal?swing=1&weekend=1&noise=0&spikes_per_day=2&spike_height=5", seed=2).load(
        0, DAY_S
    )
    np.testing.assert_allclose(quiet.mean_rps, 100.0)
    top = int(loud.mean_rps.argmax())
    assert loud.mean_rps[top] > 150.0
    assert loud.mean_rps[top - 2] < loud.mean_rps[top] / 1.3
    assert 1.0 < (loud.mean_rps[top] - 100.0) / (loud.mean_rps[top + 10] - 100.0) < 8.0


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        ("synthetic:", "no such generator"),
        ("synthetic:weekly", "no such generator .*: weekly$"),
        ("synthetic:poisson?rte=3", "unknown key of poisson .*: rte$"),
        ("synthetic:poisson?rate=3&bin_s=5&rate=4", "a key stands twice: rate$"),
        ("synthetic:poisson?rate", "rate must be a number"),
        ("synthetic:poisson?rate=fast", "rate must be a number: fast$"),
        ("synthetic:poisson?rate=-3", "rate must lie between"),
        ("synthetic:poisson?rate=nan", "rate must lie between"),
        ("synthetic:gamma?cv=1e9", "cv must lie between"),
        ("synthetic:gamma?rate=1e9", "more than 1e11 requests"),
        ("synthetic:mmpp?rates=60,x", "rates must be a number: x$"),
        ("synthetic:mmpp?rates=", "rates must be a number"),
        ("synthetic:mmpp?rates=0,0", "without requests"),
        ("synthetic:poisson?bin_s=0.01&rate=1", None),
    ],
)
def test_unknown_names_keys_and_values_are_refused(spec: str, message: str | None) -> None:
    if message is None:
        with pytest.raises(BadInput, match="bins"):
            open_trace(spec, duration_s=30 * DAY_S)
    else:
        with pytest.raises(BadInput, match=message):
            open_trace(spec)


def test_every_generator_runs_on_its_defaults() -> None:
    for name in KEYS:
        trace = open_trace(f"synthetic:{name}", duration_s=600.0)
        assert trace.part().requests > 0.0


def test_the_page_on_traces_names_every_key_with_its_default() -> None:
    page = (Path(__file__).parents[3] / "docs" / "traces.md").read_text()
    for name, keys in KEYS.items():
        row = next(line for line in page.splitlines() if line.startswith(f"| `{name}`"))
        for key, known in keys.items():
            assert f"`{key}`" in row
            assert known.default is None or f"`{key}` ({known.default:g})" in row
