"""Learning of one process, together with the other processes that serve the model.

    feedback ─► log ─► own journal ─► a peer's memory, or the object store ─► `applied`, and the learner's state

A fact is under way from the time it gets its number until it survives the loss of this machine; then the state has it.
Facts that no peer and no store took stay under way: they are sent again, with the same numbers. Every second the
process asks each peer for facts that it lacks; every five seconds its own new facts go to the object store.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Collection, Coroutine, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from itertools import islice
from pathlib import Path
from typing import Any

import orjson
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric

from mark.serving.feedback.joining import FeedbackJoin
from mark.serving.learned.data_aside import DataAside
from mark.serving.learned.facts import KEPT_S, Fact, Vector, fact_in, facts_in, line_of, pages, vector_in
from mark.serving.learned.journal import Journal, Journals
from mark.serving.learned.learner_port import Learner
from mark.serving.learned.peers import PAGE_BYTES, Peer, PeerError, Peers, whole_number
from mark.serving.learned.read_schedule import ReadSchedule
from mark.serving.learned.shared import LearnedSnapshot, Shared
from mark.serving.learned.snapshot_pages import SnapshotPages, snapshot_of
from mark.serving.learned.stored import LearnedStore
from mark.serving.learned.storing import WRITE_S, NotStored, Storing

_TAIL_BYTES, _MOST_TAIL_BYTES = 16 << 20, 64 << 20  # of facts kept for peers that lag behind
_SNAPSHOT_EVERY_BYTES = 8 << 20  # of journal
_MOST_UNDER_WAY = 100_000
_TICK_S, _STORE_EVERY_S = 1.0, 5.0
_PUSHED_TO = 3  # peers that get new facts immediately; others ask for them
# At the start: waits for a peer to be there, for a busy one to give its state, and for the store to be read.
_FIRST_ANSWER_S, _BUSY_PEER_S, _FIRST_READ_S = 2.0, 30.0, 60.0
_READ_BESIDE_PEERS_S = 5.0  # for the store at the start if a peer gave its state
_READ_AT_ONCE = 2000  # facts between two turns of the loop while the disk is read
_TAKE_AT_ONCE = 200  # the same while the server answers: 200 facts of heads take 0.06 s
_ADOPT_EVERY_S = 60.0  # interval of attempts to use the whole state of a peer after a failure, because it may be large
_SNAPSHOT_AGAIN_S = 60.0  # after a snapshot that the disk refused
_LOG = logging.getLogger("mark.serving")


class NotKept(Exception):
    """Facts may not survive the loss of this machine. The client must repeat its feedback."""


class Learning:
    """The shell around `Shared`. All methods except those for own facts run on the event loop.

    `folder` is this process's own in the feedback log. With `store_first` only the store makes facts durable. `now` is
    Unix time.
    """

    def __init__(
        self,
        model: str,
        writer: str,
        learner: Learner,
        join: FeedbackJoin,
        folder: Path,
        peers: Peers,
        loop: asyncio.AbstractEventLoop,
        *,
        store: LearnedStore | None = None,
        store_first: bool = False,
        now: Callable[[], float] = time.time,
    ) -> None:
        self.model, self.writer, self.learner, self.peers = model, writer, learner, peers
        self.applied = self.unlearned = 0
        self.refuses: Callable[[], bool] = lambda: False  # the learner could not use facts, as those of another version
        self.may_teach: Callable[[Mapping[bytes, bytes]], bool] = lambda headers: True
        self.shared = Shared(learner, _TAIL_BYTES, _MOST_TAIL_BYTES)
        self.folder = folder
        self._join, self._loop, self._now = join, loop, now
        self._store_first = store_first
        self._storing: Storing | None = None
        if store is not None:
            self._storing = Storing(store, writer, self.shared, loop, now)
        self._journal, self._journals = Journal(folder, _TAIL_BYTES), Journals(folder.parent)
        self._thread = ThreadPoolExecutor(1, "learned")
        self.snapshots = SnapshotPages(self.shared, loop, self._thread)
        self.aside = DataAside(self._journal, self._journals, self._storing, peers, loop, self._thread)
        self._under_way: dict[str, Fact] = {}  # by the request that they are about
        self._made = self._written = 0  # last own number that was given; last one on the disk
        self._unwritten: list[Fact] = []  # facts of peers
        self._writing: asyncio.Task[None] | None = None
        self._snapshot_due = False
        self._snapshot_s = self._put_s = loop.time()  # when the next snapshot may be written; the last transfer
        self._reads = ReadSchedule(self._put_s)
        self._reading: asyncio.Task[None] | None = None
        self._putting: asyncio.Task[None] | None = None
        # The facts on the disk; those that are only in snapshots of the store, or of a peer that has them.
        self._has_disk = self._has_whole = False
        self._tasks: set[asyncio.Task[Any]] = set()

    # Own facts, in the thread of the sink

    def make_room(self, coming: Collection[str]) -> None:
        """Forget facts that have been applied. Raises NotKept if too many are still under way.

        Facts about the `coming` requests stay, because their feedback was judged before the fact was applied, and
        would otherwise get a second fact. The loop must not call this, because it could drop a fact in between.
        """
        for about, fact in tuple(self._under_way.items()):
            if about not in coming and self._is_applied(fact):
                del self._under_way[about]
        if len(self._under_way) >= _MOST_UNDER_WAY:
            raise NotKept(f"{_MOST_UNDER_WAY} facts wait for a peer or the store")

    def is_under_way(self, about: str) -> bool:
        """Return whether a fact about this request waits for a peer or the store."""
        return about in self._under_way

    def number(self, about: str, content: bytes, at_s: float) -> None:
        """Give a fact its number, unless there is one about this request."""
        if about not in self._under_way:
            self._made += 1
            self._under_way[about] = Fact(self.writer, self._made, at_s, about, content)

    def commit(self) -> None:
        """Make the facts under way durable and apply them. Raises OSError or NotKept, and they stay under way."""
        facts = list(self._under_way.values())
        self._journal.append([fact for fact in facts if fact.number > self._written])
        self._written = self._made
        if facts:
            asyncio.run_coroutine_threadsafe(self._settle(facts), self._loop).result()
            self._under_way.clear()

    # Start and end

    async def catch_up(self) -> None:
        """Load the state from the disk, and from a peer or the store. Without them it begins with the state it has."""
        await self._read_disk()
        self._has_disk = True
        patience_s = _READ_BESIDE_PEERS_S if await self._ask_until_caught_up() else _FIRST_READ_S
        if self._storing is not None:  # a process that has gone may have left facts only there
            await asyncio.wait([self._begin_read(self._storing)], timeout=patience_s)
        self.shared.trim(self._vectors())
        _LOG.info("the learned state of %s has %d facts", self.model, self.applied)

    def start(self) -> None:
        """Begin to exchange facts once a second."""
        self._begin(self._run())

    async def close(self) -> None:
        """Store and write all waiting facts, and end. Call nothing afterwards."""
        for task in tuple(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        if self._storing is not None:
            with suppress(NotStored, TimeoutError):
                await asyncio.wait_for(self._storing.put(), WRITE_S)
            self._storing.close()
        self.peers.close()
        if self._writing is not None:
            await self._writing
        await self._loop.run_in_executor(self._thread, self._journal.close)
        self._thread.shutdown()

    def hear(self, urls: Sequence[str]) -> None:
        """Replace the peers by those that the controller named."""
        if self.peers.tell(urls):
            self._reads.peer_gone(self._loop.time())

    async def tick(self) -> None:
        """Exchange facts with every peer, send facts under way again, and use store and disk when due."""
        others, now_s = self.peers.others, self._loop.time()
        # First, because a slow peer must not keep facts from the store.
        is_putting = self._putting is not None and not self._putting.done()
        if self._storing is not None and not is_putting and now_s - self._put_s >= _STORE_EVERY_S:
            self._put_s = now_s
            self._putting = self._begin(self._put(self._storing))
        await asyncio.gather(*(self._exchange(peer) for peer in others))
        for peer in others:
            peer.sweep()
        if written := [fact for fact in self._waiting() if fact.number <= self._written]:
            with suppress(NotKept):
                await self._settle(written)
        in_doubt = self.missing > 0 or not all(peer.answering for peer in others)
        if self._storing is not None and self._reads.is_due(now_s, in_doubt):
            self._begin_read(self._storing)
        self.shared.forget(self._now() - KEPT_S, {self.writer, *(peer.writer for peer in others)})
        self.shared.trim(self._vectors())
        is_due = self._snapshot_due or self._journal.since_snapshot_bytes > _SNAPSHOT_EVERY_BYTES
        if is_due and now_s >= self._snapshot_s:
            with suppress(OSError):
                await self._write_snapshot()

    async def rewrite(self, change: Callable[[Fact], Fact]) -> list[Path]:
        """Change the content of facts in all places of this process, and in the returned folders. Raises OSError.

        It is used when a user is deleted. Facts in the object store stay unchanged until they expire there. Data put
        aside are deleted, because they may be about the user; those in the store are not used again.
        """

        def changed(line: bytes) -> bytes:
            try:
                fact = fact_in(line)
            except ValueError:
                return b""
            now = change(fact)
            return line if now is fact else line_of(now)

        self.shared.rewrite(change)
        self.snapshots.drop()
        self.aside.outdate()
        await self._write_snapshot()
        await self._loop.run_in_executor(self._thread, self._journal.rewrite, changed)
        vector = self.shared.vector.copy()
        return await self._loop.run_in_executor(self._thread, self._journals.rewrite, vector, changed)

    async def is_erased(self, mark: bytes) -> bool:
        """Return whether all folders have this mark of the deletions that are erased there. Raises OSError."""
        return await self._loop.run_in_executor(self._thread, self._journals.is_erased, mark)

    async def put_erased(self, mark: bytes, left: Collection[Path]) -> None:
        """Mark the deletions that are erased in this folder and those of processes that had ended. Raises OSError."""
        await self._loop.run_in_executor(self._thread, self._journal.put_erased, mark)
        await self._loop.run_in_executor(self._thread, self._journals.put_erased, mark, left)

    # Requests from peers

    def have(self, lines: bytes) -> bytes:
        """Take facts that a peer made. Raises ValueError."""
        before = self.shared.old
        # Otherwise a process that is told its own address would confirm its facts to itself.
        self._take(fact for fact in facts_in(lines) if fact.writer != self.writer)
        return orjson.dumps({"writer": self.writer, "old": self.shared.old - before})

    def lacking(self, body: bytes) -> bytes:
        """Return the facts that a peer lacks according to its vector. Raises ValueError."""
        said = orjson.loads(body)
        vector = vector_in(said.get("vector") if isinstance(said, dict) else None)
        peer = self.peers.of_writer(str(said.get("writer")))
        if peer is not None:
            peer.vector = vector
        lacking = self.shared.lacking(vector)
        _, lines = next(pages(lacking.facts, PAGE_BYTES), ([], b""))
        more = next(lacking.facts, None) is not None
        head = {"writer": self.writer, "vector": self.shared.vector.to_json(), "more": more, "whole": lacking.whole}
        head |= {"disk": self._has_disk, "complete": self._has_whole}
        return orjson.dumps(head, option=orjson.OPT_APPEND_NEWLINE) + lines

    # Numbers

    @property
    def missing(self) -> int:
        """Return the number of facts that a peer has and this process lacks."""
        return max((self.shared.vector.lacks(vector) for vector in self._vectors()), default=0)

    def metrics(self) -> Iterator[Metric]:
        """Yield the metrics for the page of the process."""
        facts = CounterMetricFamily(
            "mark_learned_facts",
            "Facts from feedback: applied, not learnable (unlearned), too old, or refused by the learner (failed).",
            labels=("model", "result"),
        )
        counts = {"applied": self.applied, "unlearned": self.unlearned}
        for result, count in (counts | {"old": self.shared.old, "failed": self.shared.failed}).items():
            facts.add_metric((self.model, result), count)
        yield facts
        gauges: list[tuple[str, str, float]] = [
            ("missing_facts", "Facts that a peer has and this process lacks.", self.missing),
            ("facts_under_way", "Facts that no peer and no store has taken yet.", len(self._waiting())),
            ("peers", "Peers that answer.", sum(peer.answering for peer in self.peers.others)),
        ]
        if self._storing is not None:
            age_s = self._storing.unstored_s()
            gauges.append(("unstored_seconds", "Age of the oldest fact that is not in the store.", age_s))
        for name, what, value in gauges:
            gauge = GaugeMetricFamily(f"mark_learned_{name}", what, labels=("model",))
            gauge.add_metric((self.model,), value)
            yield gauge

    # Making own facts durable

    async def _settle(self, facts: Sequence[Fact]) -> None:
        """Apply own facts, which are on the disk, once they survive the loss of this machine. Raises NotKept."""
        if self._storing is not None:
            self._storing.queue(facts)
        others = self.peers.others
        if self._store_first:
            self._begin(self._push(facts, others))
            await self._store(facts)
        elif others and not await self._push(facts, others):
            await self._store(facts)
        self._take(facts)

    async def _store(self, facts: Sequence[Fact]) -> None:
        if self._storing is None:
            raise NotKept("no peer has taken the facts, and there is no store")
        try:
            await self._storing.until(facts)
        except NotStored as error:
            raise NotKept(f"the store has not taken the facts: {error}") from None

    async def _push(self, facts: Sequence[Fact], others: Sequence[Peer]) -> bool:
        """Send facts to some peers. Return True as soon as one of them has all."""
        asked = [peer for peer in others if peer.answering][:_PUSHED_TO]
        if not asked and self._storing is None:
            asked = list(others[:_PUSHED_TO])
        waiting = {self._begin(self._give(peer, facts)) for peer in asked}
        while waiting:
            done, waiting = await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
            if any(not task.cancelled() and task.result() for task in done):
                return True
        return False

    async def _give(self, peer: Peer, facts: Sequence[Fact]) -> bool:
        try:
            for _, lines in pages(facts, PAGE_BYTES):
                said = orjson.loads(await peer.ask(b"POST", b"/facts", lines))
                if said["writer"] == self.writer:
                    return False
                if whole_number(said["old"]):
                    peer.say("drops facts as too old: compare the clocks of both machines")
                    return False
        except (PeerError, ValueError, KeyError, TypeError):
            return False
        return True

    # Exchange

    async def _run(self) -> None:
        while True:
            began_s = self._loop.time()
            try:
                await self.tick()
            except Exception:  # without this task a process would learn only from its own feedback
                _LOG.exception("exchanging facts failed")
            await asyncio.sleep(max(0.1, began_s + _TICK_S - self._loop.time()))

    async def _exchange(self, peer: Peer) -> bool:
        """Take the facts that the peer has, as far as possible. Return False if it does not answer.

        A peer that begins to be silent may be gone.
        """
        try:
            while True:
                question = {"writer": self.writer, "vector": self.shared.vector.to_json()}
                head, _, lines = (await peer.ask(b"POST", b"/lacking", orjson.dumps(question))).partition(b"\n")
                said = orjson.loads(head)
                before, peer.writer, peer.vector = peer.writer, str(said["writer"]), vector_in(said["vector"])
                if before not in ("", peer.writer):
                    self._reads.peer_gone(self._loop.time())
                if peer.writer == self.writer:
                    return False
                if said["whole"] and self._loop.time() >= peer.adopt_s:
                    adopted = False
                    try:
                        adopted = self._adopt(await snapshot_of(peer), peer.address.url)
                    finally:
                        peer.adopt_s = 0.0 if adopted else self._loop.time() + _ADOPT_EVERY_S
                    if adopted:
                        continue
                taken = self._take(facts_in(lines))
                if not (said["more"] and taken):
                    peer.heard, peer.has_disk = True, bool(said.get("disk", True))
                    has_whole = bool(said.get("complete", True)) and not said["whole"]
                    # Otherwise a snapshot in the store may hold the facts of these peers in a form that can be used.
                    self._has_whole |= has_whole and not self.refuses()
                    return True
        except PeerError:
            if peer.heard:
                peer.heard = False
                self._reads.peer_gone(self._loop.time())
            return False
        except (ValueError, KeyError, TypeError) as error:
            peer.say(f"cannot be understood: {error!r}")
            return False

    def _adopt(self, snapshot: LearnedSnapshot, where: str) -> bool:
        lacked = self.shared.vector.lacks(snapshot.vector)
        try:
            adopted = self.shared.adopt(snapshot)
        except ValueError as error:
            _LOG.warning("the learned state of %s cannot be used: %s", where, error)
            return False
        if adopted:
            self.applied += lacked
            self._snapshot_due = True
        return adopted

    def _take(self, facts: Iterable[Fact]) -> list[Fact]:
        """Apply new facts and return them; the facts of peers are then written to the journal."""
        taken = self.shared.take(facts)
        self.applied += len(taken)
        self._note(taken)
        self._unwritten += [fact for fact in taken if fact.writer != self.writer]
        if self._unwritten and self._writing is None:
            self._writing = self._loop.create_task(self._write())
        return taken

    def _note(self, facts: Sequence[Fact]) -> None:
        """Note that the answers of these facts have feedback, so that this process refuses more as a duplicate."""
        now_s = self._now()
        for fact in facts:
            self._join.applied(fact.about, now_s)

    async def _ask_until_caught_up(self) -> bool:
        """Take the states of the peers that answer. Return False if none does for a while.

        The wait is longer if a server listens at a peer's address, or still reads its disk.
        """
        began_s = self._loop.time()
        while others := self.peers.others:
            answered = await asyncio.gather(*(self._exchange(peer) for peer in others))
            there = [peer for peer, answers in zip(others, answered, strict=True) if answers]
            for peer in {*others} - {*there}:
                peer.adopt_s = 0.0  # a busy peer may give its state in time
            if there and all(peer.has_disk for peer in there):
                return True
            patience_s = _BUSY_PEER_S if any(peer.there for peer in others) else _FIRST_ANSWER_S
            if self._loop.time() - began_s >= patience_s:
                break
            await asyncio.sleep(0.1)
        return False

    def _is_applied(self, fact: Fact) -> bool:
        return self.shared.vector.has(fact.writer, fact.number)

    def _waiting(self) -> list[Fact]:
        """Return own facts that may not survive. The sink's thread may change them during the call."""
        return [fact for fact in tuple(self._under_way.values()) if not self._is_applied(fact)]

    def _vectors(self) -> list[Vector]:
        return [peer.vector for peer in self.peers.others]

    # Disk

    async def _read_disk(self) -> None:
        for snapshot in await self._loop.run_in_executor(self._thread, self._journals.snapshots):
            if self._adopt(snapshot, str(self.folder.parent)):
                break
        self._snapshot_due = False
        lines = self._journals.facts()
        while facts := await self._loop.run_in_executor(self._thread, lambda: list(islice(lines, _READ_AT_ONCE))):
            self.applied += len(self.shared.reread(facts))
            self._note(facts)
        if cut_off := self._journals.unreadable:
            _LOG.warning("%d lines of learned facts were cut off and are left out", cut_off)

    async def _write(self) -> None:
        while facts := self._unwritten:
            self._unwritten = []
            try:
                await self._loop.run_in_executor(self._thread, self._journal.append, facts)
            except OSError as error:
                _LOG.error("%d facts of peers are not in the journal: %s", len(facts), error)
                self._snapshot_due = True  # the snapshot has them, as soon as the disk has room
        self._writing = None

    async def _write_snapshot(self) -> None:
        """Replace the snapshot. Raises OSError, and a later tick tries again."""
        self._snapshot_due = False
        try:
            await self._loop.run_in_executor(self._thread, self._journal.rotate)
            frozen = self.shared.freeze()
            kept = [*self._waiting(), *self.shared.unshared(self._vectors())]
            # One call in the single thread: otherwise an older state could replace a newer one that lacks a deleted
            # key.
            await self._loop.run_in_executor(self._thread, lambda: self._journal.keep(frozen().to_bytes(), kept))
        except OSError as error:
            _LOG.error("the learned state is not on the disk: %s", error)
            self._snapshot_due, self._snapshot_s = True, self._loop.time() + _SNAPSHOT_AGAIN_S
            raise

    # Store

    async def _put(self, storing: Storing) -> None:
        with suppress(NotStored):
            await storing.put()

    def _begin_read(self, storing: Storing) -> asyncio.Task[None]:
        if self._reading is None or self._reading.done():
            self._reading = self._begin(self._read_store(storing))
            self._reads.begun(self._loop.time())
        return self._reading

    async def _read_store(self, storing: Storing) -> None:
        """Take facts from the store that this process lacks, and store those that a process which has gone did not.

        A snapshot comes first, unless a peer has given its state.
        """
        began_s, found, listed = self._loop.time(), False, False
        try:
            if not self._has_whole:
                async for snapshot in storing.snapshots():
                    if not self.refuses() and not self.shared.vector.lacks(snapshot.vector):
                        break
                    if self._adopt(snapshot, "[feedback] store"):
                        found = True
                        break
                    if self.refuses() and self.shared.lacking(snapshot.vector).whole:
                        break  # older ones lack more
                self._has_whole = True
            there = await storing.there()
            listed = True
            async for facts in storing.facts(there, self.shared.vector.copy()):
                for begin in range(0, len(facts), _TAKE_AT_ONCE):
                    found |= bool(self._take(facts[begin : begin + _TAKE_AT_ONCE]))
                    await asyncio.sleep(0)
            alive = {self.writer, *(peer.writer for peer in self.peers.others if peer.answering)}
            await storing.put_left(there, self.shared.kept(self._now() - KEPT_S, alive))
            self._reads.complete(began_s)
        except NotStored:
            if not listed:  # nothing is billed by a store that cannot be reached
                return
        except Exception:
            _LOG.exception("reading the store failed")
        self._reads.ended(found)

    def _begin(self, work: Coroutine[Any, Any, Any]) -> asyncio.Task[Any]:
        task = self._loop.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task
