"""The steps between the rows of a table: a summary at a fixed step, a change of the clocks, a counter."""

from __future__ import annotations

import math
from enum import Enum

import numpy as np
from numpy.typing import NDArray

from mark.domain.arrays import FloatArray
from mark.domain.errors import BadInput
from mark.traffic.traces.times import goes_down, set_back_at, set_back_from, set_forward_between, shown

_HOUR_S = 3600.0
_LONGEST_STEP_S = 13.0 * _HOUR_S
_EXACT = 1e-3  # of a step
_ALIKE = 0.2  # steps of a summary whose stamps wander differ by less
_MOSTLY = 0.6  # pairs of steps that are alike; requests at random times have 0.11
_LARGE = 1e5
FALLS = 0.1  # of the steps of a counter
_BY_CHANCE = 0.05  # share of orders of the same counts
_NOISE = 1e-3
_WITHOUT_GAP = 1.5  # times the least step: the longest one without a gap


def is_summary(seconds: FloatArray) -> bool:
    """Return whether the rows are at a fixed step, as a monitoring system writes them; one or two rows are.

    Gaps and a few changes of the step are allowed, in any order of the rows; repeated times count once.
    """
    times = np.unique(seconds)
    if len(times) < 0.5 * len(seconds):
        return False
    steps = np.diff(times)
    if len(steps) < 2:
        return True
    ratio = steps / steps.min()
    if np.all(np.abs(ratio - np.round(ratio)) < _EXACT) and np.median(ratio) < 2.0:
        # With repeated times: two exports that overlap lack gaps, a log of whole seconds has some.
        return len(times) == len(seconds) or bool(ratio.max() < _WITHOUT_GAP)
    if len(times) < len(seconds):
        return False
    alike = np.abs(np.diff(steps)) <= _ALIKE * np.minimum(steps[1:], steps[:-1])
    return bool(np.mean(alike) >= _MOSTLY)


def unfolded(seconds: FloatArray, where: str) -> tuple[FloatArray, str]:
    """Convert clocks without a zone over a change of the clocks, and return a note; rows are in the order of the file.

    In autumn one step is an hour shorter than the steps beside it, which has one reading. In spring one is an hour
    longer, which may also be a gap. Raises BadInput then.
    """
    falling = goes_down(seconds)
    times = seconds[::-1] if falling else seconds
    steps = np.diff(times)
    if len(steps) < 2 or np.sum(steps <= 0.0) > 1:
        return seconds, ""
    for i in np.flatnonzero(~_as_neighbours(steps, 0.0)).tolist():
        if _as_neighbours(steps, _HOUR_S)[i] and (zone := _set_back_between(times, i)):
            times = np.where(np.arange(len(times)) > i, times + _HOUR_S, times)
            note = f"clocks set back by an hour after {shown(float(times[i]))} as in {zone}"
            return (times[::-1] if falling else times), note
        if _as_neighbours(steps, -_HOUR_S)[i] and (zone := _set_forward_after(times, i)):
            raise _missing_hour(float(times[i]), zone, where)
    return seconds, ""


def check_clocks(seconds: FloatArray, where: str) -> None:
    """Raise BadInput if requests by clocks without a zone may cover a change of the clocks."""
    seconds = seconds[::-1] if goes_down(seconds) else seconds
    steps = np.diff(seconds)
    if not len(steps) or np.sum(steps < 0.0) > max(1.0, 0.01 * len(steps)):
        return
    for i in np.flatnonzero(steps < -0.5 * _HOUR_S).tolist():
        if (zone := set_back_at(float(seconds[i + 1]))) is not None:
            what = f"goes back when clocks are set back in {zone}: say `time_zone` {zone}, or yours"
            raise BadInput(what, where, shown(float(seconds[i])))
    if float(np.median(steps)) > 60.0:
        return
    for i in np.flatnonzero(steps >= _HOUR_S).tolist():
        if (zone := _set_forward_after(seconds, i)) is not None:
            raise _missing_hour(float(seconds[i]), zone, where)


def _as_neighbours(steps: FloatArray, more_s: float) -> NDArray[np.bool_]:
    """Return whether steps, with `more_s` added, are as long as their neighbours."""
    before, after = np.append(steps[1], steps[:-1]), np.append(steps[1:], steps[-2])
    low, high = np.minimum(before, after), np.maximum(before, after)
    found: NDArray[np.bool_] = (steps + more_s > 0.65 * low) & (steps + more_s < 1.35 * high) & (high <= 12.0 * _HOUR_S)
    return found


def _set_back_between(times: FloatArray, i: int) -> str | None:
    """Return the zone whose clocks are set back between a row and the next one."""
    before, after = float(times[i]), float(times[i + 1])
    if abs(after - before) > _LONGEST_STEP_S:
        return None
    # The hour that comes twice ends after the row, and begins no later than the next one.
    return set_back_from(before - _HOUR_S, after)


def _set_forward_after(times: FloatArray, i: int) -> str | None:
    """Return the zone whose clocks are set forward between a row and the next one."""
    begin, end = sorted((float(times[i]), float(times[i + 1])))
    return set_forward_between(begin, end) if end - begin <= _LONGEST_STEP_S else None


def _missing_hour(at_s: float, zone: str, where: str) -> BadInput:
    what = f"no rows for an hour after {shown(at_s)}, when clocks are set forward in {zone}"
    return BadInput(f"{what}: say `time_zone` {zone}, or UTC where it is a gap", where)


class Rising(Enum):
    NO = "no"
    PERHAPS = "perhaps"  # counts that grow, or a counter
    SURELY = "surely"


def rising(counts: FloatArray) -> Rising:
    """Return whether whole numbers are a counter, which hardly ever falls.

    Few orders of the same counts never fall, so that such an order is rarely an accident. Counts of a load test never
    fall either, so only a large counter is sure, which grows by less than a half over all rows. A straight and almost
    level line of small numbers is made by hand.
    """
    steps = np.diff(counts)
    if np.any(counts != np.floor(counts)) or not np.any(steps > 0.0):
        return Rising.NO
    falls = steps < 0.0
    if falls.sum() > FALLS * len(steps):
        return Rising.NO
    if _share_of_orders(counts, np.flatnonzero(falls) + 1) > _BY_CHANCE:
        return Rising.NO
    up = steps[steps > 0.0]
    large = bool(counts.max() >= _LARGE and np.median(up) < 0.02 * np.median(counts))
    if np.mean(steps == np.median(up)) > 0.9 and not large and np.median(up) <= 0.02 * counts[0]:
        return Rising.NO
    sure = large and not falls.any() and not _is_straight(up) and counts[-1] < 1.5 * counts[0]
    return Rising.SURELY if sure and len(steps) >= 19 else Rising.PERHAPS


def are_sums_so_far(counts: FloatArray) -> bool:
    """Return whether counts look like sums so far, because requests at random times would hardly ever never fall.

    Straight lines and levels that last are made by hand, and growth begins above its steps.
    """
    steps = np.diff(counts)
    if rising(counts) is Rising.NO or np.any(steps < 0.0) or _is_straight(steps[steps > 0.0]):
        return False
    mean = float(steps.mean())
    if counts[0] > 3.0 * mean or np.mean(steps == 0.0) > 2.0 * math.exp(-mean) + 0.1:
        return False
    scales = np.sqrt(2.0 * np.maximum(counts[1:] + counts[:-1], 1.0))
    unlikely = sum(math.log1p(-0.5 * math.erfc(x)) for x in ((steps + 0.5) / scales).tolist())
    return unlikely < math.log(_NOISE)


def _is_straight(up: FloatArray) -> bool:
    return bool(np.mean(up == np.median(up)) > 0.9)


def _share_of_orders(counts: FloatArray, begins: NDArray[np.intp]) -> float:
    """Return which share of the orders of these counts falls only at as many rows as `begins` has."""
    log = math.lgamma(len(counts)) - math.lgamma(len(begins) + 1) - math.lgamma(len(counts) - len(begins))
    for part in np.split(counts, begins):
        _, alike = np.unique(part, return_counts=True)
        log += sum(math.lgamma(n + 1) for n in alike.tolist()) - math.lgamma(len(part) + 1)
    return math.exp(min(log, 0.0))
