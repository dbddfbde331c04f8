"""Derive a batch policy and a capacity from a profile and an SLO (MArk, section 4.3).

With T_b the time of a batch of b, RT = RT_max less the fixed overhead, and mu_nb = 1 / T_1 the unbatched rate of one
worker, the paper sets two conditions for a window W: W + T_b <= RT, and W + T_b <= b / mu_nb, so that batching is never
slower than serving one by one. Both give

    W_b = min(RT, b T_1) - T_b

A request that just missed a batch may wait for it to end before its own starts, hence the third condition T_b + max(W,
T_b) <= RT. W_b may be reduced to meet it; at W = 0 it reads 2 T_b <= RT. b = 1 needs no window, only T_1 <= RT.

A window may also close with fewer requests. Where a profile measured such a batch slower than b, as noise may, the
window leaves time for the slowest size up to b. Otherwise a bouncer would refuse the first request of every batch. If
service times scatter, W leaves time for the quantile SL_min of T_b, because with the mean half of all full batches
would be late.
"""

from __future__ import annotations

import math
from dataclasses import replace
from statistics import NormalDist

import numpy as np

from mark.domain.errors import BadInput
from mark.domain.function_offer import is_function
from mark.domain.profile import BatchPolicy, Candidate, Profile, ProfileRow
from mark.domain.rules.admission import TOLERANCE_S
from mark.domain.slo import Slo

# Quantile 0.99 of the standard normal distribution.
_Z99 = 2.3263478740408408
_WIDEST = 2.3  # the largest sigma that a p99 can give is _Z99, where rounding may leave no root
# Times that differ by less are equal: 300 ms and 3 x 100 ms differ in binary.
_EPSILON_S = 1e-9
BATCHING = ("work-conserving", "paper")


def candidate(profile: Profile, slo: Slo, batching: str = "work-conserving", speed: float = 1.0) -> Candidate | str:
    """Return the model's candidate on this type under this SLO, or the reason why the type cannot keep the SLO.

    Among the batch sizes with a row that meet the conditions above, N_batch has the highest throughput; of equals, the
    largest. The window is the row's `w_batch_ms` if given, else the formula's with batching "paper", and 0 with
    "work-conserving". `speed` divides all times (a burstable out of credits runs at its baseline).

    Raises BadInput for an unknown batching, a speed that is not above zero, and a p99 that no lognormal has.
    """
    if batching not in BATCHING:
        raise BadInput(f"must be one of {', '.join(BATCHING)}", "batching", batching)
    if not (math.isfinite(speed) and speed > 0.0):
        raise BadInput("a speed must be above zero", f"{profile.model} on {profile.instance}", speed)
    limit_s = slo.rt_max_s - profile.overhead_s + _EPSILON_S
    one_s = profile.latency_s(1) / speed
    if one_s > limit_s:
        return f"one request takes {(one_s + profile.overhead_s) * 1e3:.1f} ms, RT_max is {slo.rt_max_s * 1e3:g} ms"
    n_batch, n_s, w_s, slowest_s = 1, one_s, 0.0, one_s
    for row in profile.rows:
        batch_s = row.latency_ms / 1e3 / speed
        slowest_s = max(slowest_s, batch_s)
        # Sizes ascend, so the larger batch wins a tie. A rate of at least 1 / T_1 also implies W_b >= 0.
        no_slower = row.batch * n_s >= n_batch * batch_s * (1.0 - 1e-12)
        if row.batch > 1 and 2.0 * batch_s <= limit_s and no_slower:
            window_s = _window_s(row, batch_s, one_s, limit_s - _EPSILON_S, batching)
            left_s = limit_s - _EPSILON_S - _longest(row, slo.attainment) * slowest_s
            n_batch, n_s, w_s = row.batch, batch_s, max(0.0, min(window_s, left_s))
    return _candidate(profile, n_batch, w_s, speed)


def unbatched(profile: Profile, slo: Slo) -> Candidate:
    """Return a candidate with single requests and no window, like a SageMaker endpoint, even if it breaks the SLO."""
    return _candidate(profile, 1, 0.0, 1.0)


def paper_window_s(profile: Profile, slo: Slo, batch: int) -> float:
    """Return the paper's W_batch = min(RT_max, b / mu_nb) - T_b in seconds, for display beside ours.

    It may be negative.
    """
    return min(slo.rt_max_s, batch * profile.latency_s(1)) - profile.latency_s(batch)


def _window_s(row: ProfileRow, batch_s: float, one_s: float, limit_s: float, batching: str) -> float:
    if row.w_batch_ms is not None:
        # Reduce a measured window too, if RT_max leaves less time.
        return max(0.0, min(row.w_batch_ms / 1e3, limit_s - batch_s))
    return max(0.0, min(limit_s, row.batch * one_s) - batch_s) if batching == "paper" else 0.0


def _longest(row: ProfileRow, share: float) -> float:
    """Return the time within which a `share` of a row's batches end, as a multiple of the mean; at least 1."""
    sigma = sigma_of(row)
    return max(1.0, math.exp(NormalDist().inv_cdf(share) * sigma - 0.5 * sigma * sigma))


def _candidate(profile: Profile, n_batch: int, w_s: float, speed: float) -> Candidate:
    service_s = np.array([0.0, *(profile.latency_s(b) / speed for b in range(1, n_batch + 1))])
    service_s.flags.writeable = False
    ceiling_rps = max(row.batch / row.latency_ms for row in profile.rows) * 1e3 * speed
    return Candidate(
        profile=profile,
        policy=BatchPolicy(n_batch, w_s),
        service_s=service_s,
        capacity_rps=profile.workers * n_batch / float(service_s[n_batch]),
        ceiling_rps=profile.workers * ceiling_rps,
        # Use one sigma for all sizes in use, the largest measured.
        sigma=max(sigma_of(row) for row in profile.rows if row.batch <= max(n_batch, profile.rows[0].batch)),
    )


def sigma_of(row: ProfileRow) -> float:
    """Return the log standard deviation of a lognormal with the row's mean m and 99th percentile q; 0 without a p99.

    ln q = ln m - s^2 / 2 + z s; the smaller of the two roots is taken. Raises BadInput if there is no root, that is for
    q / m > exp(z^2 / 2) = 14.97.
    """
    if row.p99_ms is None:
        return 0.0
    under_root = _Z99 * _Z99 - 2.0 * math.log(row.p99_ms / row.latency_ms)
    if under_root < 0.0:
        raise BadInput("no lognormal has a p99 of more than 14.97 x its mean", "p99_ms", row.p99_ms)
    return _Z99 - math.sqrt(under_root)


def with_tail(profile: Profile, tail: float | None) -> Profile:
    """Return the profile with p99 = `tail` x mean in the rows without a p99. A function's profile is not changed."""
    if tail is None or is_function(profile.instance):
        return profile
    rows = (
        row if row.p99_ms is not None else replace(row, p99_ms=tail * row.latency_ms, tail_derived=True)
        for row in profile.rows
    )
    return replace(profile, rows=tuple(rows))


def p99_of(mean: float, sigma: float) -> float:
    """Return the 99th percentile from which `sigma_of` computes this sigma, or the largest one that it can compute."""
    sigma = min(sigma, _WIDEST)
    return mean * math.exp(_Z99 * sigma - sigma * sigma / 2.0)


def late_alone(candidate: Candidate, rt_max_s: float) -> float:
    """Return the share of requests that are late even if each is served alone without waiting: a lognormal's tail."""
    if candidate.sigma <= 0.0:
        return 0.0
    room_s = rt_max_s + TOLERANCE_S - candidate.overhead_s
    if room_s <= 0.0:
        return 1.0
    deviations = math.log(room_s / float(candidate.service_s[1])) / candidate.sigma + 0.5 * candidate.sigma
    return 0.5 * math.erfc(deviations / math.sqrt(2.0))
