"""The steps between the rows of a table: is it a summary at a fixed step, and how long is each row?"""

from __future__ import annotations

from enum import Enum

import numpy as np

from mark.domain.arrays import FloatArray
from mark.domain.errors import BadInput
from mark.workload.times import set_back_at, set_forward_at, shown

REACH = 1.5  # see `counts`
_EXACT = 1e-3  # of a step
_ALIKE = 0.2  # steps of a summary whose stamps wander differ by less
_MOSTLY = 0.6  # pairs of steps that are alike; of requests at random times 0.11 are
_LARGE = 1e5
_RUN = 3  # longer steps in a row that are the rows' own and no gaps


def is_summary(seconds: FloatArray) -> bool:
    """Are the rows at a fixed step, as a monitoring system writes them? One row is, and so are two.

    Gaps and a few changes of the step are allowed, in any order of the rows; times that stand twice are looked at once.
    """
    times = np.unique(seconds)
    if len(times) < 0.5 * len(seconds):
        return False
    steps = np.diff(times)
    if len(steps) < 2:
        return True
    ratio = steps / steps.min()
    if np.all(np.abs(ratio - np.round(ratio)) < _EXACT) and np.median(ratio) < 2.0:
        # Times that stand twice: two exports that overlap are without a gap, a log of whole seconds is not.
        return len(times) == len(seconds) or bool(ratio.max() < REACH)
    if len(times) < len(seconds):
        return False
    alike = np.abs(np.diff(steps)) <= _ALIKE * np.minimum(steps[1:], steps[:-1])
    return bool(np.mean(alike) >= _MOSTLY)


def unfolded(seconds: FloatArray, where: str) -> tuple[FloatArray, str]:
    """Clocks without a zone over a change of the clocks, and a note; the rows are in the order of the file.

    In autumn the rows go back by an hour once and are at a fixed step but for that, which has one reading. In spring
    they jump by an hour, which may be a gap, too. Raises BadInput then.
    """
    falling = len(seconds) > 1 and seconds[-1] < seconds[0]
    times = seconds[::-1] if falling else seconds
    steps = np.diff(times)
    if len(steps) < 2 or not np.any(steps > 0.0):
        return seconds, ""
    step = float(np.median(steps[steps > 0.0]))
    if step > 3600.0:
        return seconds, ""
    back = np.flatnonzero(np.abs(steps + 3600.0 - step) < _EXACT * step) if step <= 3600.0 else np.array([], dtype=int)
    if len(back) == 1 and np.all(np.delete(steps, back) > 0.0) and (zone := set_back_at(float(times[back[0] + 1]))):
        note = f"clocks set back by an hour at {shown(float(times[back[0]] + step))} as in {zone}"
        times = np.where(np.arange(len(times)) > back[0], times + 3600.0, times)
        return (times[::-1] if falling else times), note
    for i in np.flatnonzero(np.abs(steps - 3600.0 - step) < _EXACT * step):
        missing_s = float(times[i] + step)
        if (zone := set_forward_at(missing_s)) is not None:
            what = f"no rows from {shown(missing_s)} for an hour, when clocks are set forward in {zone}"
            raise BadInput(f"{what}: say `time_zone` {zone}, or UTC where it is a gap", where)
    return seconds, ""


def check_clocks(seconds: FloatArray, where: str) -> None:
    """Raise BadInput where requests by clocks without a zone go back by most of an hour when clocks are set back."""
    steps = np.diff(seconds)
    if not len(steps) or np.mean(steps < 0.0) > 0.01:
        return
    for i in np.flatnonzero(steps < -1800.0):
        if (zone := set_back_at(float(seconds[i + 1]))) is not None:
            what = f"goes back when clocks are set back in {zone}: say `time_zone` {zone}, or yours"
            raise BadInput(what, where, shown(float(seconds[i])))
    if float(np.median(steps)) > 60.0:
        return
    for i in np.flatnonzero(steps >= 3600.0):
        if (zone := set_forward_at(float(np.ceil(seconds[i] / 60.0) * 60.0))) is not None:
            what = f"no rows for an hour after this time, when clocks are set forward in {zone}"
            raise BadInput(f"{what}: say `time_zone` {zone}, or UTC where it is a gap", where, shown(float(seconds[i])))


def widths(starts: FloatArray, counts: FloatArray | None, where: str, *, sure: bool) -> FloatArray:
    """How long each row is: the least step, or the row's own where the rows have another step for a while.

    `counts` (requests of each row) tell such rows from rows of the least step with gaps between them: rows that are
    longer hold more. Raises BadInput where they do not tell. With `sure` there are no rows of another step.
    """
    steps = np.diff(starts)
    if not len(steps):
        return np.full(len(starts), 60.0)
    least = float(steps.min())
    found = np.full(len(starts), least)
    ratio = steps / least
    long = ratio > REACH
    if sure or not long.any():
        return found
    changes = np.flatnonzero(np.diff(np.round(ratio, 3)) != 0.0) + 1
    begins, ends = np.append(0, changes), np.append(changes, len(ratio))
    same = np.abs(ratio - np.round(ratio)) < _EXACT
    for begin, end in zip(begins.tolist(), ends.tolist(), strict=True):
        if end - begin < _RUN or not long[begin] or not same[begin]:
            continue
        last = end + 1 if end == len(steps) else end
        factor = float(np.round(ratio[begin]))
        if counts is not None:
            short = np.median(counts[:-1][~long])
            more = float(np.median(counts[begin:last]) / short) if short > 0.0 else np.inf
            if not factor / 2.0 < more < factor * 2.0:
                what = f"from {shown(float(starts[begin]))} on rows are {steps[begin]:g} s apart and not {least:g} s"
                raise BadInput(
                    f"{what}: are these rows longer, or are some missing? Cut the file there, or say `gaps` zero, "
                    "interpolate or fail where rows are missing", where,
                )  # fmt: skip
        found[begin:last] = factor * least
    return found


class Rising(Enum):
    NO = "no"
    PERHAPS = "perhaps"  # counts that grow, or a counter
    SURELY = "surely"


def rising(counts: FloatArray) -> Rising:
    """Are whole numbers those of a counter, which never falls but to begin again?

    Counts of twenty rows never rise only by accident. They do in a load test, so that only a large counter is sure, which
    grows by less than a half over all rows. A straight and almost level line of small numbers is made by hand.
    """
    steps = np.diff(counts)
    if len(steps) < 9 or np.any(counts != np.floor(counts)) or not np.any(steps > 0.0):
        return Rising.NO
    falls = steps < 0.0
    if falls.sum() > 0.1 * len(steps) or np.any(counts[1:][falls] > 0.5 * counts[:-1][falls]):
        return Rising.NO
    up = steps[steps > 0.0]
    large = bool(counts.max() >= _LARGE and np.median(up) < 0.02 * np.median(counts))
    if np.mean(up == np.median(up)) > 0.9:
        return Rising.PERHAPS if large or np.median(up) > 0.02 * counts[0] else Rising.NO
    if len(steps) < 19:
        return Rising.PERHAPS if large else Rising.NO
    return Rising.SURELY if large and not falls.any() and counts[-1] < 1.5 * counts[0] else Rising.PERHAPS
