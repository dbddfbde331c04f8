"""Queries of a service that is insured by parity models, on their way through it (docs/semantics.md, 20).

Stage 0 is the model, the stages behind it are its parity models. Each query calls the model. k queries that follow each
other form a coding group, and each parity model gets one call of every group. No call of the model depends on a parity
model, so a window of the model is simulated first, and then the same window of each parity model.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from mark.domain.arrays import BoolArray, FloatArray, IntArray
from mark.domain.rules.admission import TOLERANCE_S
from mark.domain.time import MINUTE_S
from mark.insurance.fill import least_fill_s
from mark.insurance.settings import DEGRADED, InsuranceSettings
from mark.kernel.compiled import compiled

# Serves calls at ascending times, each of which is admitted within its limit in seconds. Returns when each is answered;
# infinite: it was refused.
Serve = Callable[[FloatArray, FloatArray], FloatArray]


@dataclass(frozen=True, eq=False, slots=True)
class CodedAnswers:
    """How the queries were answered. The latency is infinite where a query has no answer."""

    latency_s: FloatArray
    degraded: BoolArray  # answered by reconstruction
    groups: int  # that closed
    parity_calls: int  # of each parity model
    saved: int  # reconstructions within RT_max of queries whose exact answer did not come within it

    @property
    def reconstructed(self) -> int:
        return int(np.count_nonzero(self.degraded))


class CodedFlow:
    """Which calls of the model and of its parity models are due when, as answers become known.

    Like `mark.simulation.query_flow.QueryFlow` it is advanced stage by stage, through windows of any length.
    `arrivals_s` ascend. `parity_rps` returns the capacity of the ready instances of one parity model at a time; it is
    asked at the start of each minute, and only where the load chooses the fill.
    """

    def __init__(
        self,
        insurance: InsuranceSettings,
        rt_max_s: float,
        arrivals_s: FloatArray,
        parity_rps: Callable[[float], float],
    ) -> None:
        assert insurance.parity is not None, "only parity models have coding groups"
        self._insurance, self._parity, self.rt_max_s = insurance, insurance.parity, rt_max_s
        self.decode_s = self._parity.decode_s
        self._arrivals_s, self._parity_rps = arrivals_s, parity_rps
        queries = len(arrivals_s)
        self._arrived = 0
        self._exact_s = np.full(queries, np.inf)
        self._refused_s = np.full(queries, np.inf)
        self._first_s = np.empty(0)  # the k - 1 earliest exact answers: once they are known, any group can be filled
        self._fills_s: list[float] = []  # by the minute, where the load chooses them
        self._start = np.empty(queries, dtype=np.int64)  # the first query of each group that closed
        self._groups = 0
        self._open = 0  # the first query of the group that is open, or comes next
        self._called = np.empty(queries, dtype=np.int64)  # the group of each parity call,
        self._call_s = np.empty(queries)  # when it is due,
        self._youngest = np.empty(queries, dtype=np.int64)  # and the query that came last to the group
        self._calls = 0
        self._due = [0] * self._parity.r  # calls that were handed over, by parity model
        self._parity_s = np.full((self._parity.r, queries), np.inf)  # answers by parity model and group

    def due(self, stage: int, until_s: float) -> tuple[FloatArray, IntArray]:
        """Return the times of the calls due before `until_s`, ascending, and the query whose deadline each has.

        Each call is returned once. All exact answers before `until_s` have to be known before parity models are asked.
        """
        if stage == 0:
            first, self._arrived = self._arrived, int(np.searchsorted(self._arrivals_s, until_s))
            return self._arrivals_s[first : self._arrived], np.arange(first, self._arrived)
        self._close_groups(until_s)
        parity = stage - 1
        first, last = self._due[parity], int(np.searchsorted(self._call_s[: self._calls], until_s))
        self._due[parity] = last
        return self._call_s[first:last], self._youngest[first:last]

    def left_s(self, times_s: FloatArray, queries: IntArray, rt_max_s: float) -> FloatArray:
        """Until the deadlines of these queries, at these times."""
        return self._arrivals_s[queries] + rt_max_s - times_s

    def answered(self, stage: int, call: IntArray, answer_s: FloatArray) -> None:
        """Note when these calls, by their numbers at the stage, are answered; infinite: refused when they came."""
        if stage > 0:
            self._parity_s[stage - 1, self._called[call]] = answer_s
            return
        self._exact_s[call] = answer_s
        refused = call[~np.isfinite(answer_s)]
        self._refused_s[refused] = self._arrivals_s[refused]
        known_s = np.concatenate([self._first_s, answer_s[np.isfinite(answer_s)]])
        if len(known_s) > self._parity.k:
            known_s = np.partition(known_s, self._parity.k)[: self._parity.k]
        self._first_s = np.sort(known_s)[: self._parity.k - 1]

    def missed(self, stage: int, call: IntArray, at_s: FloatArray) -> None:
        """Note that these calls are refused, or given up, at these times."""
        if stage == 0:
            self._refused_s[call] = at_s

    def due_by(self, until_s: float) -> int:
        """How many queries have their deadlines before `until_s`."""
        return int(np.searchsorted(self._arrivals_s, until_s - self.rt_max_s))

    def latency_s(self) -> FloatArray:
        """Of each query, (N,); infinite where it is not answered."""
        return self.answers().latency_s

    def answers(self) -> CodedAnswers:
        """How the queries are answered, as far as answers of the stages are known."""
        latency_s, degraded = self.answers_of(0, len(self._arrivals_s))
        most_s = self.rt_max_s + TOLERANCE_S
        saved = degraded & (latency_s <= most_s) & (self._exact_s - self._arrivals_s > most_s)
        return CodedAnswers(latency_s, degraded, self._groups, self._calls, int(np.count_nonzero(saved)))

    def answers_of(self, first: int, last: int) -> tuple[FloatArray, BoolArray]:
        """The latencies of the queries from `first` to before `last`, and which are answered by reconstruction."""
        own = slice(first, last)
        arrivals_s, exact_s, refused_s = self._arrivals_s[own], self._exact_s[own], self._refused_s[own]
        latency_s, degraded = exact_s - arrivals_s, np.zeros(last - first, dtype=np.bool_)
        if self._insurance.accept == DEGRADED:
            # A refusal ends the wait for the exact answer. It is held for a reconstruction until the deadline.
            waits_until_s = np.minimum(arrivals_s + self._insurance.after_s, refused_s)
            at_s = np.maximum(self._reconstructed_s(first, last), waits_until_s)
            degraded = (at_s < exact_s) & ((at_s < refused_s) | (at_s <= arrivals_s + self.rt_max_s))
            latency_s = np.where(degraded, at_s - arrivals_s, latency_s)
        return latency_s, degraded

    def _reconstructed_s(self, first: int, last: int) -> FloatArray:
        """When each of these queries can be reconstructed: with the outputs of any k of its group's other calls."""
        found = np.full(last - first, np.inf)
        if first >= min(last, self._open):
            return found
        k, r, starts = self._parity.k, self._parity.r, self._start[: self._groups]
        one, other = int(np.searchsorted(starts, first, side="right")) - 1, int(np.searchsorted(starts, last))
        start = starts[one:other]
        begin, end = start[0], int(starts[other]) if other < self._groups else self._open
        group = np.repeat(np.arange(other - one), np.diff(start, append=end))
        own_s = self._exact_s[begin:end]
        outputs_s = np.full((other - one, k + r), -np.inf)  # those in the places that were filled are there at once
        outputs_s[group, np.arange(begin, end) - start[group]] = own_s
        outputs_s[:, k:] = self._parity_s[:, one:other].T
        outputs_s.partition((k - 1, k), axis=1)
        # The k-th output without its own: one place further, where its own is among the first k.
        kth_s, next_s = outputs_s[group, k - 1], outputs_s[group, k]
        found[: end - first] = (np.where(own_s < next_s, next_s, kth_s) + self.decode_s)[first - begin : last - begin]
        return found

    def _close_groups(self, until_s: float) -> None:
        """Form the groups that close before `until_s`, and their parity calls."""
        first, arrived = self._open, int(np.searchsorted(self._arrivals_s, until_s))
        if first == arrived:
            return
        k, opens_s = self._parity.k, self._arrivals_s[first:arrived]
        fill_s = self._fill_s(opens_s)
        if np.isinf(fill_s).all():
            start = np.arange(first, arrived - k + 1, k)
            end = start + k
            close_s = self._arrivals_s[end - 1]
        else:
            # The group that opens with each query has the queries up to the k-th one, or to the last within the fill.
            filled = np.searchsorted(self._arrivals_s, opens_s + fill_s, side="right")
            ends = np.minimum(np.arange(first + k, arrived + k), filled)
            starts = np.empty(len(ends), dtype=np.int64)
            start = starts[: _chain(ends, first, starts)]
            end = ends[start - first]
            is_full = end == start + k
            close_s = np.where(is_full, self._arrivals_s[end - 1], opens_s[start - first] + fill_s[start - first])
            closed = int(np.argmin(np.append(close_s < until_s, False)))
            start, end, close_s = start[:closed], end[:closed], close_s[:closed]
        if not len(start):
            return
        self._open = int(end[-1])
        self._start[self._groups : self._groups + len(start)] = start
        self._call_parities(start, end, close_s)
        self._groups += len(start)

    def _call_parities(self, start: IntArray, end: IntArray, close_s: FloatArray) -> None:
        """Call the parity models for these groups; not where places stay empty, nor where no time is left."""
        parity, call_s = self._parity, close_s + self._parity.encode_s
        missing = parity.k - (end - start)
        known_s = np.concatenate([[-np.inf], self._first_s, np.full(parity.k, np.inf)])
        in_time = self.left_s(call_s, end - 1, self.rt_max_s) - self.decode_s > 0.0
        called = np.flatnonzero((known_s[missing] <= close_s) & in_time)
        here = slice(self._calls, self._calls + len(called))
        self._called[here], self._call_s[here] = self._groups + called, call_s[called]
        self._youngest[here] = end[called] - 1
        self._calls += len(called)

    def _fill_s(self, opens_s: FloatArray) -> FloatArray:
        """The fill of groups that open then; that of a minute is chosen by the rate of the minute before."""
        if self._insurance.fill_s is not None:
            return np.full(len(opens_s), self._insurance.fill_s)
        minute = (opens_s // MINUTE_S).astype(np.int64)
        for n in range(len(self._fills_s), int(minute[-1]) + 1):
            before, now = np.searchsorted(self._arrivals_s, [(n - 1) * MINUTE_S, n * MINUTE_S])
            capacity_rps = self._parity_rps(n * MINUTE_S)
            self._fills_s.append(least_fill_s(self._parity.k, float(now - before) / MINUTE_S, capacity_rps))
        return np.array(self._fills_s)[minute]


class CodedCounts:
    """Queries whose deadlines have passed, as a controller of the model sees them: late are those not answered by then.

    Implements `CountedAnswers`. `window` is of how many queries `recent` tells.
    """

    def __init__(self, flow: CodedFlow, window: int) -> None:
        self._flow, self.window = flow, window
        self.departed = self.in_time = self.rejected = 0
        self._recent = np.empty(0, dtype=np.bool_)

    @property
    def late(self) -> int:
        """Answered after RT_max."""
        return self.departed - self.in_time - self.rejected

    def count(self, until_s: float) -> None:
        """Count the queries whose deadlines have passed by then; all stages have come so far."""
        last = self._flow.due_by(until_s)
        latency_s, _ = self._flow.answers_of(self.departed, last)
        in_time = latency_s <= self._flow.rt_max_s + TOLERANCE_S
        self.departed = last
        self.in_time += int(np.count_nonzero(in_time))
        self.rejected += int(np.count_nonzero(np.isinf(latency_s)))
        self._recent = np.concatenate([self._recent, in_time])[-self.window :]

    def recent(self) -> tuple[int, int]:
        """How many of the last ones there are, how many of them were in time."""
        return len(self._recent), int(np.count_nonzero(self._recent))


@compiled
def _chain(next_of: IntArray, first: int, found: IntArray) -> int:
    """Write `first`, the number after it, and so on into `found`, and return how many they are.

    `next_of` has the next one of each number from `first` on.
    """
    count, at = 0, first
    while at - first < len(next_of):
        found[count] = at
        count += 1
        at = next_of[at - first]
    return count


def coded_answers(flow: CodedFlow, serve_model: Serve, serve_parity: Sequence[Serve]) -> CodedAnswers:
    """Simulate a whole run of fleets that do not change: all calls of the model, then all of each parity model."""
    for stage, serve in enumerate((serve_model, *serve_parity)):
        times_s, queries = flow.due(stage, np.inf)
        behind_s = flow.decode_s if stage > 0 else 0.0
        limits_s = flow.left_s(times_s, queries, flow.rt_max_s) - behind_s
        flow.answered(stage, np.arange(len(times_s)), serve(times_s, limits_s))
    return flow.answers()
