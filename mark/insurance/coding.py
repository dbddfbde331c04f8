"""Group live queries for parity calls, and reconstruct missing answers.

The rules are those of docs/semantics.md, section 20. Nothing here reads a clock or does I/O: each method gets the time
of its event and returns the actions to take. Events of one moment must be told in this order: answers of the model,
answers of parity models, `woken`, arrivals, `closed`. Only `woken` reconstructs, so that an exact answer of the same
moment comes first. Times are seconds of one monotonic clock.
"""

from __future__ import annotations

import math
from collections import deque
from dataclasses import dataclass
from heapq import heappop, heappush

import numpy as np

from mark.domain.arrays import FloatArray
from mark.domain.rules.admission import TOLERANCE_S
from mark.insurance.codes import ParityCode
from mark.insurance.insurance_settings import BEFORE_DEADLINE_S, ParitySettings

MOST_KEPT_BYTES = 64 << 20
# Memory of a member and its share of a group, without arrays: measured with tracemalloc and rounded up.
_MEMBER_BYTES = 1000
# With fewer compared reconstructions the expected agreement is reported.
_FEW_COMPARED = 30


class Member:
    """A query in a coding group. It waits for its exact answer even if the group was forgotten."""

    __slots__ = (
        "accepts", "answered", "deadline_s", "from_s", "group", "in_time", "input", "pending", "place",
        "reconstruction", "refused",
    )  # fmt: skip

    def __init__(
        self, group: CodingGroup, place: int, query: FloatArray, from_s: float, deadline_s: float, accepts: bool
    ) -> None:
        self.group, self.place = group, place
        self.input: FloatArray | None = query  # None: the group was forgotten
        self.from_s = from_s  # from then on a reconstruction may answer it
        self.deadline_s, self.accepts = deadline_s, accepts
        self.pending = True  # its call of the model is under way
        self.refused = False  # a refusal of the model is held
        self.answered = False  # it needs no answer any more
        self.reconstruction: FloatArray | None = None  # the answer, if it was reconstructed
        self.in_time = False  # the reconstruction came by the deadline


class CodingGroup:
    """Up to k members; older queries fill the free places.

    `known` are the model's outputs by place, `parities` the parity models' outputs by number, in the order they came.
    """

    __slots__ = ("awaited", "bytes", "closed", "closes_s", "fillers", "given_up", "known", "members", "parities")

    def __init__(self, closes_s: float) -> None:
        self.closes_s = closes_s
        self.members: list[Member] = []
        self.fillers: list[FloatArray] = []  # older queries, until they are encoded
        self.known: dict[int, FloatArray] = {}
        self.parities: dict[int, FloatArray] = {}
        self.awaited: set[int] = set()  # parity models that may still answer
        self.closed = self.given_up = False
        self.bytes = 0

    @property
    def settled(self) -> bool:
        """Whether no answer that may still come can help a member."""
        return self.closed and not self.awaited and not any(one.pending or one.refused for one in self.members)


@dataclass(frozen=True, slots=True)
class CallParities:
    """Call each parity model for the group, with the queries that `CodingGroups.encoded` returns."""

    group: CodingGroup


@dataclass(frozen=True, slots=True)
class Reconstructed:
    """Answer the member with this output."""

    member: Member
    output: FloatArray


@dataclass(frozen=True, slots=True)
class PassOn:
    """Answer the member with the refusal that was held for it, because no reconstruction will come."""

    member: Member


Action = CallParities | Reconstructed | PassOn


@dataclass(slots=True)
class Claims:
    """Counts of groups, parity calls and reconstructions since the start."""

    groups: int = 0  # closed groups
    given_up: int = 0  # closed groups without a parity call
    parity_calls: int = 0  # calls of all parity models
    parity_missed: int = 0  # parity calls without a usable answer
    malformed: int = 0  # answers of parity models, and reconstructions, that are not finite or of another shape
    unusable: int = 0  # answers of the model that cannot be used to reconstruct, such as labels
    members: int = 0
    passed_by: int = 0  # queries that fit into no group
    reconstructed: int = 0
    saved: int = 0  # reconstructions in time whose exact answer came after the deadline, or never
    compared: int = 0  # reconstructions compared with an exact answer that came later
    agreed: int = 0  # compared ones with the same largest score
    held: int = 0  # refusals that waited for a reconstruction
    held_passed_on: int = 0  # held refusals that were passed on
    forgotten: int = 0  # groups dropped for want of memory

    def agreement(self, expected: float | None) -> float | None:
        """Return the share of reconstructions that agree with the exact answer; `expected` while few were compared."""
        return self.agreed / self.compared if self.compared >= _FEW_COMPARED else expected


class CodingGroups:
    """The coding groups of one service, and their claims.

    A reconstruction may answer a request `after_s` after its arrival, or shortly before a client's own earlier
    deadline. Groups that open from now on close after `fill_s`. At most `most_bytes` of queries and outputs are kept:
    beyond that the oldest groups are forgotten, and their members get exact answers only.
    """

    def __init__(
        self,
        parity: ParitySettings,
        *,
        rt_max_s: float,
        after_s: float,
        fill_s: float,
        most_bytes: int = MOST_KEPT_BYTES,
    ) -> None:
        self.code = ParityCode(parity.code, parity.k, parity.r)
        self.fill_s = fill_s
        self.claims = Claims()
        self._parity, self._rt_max_s, self._after_s = parity, rt_max_s, after_s
        self._most_bytes = most_bytes
        self._output_bytes = 8 * math.prod(parity.output_shape)
        self._open: CodingGroup | None = None
        self._groups: dict[CodingGroup, None] = {}  # in order of opening
        self._pairs: deque[tuple[FloatArray, FloatArray]] = deque(maxlen=parity.k - 1)  # exact ones, newest last
        self._due: list[tuple[float, int, Member]] = []  # (time, number, member): `woken` looks at the member then
        self._number = 0
        self.kept_bytes = 0

    def query_of(self, item: object) -> FloatArray | None:
        """Return the item as numbers that can be encoded; None if it fits into no group.

        Numbers that are not finite do not fit, because they would spoil the parity calls of the whole group.
        """
        if not isinstance(item, np.ndarray | list | float | int):
            return None
        try:
            query = np.asarray(item)
            if query.dtype.kind not in "fiu" or query.shape != self._parity.input_shape:
                return None
            with np.errstate(over="ignore"):
                query = query.astype(np.float32, copy=False)
        except (TypeError, ValueError):  # a ragged list
            return None
        large = self.code.k * query.nbytes > self._most_bytes
        return None if large or not np.isfinite(query).all() else query

    def due_s(self) -> float:
        """Return when `woken` or `closed` has something to do next."""
        closes_s = math.inf if self._open is None else self._open.closes_s
        return min(closes_s, self._due[0][0] if self._due else math.inf)

    # Arrivals and closings

    def join(
        self, query: FloatArray, arrived_s: float, deadline_s: float, now_s: float, *, accepts: bool
    ) -> tuple[Member, list[Action]]:
        """Let a query (of `query_of`) join the open group, or open one. `accepts`: may a reconstruction answer it?"""
        actions: list[Action] = []
        group = self._open
        if group is not None and group.closes_s < now_s:  # the timer is late
            actions += self._close(group, now_s)
            group = None
        if group is None:
            group = self._open = CodingGroup(now_s + self.fill_s)
            self._groups[group] = None
        from_s = arrived_s + self._after_s
        if deadline_s - arrived_s < self._rt_max_s - TOLERANCE_S:  # the client's own deadline is earlier
            from_s = min(from_s, deadline_s - BEFORE_DEADLINE_S)
        member = Member(group, len(group.members), query, from_s, deadline_s, accepts)
        group.members.append(member)
        self.claims.members += 1
        self._keep(group, query.nbytes + self._output_bytes + _MEMBER_BYTES)
        if len(group.members) == self.code.k:
            actions += self._close(group, now_s)
        actions += self._make_room()
        return member, actions

    def closed(self, now_s: float) -> list[Action]:
        """Close the open group if its time has passed."""
        group = self._open
        return self._close(group, now_s) if group is not None and group.closes_s <= now_s else []

    def _close(self, group: CodingGroup, now_s: float) -> list[Action]:
        self._open = None
        group.closed = True
        self.claims.groups += 1
        free = self.code.k - len(group.members)
        if free > len(self._pairs):
            return self._give_up(group)
        fillers = list(self._pairs)[len(self._pairs) - free :]
        for place, (_, output) in enumerate(fillers, len(group.members)):
            group.known[place] = output
        group.fillers = [query for query, _ in fillers]
        group.awaited = set(range(self.code.r))
        self._keep(group, self.code.r * self._output_bytes)
        return [CallParities(group)]

    def _give_up(self, group: CodingGroup) -> list[Action]:
        """Give up a group that makes no parity call, and pass on the refusals held in it."""
        group.given_up, group.awaited = True, set()
        self.claims.given_up += 1
        return self._end_of_waiting(group)

    def encoded(self, group: CodingGroup) -> list[FloatArray]:
        """Return the parity queries of a closed group; none if the group was forgotten."""
        queries = [one.input for one in group.members if one.input is not None] + group.fillers
        group.fillers = []
        if len(queries) < self.code.k:
            return []
        self.claims.parity_calls += self.code.r
        return self.code.encode(queries)

    def too_late(self, group: CodingGroup) -> list[Action]:
        """Give up a closed group, because no time is left for its parity calls."""
        return self._give_up(group)

    def limit_s(self, group: CodingGroup) -> float:
        """Return the deadline of the group's parity calls."""
        return group.members[-1].deadline_s - self._parity.decode_s

    # Answers

    def answered(self, member: Member, output: object, now_s: float) -> list[Action]:
        """Note the model's answer. An `output` other than finite numbers of the output shape is unusable."""
        member.pending = False
        found = self._output(output)
        claims = self.claims
        if member.reconstruction is not None:
            claims.saved += member.in_time and now_s > member.deadline_s
            if found is not None and found.size > 1:
                claims.compared += 1
                claims.agreed += int(np.argmax(found)) == int(np.argmax(member.reconstruction))
        member.answered = True
        if found is None:
            claims.unusable += 1
            return self._end_of_waiting(member.group)
        if member.input is not None:
            self._pairs.append((member.input, found))
        if member.group in self._groups:
            member.group.known[member.place] = found
        self._look_at(member.group, now_s)
        self._forget_settled(member.group)
        return []

    def refused(self, member: Member, now_s: float) -> tuple[bool, list[Action]]:
        """Note that the model refused the query. True: hold the refusal until an action answers the member."""
        return self._missed(member, now_s, may_hold=True)

    def failed(self, member: Member, now_s: float) -> list[Action]:
        """Note that the model failed on the query or rejected it: it has no output, and its error is passed on."""
        return self._missed(member, now_s, may_hold=False)[1]

    def _missed(self, member: Member, now_s: float, *, may_hold: bool) -> tuple[bool, list[Action]]:
        member.pending = False
        self.claims.saved += member.in_time
        holds = may_hold and not member.answered and member.accepts and now_s <= member.deadline_s
        holds = holds and self._may_come(member)
        if holds:
            member.refused = True
            self.claims.held += 1
            self._look_again(member, member.deadline_s)
            self._look_at(member.group, now_s)
        else:
            member.answered = True
        return holds, self._end_of_waiting(member.group)

    def gone(self, member: Member) -> None:
        """Note that the member's request has its answer, or that its client has left."""
        member.answered, member.refused = True, False
        self._forget_settled(member.group)

    def parity_answered(self, group: CodingGroup, parity: int, output: object, now_s: float) -> list[Action]:
        """Note that a parity model has answered for the group."""
        if parity not in group.awaited:  # the group was given up or forgotten
            return []
        found = self._output(output)
        if found is None:
            self.claims.malformed += 1
            return self.parity_missed(group, parity)
        group.awaited.discard(parity)
        group.parities[parity] = found
        self._look_at(group, now_s)
        return self._end_of_waiting(group)

    def parity_missed(self, group: CodingGroup, parity: int) -> list[Action]:
        """Note that a parity model will not answer for the group."""
        if parity not in group.awaited:
            return []
        group.awaited.discard(parity)
        self.claims.parity_missed += 1
        return self._end_of_waiting(group)

    def woken(self, now_s: float) -> list[Action]:
        """Answer the members whose time has come, in the order of these times."""
        actions: list[Action] = []
        while self._due and self._due[0][0] <= now_s:
            _, _, member = heappop(self._due)
            if member.answered:
                continue
            if (found := self._reconstruct(member, now_s)) is not None:
                actions.append(found)
                self._forget_settled(member.group)
            elif member.refused and now_s >= member.deadline_s:
                actions.append(self._pass_on(member))
                self._forget_settled(member.group)
        return actions

    # Reconstructions

    def _reconstructable(self, member: Member) -> bool:
        """Return whether k outputs of the group are known beside the member's own."""
        group = member.group
        others = len(group.known) - (member.place in group.known)
        return others + len(group.parities) >= self.code.k

    def _may_come(self, member: Member) -> bool:
        """Return whether k outputs of the group beside the member's own are known or may still come."""
        group = member.group
        if group.given_up:
            return False
        others = len(group.known) + sum(one.pending for one in group.members)
        others -= member.place in group.known or member.pending
        if group.closed:
            return others + len(group.parities) + len(group.awaited) >= self.code.k
        return others + self.code.k - len(group.members) + self.code.r >= self.code.k

    def _at_s(self, member: Member) -> float:
        """Return when a reconstruction may answer the member: at once after a refusal, as no exact answer will come."""
        return -math.inf if member.refused else member.from_s

    def _look_at(self, group: CodingGroup, now_s: float) -> None:
        """Have `woken` answer the members that can be reconstructed, after a new output or a held refusal."""
        for member in group.members:
            if not member.answered and member.accepts and self._reconstructable(member):
                self._look_again(member, max(now_s, self._at_s(member)))

    def _look_again(self, member: Member, at_s: float) -> None:
        self._number += 1
        heappush(self._due, (at_s, self._number, member))

    def _reconstruct(self, member: Member, now_s: float) -> Reconstructed | None:
        """Reconstruct the member's output; None if it is too early, too few outputs are known, or it is not finite."""
        if not self._reconstructable(member) or self._at_s(member) > now_s:
            return None
        group = member.group
        known = {place: output for place, output in group.known.items() if place != member.place}
        found = self.code.decode(known, group.parities)[member.place]
        with np.errstate(over="ignore"):
            found = found.astype(next(iter(known.values())).dtype)  # never empty, because r < k
        if not np.isfinite(found).all():
            self.claims.malformed += 1
            return None
        member.reconstruction, member.answered = found, True
        member.in_time = now_s <= member.deadline_s
        self.claims.reconstructed += 1
        if not member.pending:  # its refusal is held
            member.refused = False
            self.claims.saved += member.in_time
        return Reconstructed(member, found)

    def _end_of_waiting(self, group: CodingGroup) -> list[Action]:
        """Pass on the held refusals for which no reconstruction can come any more."""
        lost = [one for one in group.members if one.refused and not one.answered and not self._may_come(one)]
        actions: list[Action] = [self._pass_on(member) for member in lost]
        self._forget_settled(group)
        return actions

    def _pass_on(self, member: Member) -> PassOn:
        member.refused, member.answered = False, True
        self.claims.held_passed_on += 1
        return PassOn(member)

    def _output(self, output: object) -> FloatArray | None:
        """Return the output as numbers; None if it cannot be used."""
        if not isinstance(output, np.ndarray | np.generic | float | list):
            return None
        try:
            found = np.asarray(output)
        except ValueError:  # a ragged list
            return None
        if found.shape != self._parity.output_shape or found.dtype.kind != "f" or not np.isfinite(found).all():
            return None
        return found

    # Memory

    def _keep(self, group: CodingGroup, size: int) -> None:
        group.bytes += size
        self.kept_bytes += size

    def _forget_settled(self, group: CodingGroup) -> None:
        if group.settled:
            self._forget(group)

    def _forget(self, group: CodingGroup) -> None:
        if group in self._groups:
            del self._groups[group]
            self.kept_bytes -= group.bytes
            group.known.clear()
            group.parities.clear()
            group.fillers = []
            for member in group.members:
                member.input = None

    def _make_room(self) -> list[Action]:
        """Forget the oldest groups until the others fit."""
        actions: list[Action] = []
        while self.kept_bytes > self._most_bytes and len(self._groups) > 1:
            group = next(iter(self._groups))
            self.claims.forgotten += 1
            if group is self._open:
                self._open = None
            group.closed = True
            self._forget(group)
            group.given_up, group.awaited = True, set()
            actions += self._end_of_waiting(group)
        return actions
