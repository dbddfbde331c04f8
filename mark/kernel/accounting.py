"""Accounts of departures: per minute, latency histogram, SLO misses and the most recent answers.

Rows are counted in the order of departure, so that latencies are always added in the same order.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from mark.domain.errors import BadInput
from mark.domain.rules import admission
from mark.kernel.arrays import Floats, Ints
from mark.kernel.compiled import compiled
from mark.kernel.departures import BY_FUNCTION, REFUSED, Departures

_in_time = compiled(admission.in_time)

# Latency histogram: a float's exponent and 10 bits of its mantissa, so bins are 1/1024 wide, relatively.
HISTOGRAM_SHIFT = 42
HISTOGRAM_FIRST = int(np.float64(2.0**-30).view(np.int64)) >> HISTOGRAM_SHIFT
HISTOGRAM_SIZE = (int(np.float64(2.0**34).view(np.int64)) >> HISTOGRAM_SHIFT) - HISTOGRAM_FIRST + 1
# Positions in Accounts.counter
DEPARTED, IN_TIME, FUNCTIONS, REJECTED = range(4)
# Positions in Accounts.total
LATENCY_SUM, LATENCY_MAX = range(2)
_ONE = np.uint64(1)


class Accounts(NamedTuple):
    """The arrays of the accounts. B: minutes of the evaluated part, by arrival."""

    rt_max_s: float
    fine_s: float  # width of a fine bin
    counter: Ints
    total: Floats
    histogram: Ints
    minute_total: Ints  # [B]
    minute_good: Ints  # [B]
    minute_function: Ints  # [B]
    fine_count: Ints  # arrivals per fine bin, for the bound
    ring: NDArray[np.bool_]  # whether each of the last M requests was answered in time


@compiled
def _close_minute(accounts: Accounts, at: np.uint64, total: int, in_time: int, by_function: int) -> None:
    # The last minute takes all later arrivals, because calls of a query may come after the evaluated part.
    minute = min(at, np.uint64(accounts.minute_total.shape[0] - 1))
    accounts.minute_total[minute] += total
    accounts.minute_good[minute] += in_time
    accounts.minute_function[minute] += by_function
    accounts.counter[IN_TIME] += in_time
    accounts.counter[FUNCTIONS] += by_function


@compiled
def _close_bin(accounts: Accounts, fine: np.uint64, count: int) -> None:
    accounts.fine_count[min(fine, np.uint64(accounts.fine_count.shape[0] - 1))] += count


@compiled
def account(accounts: Accounts, out: Departures) -> None:
    """Count the filled rows, without branches on their values, because overflowing requests cannot be predicted."""
    per_fine = 1.0 / accounts.fine_s
    counter, ring, histogram = accounts.counter, accounts.ring, accounts.histogram
    latency_sum, latency_max = accounts.total[LATENCY_SUM], accounts.total[LATENCY_MAX]
    rows = np.int64(out.rows[0])
    place = np.uint64(counter[DEPARTED] % ring.shape[0])
    last = np.uint64(ring.shape[0] - 1)
    # Neighbours mostly share minute and bin, so these counters stay in registers until minute or bin changes.
    minute, fine = np.uint64(0), np.uint64(0)
    in_minute, in_fine, in_time, by_function, rejected = 0, 0, 0, 0, 0
    for row in range(rows):
        arrival_s, latency_s, slot = out.arrival_s[row], out.latency_s[row], out.slot[row]
        own_minute = np.uint64(np.int64(arrival_s * (1.0 / 60.0)))
        own_fine = np.uint64(np.int64(arrival_s * per_fine))
        if own_minute != minute:
            _close_minute(accounts, minute, in_minute, in_time, by_function)
            minute, in_minute, in_time, by_function = own_minute, 0, 0, 0
        if own_fine != fine:
            _close_bin(accounts, fine, in_fine)
            fine, in_fine = own_fine, 0
        good = _in_time(latency_s, accounts.rt_max_s)
        in_minute += 1
        in_fine += 1
        in_time += good
        by_function += slot == BY_FUNCTION
        rejected += slot == REFUSED
        ring[place] = good
        place = np.uint64(0) if place == last else place + _ONE
        histogram_bin = int(np.float64(latency_s).view(np.int64) >> HISTOGRAM_SHIFT) - HISTOGRAM_FIRST
        histogram[np.uint64(min(max(histogram_bin, 0), HISTOGRAM_SIZE - 1))] += 1
        answered_s = 0.0 if slot == REFUSED else latency_s
        latency_sum += answered_s
        latency_max = max(latency_max, answered_s)
    _close_minute(accounts, minute, in_minute, in_time, by_function)
    _close_bin(accounts, fine, in_fine)
    histogram[HISTOGRAM_SIZE - 1] -= rejected  # infinite latencies
    counter[DEPARTED] += rows
    counter[REJECTED] += rejected
    accounts.total[LATENCY_SUM], accounts.total[LATENCY_MAX] = latency_sum, latency_max


class Accounting:
    """Accounts against an RT_max; times are seconds from the start of the evaluated part, `end_s` is its end.

    Raises BadInput for numbers that are out of range.
    """

    def __init__(self, *, rt_max_s: float, end_s: float, fine_s: float = 1.0, recent: int = 1000) -> None:
        for name, value, good in (
            ("rt_max_s", rt_max_s, rt_max_s > 0.0),
            ("end_s", end_s, 0.0 <= end_s < math.inf),
            ("fine_s", fine_s, 0.0 < fine_s < math.inf),
            ("recent", recent, recent >= 1),
        ):
            if not good:
                raise BadInput("no accounts can have this", name, value)
        self.rt_max_s, self.end_s = rt_max_s, end_s
        minutes = math.ceil(end_s / 60.0) + 2
        self.arrays = Accounts(
            rt_max_s=float(rt_max_s),
            fine_s=float(fine_s),
            counter=np.zeros(4, dtype=np.int64),
            total=np.zeros(2),
            histogram=np.zeros(HISTOGRAM_SIZE, dtype=np.int64),
            minute_total=np.zeros(minutes, dtype=np.int64),
            minute_good=np.zeros(minutes, dtype=np.int64),
            minute_function=np.zeros(minutes, dtype=np.int64),
            fine_count=np.zeros(math.ceil(end_s / fine_s) + 2, dtype=np.int64),
            ring=np.zeros(recent, dtype=np.bool_),
        )

    def add(self, departures: Departures) -> None:
        account(self.arrays, departures)

    @property
    def by_functions(self) -> int:
        return int(self.arrays.counter[FUNCTIONS])

    @property
    def rejected(self) -> int:
        return int(self.arrays.counter[REJECTED])

    @property
    def departed(self) -> int:
        """The number of requests answered or refused."""
        return int(self.arrays.counter[DEPARTED])

    @property
    def in_time(self) -> int:
        return int(self.arrays.counter[IN_TIME])

    @property
    def late(self) -> int:
        """The number of requests answered after RT_max."""
        return self.answered - self.in_time

    @property
    def answered(self) -> int:
        """The number of requests that departed with an answer."""
        return self.departed - self.rejected

    @property
    def window(self) -> int:
        """M, the most departures that `recent` covers."""
        return len(self.arrays.ring)

    def recent(self) -> tuple[int, int]:
        """Return the number of recent departures, at most M, and how many of them were answered in time."""
        return min(self.window, self.departed), int(np.count_nonzero(self.arrays.ring))

    def latency_mean_s(self) -> float | None:
        return float(self.arrays.total[LATENCY_SUM]) / self.answered if self.answered else None

    def latency_max_s(self) -> float | None:
        return float(self.arrays.total[LATENCY_MAX]) if self.answered else None

    def latency_quantile_s(self, share: float) -> float | None:
        """Return the latency that `share` of the answered requests does not exceed, to 0.05 %; None without answers."""
        cumulative = np.cumsum(self.arrays.histogram)
        if cumulative[-1] == 0:
            return None
        rank = max(1, math.ceil(share * float(cumulative[-1]) - 1e-9))
        place = int(np.searchsorted(cumulative, rank))
        low, high = _bin_edges(np.array([place]))
        return min(0.5 * float(low[0] + high[0]), float(self.arrays.total[LATENCY_MAX]))

    def ccdf(self) -> tuple[Floats, Floats]:
        """Return latencies (s), ascending, and the share of answered requests slower than each."""
        used = np.flatnonzero(self.arrays.histogram)
        if len(used) == 0:
            return np.zeros(0), np.zeros(0)
        counts = self.arrays.histogram[used]
        return _bin_edges(used)[1], 1.0 - np.cumsum(counts) / counts.sum()

    def minutes(self) -> tuple[Ints, Ints, Ints]:
        """Return per minute of arrival: requests, those answered in time, those answered by functions."""
        return self.arrays.minute_total, self.arrays.minute_good, self.arrays.minute_function

    def fine_counts(self) -> Ints:
        """Return the arrivals per bin of `fine_s`."""
        return self.arrays.fine_count


def _bin_edges(bins: Ints) -> tuple[Floats, Floats]:
    low = ((bins + HISTOGRAM_FIRST) << HISTOGRAM_SHIFT).view(np.float64)
    high = ((bins + HISTOGRAM_FIRST + 1) << HISTOGRAM_SHIFT).view(np.float64)
    return low, high
