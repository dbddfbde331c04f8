"""The state that processes share: a learner, the vector of its facts, and the latest facts themselves.

It has no I/O and no clock. Processes converge because each sends the others its vector (`lacking`), takes the facts of
the answer (`take`), and takes a whole snapshot (`adopt`) if these facts were dropped.
"""

from __future__ import annotations

import logging
import math
import zlib
from bisect import bisect_right, insort
from collections.abc import Callable, Collection, Iterable, Iterator
from dataclasses import dataclass

import orjson

from mark.serving.learned.facts import NEW, OLD, Applied, Fact, Vector, vector_in
from mark.serving.learned.learner_port import Learner

_FORMAT = 1
_LOG = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class LearnedSnapshot:
    """The state of a learner, and the facts that it holds."""

    vector: Vector
    state: bytes

    def to_bytes(self) -> bytes:
        """Return a line of JSON, and the state."""
        head = {"format": _FORMAT, "crc32": zlib.crc32(self.state), "vector": self.vector.to_json()}
        return orjson.dumps(head, option=orjson.OPT_APPEND_NEWLINE) + self.state


def snapshot_in(data: bytes) -> LearnedSnapshot:
    """Return the snapshot that `to_bytes` wrote. Raises ValueError for a damaged one, and one of another format."""
    line, _, state = data.partition(b"\n")
    head = orjson.loads(line)
    if not isinstance(head, dict) or head.get("format") != _FORMAT or head.get("crc32") != zlib.crc32(state):
        raise ValueError("no whole snapshot of this format")
    return LearnedSnapshot(vector_in(head.get("vector")), state)


@dataclass(frozen=True, slots=True)
class Lacking:
    """Facts that another process lacks. `whole`: it also lacks facts that are kept here only in the state."""

    facts: Iterator[Fact]
    whole: bool


class Shared:
    """The state of one process, as the module describes. The latest facts are kept for others, up to `tail_bytes`.

    Facts that another process may lack are kept beyond that, up to `most_bytes`. Otherwise two processes that each
    dropped facts the other needs could not take each other's snapshot.
    """

    def __init__(self, learner: Learner, tail_bytes: int, most_bytes: int) -> None:
        self.vector = Vector()
        self.cleaned: Callable[[Fact], Fact] = lambda fact: (
            fact
        )  # returns a new fact without content about deleted keys
        self.old = self.failed = 0  # facts that were too old, and those that the learner could not apply
        self._learner = learner
        self._tail_bytes, self._most_bytes = tail_bytes, most_bytes
        self._tail: dict[tuple[str, int], Fact] = {}  # oldest first
        self._numbers: dict[str, list[int]] = {}  # numbers in the tail, ascending
        self._bytes = 0

    def take(self, facts: Iterable[Fact]) -> list[Fact]:
        """Apply the facts that are new, and return these."""
        taken = []
        for fact in facts:
            verdict = self.vector.judge(fact)
            if verdict == NEW:
                now = self.cleaned(fact)
                self.vector.add(now)
                self._apply(now)
                self._keep(now)
                taken.append(now)
            elif verdict == OLD:
                self.old += 1
        return taken

    def reread(self, facts: Iterable[Fact]) -> list[Fact]:
        """Take facts from a journal, and return the new ones. All are kept for other processes."""
        taken = []
        for fact in facts:
            taken += self.take([fact])
            if self.vector.has(fact.writer, fact.number):
                self._keep(fact)
        return taken

    def lacking(self, theirs: Vector) -> Lacking:
        """Return the facts that a process with that vector lacks."""
        found: list[Fact] = []
        whole = self.vector.since_s > theirs.since_s == -math.inf  # it does not know the writers forgotten here
        for writer, count in self.vector.ahead_of(theirs):
            applied = theirs.writers.get(writer, Applied())
            numbers = self._numbers.get(writer, [])
            kept = [n for n in numbers[bisect_right(numbers, applied.through) :] if n not in applied.beyond]
            found += [self._tail[writer, number] for number in kept]
            whole = whole or len(kept) < count
        return Lacking(iter(found), whole)

    def snapshot(self) -> LearnedSnapshot:
        """Return a snapshot of the current state."""
        return self.freeze()()

    def freeze(self) -> Callable[[], LearnedSnapshot]:
        """Return a function that makes a snapshot of the current state. Another thread may call it."""
        vector, state = self.vector.copy(), self._learner.freeze()
        return lambda: LearnedSnapshot(vector, state())

    def adopt(self, snapshot: LearnedSnapshot) -> bool:
        """Replace the state with a snapshot of another process, and apply the facts that it lacks again.

        Return False if this state has facts that the snapshot lacks and that are not kept here, so that they would be
        lost. Raises ValueError if the learner refuses the snapshot; then the state is unchanged.
        """
        lacking = self.lacking(snapshot.vector)
        if lacking.whole:
            return False
        again = list(lacking.facts)
        self._learner.restore(snapshot.state)
        self.vector = snapshot.vector.copy()
        for fact in again:
            self.vector.add(fact)
            self._apply(fact)
        return True

    def trim(self, others: Collection[Vector]) -> None:
        """Drop the oldest facts from the tail. `others` are the last known vectors of the other processes."""
        while self._bytes > self._tail_bytes:
            fact = next(iter(self._tail.values()))
            if self._bytes <= self._most_bytes and _is_lacked(fact, others):
                return
            self._drop(fact)

    def unshared(self, others: Collection[Vector]) -> list[Fact]:
        """Return the kept facts that another process may lack."""
        return [fact for fact in self._tail.values() if _is_lacked(fact, others)]

    def kept(self, since_s: float, without: Collection[str]) -> list[Fact]:
        """Return the kept facts since that time, except those of some writers."""
        return [fact for fact in self._tail.values() if fact.at_s >= since_s and fact.writer not in without]

    def rewrite(self, change: Callable[[Fact], Fact]) -> None:
        """Change the content of kept facts, for example when a user is deleted."""
        for at, fact in self._tail.items():
            now = change(fact)
            if now is not fact:
                self._bytes += now.memory_bytes - fact.memory_bytes
                self._tail[at] = now

    def forget(self, before_s: float, keep: Collection[str]) -> None:
        """Forget writers of long ago, as the vector does, with their facts in the tail."""
        for writer in self.vector.forget(before_s, keep):
            for number in tuple(self._numbers.get(writer, ())):
                self._drop(self._tail[writer, number])

    def _apply(self, fact: Fact) -> None:
        try:
            self._learner.apply(fact.content)
        except Exception:  # otherwise one fact would keep this process from all later ones
            self.failed += 1
            _LOG.exception("fact %d of writer %s cannot be applied", fact.number, fact.writer)

    def _keep(self, fact: Fact) -> None:
        if (fact.writer, fact.number) in self._tail:
            return
        self._tail[fact.writer, fact.number] = fact
        insort(self._numbers.setdefault(fact.writer, []), fact.number)
        self._bytes += fact.memory_bytes

    def _drop(self, fact: Fact) -> None:
        del self._tail[fact.writer, fact.number]
        numbers = self._numbers[fact.writer]
        numbers.remove(fact.number)
        if not numbers:
            del self._numbers[fact.writer]
        self._bytes -= fact.memory_bytes


def _is_lacked(fact: Fact, others: Iterable[Vector]) -> bool:
    return any(theirs.judge(fact) == NEW for theirs in others)
