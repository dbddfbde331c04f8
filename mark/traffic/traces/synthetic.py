"""Generators, named like a file: `synthetic:NAME?key=value&key=value`.

Each is a function of (spec, seed), and a longer run begins with the shorter one. Rates in requests/s. Poisson, mmpp and
diurnal give expected counts per bin, from which arrivals are drawn; gamma gives the requests themselves.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np

from mark.domain.arrays import FloatArray
from mark.domain.errors import BadInput
from mark.domain.time import DAY_S
from mark.traffic.traces.arrivals import trace_of
from mark.traffic.traces.counts import PoissonBins
from mark.traffic.traces.series import Series
from mark.traffic.traces.trace import LONGEST_S, MOST_REQUESTS, Trace

PREFIX = "synthetic:"
_MOST_BINS = 20_000_000
_GAMMA_BLOCK = 1 << 18


@dataclass(frozen=True, slots=True)
class Key:
    """A key of a generator: its default and the range of its value; without a default it is missing unless given."""

    default: float | None
    low: float
    high: float


_RATE = Key(100.0, 1e-6, 1e9)  # mean rate, requests/s
_BIN = Key(5.0, 0.01, DAY_S)  # width of a bin, s

KEYS: dict[str, dict[str, Key]] = {
    "poisson": {"rate": _RATE, "bin_s": _BIN},
    "mmpp": {
        "dwell_s": Key(300.0, 1.0, 1e8),  # mean time in a state, exponential, s
        "bin_s": Key(1.0, 0.01, DAY_S),  # width of a bin, s
    },
    "gamma": {
        "rate": _RATE,
        "cv": Key(1.0, 0.0, 50.0),  # coefficient of variation of the gaps; 1 is Poisson
        "rate2": Key(None, 1e-6, 1e9),  # rate after the transition (default: as before)
        "cv2": Key(None, 0.0, 50.0),  # CV after the transition (default: as before)
        "transition_at_s": Key(0.0, 0.0, LONGEST_S),  # beginning of the transition, s
        "transition_s": Key(3600.0, 0.0, LONGEST_S),  # length of the transition, linear, s
    },
    "diurnal": {
        "rate": Key(100.0, 1e-6, 1e9),  # mean rate of a working day, requests/s
        "swing": Key(4.0, 1.0, 1e6),  # highest over lowest rate of a day
        "peak_hour": Key(15.0, 0.0, 24.0),  # hour of the highest rate; second 0 is Monday, midnight
        "weekend": Key(0.7, 0.0, 100.0),  # level of Saturday and Sunday against working days
        "noise": Key(0.05, 0.0, 2.0),  # slow wandering around the pattern, as a log standard deviation
        "spikes_per_day": Key(1.0, 0.0, 1000.0),  # flash crowds a day, at random
        "spike_height": Key(2.0, 1.0, 1000.0),  # mean rate at a flash crowd's top, in multiples of the level
        "spike_s": Key(600.0, 1.0, DAY_S),  # time constant of the fading of a flash crowd, s
        "bin_s": _BIN,
    },
}
_MMPP_RATES = (60.0, 240.0)
_DAY_LEVEL_S = np.array([2.0, 22.0]) * 3600.0
_SPIKE_RISE_S = 60.0
_NOISE_KNOT_S = 900.0


def read_synthetic(spec: str, length_s: float, seed: int) -> Trace:
    """Return the trace of a generator over `length_s` seconds. Raises BadInput for an unknown name, key or value."""
    name, _, query = spec.removeprefix(PREFIX).partition("?")
    if name not in KEYS:
        raise BadInput(f"no such generator (there are {', '.join(sorted(KEYS))})", spec, name, known=KEYS)
    if length_s > LONGEST_S:
        raise BadInput("longer than ten years", "duration_s", f"{length_s:g} s")
    values, rates = _parse(spec, name, query)
    if name == "gamma":
        return _gamma(spec, values, length_s, seed)
    width_s = values["bin_s"]
    bins = math.ceil(length_s / width_s - 1e-9)
    if bins > _MOST_BINS:
        raise BadInput(f"more than {_MOST_BINS:,} bins; raise bin_s or lower `duration_s`", spec, bins)
    starts = np.arange(bins, dtype=np.float64) * width_s
    counts = _RATES[name](starts, values, rates, np.random.default_rng([seed & 0xFFFFFFFFFFFFFFFF, 1])) * width_s
    # The last bin may reach beyond the run; it keeps its rate, the part cuts it.
    if not counts.any():
        raise BadInput("a trace without requests", spec)
    series = Series.of(starts, counts, width_s, silent=True)
    return Trace(spec, "counts", width_s, min(length_s, bins * width_s), bins, series, PoissonBins(series))


def _parse(spec: str, name: str, query: str) -> tuple[dict[str, float], tuple[float, ...]]:
    """Return values by key, with defaults (a key without one is missing), and mmpp's rates."""
    keys = KEYS[name]
    values = {key: known.default for key, known in keys.items() if known.default is not None}
    rates: tuple[float, ...] = _MMPP_RATES
    given = [item.partition("=") for item in query.split("&")] if query else []
    names = [key for key, _, _ in given]
    for key, _, text in given:
        if names.count(key) > 1:
            raise BadInput("a key stands twice", spec, key)
        if name == "mmpp" and key == "rates":
            # A state may be silent, but not all of them.
            rates = tuple(_number(spec, key, rate, 0.0, 1e9) for rate in text.split(","))
        elif key in keys:
            values[key] = _number(spec, key, text, keys[key].low, keys[key].high)
        else:
            known = sorted(keys) + ["rates"] * (name == "mmpp")
            raise BadInput(f"unknown key of {name} (there are {', '.join(known)})", spec, key, known=known)
    return values, rates


def _number(spec: str, key: str, text: str, low: float, high: float) -> float:
    try:
        value = float(text)
    except ValueError:
        raise BadInput(f"{key} must be a number", spec, text) from None
    if not low <= value <= high:
        raise BadInput(f"{key} must lie between {low:g} and {high:g}", spec, text)
    return value


Values = dict[str, float]
Rates = tuple[float, ...]


def _poisson(starts: FloatArray, values: Values, rates: Rates, rng: np.random.Generator) -> FloatArray:
    return np.full(len(starts), values["rate"])


def _mmpp(starts: FloatArray, values: Values, rates: Rates, rng: np.random.Generator) -> FloatArray:
    """Return the mean rate per bin of a Markov-modulated Poisson process.

    The state stays for an exponential time of mean dwell_s, then moves to one of the others, each with the same
    probability; the first rate is the first state.
    """
    end_s = starts[-1] + values["bin_s"]
    begins, levels = [0.0], [rates[0]]
    state = 0
    while begins[-1] < end_s:
        begins.append(begins[-1] + rng.exponential(values["dwell_s"]))
        if len(rates) > 1:
            state = (state + 1 + int(rng.integers(len(rates) - 1))) % len(rates)
        levels.append(rates[state])
    # The integral of the rate is linear between the jumps, so a bin that holds a jump gets its exact mean.
    edges = np.array(begins)
    requests = np.concatenate(([0.0], np.cumsum(np.diff(edges) * np.array(levels[:-1]))))
    until = np.interp(np.append(starts, end_s), edges, requests)
    return np.asarray(np.diff(until) / values["bin_s"], dtype=np.float64)


def _diurnal(starts: FloatArray, values: Values, rates: Rates, rng: np.random.Generator) -> FloatArray:
    """Return a daily cosine, with a lower level at weekends, slow noise and flash crowds.

    Without flash crowds the mean over a working day is `rate`. Noise and crowds draw from their own generators, so that
    changing one does not affect the other.
    """
    noise_rng, spike_rng = rng.spawn(2)
    middle = starts + values["bin_s"] / 2.0
    depth = (values["swing"] - 1.0) / (values["swing"] + 1.0)
    level = values["rate"] * (1.0 + depth * np.cos((middle / DAY_S - values["peak_hour"] / 24.0) * 2.0 * np.pi))
    week = np.array([1.0] * 5 + [values["weekend"]] * 2)
    days = np.arange(-1, int(middle[-1] / DAY_S) + 3)
    # Each day's level holds from 02:00 to 22:00; it changes during the night.
    knots_s = (days[:, None] * DAY_S + _DAY_LEVEL_S).ravel()
    level *= np.interp(middle, knots_s, np.repeat(week[days % 7], 2))
    if values["noise"]:
        knots = np.arange(int(middle[-1] / _NOISE_KNOT_S) + 2)
        wander = values["noise"] * noise_rng.standard_normal(len(knots))
        level *= np.exp(np.interp(middle, knots * _NOISE_KNOT_S, wander) - values["noise"] ** 2 / 3.0)
    crowd = np.ones(len(starts))
    at = spike_rng.exponential(DAY_S / values["spikes_per_day"]) if values["spikes_per_day"] else math.inf
    while at < middle[-1]:
        height = (values["spike_height"] - 1.0) * spike_rng.exponential()
        first = int(np.searchsorted(middle, at))
        last = int(np.searchsorted(middle, at + _SPIKE_RISE_S + 12.0 * values["spike_s"]))
        since = middle[first:last] - at
        fade = np.exp(-np.maximum(since - _SPIKE_RISE_S, 0.0) / values["spike_s"])
        crowd[first:last] += height * np.minimum(since / _SPIKE_RISE_S, 1.0) * fade
        at += spike_rng.exponential(DAY_S / values["spikes_per_day"])
    return np.asarray(level * crowd, dtype=np.float64)


_RATES: dict[str, Callable[[FloatArray, Values, Rates, np.random.Generator], FloatArray]] = {
    "poisson": _poisson,
    "mmpp": _mmpp,
    "diurnal": _diurnal,
}


def _gamma(spec: str, values: Values, length_s: float, seed: int) -> Trace:
    """Return a renewal process with gamma gaps; rate and CV may move to a second pair."""
    rate, cv = values["rate"], values["cv"]
    rate_2, cv_2 = values.get("rate2", rate), values.get("cv2", cv)
    if max(rate, rate_2) * length_s > MOST_REQUESTS:
        raise BadInput("more than 1e11 requests", spec, f"{max(rate, rate_2) * length_s:.4g}")

    def stream() -> Iterator[FloatArray]:
        from mark.traffic.traces import draw  # here: numba, 0.8 s, only for drawing

        state = draw.stream(np.uint64(seed & 0xFFFFFFFFFFFFFFFF), 0, 1)
        now = 0.0
        while now < length_s:
            out = np.empty(_GAMMA_BLOCK)
            n, state, now = draw.gamma_arrivals(
                np.uint64(state),
                now,
                length_s,
                rate,
                cv,
                rate_2,
                cv_2,
                values["transition_at_s"],
                values["transition_s"],
                out,
            )
            yield out[:n].copy() if n < _GAMMA_BLOCK else out

    return trace_of(spec, stream, notes=lambda: (), duration_s=length_s)
