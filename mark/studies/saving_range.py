"""The range of a saving over the days or hours that the trace happens to have: a block bootstrap of two bills."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from mark.domain.arrays import FloatArray
from mark.domain.time import DAY_S, HOUR_S
from mark.simulation.result import SimulationResult

_DAYS, _HOURS = 4, 12  # the least number of blocks of each length, because fewer say nothing
_DRAWS, _LEVELS = 2000, (0.05, 0.95)


@dataclass(frozen=True, slots=True)
class SavingRange:
    """The range [low, high] of the saving in 90 of 100 draws of as many `over` ("days" or "hours") as the trace has.

    Both are shares as `1 - bill / bill`, negative if the policy costs more.
    """

    low: float
    high: float
    over: str
    blocks: int


def saving_range(result: SimulationResult, against: SimulationResult) -> SavingRange | None:
    """Return the range of `1 - bill / bill` of two runs over one trace; None below twelve hours, or without a bill.

    Days (from four on) or hours are drawn with replacement, the same ones for both bills (Efron and Tibshirani, An
    Introduction to the Bootstrap, section 8.6: blocks, because neighbouring minutes resemble each other). The range
    covers only the trace: hours of one day say nothing about other days.
    """
    duration_s = result.trace.duration_s
    if duration_s >= _DAYS * DAY_S:
        blocks, over = int(duration_s // DAY_S), "days"
    elif duration_s >= _HOURS * HOUR_S:
        blocks, over = int(duration_s // HOUR_S), "hours"
    else:
        return None
    ours, theirs = (_by_block(one, blocks) for one in (result, against))
    drawn = np.random.default_rng(0).integers(blocks, size=(_DRAWS, blocks))
    bills = theirs[drawn].sum(axis=1)
    if not np.all(bills > 0.0):
        return None
    low, high = np.quantile(1.0 - ours[drawn].sum(axis=1) / bills, _LEVELS)
    return SavingRange(float(low), float(high), over, blocks)


def _by_block(result: SimulationResult, blocks: int) -> FloatArray:
    """Return the dollars spent in each of `blocks` equal parts: (blocks,)."""
    return np.diff(spent_at(result, np.linspace(0.0, result.trace.duration_s, blocks + 1)))


def spent_at(result: SimulationResult, at_s: FloatArray) -> FloatArray:
    """Return the dollars spent until each of these times of a run; at its end they are its bill."""
    line = result.timeline
    ends_s = np.append(line.t_s[1:], result.trace.duration_s)
    spent = np.sum(list(line.spent_usd.values()), axis=0)
    spent = spent * (result.bill.total / spent[-1]) if spent[-1] > 0.0 else spent
    return np.asarray(np.interp(at_s, np.concatenate([[0.0], ends_s]), np.concatenate([[0.0], spent])))
