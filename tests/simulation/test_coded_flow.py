"""Coding groups of simulated queries, against a plain event loop that follows docs/semantics.md, section 20."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import partial
from heapq import heappop, heappush

import numpy as np
import pytest
import simpy
from scipy import integrate, optimize, stats

from mark.insurance.coding import Action, CallParities, CodingGroup, CodingGroups, Member, Reconstructed
from mark.insurance.insurance_settings import ACCEPTS, DEGRADED, InsuranceSettings, ParitySettings
from mark.simulation.coded_flow import CodedAnswers, CodedCounts, CodedFlow, Serve, coded_answers

SEEDS = [
    pytest.param(range(200), id="fast"),
    pytest.param(range(200, 300), id="more", marks=pytest.mark.slow),
    pytest.param(range(300, 1000), id="all", marks=pytest.mark.acceptance),
]
NEVER = float("inf")
# In which order events of one moment happen.
MODEL, PARITY, RECONSTRUCTION, DEADLINE, ARRIVAL, FILL = range(6)


@dataclass(frozen=True)
class Case:
    insurance: InsuranceSettings
    rt_max_s: float
    arrivals_s: np.ndarray
    exact_s: np.ndarray  # infinite: refused at `refused_s`
    refused_s: np.ndarray
    parity_takes_s: np.ndarray  # (r, calls), infinite: refused
    parity_rps: list[float]  # by the minute

    @property
    def code(self) -> ParitySettings:
        assert self.insurance.parity is not None
        return self.insurance.parity


def drawn_case(seed: int) -> Case:
    """Draw a case with times in multiples of 1/4 s, so that many events are simultaneous."""
    rng = np.random.default_rng(seed)

    def times_s(most: int, count: int | tuple[int, int] = 1) -> np.ndarray:
        return rng.integers(0, most + 1, count) * 0.25

    k = int(rng.integers(2, 6))
    r = int(rng.integers(1, min(2, k - 1) + 1))
    queries = int(rng.integers(1, 40))
    rt_max_s = float(1.0 + times_s(16)[0])
    encode_s, decode_s = times_s(2)[0], times_s(2)[0]
    arrivals_s = np.cumsum(times_s(int(rng.choice([2, 8, 40])), queries))
    takes_s = 0.25 + times_s(24, queries)
    refused = rng.random(queries) < rng.choice([0.0, 0.3])
    parity_takes_s = 0.25 + times_s(16, (r, queries))
    parity_takes_s[rng.random((r, queries)) < rng.choice([0.0, 0.2])] = NEVER
    fill_s = [None, NEVER, float(times_s(12)[0])][int(rng.integers(3))]
    return Case(
        InsuranceSettings(
            ParitySettings("sum", k, r, encode_s=encode_s, decode_s=decode_s),
            after_s=min(rt_max_s, float(times_s(16)[0])),
            accept=str(rng.choice(ACCEPTS, p=[0.1, 0.9])),
            fill_s=fill_s,
        ),
        rt_max_s,
        arrivals_s,
        np.where(refused, NEVER, arrivals_s + takes_s),
        # Mostly immediately, and later if a crash took the call.
        np.where(refused, arrivals_s + times_s(24, queries) * (rng.random(queries) < 0.3), NEVER),
        parity_takes_s,
        (10.0 ** rng.uniform(-1.2, 0.2, 100)).tolist(),
    )


@dataclass
class Group:
    opened_s: float
    members: list[int] = field(default_factory=list)
    closed: bool = False
    fillers: int = 0
    parities: int = 0  # that have answered


class Reference:
    """The semantics word by word, one event after the other."""

    def __init__(self, case: Case) -> None:
        self.case, self.env = case, simpy.Environment()
        queries = len(case.arrivals_s)
        self.latency_s = np.full(queries, NEVER)
        self.degraded = np.zeros(queries, dtype=bool)
        self.groups = self.calls = 0
        self._group: Group | None = None
        self._group_of: dict[int, Group] = {}
        self._exact: set[int] = set()
        self._reconstructed: set[int] = set()  # also those whose reconstruction is still being decoded
        self._known: set[int] = set()
        self._fills_s: dict[int, float] = {}
        self._held: set[int] = set()
        self._ended: set[int] = set()
        for query in range(queries):
            self._at(case.arrivals_s[query], ARRIVAL, self._arrive, query)
            self._at(case.exact_s[query], MODEL, self._answer, query)
            self._at(case.refused_s[query], MODEL, self._refuse, query)
        self.env.run()

    def _at(self, time_s: float, priority: int, action: Callable[..., None], *of: object) -> None:
        if time_s == NEVER:
            return
        event = simpy.Event(self.env)
        event._ok, event._value = True, None
        event.callbacks.append(lambda _: action(*of))
        self.env.schedule(event, simpy.events.EventPriority(priority), time_s - self.env.now)

    def _arrive(self, query: int) -> None:
        now_s = self.env.now
        if self._group is None:
            self._group = Group(now_s)
            self._at(now_s + self._fill_s(now_s), FILL, self._close, self._group)
        group = self._group
        group.members.append(query)
        self._group_of[query] = group
        if len(group.members) == self.case.code.k:
            self._close(group)

    def _fill_s(self, now_s: float) -> float:
        if self.case.insurance.fill_s is not None:
            return self.case.insurance.fill_s
        minute = int(now_s // 60.0)
        if minute not in self._fills_s:
            self._fills_s[minute] = self._chosen_s(minute)
        return self._fills_s[minute]

    def _chosen_s(self, minute: int) -> float:
        """Return the least fill, by integrating the law of the time until a group is full."""
        came = self.case.arrivals_s
        rps = np.count_nonzero((came >= 60.0 * (minute - 1)) & (came < 60.0 * minute)) / 60.0
        most_rps = 0.7 * self.case.parity_rps[minute]
        further = self.case.code.k - 1  # queries after the first

        law = stats.gamma(further, scale=1.0 / rps) if rps else None

        def calls_rps(fill_s: float) -> float:
            open_s, _ = integrate.fixed_quad(law.sf, 0.0, fill_s, n=200)
            return float(rps / (1.0 + rps * open_s))

        if rps == 0.0:
            return 1.0 / most_rps
        if rps < most_rps:
            return 0.0
        if rps / self.case.code.k >= most_rps:
            return NEVER
        longest_s = 1.0 / rps
        while calls_rps(longest_s) > most_rps:
            longest_s *= 2.0
        return float(optimize.brentq(lambda fill_s: calls_rps(fill_s) - most_rps, 0.0, longest_s, xtol=1e-13))

    def _close(self, group: Group) -> None:
        if group.closed:
            return
        case, code = self.case, self.case.code
        group.closed, self._group = True, None
        self.groups += 1
        group.fillers = code.k - len(group.members)
        if len(self._exact) < group.fillers:
            return
        called_s = self.env.now + code.encode_s
        youngest_s = case.arrivals_s[group.members[-1]] + case.rt_max_s
        if youngest_s - called_s - code.decode_s > 0.0:
            for takes_s in case.parity_takes_s[:, self.calls]:
                self._at(called_s + takes_s, PARITY, self._parity, group)
            self.calls += 1

    def _answer(self, query: int) -> None:
        self._exact.add(query)
        if query not in self._ended:
            self._end(query, degraded=False)
        self._look(self._group_of[query])

    def _parity(self, group: Group) -> None:
        group.parities += 1
        self._look(group)

    def _look(self, group: Group) -> None:
        """Reconstruct the members that can be reconstructed now."""
        for query in group.members:
            others = sum(other in self._exact for other in group.members if other != query)
            outputs = others + group.fillers + group.parities
            if group.parities and outputs >= self.case.code.k and query not in self._reconstructed:
                self._reconstructed.add(query)
                self._at(self.env.now + self.case.code.decode_s, RECONSTRUCTION, self._reconstruct, query)

    def _reconstruct(self, query: int) -> None:
        self._known.add(query)
        if self.case.insurance.accept != DEGRADED or query in self._ended:
            return
        may_s = self.case.arrivals_s[query] + self.case.insurance.after_s
        if query in self._held or self.env.now >= may_s:
            self._end(query, degraded=True)
        else:
            self._at(may_s, RECONSTRUCTION, self._reconstruct, query)

    def _refuse(self, query: int) -> None:
        if query in self._ended:
            return
        deadline_s = self.case.arrivals_s[query] + self.case.rt_max_s
        if self.case.insurance.accept == DEGRADED and query in self._known:
            self._end(query, degraded=True)
        elif self.env.now > deadline_s:
            self._ended.add(query)
        else:
            self._held.add(query)
            self._at(deadline_s, DEADLINE, self._ended.add, query)

    def _end(self, query: int, *, degraded: bool) -> None:
        self._ended.add(query)
        self.latency_s[query] = self.env.now - self.case.arrivals_s[query]
        self.degraded[query] = degraded

    @property
    def saved(self) -> int:
        late = self.case.exact_s - self.case.arrivals_s > self.case.rt_max_s
        return int(np.count_nonzero(self.degraded & late & (self.latency_s <= self.case.rt_max_s)))


class Live:
    """The machine of live queries, told the events of a case in their order. It takes the fills of the reference."""

    def __init__(self, case: Case, reference: Reference) -> None:
        self.case, self._reference = case, reference
        parity = replace(case.code, input_shape=(1,), output_shape=(1,))
        self.coding = CodingGroups(parity, rt_max_s=case.rt_max_s, after_s=case.insurance.after_s, fill_s=NEVER)
        queries = len(case.arrivals_s)
        self.latency_s, self.degraded = np.full(queries, NEVER), np.zeros(queries, dtype=bool)
        self.calls = 0
        self._members: list[Member] = []  # in order of arrival
        self._query_of: dict[Member, int] = {}
        self._events: list[tuple[float, int, int, Callable[[float], None]]] = []
        self._numbers = itertools.count()
        for query in range(queries):
            self._at(case.arrivals_s[query], ARRIVAL, partial(self._arrive, query))
            self._at(case.exact_s[query], MODEL, partial(self._answer, query))
            at_once = case.refused_s[query] == case.arrivals_s[query]
            self._at(case.refused_s[query], ARRIVAL if at_once else MODEL, partial(self._refuse, query))
        while (now_s := min(self.coding.due_s(), self._events[0][0] if self._events else NEVER)) < NEVER:
            self._tell(now_s, PARITY)
            self._act(self.coding.woken(now_s), now_s)
            self._tell(now_s, ARRIVAL)
            self._act(self.coding.closed(now_s), now_s)

    def _at(self, time_s: float, kind: int, event: Callable[[float], None]) -> None:
        if time_s < NEVER:
            heappush(self._events, (time_s, kind, next(self._numbers), event))

    def _tell(self, now_s: float, last_kind: int) -> None:
        """Run the events of this moment, up to those of this kind."""
        while self._events and self._events[0][:2] <= (now_s, last_kind):
            heappop(self._events)[3](now_s)

    def _act(self, actions: list[Action], now_s: float) -> None:
        for action in actions:
            if isinstance(action, CallParities):
                self._at(now_s + self.case.code.encode_s, PARITY, partial(self._call, action.group))
            elif isinstance(action, Reconstructed):
                self._end(self._query_of[action.member], now_s, degraded=True)

    def _arrive(self, query: int, now_s: float) -> None:
        self.coding.fill_s = self._reference._fill_s(now_s)
        accepts = self.case.insurance.accept == DEGRADED
        deadline_s = now_s + self.case.rt_max_s
        member, actions = self.coding.join(np.ones(1, np.float32), now_s, deadline_s, now_s, accepts=accepts)
        self._members.append(member)
        self._query_of[member] = query
        self._act(actions, now_s)

    def _answer(self, query: int, now_s: float) -> None:
        if not self._members[query].answered:
            self._end(query, now_s, degraded=False)
        self._act(self.coding.answered(self._members[query], np.ones(1, np.float32), now_s), now_s)

    def _refuse(self, query: int, now_s: float) -> None:
        self._act(self.coding.refused(self._members[query], now_s)[1], now_s)

    def _call(self, group: CodingGroup, now_s: float) -> None:
        if self.coding.limit_s(group) <= now_s:
            self._act(self.coding.too_late(group), now_s)
            return
        for parity in range(len(self.coding.encoded(group))):
            takes_s = self.case.parity_takes_s[parity, self.calls]
            if takes_s < NEVER:
                self._at(now_s + takes_s, PARITY, partial(self._parity, group, parity))
            else:
                self._act(self.coding.parity_missed(group, parity), now_s)
        self.calls += 1

    def _parity(self, group: CodingGroup, parity: int, now_s: float) -> None:
        self._act(self.coding.parity_answered(group, parity, np.ones(1, np.float32), now_s), now_s)

    def _end(self, query: int, now_s: float, *, degraded: bool) -> None:
        self.latency_s[query], self.degraded[query] = now_s - self.case.arrivals_s[query], degraded


def flow_of(case: Case) -> CodedFlow:
    return CodedFlow(case.insurance, case.rt_max_s, case.arrivals_s, lambda at_s: case.parity_rps[int(at_s / 60.0)])


def by_windows(case: Case, window_s: float) -> CodedAnswers:
    """Serve calls so that each answer becomes known with the window in which it comes, as the kernel settles it."""
    flow, window = flow_of(case), 7
    counts = CodedCounts(flow, window)
    waiting: list[dict[int, float]] = [{} for _ in range(1 + case.code.r)]
    made = [0] * len(waiting)
    windows = 1 + math.ceil((case.arrivals_s[-1] + 25.0) / window_s)  # hardly anything comes later
    for until_s in [*(window_s * n for n in range(1, windows)), NEVER]:
        for stage, answers_s in enumerate(waiting):
            times_s, queries = flow.due(stage, until_s)
            assert np.all(times_s < until_s)
            calls = made[stage] + np.arange(len(times_s))
            made[stage] += len(times_s)
            if stage == 0:
                assert queries.tolist() == calls.tolist()
                answers_s.update(zip(calls.tolist(), case.exact_s[calls].tolist(), strict=True))
                refused = np.flatnonzero(np.isfinite(case.refused_s[calls]))
                flow.missed(0, calls[refused], case.refused_s[calls[refused]])
            else:
                left_s = flow.left_s(times_s, queries, case.rt_max_s) - case.code.decode_s
                assert np.all(left_s > 0.0), "a call without time left"
                found_s = times_s + case.parity_takes_s[stage - 1, calls]
                answers_s.update(zip(calls.tolist(), found_s.tolist(), strict=True))
            come = {call: at_s for call, at_s in answers_s.items() if at_s < until_s}
            flow.answered(stage, np.array(list(come), dtype=np.int64), np.array(list(come.values())))
            waiting[stage] = {call: at_s for call, at_s in answers_s.items() if call not in come}
        counts.count(until_s)
    found = flow.answers()
    in_time = found.latency_s <= case.rt_max_s
    assert (counts.departed, counts.in_time) == (len(in_time), np.count_nonzero(in_time))
    assert counts.recent() == (min(window, len(in_time)), np.count_nonzero(in_time[-window:]))
    return found


@pytest.mark.parametrize("seeds", SEEDS)
def test_groups_go_by_the_semantics(seeds: range) -> None:
    """The cases include reconstructions, given-up groups, chosen fills and held refusals."""
    degraded = given_up = chosen = held = 0
    for seed in seeds:
        case = drawn_case(seed)
        expected = Reference(case)
        for window_s in (1.0, 7.5):
            found = by_windows(case, window_s)
            assert found.latency_s == pytest.approx(expected.latency_s, abs=1e-9), seed
            assert found.degraded.tolist() == expected.degraded.tolist(), seed
            counts = found.groups, found.parity_calls, found.saved
            assert counts == (expected.groups, expected.calls, expected.saved), seed
        degraded += found.reconstructed
        given_up += found.groups - found.parity_calls
        chosen += sum(0.0 < fill_s < NEVER for fill_s in expected._fills_s.values())
        held += int(np.count_nonzero(found.degraded & np.isfinite(case.refused_s)))
    assert min(degraded, given_up, chosen, held) > len(seeds) // 20


@pytest.mark.parametrize("seeds", SEEDS)
def test_live_groups_answer_as_simulated_ones(seeds: range) -> None:
    """A live machine decodes in no time, so the simulated one does so too."""
    for seed in seeds:
        case = drawn_case(seed)
        insurance = replace(case.insurance, parity=replace(case.code, decode_s=0.0))
        case = replace(case, insurance=insurance)
        live, found = Live(case, Reference(case)), by_windows(case, 7.5)
        assert live.latency_s == pytest.approx(found.latency_s, abs=1e-9), seed
        assert live.degraded.tolist() == found.degraded.tolist(), seed
        claims = live.coding.claims
        counts = claims.groups, live.calls, claims.reconstructed, claims.saved
        assert counts == (found.groups, found.parity_calls, found.reconstructed, found.saved), seed


def test_a_whole_run_takes_one_pass_of_each_fleet() -> None:
    """Query 1 takes 5 s; the others of its group and the parity answer after 1 s, and 0.5 s are for decoding."""
    parity = ParitySettings("sum", k=3, encode_s=0.25, decode_s=0.5)
    insurance = InsuranceSettings(parity, after_s=1.9, accept=DEGRADED, fill_s=NEVER)
    flow = CodedFlow(insurance, 2.0, np.array([0.0, 0.1, 0.2, 0.3]), lambda at_s: 1.0)
    seen: list[tuple[list[float], list[float]]] = []

    def served(takes_s: list[float]) -> Serve:
        def serve(times_s: np.ndarray, limits_s: np.ndarray) -> np.ndarray:
            seen.append((times_s.tolist(), limits_s.tolist()))
            return times_s + np.array(takes_s)

        return serve

    found = coded_answers(flow, served([1.0, 5.0, 1.0, 5.0]), [served([1.0])])
    assert found.latency_s == pytest.approx([1.0, 1.9, 1.0, 5.0])
    assert found.degraded.tolist() == [False, True, False, False]
    assert (found.groups, found.parity_calls, found.reconstructed, found.saved) == (1, 1, 1, 1)
    assert seen[0] == ([0.0, 0.1, 0.2, 0.3], pytest.approx([2.0] * 4))
    assert seen[1] == ([0.45], [pytest.approx(1.25)]), "the youngest has until 2.2 s, less the decoding"


def test_groups_of_one_are_answered_by_the_faster_of_two_fleets() -> None:
    """This simulates replication without a code."""
    insurance = InsuranceSettings(ParitySettings("sum", k=1), accept=DEGRADED, fill_s=NEVER)
    arrivals_s = np.arange(4.0)
    flow = CodedFlow(insurance, 9.0, arrivals_s, lambda at_s: 1.0)
    takes_s = [np.array([1.0, 4.0, NEVER, 3.0]), np.array([2.0, 2.0, 5.0, NEVER])]
    found = coded_answers(flow, lambda at_s, _: at_s + takes_s[0], [lambda at_s, _: at_s + takes_s[1]])
    assert found.latency_s.tolist() == [1.0, 2.0, 5.0, 3.0]


def test_only_queries_that_accept_it_are_answered_by_reconstruction() -> None:
    insurance = InsuranceSettings(ParitySettings("sum", k=2), fill_s=NEVER)
    flow = CodedFlow(insurance, 2.0, np.array([0.0, 0.0]), lambda at_s: 1.0)
    found = coded_answers(flow, lambda at_s, _: at_s + np.array([1.0, 5.0]), [lambda at_s, _: at_s + 1.0])
    assert found.latency_s.tolist() == [1.0, 5.0]
    assert (found.reconstructed, found.parity_calls) == (0, 1)
