"""A world of machines whose processes learn together, in virtual time: real shells, a network, a store, a controller.

Only sockets and threads are replaced. A machine has an address and a disk; a process of it may be killed, with its disk
or without. Facts are `+N`, or `-N` for the deletion of N.
"""

from __future__ import annotations

import asyncio
import json
import shutil
from collections import Counter
from collections.abc import Callable, Coroutine, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from mark.domain.errors import MarkError
from mark.planning.graphs.idle_loop import IdleLoop
from mark.serving.feedback.joining import FeedbackJoin
from mark.serving.learned.facts import facts_in
from mark.serving.learned.journal import Journals
from mark.serving.learned.learner_port import Learner
from mark.serving.learned.learning import Learning, NotKept
from mark.serving.learned.peers import NotThere, Peer, PeerAccess, PeerClosed, PeerError, Peers
from mark.serving.learned.shared import snapshot_in
from mark.serving.learned.stored import LearnedStore
from mark.serving.overflow.http_client import Address, HttpAnswer
from mark.testing.fakes import FakeObjects

NOW_S = 1_790_000_000.0
_WAY_S = 0.002  # of a message
_SCRAPE_S = 5.0
RECOVERY_S = 60.0  # after this time without a disturbance a loss of one machine loses nothing


class Numbers:
    """A learner that counts numbers, and deletes them."""

    def __init__(self) -> None:
        self.counts: Counter[int] = Counter()
        self.deleted: set[int] = set()
        self.erase: Callable[[int], None] = lambda number: None

    def fact(self, observation: Any) -> bytes | None:
        raise NotImplementedError

    def apply(self, fact: bytes) -> None:
        if not fact:  # erased
            return
        number = int(fact[1:])
        if fact[:1] == b"-":
            self.deleted.add(number)
            self.counts.pop(number, None)
            self.erase(number)
        elif number not in self.deleted:
            self.counts[number] += 1

    def freeze(self) -> Callable[[], bytes]:
        state = {"counts": list(self.counts.items()), "deleted": sorted(self.deleted)}
        return lambda: json.dumps(state).encode()

    def restore(self, state: bytes) -> None:
        said = json.loads(state)
        self.counts, self.deleted = Counter(dict(said["counts"])), set(said["deleted"])


_: type[Learner] = Numbers


class Objects(FakeObjects):
    """The store's objects, which cannot be reached while `gone`."""

    gone = False

    def create(self, key: str, content: bytes | Path) -> bool:
        self._reach()
        return super().create(key, content)

    def read(self, key: str) -> bytes | None:
        self._reach()
        return super().read(key)

    def keys(self, prefix: str) -> list[str]:
        self._reach()
        return super().keys(prefix)

    def _reach(self) -> None:
        if self.gone:
            raise MarkError("no route to the bucket")


class WorldLoop(IdleLoop):
    """A loop on which calls of the store take `store_s` seconds; their effect comes at once."""

    store_s = 0.0

    def run_in_executor(self, executor: Any, func: Callable[..., Any], *args: Any) -> asyncio.Future[Any]:  # type: ignore[override]
        done = super().run_in_executor(executor, func, *args)
        if self.store_s == 0.0 or not executor._thread_name_prefix.startswith("learned-store"):
            return done
        later: asyncio.Future[Any] = self.create_future()
        error = done.exception()

        def answer() -> None:
            if later.done():  # its process was killed
                return
            if error is not None:
                later.set_exception(error)
            else:
                later.set_result(done.result())

        self.call_later(self.store_s, answer)
        return later


class Machine:
    """A machine with an address and a disk, which outlives its process."""

    def __init__(self, address: str, disk: Path) -> None:
        disk.mkdir()
        self.address, self.disk = address, disk
        self.process: Process | None = None


class Wire(Peer):
    """The way to the process at an address."""

    world: World
    machine: Machine

    async def _once(self, data: bytes, answer_s: float) -> HttpAnswer:
        head, _, body = data.partition(b"\r\n\r\n")
        path = head.split()[1].removeprefix(b"/v2/models/m/learned")
        try:
            async with asyncio.timeout(answer_s):
                return await self.world.carry(self.machine, self.address.url, path, body)
        except TimeoutError:
            raise PeerError(f"no answer within {answer_s:g} s") from None


class Wires(Peers):
    """The peers of a process in the world."""

    def __init__(self, world: World, machine: Machine, own: str, urls: Sequence[str]) -> None:
        self._world, self._machine = world, machine
        access = PeerAccess(tuple(map(Address.of, urls)), in_clear=True)
        super().__init__(access, "m", own, world.loop)

    def _add(self, address: Address) -> None:
        wire = self._peers[address.url] = Wire(address, self._access, "m", self._loop)
        wire.world, wire.machine = self._world, self._machine


class Process:
    """A process with its memory, which dies with it."""

    def __init__(self, world: World, machine: Machine, peers: Sequence[str]) -> None:
        self.world, self.machine = world, machine
        world.starts += 1
        self.writer = f"w{world.starts}"
        folder = machine.disk / str(world.starts)
        folder.mkdir()
        (folder / "lock").touch()
        self.learner = Numbers()
        self.learner.erase = self._erase
        store = LearnedStore(world.objects, "m") if world.stores else None
        self.learning = Learning(
            "m", self.writer, self.learner, FeedbackJoin(1e6, 10**7), folder,
            Wires(world, machine, self.writer, peers), world.loop,
            store=store, store_first=world.store_first,
            now=lambda: world.now_s + world.skew_s.get(machine.address, 0.0),
        )  # fmt: skip
        self.learning.shared._tail_bytes = world.tail_bytes
        self.ready = self.dead = False
        self._commits = asyncio.Lock()
        self._erased: list[int] = []
        self._tasks: set[asyncio.Task[Any]] = set()
        self.begin(self._boot())

    def begin(self, work: Coroutine[Any, Any, Any]) -> asyncio.Task[Any]:
        task = self.world.loop.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    async def _boot(self) -> None:
        world = self.world
        world.began(self)
        await self.learning.catch_up()
        self.learning.start()
        self.ready = True
        world.became_ready(self)
        for number in self._erased:
            self.begin(self._rewrite(number))

    async def commit(self, content: bytes) -> None:
        """Do what the sink's thread does with one piece of feedback. Raises NotKept or OSError."""
        async with self._commits:
            learning = self.learning
            learning.make_room(())
            learning.number(f"{self.writer}-{content.decode()}", content, learning._now())
            facts = list(learning._under_way.values())
            learning._journal.append([fact for fact in facts if fact.number > learning._written])
            learning._written = learning._made
            await learning._settle(facts)
            learning._under_way.clear()

    def _erase(self, number: int) -> None:
        self._erased.append(number)
        if self.ready:
            self.begin(self._rewrite(number))

    async def _rewrite(self, number: int) -> None:
        content = b"+%d" % number
        await self.learning.rewrite(lambda fact: replace(fact, content=b"") if fact.content == content else fact)

    def die(self) -> None:
        """End without another step."""
        self.dead, self.ready = True, False
        learning = self.learning
        for task in (*self._tasks, *learning._tasks, *filter(None, [learning._writing])):
            task.cancel()
        self.world.loop.run_until_idle()
        learning._journal.close()

    async def stop(self) -> None:
        """End as at a SIGTERM: commits in progress are finished first."""
        async with self._commits:
            self.ready = False
            await self.learning.close()
            self.dead = True


class World:
    """All machines. `fixed`: a process has all addresses from its options, its own too; else the controller tells it.

    The controller scrapes every 5 s, and tells the machines that it knows: while `blind` it sees no changes.
    """

    def __init__(
        self,
        folder: Path,
        machines: int,
        *,
        stores: bool,
        store_first: bool = False,
        fixed: bool = True,
        tail_bytes: int = 1000,
    ) -> None:
        self.loop = WorldLoop()
        self.folder, self.stores, self.store_first, self.fixed = folder, stores, store_first, fixed
        self.tail_bytes = tail_bytes
        self.objects = Objects()
        self.starts = self.number = self._addresses = self._disks = 0
        self.machines: list[Machine] = []
        self.cut: set[frozenset[str]] = set()  # pairs of addresses between which nothing passes
        self.mute: set[tuple[str, str]] = set()  # from, to: answers on requests this way are lost
        self.skew_s: dict[str, float] = {}
        self.blind, self._seen = False, list[str]()
        self._scrape_s = 0.0
        self.acked: dict[int, float] = {}
        self.alone: set[int] = set()  # acknowledged by a process that knew no other one
        self.deleting: set[int] = set()
        self.deleted: set[int] = set()  # acknowledged, by a process that knew another one
        self._good_s, self._recovered = 0.0, True
        self.disturbed_s = -1e9
        self._acked_at_start: dict[str, set[int]] = {}
        for _ in range(machines):
            self.add_machine(boot=False)
        for machine in self.machines:
            self.boot(machine)

    @property
    def now_s(self) -> float:
        return NOW_S + self.loop.time()

    @property
    def alive(self) -> list[Process]:
        return [one.process for one in self.machines if one.process is not None]

    def run(self, seconds: float) -> None:
        """Let time pass."""
        until_s = self.loop.time() + seconds
        self.loop.run_until_idle()
        while True:
            left_s = until_s - self.loop.time()
            next_s = self.loop._next_timer_s
            began_s = self.loop.time()
            if next_s is None or next_s >= left_s:
                self.loop._now_s = until_s
            else:
                self.loop.advance()
            self._watch(self.loop.time() - began_s)
            self.loop.run_until_idle()
            if self.loop.time() >= until_s:
                return

    def _watch(self, passed_s: float) -> None:
        if self.loop.time() >= self._scrape_s and not self.fixed:
            self._scrape_s = self.loop.time() + _SCRAPE_S
            if not self.blind:
                self._seen = [one.address for one in self.machines]
            for process in self.alive:
                process.learning.hear(self._seen)
        store = self.stores and not self.objects.gone and self.loop.store_s < 1.0
        whole = not self.cut and not self.mute and all(one.process and one.process.ready for one in self.machines)
        self._good_s = self._good_s + passed_s if (store or whole) and not self.blind else 0.0
        self._recovered = self._recovered or self._good_s >= RECOVERY_S

    # Machines

    def add_machine(self, address: str | None = None, boot: bool = True) -> Machine:
        """Add a machine, at a new address unless one is given."""
        if address is None:
            self._addresses += 1
            address = f"http://10.0.0.{self._addresses}:80"
        self._disks += 1
        machine = Machine(address, self.folder / str(self._disks))
        self.machines.append(machine)
        if boot:
            self.boot(machine)
        return machine

    def boot(self, machine: Machine) -> None:
        peers = sorted({one.address for one in self.machines}) if self.fixed else []
        machine.process = Process(self, machine, peers)
        self.loop.run_until_idle()

    def kill(self, machine: Machine, disk: bool) -> None:
        """Kill the process; with `disk` the disk stays. Nothing acknowledged may lose its last copy by it."""
        process = machine.process
        assert process is not None
        process.die()
        machine.process = None
        self._lose(machine, disk)
        self.disturbed_s = self.loop.time()

    def stop(self, machine: Machine) -> None:
        """End the process of a machine in order, as a roll-out does."""
        process = machine.process
        assert process is not None
        task = self.loop.create_task(process.stop())
        while not task.done():
            self.run(1.0)
        task.result()
        machine.process = None
        process.die()
        self.disturbed_s = self.loop.time()

    def remove(self, machine: Machine) -> None:
        """Remove a machine, whose process has ended, with its disk."""
        self._lose(machine, disk=False)
        self.machines.remove(machine)

    def _lose(self, machine: Machine, disk: bool) -> None:
        """Check that the loss of a process, and of its disk, is not the loss of anything acknowledged.

        What has lost its last copy by several losses within `RECOVERY_S`, or on the disk of a process that was alone,
        is no longer wanted.
        """
        gone = self._without_a_copy()
        if not disk:
            shutil.rmtree(machine.disk)
            machine.disk.mkdir()
        gone |= self._without_a_copy()
        assert not (gone - self.alone and self._recovered), f"the loss of one machine lost {sorted(gone)}"
        for number in gone:
            self.acked.pop(number, None)
            self.deleted.discard(-number)
        self._recovered, self._good_s = False, 0.0

    def _without_a_copy(self) -> set[int]:
        """Return the acknowledged numbers and, below 0, deletions that are in no memory, disk or store."""
        left = (self.acked.keys() - self.deleting) | {-number for number in self.deleted}
        for process in self.alive:
            left -= process.learner.counts.keys() | {-number for number in process.learner.deleted}
        if not left:
            return left
        for key, data in self.objects.objects.items():
            if "/snapshots/" in key:
                left -= _numbers_of(snapshot_in(data).state)
            elif "/aside/" not in key and data != b"damaged":
                left -= {int(one.content) for one in facts_in(data) if one.content}
        for machine in self.machines if left else ():
            journals = Journals(machine.disk)
            for snapshot in journals.snapshots():
                left -= _numbers_of(snapshot.state)
            left -= {int(one.content) for one in journals.facts() if one.content}
        return left

    # Clients

    def observe(self, machine: Machine) -> asyncio.Task[bool]:
        """Begin to tell a number to the process of a machine."""
        self.number += 1
        return self._tell(machine, self.number, b"+%d" % self.number)

    def delete(self, machine: Machine, number: int) -> asyncio.Task[bool]:
        """Begin to delete a number. It may be deleted even if that is not acknowledged."""
        self.deleting.add(number)
        return self._tell(machine, number, b"-%d" % number)

    def _tell(self, machine: Machine, number: int, content: bytes) -> asyncio.Task[bool]:
        process = machine.process
        assert process is not None

        async def tell() -> bool:
            try:
                await process.commit(content)
            except (NotKept, OSError):
                return False
            alone = not process.learning.peers.others and not self.store_first
            if content[:1] == b"+":
                self.acked[number] = self.loop.time()
                self.alone |= {number} if alone else set()
            elif not alone:
                self.deleted.add(number)
            return True

        task = process.begin(tell())
        self.loop.run_until_idle()
        return task

    # The network

    async def carry(self, sender: Machine, url: str, path: bytes, body: bytes) -> HttpAnswer:
        """Return the answer of the process at an address, as HTTP would."""
        pair = frozenset((sender.address, url))
        await asyncio.sleep(_WAY_S)
        if pair in self.cut:
            await asyncio.sleep(1e6)
        there = [one.process for one in self.machines if one.address == url and one.process is not None]
        if not there:
            raise NotThere("cannot be reached (Connection refused)")
        process = there[-1]  # an address may have moved to a newer machine
        status, answer = await self._answer(process, path, body)
        await asyncio.sleep(_WAY_S)
        if pair in self.cut or (sender.address, url) in self.mute:
            await asyncio.sleep(1e6)
        if process.dead:
            raise PeerClosed("closed the connection")
        return HttpAnswer(status, b"", b"", answer)

    async def _answer(self, process: Process, path: bytes, body: bytes) -> tuple[int, bytes]:
        kind, _, query = path.partition(b"?")
        if kind == b"/facts":
            return 200, process.learning.have(body)
        if kind == b"/lacking":
            return 200, process.learning.lacking(body)
        number, begin = (int(one.partition(b"=")[2]) for one in query.split(b"&"))
        page = await process.learning.snapshots.page(number, begin)
        return (404, b"") if page is None else (200, page)

    # Laws

    def began(self, process: Process) -> None:
        self._acked_at_start[process.writer] = set(self.acked)

    def disturb(self) -> None:
        """Note that something is wrong now, so that a process that is about to become ready cannot know everything."""
        self.disturbed_s = self.loop.time()

    def became_ready(self, process: Process) -> None:
        """Check that a process which becomes ready in a sound world has all that was acknowledged before its start."""
        troubled = self.cut or self.mute or self.objects.gone or self.loop.store_s >= 1.0 or self.blind
        troubled = troubled or len({one.address for one in self.machines}) < len(self.machines)
        if troubled or self.loop.time() - self.disturbed_s < 60.0 or not self.fixed:
            return
        lacks = self._acked_at_start[process.writer] & self.acked.keys() - self.deleting - process.learner.counts.keys()
        assert not lacks, f"{process.writer} is ready without {sorted(lacks)}"

    def check_once(self) -> None:
        for process in self.alive:
            assert set(process.learner.counts.values()) <= {1}, process.learner.counts

    def heal(self) -> None:
        """End all disturbances, start a process on each machine, and remove all but the newest one of an address."""
        self.cut.clear()
        self.mute.clear()
        self.objects.gone, self.loop.store_s, self.blind = False, 0.0, False
        newest = {one.address: one for one in self.machines}
        for machine in [one for one in self.machines if one is not newest[one.address]]:
            if machine.process is None:  # so that its disk's facts reach others before it goes
                self.boot(machine)
            self.run(20.0)
            self.stop(machine)
            self.remove(machine)
        for machine in self.machines:
            if machine.process is None:
                self.boot(machine)

    def check_converges(self, within_s: float = 4000.0) -> None:
        """Check that all processes end with one state, which has each acknowledged number once and no deleted one."""
        self.heal()
        until_s = self.loop.time() + within_s
        while self.loop.time() < until_s:
            self.run(10.0)
            states = [one.learner.counts for one in self.alive]
            wanted = self.acked.keys() - self.deleting
            ready = all(one.ready for one in self.alive)
            if ready and wanted <= states[0].keys() and all(state == states[0] for state in states):
                break
        self.check_once()
        for process in self.alive:
            counts = process.learner.counts
            assert process.ready
            lacks, deleted = wanted - counts.keys(), self.deleted & counts.keys()
            assert not lacks, f"{process.writer} lacks {sorted(lacks)}"
            assert not deleted, f"{process.writer} has deleted {sorted(deleted)}"
            assert counts == self.alive[0].learner.counts

    def close(self) -> None:
        for process in self.alive:
            process.die()
        self.loop.run_until_idle()
        self.loop.close()


def _numbers_of(state: bytes) -> set[int]:
    said = json.loads(state)
    return {number for number, _ in said["counts"]} | {-number for number in said["deleted"]}
