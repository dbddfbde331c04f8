"""Processes that learn together: feedback reported as `applied` survives, and each fact counts once."""

from __future__ import annotations

import asyncio
import errno
from collections.abc import Callable, Coroutine, Sequence
from pathlib import Path
from threading import Event
from typing import Any

import pytest
import uvloop
from prometheus_client.core import Metric

from mark.domain.errors import MarkError
from mark.serving.feedback.port import Observation
from mark.serving.learned import data_aside, snapshot_pages, storing
from mark.serving.learned import learning as timing
from mark.serving.learned.facts import KEPT_S, line_of
from mark.serving.learned.peers import PeerError
from mark.serving.learned.read_schedule import READ_S
from mark.serving.learned.stored import LearnedStore
from mark.testing.fakes import FakeObjects
from tests.serving.learned.linked import NOW_S, Linked, Process, link
from tests.serving.learned.made import Tally, fact


def run(main: Callable[[], Coroutine[Any, Any, None]]) -> None:
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(asyncio.wait_for(main(), 60))


class FlakyObjects(FakeObjects):
    """Objects that cannot be reached while `gone`."""

    gone = False

    def create(self, key: str, content: bytes | Path) -> bool:
        if self.gone:
            raise MarkError("no route to the bucket")
        return super().create(key, content)

    def keys(self, prefix: str) -> list[str]:
        if self.gone:
            raise MarkError("no route to the bucket")
        return super().keys(prefix)


def said(process: Process) -> dict[str, float]:
    """Return the metrics of a process, by name and result."""
    metrics: Sequence[Metric] = list(process.learning.metrics())
    samples = [sample for metric in metrics for sample in metric.samples]
    return {
        "/".join(
            [one.name.removeprefix("mark_learned_"), *(v for k, v in one.labels.items() if k == "result")]
        ): one.value
        for one in samples
    }


# One process


def test_a_process_alone_learns_once_its_disk_has_the_fact(tmp_path: Path) -> None:
    async def main() -> None:
        one = Process("a", tmp_path / "log")
        one.answer("x", "y", "z")
        assert await one.post(x=5, y="no number") == ["applied", "applied"]
        assert await one.post(x=5, z=7) == ["duplicate", "applied"]
        assert one.learner.counts == {5: 1, 7: 1}
        counted = said(one)
        assert (counted["facts_total/applied"], counted["facts_total/unlearned"]) == (2, 1)
        one.die()
        again = Process("b", tmp_path / "log")
        await again.learning.catch_up()
        assert again.learner.counts == {5: 1, 7: 1}
        assert await again.post(x=5) == ["duplicate"]  # its fact says so
        assert await again.post(y=5) == ["unknown"]
        await again.close()

    run(main)


def test_a_fact_whose_write_failed_is_made_once(tmp_path: Path) -> None:
    """The disk is full, and the client repeats its feedback; the log has one line of it."""

    async def main() -> None:
        one = Process("a", tmp_path / "log")
        one.answer("x", "y")
        journal = one.learning._journal
        full = True
        append = journal.append

        def failing(facts: Any) -> None:
            if full:
                raise OSError(28, "No space left on device")
            append(facts)

        journal.append = failing  # type: ignore[method-assign]
        assert await one.post(x=5) is None
        assert one.learner.counts == {}
        full = False
        assert await one.post(y=7) == ["applied"]
        assert await one.post(x=5) == ["duplicate"]  # the fact waited, and went with the next one
        assert one.learner.counts == {5: 1, 7: 1}
        assert one.observations() == 2
        assert one.learning.shared.vector.writers["a"].through == 2
        await one.close()

    run(main)


def test_a_learner_that_fails_on_feedback_keeps_nobody_from_it(tmp_path: Path) -> None:
    class Failing(Tally):
        def fact(self, observation: Observation) -> bytes | None:
            if observation.feedback.said["label"] == "huge":
                return bytes(1 << 20)
            return super().fact(observation) if observation.feedback.said["label"] != 13 else [][1]

    async def main() -> None:
        one = Process("a", tmp_path / "log")
        one.learning.learner = Failing()
        one.answer("x", "y", "z")
        assert await one.post(x=13, y=7, z="huge") == ["applied"] * 3
        assert one.learner.counts == {7: 1}
        assert said(one)["facts_total/unlearned"] == 2
        assert one.observations() == 3
        await one.close()

    run(main)


# Peers


def test_applied_means_that_a_peer_has_the_fact(tmp_path: Path) -> None:
    async def main() -> None:
        a, b = Process("a", tmp_path / "a"), Process("b", tmp_path / "b")
        link(a, b)
        a.answer("x", "y", "z")
        assert await a.post(x=5) == ["applied"]
        assert b.learner.counts == {5: 1}
        assert await b.post(x=5) == ["duplicate"]
        a.links.linked[0].cut = True
        assert await a.post(y=7) is None
        assert (a.learner.counts, said(a)["facts_under_way"]) == ({5: 1}, 1)
        a.links.linked[0].cut = False
        assert await a.post(y=7) == ["applied"]  # with the number that it had
        assert a.learner.counts == b.learner.counts == {5: 1, 7: 1}
        assert (a.observations(), b.learning.shared.vector.writers["a"].through) == (2, 2)
        assert said(a)["facts_under_way"] == 0
        for one in (a, b):
            await one.close()

    run(main)


def test_a_process_is_no_peer_of_itself(tmp_path: Path) -> None:
    """It may be told its own address, and notices only when it has asked there."""

    async def main() -> None:
        a = Process("a", tmp_path / "a")
        link(a)
        a.links.linked = [Linked(a, asyncio.get_running_loop())]
        a.answer("x")
        assert await a.post(x=5) is None
        assert (a.learner.counts, said(a)["facts_under_way"]) == ({}, 1)
        await a.close()

    run(main)


def test_feedback_whose_confirmation_was_lost_is_not_counted_twice(tmp_path: Path) -> None:
    """The peer has the fact, and this process does not know: it asks, and the repetition finds it."""

    async def main() -> None:
        a, b = Process("a", tmp_path / "a"), Process("b", tmp_path / "b")
        link(a, b)
        a.answer("x", "y")
        a.links.linked[0].deaf = True
        assert await a.post(x=5, y=7) is None
        assert b.learner.counts == {5: 1, 7: 1}
        assert await b.post(y=7) == ["duplicate"]
        a.links.linked[0].deaf = False
        assert await a.post(y=7) == ["applied"]
        await a.learning.tick()
        assert await a.post(x=5) == ["duplicate"]
        assert a.learner.counts == b.learner.counts == {5: 1, 7: 1}
        for one in (a, b):
            await one.close()

    run(main)


def test_facts_under_way_are_sent_again_without_their_client(tmp_path: Path) -> None:
    async def main() -> None:
        a, b = Process("a", tmp_path / "a"), Process("b", tmp_path / "b")
        link(a, b)
        a.answer("x")
        a.links.linked[0].cut = True
        assert await a.post(x=5) is None
        a.links.linked[0].cut = False
        await a.learning.tick()
        assert a.learner.counts == b.learner.counts == {5: 1}
        assert await a.post(x=5) == ["duplicate"]
        for one in (a, b):
            await one.close()

    run(main)


def test_a_process_without_a_disk_takes_the_state_of_a_peer(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """If the peer has dropped its facts, it takes pages of a snapshot, and then the facts since."""
    for module in (timing, snapshot_pages):
        monkeypatch.setattr(module, "PAGE_BYTES", 100)

    async def main() -> None:
        a, b, c = (Process(name, tmp_path / name) for name in "abc")
        link(a, b, c)
        a.answer(*(f"x{n}" for n in range(50)))
        assert await a.post(**{f"x{n}": n for n in range(50)}) == ["applied"] * 50
        for one in (a, b, c):
            await one.learning.tick()  # now each knows that the others have all facts
            one.learning.shared._tail_bytes = 1000
        for one in (a, b, c):
            await one.learning.tick()
        assert b.learning.shared.lacking(type(b.learning.shared.vector)()).whole
        new = Process("d", tmp_path / "d")
        link(a, b, c, new)
        await new.learning.catch_up()
        assert new.learner.counts == dict.fromkeys(range(50), 1)
        assert b"/snapshot" in {path for linked in new.links.linked for path in linked.asked}
        await new.learning.tick()
        new.die()
        again = Process("e", tmp_path / "d")
        await again.learning.catch_up()  # facts from a peer are on its own disk
        assert again.learner.counts == new.learner.counts
        for one in (a, b, c, again):
            await one.close()

    run(main)


class SlowToEncode(Tally):
    """Encodes a state only when it is `let`."""

    def __init__(self) -> None:
        super().__init__()
        self.begun, self.let = Event(), Event()

    def freeze(self) -> Callable[[], bytes]:
        encode = super().freeze()

        def slowly() -> bytes:
            self.begun.set()
            assert self.let.wait(30)
            return encode()

        return slowly


def test_a_snapshot_for_a_peer_is_encoded_beside_the_loop_and_made_anew_after_a_deletion(tmp_path: Path) -> None:
    async def main() -> None:
        a = Process("a", tmp_path / "a")
        a.learning.shared._learner = learner = SlowToEncode()
        a.answer("x", "y")
        page = asyncio.ensure_future(a.learning.snapshots.page(0, 0))
        while not learner.begun.is_set():
            await asyncio.sleep(0.01)
        assert await a.post(x=5) == ["applied"]  # the loop still answers
        deleting = asyncio.ensure_future(a.learning.rewrite(lambda fact: fact))
        await asyncio.sleep(0)
        learner.let.set()
        await deleting
        found = await page
        assert found is not None
        assert b'"counts": {"5": 1}' in found, "the snapshot is of the time after the deletion"
        assert await a.learning.snapshots.page(0, 0) == found, "a recent one is given again"
        assert await a.learning.snapshots.page(1, 0) == found
        await a.learning.rewrite(lambda fact: fact)
        assert await a.learning.snapshots.page(1, 0) is None, "it may have data of the deleted key"
        assert await a.learning.snapshots.page(7, 0) is None
        await a.close()

    run(main)


def test_a_process_goes_on_alone_where_no_peer_answers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(timing, "_FIRST_ANSWER_S", 0.0)

    async def main() -> None:
        a, b = Process("a", tmp_path / "a"), Process("b", tmp_path / "b")
        link(a, b)
        a.links.linked[0].cut = True
        await a.learning.catch_up()
        assert said(a)["peers"] == 0
        a.learning.hear(["http://other:80"])  # the controller says that it has ended
        a.answer("x")
        assert await a.post(x=5) == ["applied"]
        for one in (a, b):
            await one.close()

    run(main)


def test_processes_whose_clocks_differ_by_a_month_do_not_believe_each_other(tmp_path: Path) -> None:
    async def main() -> None:
        a, b = Process("a", tmp_path / "a"), Process("b", tmp_path / "b")
        link(a, b)
        b.learning.shared.take([fact("old", 1, at_s=NOW_S - 2 * KEPT_S)])
        await b.learning.tick()  # which forgets the writer `old`
        assert b.learning.shared.vector.writers == {}
        a.now_s = NOW_S - 2 * KEPT_S
        a.answer("x")
        assert await a.post(x=5) is None
        assert said(b)["facts_total/old"] == 1
        assert said(a)["peers"] == 0
        for one in (a, b):
            await one.close()

    run(main)


# The store


def test_the_store_makes_facts_durable_where_no_peer_answers(tmp_path: Path) -> None:
    async def main() -> None:
        objects = FlakyObjects()
        a, b = (Process(name, tmp_path / name, store=LearnedStore(objects, "m")) for name in "ab")
        link(a, b)
        a.answer("x", "y", "z")
        a.links.linked[0].cut = b.links.linked[0].cut = True
        assert await a.post(x=5) == ["applied"]
        assert await a.post(y=7) == ["applied"]
        objects.gone = True
        assert await a.post(z=11) is None
        a.die()
        objects.gone = False
        new = Process("c", tmp_path / "c", store=LearnedStore(objects, "m"))
        await new.learning.catch_up()
        assert new.learner.counts == {5: 1, 7: 1}
        b.learning._reads.next_s = 0.0
        await b.learning.tick()  # a peer is silent, so the store may have its facts
        while b.learner.counts != {5: 1, 7: 1}:
            await asyncio.sleep(0)
        for one in (b, new):
            await one.close()

    run(main)


@pytest.mark.parametrize("seen_by", ["the peer", "the new process"])
def test_facts_of_a_lost_process_are_found_in_the_store_though_all_peers_answer(tmp_path: Path, seen_by: str) -> None:
    """No peer had taken the fact when its process was lost with its disk. No other process knows that it is missing."""

    async def main() -> None:
        objects = FlakyObjects()
        a, b = (Process(name, tmp_path / name, store=LearnedStore(objects, "m")) for name in "ab")
        link(a, b)
        await b.learning.tick()
        await asyncio.sleep(0)
        a.answer("x")
        a.links.linked[0].cut = b.links.linked[0].cut = True
        assert await a.post(x=5) == ["applied"]
        a.die()
        assert b.learner.counts == {}
        by_peer = seen_by == "the peer"
        new = Process("c", tmp_path / "c", store=None if by_peer else LearnedStore(objects, "m"))
        link(b, new)
        b.links.linked[0].writer = "a" if by_peer else "c"  # its address is that of the lost process
        await new.learning.catch_up()
        assert new.learner.counts == ({} if by_peer else {5: 1}), "it is ready only when it has read the store"
        for _ in range(2):
            for one in (b, new):
                await one.learning.tick()
                await asyncio.gather(*(task for task in one.learning._tasks))
        assert new.learner.counts == b.learner.counts == {5: 1}
        for one in (b, new):
            await one.close()

    run(main)


def test_with_durability_store_applied_waits_for_the_store(tmp_path: Path) -> None:
    async def main() -> None:
        objects = FlakyObjects()
        a, b = (Process(name, tmp_path / name, store=LearnedStore(objects, "m"), store_first=True) for name in "ab")
        link(a, b)
        a.answer("x", "y")
        assert await a.post(x=5) == ["applied"]
        assert len(objects.created) == 1
        objects.gone = True
        assert await a.post(y=7) is None
        assert a.learner.counts == {5: 1}
        assert said(a)["unstored_seconds"] == 0.0
        a.now_s += 9.0
        assert said(a)["unstored_seconds"] == 9.0
        objects.gone = False
        assert await a.post(y=7) == ["applied"]
        assert said(a)["unstored_seconds"] == 0.0
        for one in (a, b):
            await one.close()
        new = Process("c", tmp_path / "c", store=LearnedStore(objects, "m"))
        await new.learning.catch_up()
        assert new.learner.counts == {5: 1, 7: 1}
        await new.close()

    run(main)


def test_learning_goes_on_without_the_store_and_it_gets_a_snapshot_later(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """More facts wait than memory may hold: the store gets the state instead, and no fact is lost."""
    monkeypatch.setattr("mark.serving.learned.storing._MOST_WAITING_BYTES", 2000)

    async def main() -> None:
        objects = FlakyObjects()
        objects.gone = True
        a, b = Process("a", tmp_path / "a", store=LearnedStore(objects, "m")), Process("b", tmp_path / "b")
        link(a, b)
        a.answer(*(f"x{n}" for n in range(20)))
        for n in range(20):
            assert await a.post(**{f"x{n}": n}) == ["applied"]
        a.now_s += 60.0
        assert said(a)["unstored_seconds"] == 60.0
        objects.gone = False
        for one in (a, b):
            await one.close()
        assert any("snapshots" in key for key in objects.created)
        new = Process("c", tmp_path / "c", store=LearnedStore(objects, "m"))
        await new.learning.catch_up()
        assert new.learner.counts == dict.fromkeys(range(20), 1)
        await new.close()

    run(main)


def test_an_empty_process_reads_few_objects(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("mark.serving.learned.storing._OBJECTS_A_SNAPSHOT", 3)

    async def main() -> None:
        objects = FakeObjects()
        store = LearnedStore(objects, "m")
        a = Process("a", tmp_path / "a", store=store, store_first=True)
        a.answer(*(f"x{n}" for n in range(8)))
        for n in range(8):
            assert await a.post(**{f"x{n}": n}) == ["applied"]
        await a.close()
        read: list[str] = []
        facts = store.facts
        store.facts = lambda key: (read.append(key), facts(key))[1]  # type: ignore[method-assign]
        new = Process("b", tmp_path / "b", store=store)
        await new.learning.catch_up()
        assert new.learner.counts == dict.fromkeys(range(8), 1)
        assert len(read) == 2  # of eight: those since the last snapshot
        await new.close()

    run(main)


def test_the_disk_gets_a_snapshot_and_the_journal_stays_small(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(timing, "_SNAPSHOT_EVERY_BYTES", 500)
    monkeypatch.setattr(timing, "_TAIL_BYTES", 500)

    async def main() -> None:
        a = Process("a", tmp_path / "a")
        for n in range(60):
            a.answer(f"x{n}")
            assert await a.post(**{f"x{n}": n}) == ["applied"]
            await a.learning.tick()
        files = list(a.log.folder.glob("learned-*.jsonl"))
        assert sum(path.stat().st_size for path in files) < 1500
        a.die()
        again = Process("b", tmp_path / "a")
        await again.learning.catch_up()
        assert again.learner.counts == dict.fromkeys(range(60), 1)
        await again.close()

    run(main)


def test_a_snapshot_of_another_learner_is_left_and_the_kept_facts_are_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(timing, "_SNAPSHOT_EVERY_BYTES", 1)

    async def main() -> None:
        a = Process("a", tmp_path / "a")
        a.answer("x")
        assert await a.post(x=5) == ["applied"]
        await a.learning.tick()
        a.die()
        again = Process("b", tmp_path / "a")
        again.learner.version = 2
        await again.learning.catch_up()
        assert again.learner.counts == {5: 1}
        await again.close()

    run(main)


def test_feedback_is_refused_while_too_many_facts_wait(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(timing, "_MOST_UNDER_WAY", 2)

    async def main() -> None:
        a, b = Process("a", tmp_path / "a"), Process("b", tmp_path / "b")
        link(a, b)
        a.links.linked[0].cut = True
        a.answer("x", "y", "z")
        assert await a.post(x=1, y=2) is None
        assert await a.post(z=3) is None
        assert a.observations() == 2  # refused feedback creates no observation
        a.links.linked[0].cut = False
        await a.learning.tick()
        assert await a.post(z=3) == ["applied"]
        assert said(a)["facts_under_way"] == 0
        assert a.learner.counts == {1: 1, 2: 1, 3: 1}
        for one in (a, b):
            await one.close()

    run(main)


def test_the_state_of_a_peer_that_cannot_be_used_is_not_fetched_again_and_again(tmp_path: Path) -> None:
    """This happens in a roll-out to another format: the process is ready with the facts that the peer still keeps."""

    async def main() -> None:
        a, b = Process("a", tmp_path / "a"), Process("b", tmp_path / "b")
        a.answer(*(f"x{n}" for n in range(20)))
        assert await a.post(**{f"x{n}": n for n in range(20)}) == ["applied"] * 20
        a.learning.shared._tail_bytes = 1000
        await a.learning.tick()
        link(a, b)
        b.learner.version = 2
        await b.learning.catch_up()
        assert b.learner.counts == {18: 1, 19: 1}
        for _ in range(3):
            await b.learning.tick()
        assert b.links.linked[0].asked.count(b"/snapshot") == 1
        assert said(b)["missing_facts"] == 18
        for one in (a, b):
            await one.close()

    run(main)


def test_a_process_is_not_ready_with_a_part_of_the_state_of_a_busy_peer(tmp_path: Path) -> None:
    """The facts that the peer still keeps are not enough: it asks for the snapshot again."""

    async def main() -> None:
        a, b = Process("a", tmp_path / "a"), Process("b", tmp_path / "b")
        a.answer(*(f"x{n}" for n in range(20)))
        assert await a.post(**{f"x{n}": n for n in range(20)}) == ["applied"] * 20
        a.learning.shared._tail_bytes = 1000
        await a.learning.tick()
        link(a, b)
        b.links.linked[0].busy = 3
        await b.learning.catch_up()
        assert b.learner.counts == a.learner.counts
        for one in (a, b):
            await one.close()

    run(main)


def test_the_store_gets_a_snapshot_each_day_but_none_that_hides_a_fuller_one(tmp_path: Path) -> None:
    """Thus the bucket may delete old objects, and a process that started empty does no harm."""

    async def main() -> None:
        objects = FakeObjects()
        store = LearnedStore(objects, "m")
        a, b = (Process(name, tmp_path / name, store=store, store_first=True) for name in "ab")

        def snapshots() -> list[str]:
            return [key.rpartition("-")[2] for key in objects.created if "snapshots" in key]

        async def a_day_later(one: Process, **label: int) -> None:
            one.now_s += 86_400.0
            one.answer(*label)
            assert await one.post(**label) == ["applied"]

        await a_day_later(a, x=1)
        assert snapshots() == ["a"]  # of the state before that fact
        await a_day_later(a, y=2)
        await a_day_later(b, z=3)
        assert snapshots() == ["a", "a"]
        b.learning._reads.next_s = 0.0
        await b.learning.tick()
        await asyncio.gather(*b.learning._tasks)
        b.now_s += 86_400.0
        await a_day_later(b, v=4)
        assert snapshots() == ["a", "a", "b"]
        for one in (a, b):
            await one.close()
        new = Process("c", tmp_path / "c", store=store)
        await new.learning.catch_up()
        assert new.learner.counts == dict.fromkeys((1, 2, 3, 4), 1)
        await new.close()

    run(main)


@pytest.mark.parametrize("stored", [True, False])
def test_data_aside_reach_a_later_process(tmp_path: Path, stored: bool) -> None:
    """They are in the store. Without a store they are in the log, whose folder the process must share."""

    async def main() -> None:
        objects = FlakyObjects()

        def process(name: str) -> Process:
            return Process(name, tmp_path / "log", store=LearnedStore(objects, "m") if stored else None)

        a, b = process("a"), process("b")
        assert await b.learning.aside.latest() is None
        await a.learning.aside.put(b"data")
        await a.learning.aside.put(None)
        a.now_s += 3601.0
        await a.learning.aside.put(None)  # without a deletion it replaces nothing
        assert await b.learning.aside.latest() == b"data"
        objects.gone = True
        await a.learning.aside.put(b"more")  # a failure of the store stops no process
        assert await b.learning.aside.latest() == (None if stored else b"more")
        objects.gone = False
        for one in (a, b):
            await one.close()

    run(main)


@pytest.mark.parametrize("stored", [True, False])
def test_data_aside_from_before_a_deletion_reach_no_process(tmp_path: Path, stored: bool) -> None:
    async def main() -> None:
        objects = FlakyObjects()

        def process(name: str) -> Process:
            return Process(name, tmp_path / "log", store=LearnedStore(objects, "m") if stored else None)

        dead, a, b = process("dead"), process("a"), process("b")
        await dead.learning.aside.put(b"of a key")
        dead.die()
        await a.learning.aside.put(b"of a key")
        await a.learning.rewrite(lambda fact: fact)
        assert not list((tmp_path / "log").rglob("learned.aside"))
        objects.gone = True
        await a.learning.aside.put(None)
        objects.gone = False
        await a.learning.aside.put(None)
        assert not await b.learning.aside.latest()
        a.now_s += 3601.0
        await a.learning.aside.put(b"new")
        assert await b.learning.aside.latest() == b"new"
        for one in (a, b):
            await one.close()

    run(main)


def test_process_without_a_store_and_a_disk_gets_the_data_of_a_peer(tmp_path: Path) -> None:
    async def main() -> None:
        a, b, c = (Process(name, tmp_path / name) for name in "abc")
        link(a, b, c)
        assert await c.learning.aside.latest() is None
        b.learning.aside.own = lambda: b"of b"
        assert await c.learning.aside.latest() == b"of b"
        c.links.linked[1].cut = True
        assert await c.learning.aside.latest() is None
        for one in (a, b, c):
            await one.close()

    run(main)


def test_a_refused_snapshot_is_written_once_the_disk_has_room(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(timing, "_SNAPSHOT_AGAIN_S", 0.0)

    async def talk() -> None:
        a = Process("a", tmp_path)
        journal = a.learning._journal
        append, keep = journal.append, journal.keep
        journal.append = journal.keep = full_disk  # type: ignore[method-assign, assignment]
        a.learning.have(line_of(fact("b", 7)))
        assert a.learning._writing is not None
        await a.learning._writing
        await a.learning.tick()
        journal.append, journal.keep = append, keep  # type: ignore[method-assign]
        await a.learning.tick()
        a.die()
        again = Process("c", tmp_path)
        await again.learning.catch_up()
        assert again.learner.counts == {7: 1}
        await again.close()
        await a.learning.close()

    run(talk)


def full_disk(*_: object) -> None:
    raise OSError(errno.ENOSPC, "full")


def test_reads_of_the_store_become_rarer_though_own_feedback_comes(tmp_path: Path) -> None:
    learned = Event()

    class Slow(FakeObjects):
        def keys(self, prefix: str) -> list[str]:
            assert learned.wait(30)
            return super().keys(prefix)

    async def talk() -> None:
        a = Process("a", tmp_path, store=LearnedStore(Slow(), "m"))
        assert a.learning._storing is not None
        a.answer("x")
        reading = a.learning._begin_read(a.learning._storing)
        assert await a.post(x=5) == ["applied"]
        learned.set()
        await reading
        assert a.learning._reads.pause_s == 2 * READ_S
        await a.close()

    run(talk)


def test_reads_of_a_store_that_refuses_facts_become_rarer(tmp_path: Path) -> None:
    class ReadOnly(FakeObjects):
        def create(self, key: str, content: bytes | Path) -> bool:
            raise MarkError("access denied")

    async def talk() -> None:
        a = Process("a", tmp_path, store=LearnedStore(ReadOnly(), "m"))
        assert a.learning._storing is not None
        a.learning.have(line_of(fact("gone", 1, at_s=NOW_S)))
        for _ in range(3):
            await a.learning._begin_read(a.learning._storing)
        assert a.learning._reads.pause_s == 8 * READ_S
        await a.close()

    run(talk)


def test_facts_go_to_the_store_though_a_peer_is_slow(tmp_path: Path) -> None:
    async def talk() -> None:
        objects = FakeObjects()
        a = Process("a", tmp_path / "a", store=LearnedStore(objects, "m"))
        b = Process("b", tmp_path / "b")
        link(a, b)
        a.answer("x")
        assert await a.post(x=5) == ["applied"]
        asked = asyncio.Event()

        async def never(*_: object) -> bytes:
            asked.set()
            await asyncio.Event().wait()
            return b""

        a.links.linked[0]._answer = never  # type: ignore[method-assign, assignment]
        a.learning._put_s -= timing._STORE_EVERY_S
        ticking = asyncio.ensure_future(a.learning.tick())
        await asked.wait()
        assert a.learning._putting is not None
        await a.learning._putting
        assert objects.keys("learned/m/a/")
        ticking.cancel()
        await a.close()
        await b.close()

    run(talk)


def test_one_transfer_to_a_hanging_store_at_a_time(tmp_path: Path) -> None:
    answers = Event()

    class Hanging(FakeObjects):
        def create(self, key: str, content: bytes | Path) -> bool:
            assert answers.wait(30)
            return super().create(key, content)

    async def talk() -> None:
        a = Process("a", tmp_path, store=LearnedStore(Hanging(), "m"))
        a.learning._reads.next_s += 100.0
        a.answer("x")
        await a.post(x=5)
        for _ in range(3):
            a.learning._put_s -= timing._STORE_EVERY_S
            await a.learning.tick()
        assert len(a.learning._tasks) == 1
        answers.set()
        await a.close()

    run(talk)


def test_a_peer_that_gives_its_state_too_slowly_is_asked_again_after_a_while(tmp_path: Path) -> None:
    async def talk() -> None:
        a, b = Process("a", tmp_path / "a"), Process("b", tmp_path / "b")
        link(a, b)
        b.learning.have(line_of(fact("c", 1)))
        b.learning.shared._drop(fact("c", 1))  # only the state has it
        peer = a.links.linked[0]
        peer.busy = 1
        for _ in range(3):
            await a.learning.tick()
        assert peer.asked.count(b"/snapshot") == 1
        peer.adopt_s = 0.0
        await a.learning.tick()
        assert a.learner.counts == {1: 1}
        await a.close()
        await b.close()

    run(talk)


def test_slow_peers_are_asked_for_data_aside_within_one_limit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(data_aside, "_PEERS_S", 0.05)

    async def talk() -> None:
        a, b, c = (Process(name, tmp_path / name) for name in "abc")
        link(a, b, c)
        limits_s: list[float] = []

        async def slow(*_: object, answer_s: float, optional: bool) -> bytes:
            limits_s.append(answer_s)
            await asyncio.sleep(answer_s)
            raise PeerError("no answer in time")

        for peer in a.links.linked:
            peer.ask = slow  # type: ignore[method-assign, assignment]
        assert await a.learning.aside.latest() is None
        assert sum(limits_s) < 0.1
        for one in (a, b, c):
            await one.close()

    run(talk)


def test_facts_of_a_lost_process_are_stored_and_read_in_parts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(storing, "_OBJECT_BYTES", 100)
    monkeypatch.setattr(timing, "_TAKE_AT_ONCE", 2)

    async def talk() -> None:
        objects = FakeObjects()
        a = Process("a", tmp_path / "a", store=LearnedStore(objects, "m"))
        a.learning.have(b"".join(line_of(fact("gone", number, at_s=NOW_S)) for number in range(1, 10)))
        assert a.learning._storing is not None
        await a.learning._begin_read(a.learning._storing)
        sizes = [len(data) for data in objects.objects.values()]
        assert max(sizes) < 200 < sum(sizes)
        b = Process("b", tmp_path / "b", store=LearnedStore(objects, "m"))
        taken: list[int] = []
        take = b.learning.shared.take
        b.learning.shared.take = lambda facts: taken.append(len(found := take(facts))) or found  # type: ignore[method-assign, func-returns-value]
        await b.learning.catch_up()
        assert sum(taken) == 9
        assert max(taken) == 2
        await a.close()
        await b.close()

    run(talk)
