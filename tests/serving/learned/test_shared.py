"""Processes that exchange facts over a bad network, and are killed, end with the same state: each fact once."""

from __future__ import annotations

from dataclasses import dataclass, field

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from mark.serving.learned.facts import KEPT_S, Fact, Vector, facts_in, line_of, pages
from mark.serving.learned.shared import LearnedSnapshot, Shared, snapshot_in
from tests.serving.learned.made import Tally, fact

TAIL_BYTES = 0  # so that snapshots are needed


@dataclass
class Disk:
    """The disk of a process: the lines of its journal, and its snapshot."""

    lines: list[bytes] = field(default_factory=list)
    snapshot: bytes = b""


class Process:
    """A process of the model below, with its memory, which dies with it."""

    def __init__(self, writer: str, disk: Disk) -> None:
        self.writer, self.disk = writer, disk
        self.learner = Tally()
        self.shared = Shared(self.learner, TAIL_BYTES, 10**9)
        self.made = 0
        self.unsaid: dict[int, Fact] = {}  # own facts that are on the disk, and not known to be elsewhere
        self.unwritten: list[Fact] = []  # of other processes, in memory only
        self.others: dict[int, Vector] = {}  # by place
        if disk.snapshot:
            assert self.shared.adopt(snapshot_in(disk.snapshot))
        self.shared.reread(one for line in disk.lines for one in facts_in(line))

    def take(self, facts: list[Fact]) -> None:
        self.unwritten += self.shared.take(facts)

    def write(self) -> None:
        self.disk.lines += map(line_of, self.unwritten)
        self.unwritten.clear()


class Processes(RuleBasedStateMachine):
    """Two to four processes on a network that loses, repeats, reorders and cuts. Each has a disk.

    Feedback is told `applied` once it is on the own disk and in the memory of another process. So until the processes
    have met again, either one machine may be lost with its disk, or any of them may be killed.
    """

    @initialize(count=st.integers(2, 4))
    def begin(self, count: int) -> None:
        self.starts = 0
        self.number = 0
        self.told: set[int] = set()
        self.alive = [self._started(Disk()) for _ in range(count)]
        self.wire: list[tuple[str, str, str, bytes]] = []  # from, to, kind, content
        self.cut: set[frozenset[int]] = set()  # places that cannot talk
        self.killed = self.lost = False  # since they met

    def _started(self, disk: Disk) -> Process:
        self.starts += 1
        return Process(f"w{self.starts}", disk)

    def _send(self, to: Process, kind: str, sender: Process, content: bytes) -> None:
        places = frozenset((self.alive.index(to), self.alive.index(sender)))
        if places not in self.cut:
            self.wire.append((sender.writer, to.writer, kind, content))

    def _known(self, process: Process) -> list[Vector]:
        """Return the vectors of the others, as far as the process knows them."""
        return [process.others.get(at, Vector()) for at, one in enumerate(self.alive) if one is not process]

    def _by_name(self, writer: str) -> Process | None:
        return next((one for one in self.alive if one.writer == writer), None)

    # Feedback

    @rule(place=st.integers(0, 3), batch=st.integers(1, 6))
    def feedback(self, place: int, batch: int) -> None:
        process = self.alive[place % len(self.alive)]
        for _ in range(batch):
            process.made += 1
            self.number += 1
            made = fact(process.writer, process.made, content=b"%d" % self.number)
            process.disk.lines.append(line_of(made))
            process.unsaid[made.number] = made

    @rule(place=st.integers(0, 3))
    def push(self, place: int) -> None:
        process = self.alive[place % len(self.alive)]
        for page, lines in pages(process.unsaid.values(), 200):
            assert facts_in(lines) == page
            for other in self.alive:
                if other is not process:
                    self._send(other, "facts", process, lines)

    # The network

    @precondition(lambda self: self.wire)
    @rule(which=st.integers(0, 1000), again=st.booleans())
    def deliver(self, which: int, again: bool) -> None:
        message = self.wire[which % len(self.wire)]
        if not again:
            self.wire.remove(message)
        self._handle(*message)

    @precondition(lambda self: self.wire)
    @rule(which=st.integers(0, 1000))
    def lose(self, which: int) -> None:
        self.wire.pop(which % len(self.wire))

    @rule(one=st.integers(0, 3), other=st.integers(0, 3))
    def partition(self, one: int, other: int) -> None:
        self.cut.add(frozenset((one % len(self.alive), other % len(self.alive))))

    @rule()
    def heal(self) -> None:
        self.cut.clear()

    def _handle(self, sender: str, to: str, kind: str, content: bytes) -> None:
        process, asker = self._by_name(to), self._by_name(sender)
        if process is None:
            return
        if kind == "facts":
            facts = facts_in(content)
            process.take(facts)
            if asker is not None and facts:
                self._send(asker, "have", process, b",".join(b"%d" % one.number for one in facts))
        elif kind == "have":
            for number in map(int, content.split(b",")):
                said = process.unsaid.pop(number, None)
                if said is not None:
                    process.shared.take([said])
                    self.told.add(int(said.content))
        elif kind == "ask" and asker is not None:
            snapshot = snapshot_in(content + b"\n")
            process.others[self.alive.index(asker)] = snapshot.vector
            lacking = process.shared.lacking(snapshot.vector)
            for _, lines in pages(lacking.facts, 300):
                self._send(asker, "facts of others", process, lines)
            if lacking.whole:
                self._send(asker, "snapshot", process, process.shared.snapshot().to_bytes())
        elif kind == "facts of others":
            process.take(facts_in(content))
        elif kind == "snapshot":
            process.shared.adopt(snapshot_in(content))

    @rule(place=st.integers(0, 3), other=st.integers(0, 3))
    def ask(self, place: int, other: int) -> None:
        process, asked = self.alive[place % len(self.alive)], self.alive[other % len(self.alive)]
        if process is not asked:
            self._send(asked, "ask", process, LearnedSnapshot(process.shared.vector, b"").to_bytes()[:-1])

    @rule(place=st.integers(0, 3), other=st.integers(0, 3), trimmed=st.booleans())
    def talk(self, place: int, other: int, trimmed: bool) -> None:
        """Let two processes tell each other all that they can.

        They may then drop the facts that every process is known to have.
        """
        one, two = self.alive[place % len(self.alive)], self.alive[other % len(self.alive)]
        if one is two or frozenset((self.alive.index(one), self.alive.index(two))) in self.cut:
            return
        others, self.wire = self.wire, []
        for process, to in ((one, two), (two, one), (one, two)):
            self._send(to, "ask", process, LearnedSnapshot(process.shared.vector, b"").to_bytes()[:-1])
            if process.unsaid:
                self._send(to, "facts", process, b"".join(map(line_of, process.unsaid.values())))
            while self.wire:
                self._handle(*self.wire.pop(0))
        self.wire = others
        for process in (one, two) if trimmed else ():
            process.shared.trim(self._known(process))

    # Disks

    @rule(place=st.integers(0, 3))
    def write(self, place: int) -> None:
        self.alive[place % len(self.alive)].write()

    @rule(place=st.integers(0, 3))
    def snapshot(self, place: int) -> None:
        process = self.alive[place % len(self.alive)]
        process.disk.snapshot = process.shared.snapshot().to_bytes()
        kept = [*process.unsaid.values(), *process.shared.unshared(self._known(process))]
        process.disk.lines = list(map(line_of, kept))
        process.unwritten.clear()

    @rule(place=st.integers(0, 3))
    def trim(self, place: int) -> None:
        process = self.alive[place % len(self.alive)]
        process.shared.trim(self._known(process))

    # Faults

    @precondition(lambda self: not self.lost)
    @rule(place=st.integers(0, 3))
    def kill(self, place: int) -> None:
        """The process ends, and its disk stays. The facts of others that it had not written are lost with it."""
        self.killed = True
        at = place % len(self.alive)
        self.alive[at] = self._started(self.alive[at].disk)

    @precondition(lambda self: not self.lost and not self.killed)
    @rule(place=st.integers(0, 3))
    def lose_machine(self, place: int) -> None:
        self.lost = True
        self.alive[place % len(self.alive)] = self._started(Disk())

    @rule()
    def meet(self) -> None:
        """Let all talk until no process learns more; then the states are equal, and faults may come again."""
        self.cut.clear()
        for _ in range(20):
            for place, process in enumerate(self.alive):
                self.push(place)
                for other in range(len(self.alive)):
                    self.ask(place, other)
                while self.wire:
                    self._handle(*self.wire.pop(0))
                process.write()
            if len({str(one.shared.vector.to_json()) for one in self.alive}) == 1:
                break
        first = self.alive[0]
        for process in self.alive:
            assert process.shared.vector == first.shared.vector
            assert process.learner.counts == first.learner.counts
            assert not process.unsaid
        assert self.told <= set(first.learner.counts)
        assert not first.shared.vector.lacks(self.alive[-1].shared.vector)
        self.killed = self.lost = False

    @invariant()
    def nothing_is_applied_twice(self) -> None:
        for process in self.alive if hasattr(self, "alive") else ():
            assert set(process.learner.counts.values()) <= {1}

    def teardown(self) -> None:
        if hasattr(self, "alive"):
            self.meet()


TestProcesses = Processes.TestCase
TestProcesses.settings = settings(
    max_examples=60, stateful_step_count=60, deadline=None, suppress_health_check=[HealthCheck.too_slow]
)


def shared(*facts: Fact, tail_bytes: int = 10**6, most_bytes: int = 10**7) -> Shared:
    made = Shared(Tally(), tail_bytes, most_bytes)
    made.take(facts)
    return made


def test_a_snapshot_that_lacks_facts_which_are_not_kept_is_refused() -> None:
    """Otherwise they would be lost: their owner must send them first."""
    ours = shared(fact("a", 1), fact("a", 2), tail_bytes=0, most_bytes=0)
    ours.trim([])
    theirs = shared(fact("b", 1))
    assert not ours.adopt(theirs.snapshot())
    assert ours.vector.has("a", 2)
    assert theirs.adopt(ours.snapshot())
    assert (theirs.vector.has("a", 2), theirs.vector.has("b", 1)) == (True, True)


def test_a_snapshot_of_another_learner_changes_nothing() -> None:
    ours = shared(fact("a", 1))
    theirs = Shared(Tally(version=2), 10**6, 10**7)
    theirs.take([fact("b", 1), fact("b", 2)])
    with pytest.raises(ValueError, match="another version"):
        ours.adopt(theirs.snapshot())
    assert set(ours.vector.writers) == {"a"}
    assert [one.number for one in theirs.lacking(ours.vector).facts] == [1, 2]  # facts are taken even so


def test_facts_that_others_may_lack_are_kept_for_longer() -> None:
    facts = [fact("a", number, content=b"7") for number in range(1, 11)]
    size = facts[0].memory_bytes
    ours = shared(*facts, tail_bytes=4 * size, most_bytes=8 * size)
    lagging = Vector()
    for one in facts[:3]:
        lagging.add(one)
    ours.trim([lagging])
    assert [one.number for one in ours.lacking(lagging).facts] == list(range(4, 11))
    assert ours.unshared([lagging]) == facts[3:]
    assert ours.lacking(Vector()).whole
    assert not ours.lacking(lagging).whole
    ours.trim([])
    assert [one.number for one in ours.lacking(lagging).facts] == list(range(7, 11))
    assert ours.lacking(lagging).whole


def test_a_fact_that_the_learner_cannot_apply_holds_up_no_other() -> None:
    ours = shared(fact("a", 1, content=b"no number"), fact("a", 2))
    assert (ours.failed, ours.vector.writers["a"].through) == (1, 2)
    assert ours.take([fact("a", 1, content=b"no number")]) == []


def test_facts_of_long_ago_are_dropped_and_a_new_process_takes_the_snapshot() -> None:
    ours = shared(fact("old", 1, at_s=0.0), fact("now", 1, at_s=KEPT_S))
    ours.forget(10.0, ())
    assert ours.take([fact("old", 1, at_s=0.0)]) == []
    assert ours.old == 1
    fresh = shared()
    assert ours.lacking(fresh.vector).whole  # though every listed writer is kept whole
    assert fresh.adopt(ours.snapshot())
    assert fresh.vector == ours.vector
    assert not fresh.lacking(ours.vector).whole


@pytest.mark.parametrize("damage", [slice(0, -1), slice(1, None), slice(0, 0)])
def test_a_damaged_snapshot_is_refused(damage: slice) -> None:
    data = shared(fact("a", 1)).snapshot().to_bytes()
    assert snapshot_in(data).vector.has("a", 1)
    with pytest.raises(ValueError):  # noqa: PT011 - of JSON, too
        snapshot_in(data[damage])
