"""Queries of a service that is insured by parity models (docs/semantics.md, 20).

Stage 0 is the model, the later stages are its parity models. Each query calls the model. k successive queries form a
coding group, and each parity model gets one call from every group. No call of the model depends on a parity model, so a
window of the model is simulated first, and then the same window of each parity model.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from mark.domain.arrays import BoolArray, FloatArray, IntArray
from mark.domain.rules.admission import TOLERANCE_S
from mark.domain.time import MINUTE_S
from mark.insurance.fill import least_fill_s
from mark.insurance.insurance_settings import DEGRADED, InsuranceSettings
from mark.kernel.compiled import compiled

# Serves calls at ascending times, each with a limit in seconds for its admission. Returns the times of their answers,
# infinite for a refusal.
Serve = Callable[[FloatArray, FloatArray], FloatArray]


@dataclass(frozen=True, eq=False, slots=True)
class CodedAnswers:
    """The answers to the queries. The latency is infinite for a query without an answer."""

    latency_s: FloatArray
    degraded: BoolArray  # answered by reconstruction
    groups: int  # number of closed groups
    parity_calls: int  # of each parity model
    saved: int  # queries that a reconstruction answered within RT_max and the exact answer would not have

    @property
    def reconstructed(self) -> int:
        return int(np.count_nonzero(self.degraded))


class CodedFlow:
    """Determines when the calls of the model and its parity models are due, as answers become known.

    Like `mark.simulation.query_flow.QueryFlow` it is advanced stage by stage, through windows of any length.
    `arrivals_s` ascend. `parity_rps` returns the capacity of the ready instances of one parity model at a time; it is
    called at the start of each minute, and only if the load determines the fill time.
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
        self._fills_s: list[float] = []  # by minute, if the load determines them
        self._start = np.empty(queries, dtype=np.int64)  # first query of each closed group
        self._groups = 0
        self._open = 0  # first query of the open group, or of the next one
        self._called = np.empty(queries, dtype=np.int64)  # by parity call: its group
        self._call_s = np.empty(queries)  # by parity call: when it is due
        self._youngest = np.empty(queries, dtype=np.int64)  # by parity call: the last query of the group
        self._calls = 0
        self._due = [0] * self._parity.r  # calls handed over, by parity model
        self._parity_s = np.full((self._parity.r, queries), np.inf)  # answers by parity model and group

    def due(self, stage: int, until_s: float) -> tuple[FloatArray, IntArray]:
        """Return the times of the calls due before `until_s`, ascending, and the query whose deadline each has.

        Each call is returned once. All exact answers before `until_s` must be known before parity models are asked.
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
        """Return the times left until the deadlines of these queries."""
        return self._arrivals_s[queries] + rt_max_s - times_s

    def answered(self, stage: int, call: IntArray, answer_s: FloatArray) -> None:
        """Note the answer times of these calls, by their numbers at the stage; infinite: refused on arrival."""
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
        """Return how many queries have their deadlines before `until_s`."""
        return int(np.searchsorted(self._arrivals_s, until_s - self.rt_max_s))

    def latency_s(self) -> FloatArray:
        """Return the latency of each query, (N,); infinite without an answer."""
        return self.answers().latency_s

    def answers(self) -> CodedAnswers:
        """Return the answers to the queries, as far as the stages' answers are known."""
        latency_s, degraded = self.answers_of(0, len(self._arrivals_s))
        most_s = self.rt_max_s + TOLERANCE_S
        saved = degraded & (latency_s <= most_s) & (self._exact_s - self._arrivals_s > most_s)
        return CodedAnswers(latency_s, degraded, self._groups, self._calls, int(np.count_nonzero(saved)))

    def answers_of(self, first: int, last: int) -> tuple[FloatArray, BoolArray]:
        """Return the latencies of the queries from `first` to before `last`, and whether each is a reconstruction."""
        own = slice(first, last)
        arrivals_s, exact_s, refused_s = self._arrivals_s[own], self._exact_s[own], self._refused_s[own]
        latency_s, degraded = exact_s - arrivals_s, np.zeros(last - first, dtype=np.bool_)
        if self._insurance.accept == DEGRADED:
            # A refusal ends the wait for the exact answer; the query then waits for a reconstruction until the
            # deadline.
            waits_until_s = np.minimum(arrivals_s + self._insurance.after_s, refused_s)
            at_s = np.maximum(self._reconstructed_s(first, last), waits_until_s)
            degraded = (at_s < exact_s) & ((at_s < refused_s) | (at_s <= arrivals_s + self.rt_max_s))
            latency_s = np.where(degraded, at_s - arrivals_s, latency_s)
        return latency_s, degraded

    def _reconstructed_s(self, first: int, last: int) -> FloatArray:
        """Return when each of these queries can be reconstructed: with any k outputs of its group's other calls."""
        found = np.full(last - first, np.inf)
        if first >= min(last, self._open):
            return found
        k, r, starts = self._parity.k, self._parity.r, self._start[: self._groups]
        one, other = int(np.searchsorted(starts, first, side="right")) - 1, int(np.searchsorted(starts, last))
        start = starts[one:other]
        begin, end = start[0], int(starts[other]) if other < self._groups else self._open
        group = np.repeat(np.arange(other - one), np.diff(start, append=end))
        own_s = self._exact_s[begin:end]
        outputs_s = np.full((other - one, k + r), -np.inf)  # the outputs of filled places are known from the start
        outputs_s[group, np.arange(begin, end) - start[group]] = own_s
        outputs_s[:, k:] = self._parity_s[:, one:other].T
        outputs_s.partition((k - 1, k), axis=1)
        # The k-th output without its own; the next one, if its own is among the first k.
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
            # A group that opens with some query takes queries up to the k-th one, or to the last within the fill time.
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
        """Call the parity models for these groups, unless places remain empty or no time is left."""
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
        """Return the fill times of groups that open then.

        A minute's fill time follows from the rate of the minute before.
        """
        if self._insurance.fill_s is not None:
            return np.full(len(opens_s), self._insurance.fill_s)
        minute = (opens_s // MINUTE_S).astype(np.int64)
        for n in range(len(self._fills_s), int(minute[-1]) + 1):
            before, now = np.searchsorted(self._arrivals_s, [(n - 1) * MINUTE_S, n * MINUTE_S])
            capacity_rps = self._parity_rps(n * MINUTE_S)
            self._fills_s.append(least_fill_s(self._parity.k, float(now - before) / MINUTE_S, capacity_rps))
        return np.array(self._fills_s)[minute]


class CodedCounts:
    """Queries whose deadlines have passed, as the model's controller sees them: late without an answer at the deadline.

    Implements `CountedAnswers`. `window` is the most queries that `recent` covers.
    """

    def __init__(self, flow: CodedFlow, window: int) -> None:
        self._flow, self.window = flow, window
        self.departed = self.in_time = self.rejected = 0
        self._recent = np.empty(0, dtype=np.bool_)

    @property
    def late(self) -> int:
        """The queries answered after RT_max."""
        return self.departed - self.in_time - self.rejected

    def count(self, until_s: float) -> None:
        """Count the queries whose deadlines have passed at `until_s`; all stages must have reached that time."""
        last = self._flow.due_by(until_s)
        latency_s, _ = self._flow.answers_of(self.departed, last)
        in_time = latency_s <= self._flow.rt_max_s + TOLERANCE_S
        self.departed = last
        self.in_time += int(np.count_nonzero(in_time))
        self.rejected += int(np.count_nonzero(np.isinf(latency_s)))
        self._recent = np.concatenate([self._recent, in_time])[-self.window :]

    def recent(self) -> tuple[int, int]:
        """Return the number of recent queries, and how many of them were in time."""
        return len(self._recent), int(np.count_nonzero(self._recent))


@compiled
def _chain(next_of: IntArray, first: int, found: IntArray) -> int:
    """Write `first`, the number after it, and so on into `found`, and return their count.

    `next_of` has the successor of each number from `first` on.
    """
    count, at = 0, first
    while at - first < len(next_of):
        found[count] = at
        count += 1
        at = next_of[at - first]
    return count


def coded_answers(flow: CodedFlow, serve_model: Serve, serve_parity: Sequence[Serve]) -> CodedAnswers:
    """Simulate a whole run of fixed fleets: all calls of the model, then all of each parity model."""
    for stage, serve in enumerate((serve_model, *serve_parity)):
        times_s, queries = flow.due(stage, np.inf)
        behind_s = flow.decode_s if stage > 0 else 0.0
        limits_s = flow.left_s(times_s, queries, flow.rt_max_s) - behind_s
        flow.answered(stage, np.arange(len(times_s)), serve(times_s, limits_s))
    return flow.answers()
