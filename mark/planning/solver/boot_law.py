"""The law of boots: how likely an instance serves by a step, and how early to launch it.

A boot takes a lognormal time (`Delay`), so an instance that is launched k steps before a step serves in it with the
probability

    there[k] = P(boot <= k steps),                k = 0, 1, 2, ...

A launch k steps ahead pays rent for these steps and loses the share 1 - there[k + i] of its worth in the i-th step of
its service. `with_law` launches with the lead at which the sum of both is smallest, by step: early where misses are
dear, late where they are cheap. Where the best lead has passed, a launch costs more by the difference. The rent and the
loss of the best lead itself are not part of the price: with them `mark` launches too little and holds for too long, and
pays more for fewer requests in time. A certain boot loses nothing, and its program stays unchanged.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import lru_cache
from statistics import NormalDist

import numpy as np

from mark.domain.arrays import FloatArray, IntArray
from mark.domain.copying import unchecked
from mark.domain.offer import Delay
from mark.domain.time import STEP_S
from mark.kernel.compiled import compiled
from mark.planning.solver.program import Program

_NORMAL = NormalDist()
_SURE = 0.999  # a boot that is over with this probability counts as over


def ready_by(boot: Delay, age_s: float) -> float:
    """Return the probability that a boot takes no longer than `age_s`."""
    age_s += 1e-6 * STEP_S  # so that a boot of exactly n steps serves n steps later despite rounding
    if age_s < boot.shortest_s:
        return 0.0
    if boot.sigma == 0.0:
        return 1.0
    return _NORMAL.cdf((math.log(age_s / boot.mean_s) + boot.sigma**2 / 2.0) / boot.sigma)


def there(boots: Sequence[Delay], steps: int, scale: float = 1.0) -> FloatArray:
    """Return the probability that a boot takes k steps at most, by boot and k < `steps`: (J, `steps`).

    Boots that are not certain take `scale` times as long, in steps of 5 %.
    """
    return _there(tuple(boots), steps, max(1.0, round(20.0 * scale)) / 20.0)


@lru_cache(maxsize=64)
def _there(boots: tuple[Delay, ...], steps: int, scale: float) -> FloatArray:
    longer = [scale if boot.sigma else 1.0 for boot in boots]
    chances = [[ready_by(b, k * STEP_S / times) for k in range(steps)] for b, times in zip(boots, longer, strict=True)]
    found = np.array(chances).reshape(len(boots), steps)
    found[found >= _SURE] = 1.0
    found.flags.writeable = False
    return found


def absent(boot: Delay, expected_s: float, age_s: float, steps: int) -> FloatArray:
    """Return by step the probability that a boot of that age still goes on when the step begins: (steps,).

    `expected_s` is the mean of this boot; its relative spread is that of `boot`. A boot that has exceeded the longest
    time of the law may end before the next step.
    """
    absent = np.zeros(steps)
    absent[0] = 1.0
    if expected_s <= 0.0:
        return absent
    scale = boot.mean_s / expected_s
    now = 1.0 - ready_by(boot, age_s * scale)
    for k in range(1, steps):
        left = 1.0 - ready_by(boot, (age_s + k * STEP_S) * scale)
        if left <= (1.0 - _SURE) * now:
            break
        absent[k] = left / now
    return absent


def with_law(program: Program, law: FloatArray) -> Program:
    """Return the program with launches that are timed and priced by `law`, the `there` of its offers.

    The program's `boot_steps` and `launch_usd` are those of the mean boot.
    """
    leads = int((law < 1.0).sum(axis=1).max(initial=0)) + 1  # longer leads only cost more rent
    law = law[:, : min(leads, program.steps)]
    possible = law > 0.0
    if not (possible & (law < 1.0)).any():
        return program
    shape = (program.offers, program.steps)
    late_steps, lead_steps = np.zeros(shape), np.zeros(shape, dtype=np.int64)
    _choose(np.ascontiguousarray(law), _worth(program, law.shape[1]), late_steps, lead_steps)
    return unchecked(
        program,
        boot_steps=np.where(possible.any(axis=1), possible.argmax(axis=1), program.boot_steps),
        late_usd=late_steps * program.usd_per_step[:, None],
        lead_steps=lead_steps,
    )


@compiled
def _choose(law: FloatArray, worth: FloatArray, late_steps: FloatArray, lead_steps: IntArray) -> None:
    """Fill the best possible leads (J, T), and how much more each costs than the best of all leads, in steps of
    rent.
    """
    leads = law.shape[1]
    for j in range(len(law)):
        for t in range(len(worth)):
            least = best = np.inf
            for k in range(leads):
                if law[j, k] == 0.0:
                    continue
                cost = float(k)
                for i in range(leads - k):
                    cost += (1.0 - law[j, k + i]) * worth[t, i]
                least = min(least, cost)
                if k <= t and cost < best:
                    best = cost
                    lead_steps[j, t] = k
            if best < np.inf:
                late_steps[j, t] = best - least


def _worth(program: Program, ahead: int) -> FloatArray:
    """Return the worth of new capacity in the i-th step after step t, if it serves from t on: (T, `ahead`).

    In units of the rent of the cheapest capacity. New capacity stands on the levels by which the load grows in step t,
    and on those of one more instance at least. A level is needed where it saves more than that rent.
    """
    worth = np.zeros((program.steps, ahead))
    bought = (program.usd_per_step > 0.0) & (program.most > program.running)
    if bought.any():
        per_rps = np.where(bought, program.usd_per_step / program.capacity_rps, np.inf)
        cheapest, spacing = int(per_rps.argmin()), program.spacing_rps
        rent = float(per_rps[cheapest]) * spacing  # of a level
        _fill_worth(
            np.ascontiguousarray(program.overflow_usd), rent, float(program.capacity_rps[cheapest]) / spacing, worth
        )
    return worth


@compiled
def _fill_worth(overflow: FloatArray, rent: float, least: float, worth: FloatArray) -> None:
    """Fill `_worth` for overflow (T, K + 1); an instance has `least` levels."""
    steps, ahead = worth.shape
    last = overflow.shape[1] - 1
    before = 0
    for t in range(steps):
        needed = 0  # a level saves no more than the one below
        for k in range(last):
            needed += overflow[t, k] - overflow[t, k + 1] > rent
        below = min(needed, before) if t > 0 else needed
        before = needed
        width = max(float(needed - below), least)
        above = min(below + width, float(last))
        low = min(int(above), last - 1)
        for i in range(ahead):
            then = min(t + i, steps - 1)
            left = overflow[then, low]
            left += (above - low) * (overflow[then, low + 1] - left)  # linear between levels
            worth[t, i] = (overflow[then, below] - left) / (width * rent)
