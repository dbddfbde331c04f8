"""Worker processes, for real: they crash, hang, lie and are killed, and every batch ends exactly once."""

from __future__ import annotations

import asyncio
import gc
import json
import math
import os
import random
import resource
import select
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

import psutil
import pytest
import uvloop

from mark.models.call import Call, Reply
from mark.serving.worker.child import KeptChild, OwnChild, Spawn
from mark.serving.worker.shared_memory import KEEP_BYTES
from mark.serving.worker.workers import WorkerEvents, WorkerLimits, WorkerModel, Workers, backoff_s
from tests.children import new_children
from tests.samples import first
from tests.serving.worker.faulty_answering import AHEAD
from tests.serving.worker.listening import keepers

HERE = Path(__file__).parent
LONG_S = 30.0  # a test that waits for this many seconds has failed


class Pool:
    """Workers, and their reports in order. Each worker's story must read (ready, done*, lost)*."""

    spawn: Spawn = OwnChild

    def __init__(
        self,
        reference: str,
        count: int,
        search: Path = HERE,
        *,
        loader: str = "faulty_answering:load",
        spawn: Spawn | None = None,
        threads: int | None = None,
        hang_s: float = LONG_S,
        **limits: Any,
    ) -> None:
        self.said: asyncio.Queue[tuple[Any, ...]] = asyncio.Queue()
        self.ready: set[int] = set()
        self.sent: dict[int, list[int]] = {}  # calls of each batch that a worker has
        self.back_in_s: list[float] = []
        self.at_next: list[bool] = []
        self.last_said = b""
        self.replaced = 0
        self.workers = Workers(
            WorkerModel(reference, search, loader=loader),
            count,
            WorkerEvents(self.on_ready, self.on_done, self.on_lost, self.on_failed, self.on_replaced),
            limits=WorkerLimits(hang_s=hang_s, **limits),
            threads=threads,
            spawn=self.spawn if spawn is None else spawn,
        )

    def on_failed(self, reason: str) -> None:
        self.said.put_nowait(("failed", reason))

    def on_replaced(self) -> None:
        self.replaced += 1

    def on_ready(self, worker: int, load_s: float, said: bytes) -> None:
        assert worker not in self.ready
        assert load_s > 0
        self.ready.add(worker)
        self.last_said = said
        self.said.put_nowait(("ready", worker))

    def on_done(self, worker: int, replies: list[Reply], service_s: float) -> None:
        assert worker in self.ready
        assert len(replies) == self.sent[worker].pop(0)
        assert 0 <= service_s < LONG_S
        self.said.put_nowait(("done", worker, replies))

    def on_lost(self, worker: int, reason: str, back_in_s: float, at_next: bool) -> None:
        self.ready.remove(worker)
        self.back_in_s.append(back_in_s)
        self.at_next.append(at_next)
        self.said.put_nowait(("lost", worker, reason, sum(self.sent.pop(worker, []))))

    def send(self, worker: int, *bodies: str | bytes) -> None:
        bodies_ = [body.encode() if isinstance(body, str) else body for body in bodies]
        self.workers.send(worker, [Call("oip", "application/json", body) for body in bodies_])
        self.sent.setdefault(worker, []).append(len(bodies))

    async def next(self) -> tuple[Any, ...]:
        return await asyncio.wait_for(self.said.get(), LONG_S)

    async def ask(self, worker: int, *bodies: str | bytes) -> list[Reply]:
        self.send(worker, *bodies)
        kind, by, replies = await self.next()
        assert (kind, by) == ("done", worker)
        return list(replies)

    async def text(self, worker: int, body: str) -> str:
        reply, *_ = await self.ask(worker, body)
        assert reply.status == 200
        return bytes(reply.body).decode()

    async def serves(self, worker: int = 0) -> None:
        assert [reply.body for reply in await self.ask(worker, b"here", b"again")] == [b"here", b"again"]


@asynccontextmanager
async def pool(reference: str = "good", count: int = 1, **options: Any) -> AsyncIterator[Pool]:
    """Yield a started pool; end it afterwards, with no batch unaccounted for."""
    made = Pool(reference, count, **options)
    made.workers.start()
    try:
        yield made
    finally:
        await made.workers.stop(0.0 if any(made.sent.values()) else LONG_S)
    assert not any(made.sent.values())


@asynccontextmanager
async def ready_pool(count: int = 1, reference: str = "good", **options: Any) -> AsyncIterator[Pool]:
    async with pool(reference, count, **options) as made:
        assert {await made.next() for _ in range(count)} == {("ready", worker) for worker in range(count)}
        yield made


def run(test: Callable[[], Coroutine[Any, Any, None]]) -> None:
    """Run on the loop of production; check that neither processes nor descriptors are left."""
    uvloop.run(asyncio.sleep(0))  # the first run opens a pipe and keeps it
    # Threads of an earlier test (gRPC's) may open descriptors during this one, once; a leak would repeat.
    left = left_open(test)
    assert not (left and left_open(test)), left


def left_open(test: Callable[[], Coroutine[Any, Any, None]]) -> Counter[str]:
    before = descriptors()
    with new_children() as children:
        uvloop.run(test())
        assert children() == []
    gc.collect()  # objects held only by a failure's traceback
    return descriptors() - before  # an earlier test's may be closed during this one, when its garbage is collected


def descriptors() -> Counter[str]:
    """Return the open descriptors by target, with their counts."""
    found: Counter[str] = Counter()
    for fd in os.listdir("/proc/self/fd"):
        with suppress(OSError):  # closed by a thread of an earlier test or as the folder's own
            found[os.readlink(f"/proc/self/fd/{fd}")] += 1
    return found


class Told:
    """A named pipe by which a model says that it is where the test wants it."""

    def __init__(self, path: Path) -> None:
        os.mkfifo(path)
        self.path = path
        self.fd = os.open(path, os.O_RDWR | os.O_NONBLOCK)

    async def told(self) -> None:
        loop = asyncio.get_running_loop()
        came = loop.create_future()
        loop.add_reader(self.fd, lambda: came.done() or came.set_result(None))
        try:
            await asyncio.wait_for(came, LONG_S)
            os.read(self.fd, 1)
        finally:
            loop.remove_reader(self.fd)

    def tell(self) -> None:
        os.write(self.fd, b"x")

    def close(self) -> None:
        os.close(self.fd)


WAYS = ("alone", "ahead", "kept")
# For tests in which a worker or the bouncer ends: who notices and who replaces it depends on the way of starting.
every_way = pytest.mark.parametrize("threads", first(1, WAYS), indirect=True)


@pytest.fixture(params=first(1, WAYS, slow=0), autouse=True)
def threads(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """Run every test for a worker that decodes ahead in a separate thread, and for a worker that a keeper starts."""
    if request.param == "ahead":
        monkeypatch.setenv(AHEAD, "1")
    if request.param == "kept":
        with keepers(tmp_path / "keepers") as path:
            monkeypatch.setattr(Pool, "spawn", staticmethod(KeptChild.through(path)))
            yield "alone"
    else:
        yield str(request.param)


@pytest.fixture
def fifo(tmp_path: Path) -> Any:
    made: list[Told] = []

    def make(name: str) -> Told:
        made.append(Told(tmp_path / name))
        return made[-1]

    yield make
    for told in made:
        told.close()


async def ended(pid: int) -> None:
    """Wait until a process, which need not be our child, has ended."""
    try:
        fd = os.pidfd_open(pid)
    except ProcessLookupError:
        return  # it was quicker
    try:
        await asyncio.to_thread(lambda: select.select([fd], [], [], LONG_S)[0] or pytest.fail("lives on"))
    finally:
        os.close(fd)


@every_way
def test_batches_are_answered_in_order_and_apart() -> None:
    """Two workers get several batches each; every call gets its own reply, of its own type."""

    async def test() -> None:
        async with ready_pool(2) as two:
            for size in (1, 3, 64):
                for worker in (0, 1):
                    two.send(worker, *(f"{worker}:{number}" for number in range(size)))
                got = {worker: [reply.body.decode() for reply in replies] for _, worker, replies in
                       [await two.next(), await two.next()]}  # fmt: skip
                assert got == {worker: [f"{worker}:{number}" for number in range(size)] for worker in (0, 1)}

    run(test)


def test_a_model_answers_through_the_usual_loader(tmp_path: Path) -> None:
    """A class from the folder it is looked for in, loaded and warmed up before it is ready; its items in one batch."""
    (tmp_path / "halves.py").write_text(
        "import mark.models.model as mark\n"
        "class Halves(mark.Model):\n"
        "    inputs = [mark.TensorSpec('x', 'FP64')]\n"
        "    seen = []\n"
        "    def predict(self, batch):\n"
        "        self.seen.append(len(batch))\n"
        "        return [{'half': x / 2, 'batch': str(self.seen)} for x in batch]\n"
    )

    async def test() -> None:
        async with ready_pool(
            reference="halves:Halves", search=tmp_path, loader="mark.serving.worker.loaders:load"
        ) as one:
            bodies = [b'{"inputs":[{"name":"x","datatype":"FP64","shape":[%d],"data":%s}]}' % (len(data), data_)
                      for data in ([1.0, 2.0], [3.0]) for data_ in [str(data).encode()]]  # fmt: skip
            replies = await one.ask(0, *bodies, b"no JSON")
            assert [reply.status for reply in replies] == [200, 200, 400]
            outputs = [
                {out["name"]: out["data"] for out in json.loads(bytes(reply.body))["outputs"]} for reply in replies[:2]
            ]
            assert outputs == [
                {"half": [0.5, 1.0], "batch": ["[1, 1, 3]"] * 2},
                {"half": [1.5], "batch": ["[1, 1, 3]"]},
            ]

    run(test)


@every_way
def test_a_worker_that_exits_does_not_blame_the_batch_before(fifo: Any, threads: str) -> None:
    """The batch before may still be unanswered, because the other thread is encoding its results."""
    stuck, decoded, go = fifo("stuck"), fifo("decoded"), fifo("stuck.go")

    async def test() -> None:
        async with ready_pool() as one:
            one.send(0, f"told {stuck.path}")
            await stuck.told()
            one.send(0, f"decoded {decoded.path}")
            if threads == "ahead":
                await decoded.told()
            go.tell()
            if threads == "alone":
                assert (await one.next())[0] == "done"
            assert await one.next() == ("lost", 0, "exit code 3", 2 if threads == "ahead" else 1)
            assert one.at_next == [threads == "ahead"]
            assert await one.next() == ("ready", 0)
            one.send(0, "exit")
            assert (await one.next())[0] == "lost"
            assert one.at_next[1:] == [False]

    run(test)


def test_a_worker_with_a_wrong_reply_was_not_at_next() -> None:
    """It has written replies, but the wrong number of them."""

    async def test() -> None:
        async with ready_pool() as one:
            one.send(0, "wrong-count")
            one.send(0, "next")
            assert (await one.next())[::3] == ("lost", 2)
            assert one.at_next == [False]
            assert await one.next() == ("ready", 0)

    run(test)


def test_a_batch_larger_than_the_arena_is_answered() -> None:
    """Both halves grow as needed, so that no batch is too large, and small batches still work."""

    async def test() -> None:
        body = os.urandom(KEEP_BYTES // 2)
        async with ready_pool() as one:
            for _ in range(2):
                assert [reply.body for reply in await one.ask(0, *[body] * 3)] == [body] * 3
                await one.serves()

    run(test)


def test_a_model_may_have_much_to_say_of_itself() -> None:
    """A thousand inputs are more than a message holds."""

    async def test() -> None:
        async with ready_pool(reference="says 200000") as one:
            assert one.last_said == b'"' + b"x" * 200_000 + b'"'
            await one.serves()

    run(test)


def test_a_batch_without_memory_for_it_costs_its_worker() -> None:
    """It is lost, not forgotten; the sender may try it elsewhere."""

    async def test() -> None:
        async with ready_pool() as one:
            before = resource.getrlimit(resource.RLIMIT_FSIZE)
            resource.setrlimit(resource.RLIMIT_FSIZE, (KEEP_BYTES, before[1]))
            try:
                one.send(0, bytes(2 * KEEP_BYTES))
            finally:
                resource.setrlimit(resource.RLIMIT_FSIZE, before)
            lost, worker, reason, calls = await one.next()
            assert (lost, worker, calls) == ("lost", 0, 1)
            assert reason.startswith("there is no memory for its batch")
            assert await one.next() == ("ready", 0)
            await one.serves()

    run(test)


@every_way
def test_a_worker_takes_a_second_batch_and_no_third(fifo: Callable[[str], Told]) -> None:
    """A third batch raises, and the batches under way are not overwritten."""
    told, go = fifo("told"), fifo("told.go")

    async def test() -> None:
        async with pool() as one:
            with pytest.raises(RuntimeError, match="worker 0"):
                one.workers.send(0, [Call("oip", "", b"early")])
            await one.next()
            with pytest.raises(RuntimeError, match="empty"):
                one.workers.send(0, [])
            first = f"told {told.path}"
            one.send(0, first)
            await told.told()
            one.send(0, b"second", b"batch")
            with pytest.raises(RuntimeError, match="worker 0"):
                one.workers.send(0, [Call("oip", "", b"other")])
            go.tell()
            assert (await one.next())[2][0].body == first.encode()
            one.send(0, b"third")
            assert [reply.body for reply in (await one.next())[2]] == [b"second", b"batch"]
            assert (await one.next())[2][0].body == b"third"

    run(test)


@every_way
def test_a_worker_is_lost_with_both_batches_once(fifo: Callable[[str], Told]) -> None:
    here = fifo("here")

    async def test() -> None:
        async with ready_pool() as one:
            one.send(0, f"hang {here.path}")
            await here.told()
            one.send(0, b"second")
            os.kill(one.workers.pids()[0], signal.SIGKILL)
            kind, _, _, calls = await one.next()
            assert (kind, calls) == ("lost", 2)
            assert (await one.next())[0] == "ready"
            await one.serves()

    run(test)


@every_way
@pytest.mark.parametrize(
    ("body", "reason"),
    [
        ("exit", "exit code 3"),
        ("leave", "exit code 4"),
        ("segfault", "Segmentation fault (signal 11)"),
        ("babble", "sent something other than an answer"),
        ("boast", f"sent something other than an answer: {1 << 50} bytes are said to be in use"),
        ("wrong-count", "sent 3 replies to 2 calls"),
    ],
)
def test_a_broken_worker_is_lost_with_its_batch_and_replaced(body: str, reason: str) -> None:
    """It is lost once and ready once, and serves again; the other worker notices nothing."""

    async def test() -> None:
        async with ready_pool(2) as two:
            first = two.workers.pids()
            two.send(0, body, b"beside it")
            assert await two.next() == ("lost", 0, reason, 2)
            await two.serves(1)
            assert await two.next() == ("ready", 0)
            await two.serves(0)
            assert two.workers.pids()[0] != first[0]
            assert two.workers.pids()[1] == first[1]
            assert two.back_in_s[0] > 0  # as long as loading took

    run(test)


@every_way
def test_a_worker_killed_in_the_midst_of_a_batch(fifo: Callable[[str], Told]) -> None:
    """The kernel may do so for lack of memory."""
    here = fifo("here")

    async def test() -> None:
        async with ready_pool() as one:
            one.send(0, f"hang {here.path}")
            await here.told()
            os.kill(one.workers.pids()[0], signal.SIGKILL)
            assert await one.next() == ("lost", 0, "Killed (signal 9)", 1)
            assert await one.next() == ("ready", 0)
            await one.serves()

    run(test)


@every_way
def test_an_idle_worker_that_dies_is_replaced() -> None:
    """A batch that was sent as it died is lost like any other."""
    if Pool.spawn is not OwnChild:
        pytest.skip("needs to wait for a child")

    async def test() -> None:
        async with ready_pool() as one:
            os.kill(one.workers.pids()[0], signal.SIGKILL)
            assert await one.next() == ("lost", 0, "Killed (signal 9)", 0)
            assert await one.next() == ("ready", 0)
            pid = one.workers.pids()[0]
            os.kill(pid, signal.SIGKILL)
            os.waitid(os.P_PID, pid, os.WEXITED | os.WNOWAIT)  # dead, and the loop does not know it yet
            one.send(0, b"too late")
            assert await one.next() == ("lost", 0, "Killed (signal 9)", 1)
            assert await one.next() == ("ready", 0)
            await one.serves()

    run(test)


@every_way
def test_what_it_said_last_counts(fifo: Callable[[str], Told]) -> None:
    """A worker that answers and dies has answered."""
    if Pool.spawn is not OwnChild:
        pytest.skip("needs to wait for a child")
    here, go = fifo("here"), fifo("here.go")

    async def test() -> None:
        async with ready_pool() as one:
            one.send(0, f"told {here.path}")
            await here.told()
            pid = one.workers.pids()[0]
            os.kill(pid, signal.SIGTERM)
            go.tell()
            os.waitid(os.P_PID, pid, os.WEXITED | os.WNOWAIT)
            one.workers._gone(0, one.workers._processes[0])  # the loop may tell of the death first
            assert (await one.next())[0] == "done"
            assert await one.next() == ("lost", 0, "exit code 0", 0)
            assert await one.next() == ("ready", 0)

    run(test)


@every_way
def test_a_worker_that_hangs_is_killed() -> None:
    """It is killed after `hang_s`, and not before; an idle worker may be silent for longer."""

    async def test() -> None:
        async with ready_pool(hang_s=0.2) as one:
            pid = one.workers.pids()[0]
            await asyncio.sleep(0.5)  # idle: this waits for an event that must not happen
            assert one.workers.pids()[0] == pid
            began_s = asyncio.get_running_loop().time()
            one.send(0, "hang")
            assert await one.next() == ("lost", 0, "no answer within 0.2 s", 1)
            assert asyncio.get_running_loop().time() - began_s >= 0.19
            assert await one.next() == ("ready", 0)
            await one.serves()

    run(test)


@pytest.mark.parametrize(
    ("body", "error"),
    [("raise it", "ArithmeticError"), ("few", "TypeError"), ("none", "AttributeError"), ("text", "TypeError")],
)
def test_answers_that_fail_cost_no_process(body: str, error: str) -> None:
    """Every call of the batch gets a 500 that names the error, and the same process serves on."""

    async def test() -> None:
        async with ready_pool() as one:
            pid = one.workers.pids()[0]
            replies = await one.ask(0, body, b"beside it")
            assert [reply.status for reply in replies] == [500, 500]
            assert replies[0].body == f'{{"error": "the model failed: {error}"}}'.encode()
            await one.serves()
            assert one.workers.pids()[0] == pid

    run(test)


def test_what_a_model_prints_goes_to_standard_error(
    capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each line is passed on unchanged, even when the next batch is the last.

    Standard output belongs to the bouncer.
    """
    monkeypatch.delenv("PYTHONUNBUFFERED", raising=False)

    async def test() -> None:
        async with ready_pool() as one:
            await one.ask(0, "print seen in the log")
            one.send(0, "exit")
            assert (await one.next())[0] == "lost"

    run(test)
    out, err = capfd.readouterr()
    assert "seen in the log\n" in err
    assert out == ""


@every_way
def test_what_a_worker_has_started_ends_with_it() -> None:
    async def test() -> None:
        async with ready_pool() as one:
            pid = int(await one.text(0, "spawn"))
            one.send(0, "exit")
            assert (await one.next())[0] == "lost"
            if psutil.pid_exists(pid):
                await ended(pid)

    run(test)


@pytest.mark.parametrize(
    ("reference", "reason"),
    [
        ("raises", "ValueError: no weights"),
        ("ends", "EOFError"),
        ("refuses", "model: no such class: Nowhere"),
        ("crashes", "Segmentation fault (signal 11)"),
    ],
)
def test_a_model_that_never_loaded_fails_at_once(reference: str, reason: str) -> None:
    """One line is logged once, whatever the number of workers; nothing is tried again, no request is lost."""

    async def test() -> None:
        async with pool(reference, 2) as two:
            assert await two.next() == ("failed", f"{reference}: {reason}")
            for pid in filter(None, two.workers.pids().values()):  # a keeper may not have told of the second yet
                await ended(pid)
        assert two.said.empty()

    run(test)


def test_what_never_loaded_is_not_tried_again(tmp_path: Path, fifo: Callable[[str], Told]) -> None:
    """The start of a service with a broken model should fail immediately."""
    looked = fifo("weights.looked")

    async def test() -> None:
        async with pool(f"needs {tmp_path / 'weights'}") as one:
            assert (await one.next())[0] == "failed"
            assert os.read(looked.fd, 100) == b"x"

    run(test)


def test_a_model_that_takes_for_ever_to_load_fails(fifo: Callable[[str], Told]) -> None:
    here = fifo("here")

    async def test() -> None:
        async with pool(f"hangs {here.path}", load_limit_s=0.5) as one:
            assert await one.next() == ("failed", f"hangs {here.path}: not loaded within 0.5 s")

    run(test)


def test_a_model_that_stops_loading_fails_after_some_time(tmp_path: Path, fifo: Callable[[str], Told]) -> None:
    """A model that loaded once is tried again, with growing waits, before the worker gives up."""
    weights, looked = tmp_path / "weights", fifo("weights.looked")
    weights.touch()

    async def test() -> None:
        async with ready_pool(reference=f"needs {weights}", give_up_s=math.inf) as one:
            await looked.told()
            for comes_back in (True, False):
                weights.unlink()
                await one.serves()
                one.send(0, "exit")
                assert await one.next() == ("lost", 0, "exit code 3", 1)
                for _ in range(3):
                    await looked.told()
                if comes_back:
                    weights.touch()
                    assert await one.next() == ("ready", 0)
                    await looked.told()
            one.workers._give_up_s = 0.0  # it is over by now
            kind, reason = await one.next()
            assert kind == "failed"
            assert reason.endswith(f"FileNotFoundError: {weights}")
            assert one.workers.pids() == {}

    run(test)


def test_a_burst_of_kills_ends_nothing() -> None:
    """An OOM killer may do so: each worker that starts is killed before it has loaded, again and again."""

    async def test() -> None:
        async with ready_pool() as one:
            for kills in range(7):
                while not (pid := one.workers.pids().get(0, 0)):  # 0: a keeper has not told of it yet
                    await asyncio.sleep(0)
                os.kill(pid, signal.SIGKILL)
                await ended(pid)
                if not kills:
                    assert (await one.next())[:2] == ("lost", 0)
                while one.workers.pids().get(0) == pid:
                    await asyncio.sleep(0)
            assert await one.next() == ("ready", 0)
            await one.serves()

    run(test)


def test_a_reload_has_less_time_than_the_first_load(tmp_path: Path) -> None:
    """It has ten times its first load, or `hang_s`, because admitted requests wait for it."""
    weights = tmp_path / "weights"
    weights.touch()

    async def test() -> None:
        async with ready_pool(reference=f"then-hangs {weights}", hang_s=0.5) as one:
            one.workers._longest_load_s = 0.01  # on a busy machine it took longer
            one.send(0, "exit")
            assert await one.next() == ("lost", 0, "exit code 3", 1)
            assert await one.next() == ("failed", f"then-hangs {weights}: not loaded within 0.5 s")

    run(test)


def test_while_one_serves_nothing_has_failed(tmp_path: Path, fifo: Callable[[str], Told]) -> None:
    """The other is tried again and again, and returns when it can."""
    weights, looked = tmp_path / "weights", fifo("weights.looked")
    weights.touch()

    async def test() -> None:
        async with ready_pool(2, reference=f"needs {weights}", give_up_s=0.0) as two:
            for _ in range(2):
                await looked.told()
            weights.unlink()
            two.send(0, "exit")
            assert await two.next() == ("lost", 0, "exit code 3", 1)
            for _ in range(3):
                await looked.told()
            await two.serves(1)
            weights.touch()
            assert await two.next() == ("ready", 0)
            await two.serves(0)

    run(test)


def test_waits_grow_and_end_somewhere() -> None:
    """The waits are 0, 0.1 s, twice that, ..., and 30 s from then on."""
    assert [backoff_s(losses) for losses in (1, 2, 3, 4, 10)] == [0.0, 0.1, 0.2, 0.4, 25.6]
    assert {backoff_s(losses) for losses in (11, 12, 10_000)} == {30.0}


def test_stop_finishes_what_is_under_way(fifo: Callable[[str], Told]) -> None:
    """The batch is answered, no request is lost, and nothing starts again."""
    here, go = fifo("here"), fifo("here.go")

    async def test() -> None:
        async with ready_pool(2) as two:
            two.send(0, f"told {here.path}", b"beside it")
            await here.told()
            stopping = asyncio.create_task(two.workers.stop(LONG_S))
            await ended(two.workers.pids()[1])  # the idle one goes first
            assert not stopping.done()
            go.tell()
            await stopping
            kind, worker, replies = await two.next()
            assert (kind, worker, replies[1].body) == ("done", 0, b"beside it")
            assert two.said.empty()
            assert two.workers.pids() == {}

    run(test)


@every_way
def test_stop_kills_what_does_not_end(fifo: Callable[[str], Told]) -> None:
    """It ends in time; the worker's batch is reported as lost."""
    here = fifo("here")

    async def test() -> None:
        async with ready_pool() as one:
            one.send(0, f"hang {here.path}")
            await here.told()
            await one.workers.stop(0.05)
            assert await one.next() == ("lost", 0, "did not end in time", 1)
            assert one.back_in_s == [float("inf")]
            assert one.said.empty()

    run(test)


def test_stop_does_not_wait_for_a_load(fifo: Callable[[str], Told]) -> None:
    """A loading worker has no request."""
    here = fifo("here")

    async def test() -> None:
        async with pool(f"hangs {here.path}") as one:
            await here.told()
            await asyncio.wait_for(one.workers.stop(1e6), LONG_S)
            assert one.said.empty()
            await one.workers.stop(1e6)  # a second time does no harm

    run(test)


def test_a_stop_given_up_still_kills(fifo: Callable[[str], Told]) -> None:
    """A cancelled stop becomes a quick one."""
    here = fifo("here")

    async def test() -> None:
        async with ready_pool() as one:
            one.send(0, f"hang {here.path}")
            await here.told()
            stopping = asyncio.create_task(one.workers.stop(1e6))
            await asyncio.sleep(0)
            stopping.cancel()
            assert (await one.next())[0] == "lost"

    run(test)


@every_way
def test_sigterm_ends_a_worker_after_its_batch_sigint_never(fifo: Callable[[str], Told]) -> None:
    """A terminal's ctrl-C is the bouncer's business: it drains, and needs its workers for that."""
    here, go = fifo("here"), fifo("here.go")

    async def test() -> None:
        async with ready_pool() as one:
            pid = one.workers.pids()[0]
            assert os.getpgid(pid) == pid
            for number, send in enumerate((signal.SIGINT, signal.SIGTERM)):
                one.send(0, f"told {here.path}", f"{number}")
                await here.told()
                os.kill(pid, send)
                go.tell()
                assert (await one.next())[2][1].body == f"{number}".encode()
            assert await one.next() == ("lost", 0, "exit code 0", 0)
            assert await one.next() == ("ready", 0)

    run(test)


@every_way
def test_workers_die_with_the_bouncer(tmp_path: Path) -> None:
    """The bouncer is killed while they are in the middle of a batch that never ends."""
    code = f"""
import asyncio, sys
from pathlib import Path
from mark.models.call import Call
from mark.serving.worker.workers import WorkerEvents, WorkerModel, Workers

async def main():
    seen = asyncio.Queue()
    events = WorkerEvents(lambda *a: seen.put_nowait(a), print, print, print)
    workers = Workers(WorkerModel("good", Path({str(HERE)!r}), loader="faulty_answering:load"), 2, events)
    workers.start()
    await seen.get(), await seen.get()
    workers.send(0, [Call("oip", "", b"hang")])
    print(*workers.pids().values(), flush=True)
    await seen.get()

asyncio.run(main())
"""

    async def test() -> None:
        with subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True) as bouncer:
            assert bouncer.stdout is not None
            pids = [int(pid) for pid in (await asyncio.to_thread(bouncer.stdout.readline)).split()]
            assert len(pids) == 2
            fds = [os.pidfd_open(pid) for pid in pids]
            bouncer.kill()
            for fd in fds:
                await asyncio.to_thread(lambda fd=fd: select.select([fd], [], [], LONG_S)[0] or pytest.fail("orphan"))
                os.close(fd)

    run(test)


def test_threads_are_bounded_where_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    """The environment variables of OpenMP, OpenBLAS and MKL bound them; otherwise they are the bouncer's own."""
    monkeypatch.setenv("MKL_NUM_THREADS", "7")

    async def test(threads: int | None, expected: str) -> None:
        async with ready_pool(threads=threads) as one:
            assert await one.text(0, "environment MKL_NUM_THREADS") == expected

    run(lambda: test(3, "3"))
    run(lambda: test(None, "7"))


def test_a_worker_imports_little() -> None:
    """A small import list makes a worker ready fast and small; the model's own imports come on top."""

    async def test() -> None:
        async with ready_pool() as one:
            modules = set((await one.text(0, "modules")).split())
            assert "mark.serving.worker.worker" in modules or "__main__" in modules
            assert not modules & {"numba", "numpy", "statsmodels", "sklearn", "pandas", "asyncio", "prometheus_client"}

    run(test)


@every_way
def test_through_any_mishaps_every_batch_ends_once() -> None:
    """Seeded mishaps hit two workers: good batches, failing ones, crashes and kills; then both serve as before."""
    chance = random.Random(7)
    mishaps = ["echo"] * 12 + ["raise it", "exit", "segfault", "babble", "killed"]
    plan = [chance.choice(mishaps) for _ in range(40)]
    assert {"exit", "raise it", "killed"} < set(plan)

    async def test() -> None:
        async with ready_pool(2) as two:
            left, ends = plan[::-1], 0
            while ends < len(plan):
                free = [w for w in sorted(two.ready) if len(two.sent.get(w, ())) < chance.choice((1, 2))]
                for worker in free[: len(left)]:
                    what = left.pop()
                    two.send(worker, what, b"beside it")
                    if what == "killed":  # before or after its answer
                        os.kill(two.workers.pids()[worker], signal.SIGKILL)
                kind, _, *rest = await two.next()
                ends += 1 if kind == "done" else rest[1] // 2 if kind == "lost" else 0
            while two.ready != {0, 1}:
                await two.next()
            while not two.said.empty():
                await two.next()
            for worker in (0, 1):
                await two.serves(worker)

    run(test)
