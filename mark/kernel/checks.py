"""Checks of a stage's arguments, because compiled code indexes arrays by them without checks."""

from __future__ import annotations

import math
from collections.abc import Container, Sequence

import numpy as np

from mark.domain.errors import BadInput
from mark.domain.profile import Candidate
from mark.kernel.arrays import INF, Floats
from mark.kernel.compiled import Prepared, compiled


@compiled
def _before(arrivals_s: Floats, first: int, until_s: float, since_s: float, last_s: float) -> int:
    """Return the position of the first arrival at or after `until_s`; -1 if one before it cannot be used.

    It is found by bisection, then checked in a loop without branches: both together take a tenth of a nanosecond an
    arrival.
    """
    at, beyond = first, arrivals_s.shape[0]
    while at < beyond:
        middle = (at + beyond) // 2
        if arrivals_s[middle] < until_s:
            at = middle + 1
        else:
            beyond = middle
    right = at >= arrivals_s.shape[0] or arrivals_s[at] >= until_s
    if at > first:
        right = right and since_s <= arrivals_s[first] and arrivals_s[at - 1] <= last_s
        earlier, later = arrivals_s[first : at - 1], arrivals_s[first + 1 : at]
        ascending = 0
        for i in range(later.shape[0]):
            ascending += later[i] >= earlier[i]
        right = right and ascending == later.shape[0]
    return at if right else -1


_run_before = Prepared(_before)


def check_candidates(candidates: Sequence[Candidate], horizons_s: Sequence[float], classes: Sequence[int]) -> None:
    """Raise BadInput if a candidate has a number that is invalid for a replica."""
    for name, values in (("horizons_s", horizons_s), ("classes", classes)):
        if len(values) != len(candidates):
            raise BadInput(f"one for each of {len(candidates)} candidates", name, len(values))
    for number, (candidate, horizon_s, group) in enumerate(zip(candidates, horizons_s, classes, strict=True)):
        most, window_s = candidate.policy.n_batch, candidate.policy.w_batch_s
        for name, value, good in (
            ("n_batch", most, most >= 1),
            ("w_batch_s", window_s, 0.0 <= window_s < INF),
            ("service_s", len(candidate.service_s), len(candidate.service_s) > most),
            ("sigma", candidate.sigma, math.isfinite(candidate.sigma)),
            ("workers", candidate.workers, candidate.workers >= 1),
            ("horizon_s", horizon_s, not math.isnan(horizon_s)),
            ("class", group, group >= 0),
        ):
            if not good:
                raise BadInput("no replica can have this", f"{name} of candidate {number}", value)
        if not (np.asarray(candidate.service_s[1 : most + 1]) > 0.0).all():
            raise BadInput("service times must be above zero", f"service_s of candidate {number}")


def check_time(name: str, time_s: float) -> None:
    """Raise BadInput unless a time is 0 or later, and finite."""
    if not 0.0 <= time_s < INF:
        raise BadInput("must be a time from 0 on", name, time_s)


def check_replica(number: int, known: Container[int]) -> None:
    """Raise BadInput for a number that no replica ever had."""
    if number not in known:
        raise BadInput("no replica of this number was added", "number", number)


def check_arrivals(
    arrivals_s: Floats, first: int, until_s: float, since_s: float, end_s: float, limit_s: Floats | None
) -> float:
    """Return the time of the last arrival before `until_s`, or `since_s` if there is none.

    Raises BadInput for arrivals that are not ascending from `since_s` to `end_s`. Requests with their own limits are
    calls of queries, which may come after the end.
    """
    if arrivals_s.ndim != 1:
        raise BadInput("must be one row of times", "arrivals_s", arrivals_s.shape)
    if not 0 <= first <= len(arrivals_s):
        raise BadInput(f"must be a position in {len(arrivals_s)} arrivals", "first", first)
    if math.isnan(until_s):
        raise BadInput("must be a time", "until_s", until_s)
    if limit_s is not None and limit_s.shape != arrivals_s.shape:
        raise BadInput(f"one for each of {len(arrivals_s)} arrivals", "limit_s", limit_s.shape)
    last_s = float(end_s) if limit_s is None else math.nextafter(INF, 0.0)
    at = int(_run_before(arrivals_s, int(first), float(until_s), float(since_s), last_s))
    if at < 0:
        raise _unusable(arrivals_s[first:], first, since_s, last_s)
    if limit_s is not None and np.isnan(limit_s[first:at]).any():
        raise BadInput("must be numbers", "limit_s")
    return since_s if at == first else float(arrivals_s[at - 1])


def _unusable(arrivals_s: Floats, first: int, since_s: float, last_s: float) -> BadInput:
    """Return the error for the first unusable arrival; position 0 of the array is number `first`."""
    earlier_s = np.concatenate([[since_s], arrivals_s[:-1]])
    at = int(np.argmin((arrivals_s >= earlier_s) & (arrivals_s <= last_s)))
    arrival_s = float(arrivals_s[at])
    what = "must be a time"
    if not math.isnan(arrival_s):
        early = arrival_s < earlier_s[at]
        what = f"must not be before {earlier_s[at]:g} s" if early else f"must not be after {last_s:g} s, the end"
    return BadInput(what, f"arrivals_s[{first + at}]", arrival_s)
