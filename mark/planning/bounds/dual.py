"""The dual of the bound's linear program: a certificate that proves a bound, and an interior-point method to find one.

Compiled by numba; it calls no compiled function of another file, so that numba's own cache notices every change.

docs/bound.md has the derivation. T bins; the first T - 1 have counted demand a_j, in requests; I types of instances.

    c_ji   price of one request's worth of running capacity of type i in bin j
    o_i    price of starting capacity for one request per bin
    k_i    price of the CPU credits that one request takes (0: a type without credits)
    p      the most a request can be worth: the price of leaving it to a function, or of letting it be late
    r_ji   in [0, o_i], the most of a start's price that can have been earned back by then; r_-1,i = r0_i is given
    m_j    worth of a request of bin j = min(p, cap_j, cap_j+1), cap_j = min over i of k_i + c_ji + r_ji - r_j-1,i

Every r with r_ji >= r_j-1,i - c_ji proves the lower bound sum a_j m_j. The best r proves the value of the program.
"""

from __future__ import annotations

import numpy as np

from mark.domain.arrays import BoolArray, FloatArray
from mark.kernel.compiled import allocating


@allocating
def certify(
    a: FloatArray,
    c: FloatArray,
    available: BoolArray,
    o: FloatArray,
    r0: FloatArray,
    k: FloatArray,
    p: float,
    r: FloatArray,
) -> float:
    """Move `r` (T, I) into the feasible set, in place, and return the lower bound that it proves, for any initial r.

    Shapes: a (T - 1,); c and available (T, I); o, r0 and k (I,). A type that is not available may restart its r
    anywhere in [0, o].
    """
    bins, types = c.shape
    value = 0.0
    before = np.inf
    for j in range(bins):
        cap = np.inf
        for i in range(types):
            last = r[j - 1, i] if j > 0 else r0[i]
            low = max(0.0, last - c[j, i]) if available[j, i] else 0.0
            # The comparison turns a NaN into `low`.
            wanted = r[j, i] if r[j, i] > low else low
            r[j, i] = min(wanted, o[i])
            if available[j, i]:
                cap = min(cap, k[i] + c[j, i] + r[j, i] - last)
        if j > 0:
            value += a[j - 1] * min(p, before, cap)
        before = cap
    return value


@allocating
def solve(
    a: FloatArray,
    c: FloatArray,
    available: BoolArray,
    o: FloatArray,
    r0: FloatArray,
    k: FloatArray,
    p: float,
    tolerance: float,
    most_steps: int,
) -> tuple[FloatArray, FloatArray, int, float]:
    """Maximise sum a_j m_j by Mehrotra's predictor-corrector method (SIAM J. Optimization 2, 1992).

    Shapes as in `certify`; c, o and p above zero and finite, in units that make prices and demand about 1. All iterates
    are strictly feasible. Stops when complementarity is at most `tolerance` x value, or after `most_steps`.
    Returns r (T, I), the primal's requests left out by bin (T - 1,), the steps taken, complementarity.
    """
    bins, types = c.shape
    demands = bins - 1
    r = np.empty((bins, types))
    m = np.empty(demands)
    # Constant part of each cap: the cap without its terms in r and m
    base = np.empty((bins, types))
    lowest = np.empty(bins)
    for j in range(bins):
        lowest[j] = np.inf
    for i in range(types):
        for j in range(bins):
            base[j, i] = c[j, i] - r0[i] if j == 0 else c[j, i]
            last = r[j - 1, i] if j > 0 else r0[i]
            r[j, i] = 0.5 * o[i]
            if available[j, i]:
                r[j, i] = max(r[j, i], last - 0.5 * c[j, i])
                lowest[j] = min(lowest[j], k[i] + c[j, i] + r[j, i] - last)
    for j in range(demands):
        m[j] = 0.5 * min(p, lowest[j], lowest[j + 1])
    # All rows "slack >= 0" lie in one flat array, in seven blocks, see _slacks. Rows that do not exist keep slack 1
    # and multiplier 0.
    n = bins * types
    nm = demands * types
    tail = 2 * n + 2 * nm
    last_block = tail + 2 * demands
    with_credits = False
    for i in range(types):
        with_credits = with_credits or k[i] > 0.0
    rows = last_block + (n if with_credits else 0)
    fixed, exists = np.empty(rows), np.empty(rows)
    for x in range(rows):
        exists[x] = 1.0
    for j in range(bins):
        for i in range(types):
            at = j * types + i
            fixed[at], fixed[n + at] = 0.0, o[i]
            if with_credits:
                live = available[j, i] and k[i] > 0.0
                fixed[last_block + at] = base[j, i] if live else 1.0
                exists[last_block + at] = 1.0 if live else 0.0
            if j < demands:
                fixed[2 * n + at] = k[i] + base[j, i] if available[j, i] else 1.0
                exists[2 * n + at] = 1.0 if available[j, i] else 0.0
                live = available[j + 1, i]
                fixed[2 * n + nm + at] = k[i] + base[j + 1, i] if live else 1.0
                exists[2 * n + nm + at] = 1.0 if live else 0.0
    for j in range(demands):
        fixed[tail + j], fixed[tail + demands + j] = 0.0, p

    s, ds, w, pull, target = np.empty(rows), np.empty(rows), np.empty(rows), np.empty(rows), np.empty(rows)
    dr, dm, br, bm = np.empty((bins, types)), np.empty(demands), np.empty((bins, types)), np.empty(demands)
    h, hub = np.empty((n, 3 * types)), np.empty(demands)
    live_rows = total = 0.0
    for j in range(demands):
        total += a[j]
    begin = 0.1 * max(total / demands, 1e-12)
    _slacks(r, m, exists, s)
    for x in range(rows):
        live_rows += exists[x]
        s[x] += fixed[x]
        w[x] = begin * exists[x] / s[x]
    steps = 0
    while True:
        complementarity = 0.0
        for x in range(rows):
            complementarity += w[x] * s[x]
        value = 0.0
        for j in range(demands):
            value += a[j] * m[j]
        if not complementarity > tolerance * value or steps >= most_steps:
            left_out = np.empty(demands)
            for j in range(demands):
                left_out[j] = w[tail + demands + j]
            return r, left_out, steps, complementarity
        steps += 1
        for x in range(rows):
            pull[x] = w[x] / s[x]
        _assemble(pull, bins, types, h, hub)
        _factor(h)
        # Predictor: the step straight to complementarity zero
        for j in range(bins):
            for i in range(types):
                br[j, i] = 0.0
            if j < demands:
                bm[j] = a[j]
        _direction(pull, h, hub, br, bm, dr, dm)
        _slacks(dr, dm, exists, ds)
        ahead_s = ahead_w = 1.0
        for x in range(rows):
            dw = -w[x] - pull[x] * ds[x]
            ahead_s = _room(s[x], ds[x], ahead_s)
            ahead_w = _room(w[x], dw, ahead_w)
        after = 0.0
        for x in range(rows):
            dw = -w[x] - pull[x] * ds[x]
            after += (s[x] + ahead_s * ds[x]) * (w[x] + ahead_w * dw)
            target[x] = -ds[x] * dw
        centre = (after / complementarity) ** 3 * complementarity / live_rows
        # Corrector: towards the centre, less the second-order terms that the predictor left out
        for x in range(rows):
            target[x] = (target[x] + centre * exists[x]) / s[x]
        _gather(target, br, bm)
        for j in range(demands):
            bm[j] += a[j]
        _direction(pull, h, hub, br, bm, dr, dm)
        _slacks(dr, dm, exists, ds)
        ahead_s = ahead_w = 1.0 / _SHORT_OF
        for x in range(rows):
            dw = target[x] - w[x] - pull[x] * ds[x]
            ahead_s = _room(s[x], ds[x], ahead_s)
            ahead_w = _room(w[x], dw, ahead_w)
        ahead_s *= _SHORT_OF
        ahead_w *= _SHORT_OF
        for x in range(rows):
            w[x] += ahead_w * (target[x] - w[x] - pull[x] * ds[x])
        for j in range(bins):
            for i in range(types):
                r[j, i] += ahead_s * dr[j, i]
            if j < demands:
                m[j] += ahead_s * dm[j]
        # Recomputed and not updated, so that the slacks stay true to r and m
        _slacks(r, m, exists, s)
        for x in range(rows):
            s[x] += fixed[x]


# Share of the way to the boundary that one step may go; usual for such methods
_SHORT_OF = 0.995


@allocating
def _room(x: float, dx: float, longest: float) -> float:
    """Return the longest step, up to `longest`, that keeps x + step dx >= 0."""
    return -x / dx if x + longest * dx < 0.0 else longest


@allocating
def _slacks(r: FloatArray, m: FloatArray, exists: FloatArray, out: FloatArray) -> None:
    """Fill `out` with the linear part of all slacks, by blocks (the caller adds the constants).

    The blocks are r | -r | rise - m_j | next rise - m_j | m | -m | rise, where rise = r_ji - r_j-1,i. The last block
    says that capacity has no negative worth; without credits it follows from the others and is left out. Rows that do
    not exist stay zero.
    """
    bins, types = r.shape
    demands = bins - 1
    n, nm = bins * types, demands * types
    tail = 2 * n + 2 * nm
    with_credits = out.size > tail + 2 * demands
    for j in range(bins):
        for i in range(types):
            at = j * types + i
            rise = r[j, i] - (r[j - 1, i] if j > 0 else 0.0)
            out[at] = r[j, i]
            out[n + at] = -r[j, i]
            if j < demands:
                out[2 * n + at] = (rise - m[j]) * exists[2 * n + at]
            if j > 0:
                before = 2 * n + nm + at - types
                out[before] = (rise - m[j - 1]) * exists[before]
            if with_credits:
                out[tail + 2 * demands + at] = rise * exists[tail + 2 * demands + at]
    for j in range(demands):
        out[tail + j] = m[j]
        out[tail + demands + j] = -m[j]


@allocating
def _gather(rows: FloatArray, br: FloatArray, bm: FloatArray) -> None:
    """Apply the transpose of `_slacks`: rows back onto r and m. Rows that do not exist must hold zero."""
    bins, types = br.shape
    demands = bins - 1
    n, nm = bins * types, demands * types
    tail = 2 * n + 2 * nm
    with_credits = rows.size > tail + 2 * demands
    for j in range(demands):
        bm[j] = rows[tail + j] - rows[tail + demands + j]
    for j in range(bins):
        for i in range(types):
            at = j * types + i
            rise = rows[tail + 2 * demands + at] if with_credits else 0.0
            if j < demands:
                rise += rows[2 * n + at]
                bm[j] -= rows[2 * n + at]
            if j > 0:
                before = 2 * n + nm + at - types
                rise += rows[before]
                bm[j - 1] -= rows[before]
                br[j - 1, i] -= rise
            br[j, i] = rows[at] - rows[n + at] + rise


@allocating
def _assemble(pull: FloatArray, bins: int, types: int, h: FloatArray, hub: FloatArray) -> None:
    """Fill the normal matrix of a Newton step in r alone, h[x, d] = entry (x, x - d), with rows' pulls w / s.

    The rows of bin j are springs between m_j and the rises of r (and the ground). Taking m_j out leaves a spring of
    strength g g' / sum g between every two of them. All are sums of squares: nothing cancels, however stiff some get.
    `hub` keeps sum g.
    """
    demands = bins - 1
    n, nm = bins * types, demands * types
    tail = 2 * n + 2 * nm
    with_credits = pull.size > tail + 2 * demands
    # Ends of springs at one bin, each the difference of two unknowns of r; the second is -1 if it is a constant.
    above, below = np.empty(2 * types, dtype=np.int64), np.empty(2 * types, dtype=np.int64)
    strength = np.empty(2 * types)
    place, sign = np.empty(4, dtype=np.int64), np.empty(4)
    for at in range(n):
        for d in range(3 * types):
            h[at, d] = 0.0
    for at in range(n):
        g = pull[tail + 2 * demands + at] if with_credits else 0.0
        h[at, 0] += pull[at] + pull[n + at] + g
        if at >= types:
            h[at, types] -= g
            h[at - types, 0] += g
    for j in range(demands):
        ground = pull[tail + j] + pull[tail + demands + j]
        total = ground
        for i in range(types):
            at = j * types + i
            above[2 * i], below[2 * i], strength[2 * i] = at, at - types if j > 0 else -1, pull[2 * n + at]
            above[2 * i + 1], below[2 * i + 1] = at + types, at
            strength[2 * i + 1] = pull[2 * n + nm + at]
            total += strength[2 * i] + strength[2 * i + 1]
        hub[j] = total
        for x in range(2 * types):
            for y in range(-1, x):
                g = strength[x] * (ground if y < 0 else strength[y]) / total
                if g == 0.0:
                    continue
                place[0], sign[0], place[1], sign[1] = above[x], 1.0, below[x], -1.0
                ends = 2
                if y >= 0:
                    place[2], sign[2], place[3], sign[3] = above[y], -1.0, below[y], 1.0
                    ends = 4
                for u in range(ends):
                    for v in range(ends):
                        if place[u] >= place[v] >= 0:
                            h[place[u], place[u] - place[v]] += g * sign[u] * sign[v]


@allocating
def _direction(
    pull: FloatArray, h: FloatArray, hub: FloatArray, br: FloatArray, bm: FloatArray, dr: FloatArray, dm: FloatArray
) -> None:
    """Fill the Newton direction (dr, dm) for the right-hand sides br and bm; `h` is factored."""
    bins, types = dr.shape
    demands = bins - 1
    first, second = 2 * bins * types, 2 * bins * types + demands * types
    for j in range(bins):
        for i in range(types):
            dr[j, i] = br[j, i]
    for j in range(demands):
        share = bm[j] / hub[j]
        for i in range(types):
            now, then = pull[first + j * types + i] * share, pull[second + j * types + i] * share
            if j > 0:
                dr[j - 1, i] -= now
            dr[j, i] += now - then
            dr[j + 1, i] += then
    _substitute(h, dr.reshape(bins * types))
    for j in range(demands):
        total = bm[j]
        for i in range(types):
            total += pull[first + j * types + i] * (dr[j, i] - (dr[j - 1, i] if j > 0 else 0.0))
            total += pull[second + j * types + i] * (dr[j + 1, i] - dr[j, i])
        dm[j] = total / hub[j]


@allocating
def _factor(h: FloatArray) -> None:
    """Factor L D L^T of a symmetric positive band matrix, in place: L below, 1 / D on the diagonal."""
    n, width = h.shape
    for x in range(n):
        reach = min(width - 1, x)
        for d in range(reach - 1, 0, -1):
            total = h[x, d]
            for e in range(d + 1, reach + 1):
                total -= h[x, e] * h[x - d, e - d]
            h[x, d] = total
        pivot = h[x, 0]
        for d in range(1, reach + 1):
            scaled = h[x, d] * h[x - d, 0]
            pivot -= h[x, d] * scaled
            h[x, d] = scaled
        # Rounding may reduce a tiny pivot to zero or less: then that unknown rests for this step.
        h[x, 0] = 1.0 / pivot if pivot > 1e-200 else 0.0


@allocating
def _substitute(h: FloatArray, b: FloatArray) -> None:
    """Solve in place with the factor from `_factor`."""
    n, width = h.shape
    for x in range(n):
        total = b[x]
        for d in range(1, min(width - 1, x) + 1):
            total -= h[x, d] * b[x - d]
        b[x] = total
    for x in range(n):
        b[x] *= h[x, 0]
    for x in range(n - 1, -1, -1):
        for d in range(1, min(width - 1, x) + 1):
            b[x - d] -= h[x, d] * b[x]
