"""Compiled drawing of arrivals, every draw a function of (seed, bin index) alone.

No compiled function here calls one of another file: numba's on-disk cache watches this one file. Importing it imports
numba, so callers import it where they draw.

A bin of expected count L is cut into m = ceil(L / 2048) equal slices and slice j draws Poisson(L / m) arrivals,
uniform within the slice. The superposition over the slices is exactly a Poisson(L) number of arrivals uniform within
the bin, and slices keep the work inside the first-level cache and let a cut begin in the middle of a huge bin.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, NamedTuple, TypeVar, cast

import numpy as np
from numba import njit

from mark.domain.arrays import FloatArray
from mark.domain.cached_code import load_alone

_GAMMA = np.uint64(0x9E3779B97F4A7C15)
_MIX_1 = np.uint64(0xBF58476D1CE4E5B9)
_MIX_2 = np.uint64(0x94D049BB133111EB)
_S30, _S27, _S31, _S11 = np.uint64(30), np.uint64(27), np.uint64(31), np.uint64(11)
_UNIT = 2.0**-53

SLICE = 2048.0  # expected arrivals of a slice, at most
ROOM = 8192  # a Poisson(2048) draw above this does not happen (135 standard deviations)

_F = TypeVar("_F", bound=Callable[..., Any])


def _compiled(function: _F) -> _F:
    made = njit(cache=True, error_model="numpy")(function)
    load_alone(made)
    return cast(_F, made)


@_compiled
def _mix(z: Any) -> Any:
    """Apply the finaliser of splitmix64 (Steele, Lea and Flood, 2014), a bijection of 64-bit words."""
    z = (z ^ (z >> _S30)) * _MIX_1
    z = (z ^ (z >> _S27)) * _MIX_2
    return z ^ (z >> _S31)


@_compiled
def stream(seed: Any, index: Any, part: Any) -> Any:
    """Return the state of a splitmix64 generator that belongs to (seed, index, part); uint64."""
    state = _mix(np.uint64(seed) + _GAMMA)
    state = _mix(state ^ (np.uint64(index) + _GAMMA))
    return _mix(state + _GAMMA * (np.uint64(part) + np.uint64(1)))


@_compiled
def poisson(state: Any, mean: float) -> Any:
    """Draw one Poisson number: (count, next state).

    Sequential inversion below 10; above, the transformed rejection PTRS of W. Hoermann, "The transformed rejection
    method for generating Poisson random variables", Insurance: Mathematics and Economics 12 (1993).
    """
    if mean <= 0.0:
        return 0, state
    if mean < 10.0:
        state += _GAMMA
        u = np.float64(_mix(state) >> _S11) * _UNIT
        term = math.exp(-mean)
        total = term
        k = 0
        # 200 is out of reach below mean 10; it stops the search if rounding keeps the sum just under u.
        while u >= total and k < 200:
            k += 1
            term *= mean / k
            total += term
        return k, state
    log_mean = math.log(mean)
    b = 0.931 + 2.53 * math.sqrt(mean)
    a = -0.059 + 0.02483 * b
    inverse_alpha = 1.1239 + 1.1328 / (b - 3.4)
    v_r = 0.9277 - 3.6224 / (b - 2.0)
    while True:
        state += _GAMMA
        u = np.float64(_mix(state) >> _S11) * _UNIT - 0.5
        state += _GAMMA
        v = np.float64(_mix(state) >> _S11) * _UNIT
        us = 0.5 - abs(u)
        if us <= 0.0 or v <= 0.0:
            continue
        x = math.floor((2.0 * a / us + b) * u + mean + 0.43)
        if us >= 0.07 and v <= v_r:
            return int(x), state
        if x < 0.0 or (us < 0.013 and v > us):
            continue
        if math.log(v * inverse_alpha / (a / (us * us) + b)) <= x * log_mean - mean - math.lgamma(x + 1.0):
            return int(x), state


@_compiled
def _sorted_uniforms(state: Any, k: int, raw: FloatArray, heads: Any, out: FloatArray, at: int) -> Any:
    """Write k ascending uniforms of [0, 1) to out[at:at+k]: one bucket per draw on average, then insertion."""
    if k > 12:
        for j in range(k + 1):
            heads[j] = 0
        for j in range(k):
            state += _GAMMA
            u = np.float64(_mix(state) >> _S11) * _UNIT
            raw[j] = u
            heads[int(u * k)] += 1
        place = at
        for j in range(k):
            size = heads[j]
            heads[j] = place
            place += size
        for j in range(k):
            u = raw[j]
            bucket = int(u * k)
            out[heads[bucket]] = u
            heads[bucket] += 1
    else:
        for j in range(k):
            state += _GAMMA
            out[at + j] = np.float64(_mix(state) >> _S11) * _UNIT
    for j in range(at + 1, at + k):
        u = out[j]
        i = j - 1
        while i >= at and out[i] > u:
            out[i + 1] = out[i]
            i -= 1
        out[i + 1] = u
    return state


class Bins(NamedTuple):
    """Row i is the bin [starts[i], ends[i]); bins ascend and do not overlap.

    The bin index of a row is its start over `width`, the least distance of two starts, rounded down.
    """

    starts: FloatArray
    ends: FloatArray
    counts: FloatArray
    width: float


@_compiled
def draw_bins(
    bins: Bins,
    scale: float,
    seed: Any,
    row: int,
    part: int,
    low: float,
    high: float,
    out: FloatArray,
) -> Any:
    """Draw the arrivals of [low, high) into `out`; all times are seconds from the trace's first row.

    Begins at slice `part` of row `row`. Returns (number written, row, slice, covered until): it ends at `high`, or
    earlier if `out` is too full for the next slice, and then continues at that row and slice. `out` holds at least
    ROOM.
    """
    starts, ends, counts, width = bins
    raw = np.empty(ROOM, dtype=np.float64)
    heads = np.empty(ROOM + 1, dtype=np.int64)
    rows = len(starts)
    n = 0
    while row < rows:
        begin = starts[row]
        if begin >= high:
            break
        mean = counts[row] * scale
        slices = max(1, math.ceil(mean / SLICE))
        # Rounding must not move an arrival past the end, or the result would not be sorted.
        ceiling = ends[row]
        step = (ceiling - begin) / slices
        index = np.int64(math.floor(begin / width + 1e-6))
        if part == 0 and begin < low and slices > 1:
            part = max(0, min(slices - 1, int((low - begin) / step) - 1))
        while part < slices:
            left = begin + part * step
            if left >= high:
                return n, row, part, high
            right = begin + (part + 1) * step
            if right > low and mean > 0.0:
                k, state = poisson(stream(seed, index, part), mean / slices)
                if n + k > len(out):
                    return n, row, part, left
                _sorted_uniforms(state, k, raw, heads, out, n)
                for j in range(n, n + k):
                    out[j] = min(left + out[j] * step, ceiling)
                if left < low or right > high:
                    kept = n
                    for j in range(n, n + k):
                        if low <= out[j] < high:
                            out[kept] = out[j]
                            kept += 1
                    n = kept
                else:
                    n += k
            if right > high:
                return n, row, part, high
            part += 1
        part = 0
        row += 1
    return n, row, part, high


@_compiled
def add_windows(times: FloatArray, offset: float, width: float, counts: Any) -> None:
    """Add to counts[w] the number of times with floor((t + offset) / width) = w; the last window takes later ones."""
    last = len(counts) - 1
    inverse = 1.0 / width
    for t in times:
        counts[min(last, int((t + offset) * inverse))] += 1


@_compiled
def copy_scaled(
    times: FloatArray, first: int, scale: float, jitter: float, end: float, seed: Any, out: FloatArray
) -> int:
    """Repeat request i of `times` floor(scale) times and once more with the remaining probability; return the number.

    Each copy is moved by a uniform draw of [-jitter, jitter], reflected at 0 and `end` so that no copy is lost. The
    draws of a request depend on (seed, first + i) only. The copies are not sorted.
    """
    whole = math.floor(scale)
    rest = scale - whole
    n = 0
    for i in range(len(times)):
        state = stream(seed, first + i, 0) + _GAMMA
        copies = whole
        if np.float64(_mix(state) >> _S11) * _UNIT < rest:
            copies += 1
        for _ in range(copies):
            state += _GAMMA
            t = abs(times[i] + (2.0 * np.float64(_mix(state) >> _S11) * _UNIT - 1.0) * jitter)
            out[n] = 2.0 * end - t if t > end else t
            n += 1
    return n


@_compiled
def _normal(state: Any) -> Any:
    """Draw a standard normal by Marsaglia's polar method: (draw, next state)."""
    while True:
        state += _GAMMA
        x = 2.0 * np.float64(_mix(state) >> _S11) * _UNIT - 1.0
        state += _GAMMA
        y = 2.0 * np.float64(_mix(state) >> _S11) * _UNIT - 1.0
        square = x * x + y * y
        if 0.0 < square < 1.0:
            return x * math.sqrt(-2.0 * math.log(square) / square), state


@_compiled
def _gamma(state: Any, shape: float) -> Any:
    """Draw a gamma of mean `shape` and scale 1: (draw, next state).

    G. Marsaglia and W. W. Tsang, "A simple method for generating gamma variables", ACM TOMS 26 (2000); a shape below 1
    is drawn at shape + 1 and multiplied by U^(1/shape), as they propose.
    """
    boost = 1.0
    if shape < 1.0:
        state += _GAMMA
        u = (np.float64(_mix(state) >> _S11) + 0.5) * _UNIT
        boost = u ** (1.0 / shape)
        shape += 1.0
    d = shape - 1.0 / 3.0
    c = 1.0 / math.sqrt(9.0 * d)
    while True:
        x, state = _normal(state)
        v = 1.0 + c * x
        if v <= 0.0:
            continue
        v = v * v * v
        state += _GAMMA
        u = (np.float64(_mix(state) >> _S11) + 0.5) * _UNIT
        if math.log(u) < 0.5 * x * x + d - d * v + d * math.log(v):
            return d * v * boost, state


@_compiled
def gamma_arrivals(
    state: Any,
    now: float,
    end: float,
    rate: float,
    cv: float,
    rate_2: float,
    cv_2: float,
    change_at: float,
    change_s: float,
    out: FloatArray,
) -> Any:
    """Draw arrivals whose gaps are gamma with mean 1 / rate and the given CV: (number, state, now) after filling `out`.

    Rate and CV move linearly from the first pair to the second within [change_at, change_at + change_s]; each gap takes
    the values at its beginning. Stops at `end` (now >= end) or when `out` is full. CV 0 is a constant gap.
    """
    n = 0
    while n < len(out):
        if now < change_at:
            share = 0.0
        elif now >= change_at + change_s:
            share = 1.0
        else:
            share = (now - change_at) / change_s
        here = rate + (rate_2 - rate) * share
        spread = cv + (cv_2 - cv) * share
        if spread < 1e-3:
            now += 1.0 / here
        else:
            shape = 1.0 / (spread * spread)
            draw, state = _gamma(state, shape)
            now += draw / (shape * here)
        if now >= end:
            break
        out[n] = now
        n += 1
    return n, state, now
