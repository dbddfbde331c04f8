"""Faults for a data plane: a name, a sentence and a coroutine for each. All faults are local, and end by themselves."""

from __future__ import annotations

import asyncio
import json
import os
import random
import resource
import signal
import socket
import struct
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

import psutil
from hostile_clients import BROKEN, LOST, ClientLine, HonestTally, answer_to, request, verdict

# Attackers have separate addresses: a client may exhaust the limits of its own address, but not of other addresses.
FOES, CROWD = "127.0.0.2", "127.0.0.3"
MEMORY = "memory limit"
RIGHT, HANG, THROTTLE, DRIP, ENDLESS, RESET = FUNCTION_MODES = ("right", "hang", "throttle", "drip", "endless", "reset")
_CHUNK = b"10000\r\n" + b"x" * 0x10000 + b"\r\n"


class HostileProgram(Protocol):
    """A bouncer or a gateway that runs."""

    name: str

    @property
    def pid(self) -> int: ...

    @property
    def address(self) -> tuple[str, int]: ...

    def workers(self) -> list[int]:
        """Return the process ids of its workers."""


class HostileWorld(Protocol):
    """The targets of faults."""

    draw: random.Random
    tally: HonestTally
    function: OverflowFunction
    gateway: HostileProgram
    bouncers: list[HostileProgram]
    disk: Path | None  # small disk with the logs of the first bouncer; None if this machine lacks it

    async def kill(self) -> None:
        """Kill the second bouncer with SIGKILL; its workers must end with it. It is started again."""

    async def restart(self) -> None:
        """End the second bouncer with SIGTERM, which must exit with 0; its next standard error accepts no output."""


Do = Callable[[HostileWorld, float], Awaitable[None]]


@dataclass(frozen=True, slots=True)
class HostileFault:
    """A fault: `do(world, seconds)` makes it for about `seconds`, and has repaired it when it returns.

    Faults of one `part` of the data plane come one at a time.
    """

    name: str
    what: str
    part: str
    do: Do


class OverflowFunction:
    """A function at a URL, which answers rightly, or as `mode` says."""

    def __init__(self) -> None:
        self.mode = RIGHT
        self.calls = 0
        self._listener: asyncio.Server | None = None

    async def start(self) -> str:
        """Start it and return its URL."""
        self._listener = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        return f"http://127.0.0.1:{self._listener.sockets[0].getsockname()[1]}/invocations"

    def stop(self) -> None:
        if self._listener is not None:
            self._listener.close()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(OSError, asyncio.IncompleteReadError):
            while True:
                head = await reader.readuntil(b"\r\n\r\n")
                size = int(head.lower().partition(b"content-length: ")[2].partition(b"\r\n")[0])
                await self._answer(await reader.readexactly(size), reader, writer)
        writer.close()

    async def _answer(self, body: bytes, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.calls += 1
        if self.mode == HANG:
            await reader.read(1)
        elif self.mode == RESET:
            writer.transport.abort()
        elif self.mode == THROTTLE:
            writer.write(b"HTTP/1.1 429 Busy\r\nretry-after: 1\r\ncontent-length: 0\r\n\r\n")
        elif self.mode == DRIP:
            writer.write(b"HTTP/1.1 200 OK\r\ncontent-length: 1000\r\n\r\n")
            while True:
                writer.write(b"x")
                await writer.drain()
                await asyncio.sleep(0.5)
        elif self.mode == ENDLESS:
            writer.write(b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n")
            while True:
                writer.write(_CHUNK)
                await writer.drain()
        else:
            # A function answers as the models do; a poisoned request is an ordinary one to it.
            asked = json.loads(body)
            said = json.dumps(answer_to(asked["id"], asked["x"])).encode()
            writer.write(
                b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: %d\r\n\r\n%b" % (len(said), said)
            )


# --- processes


async def workers_killed(world: HostileWorld, seconds: float) -> None:
    async for _ in ticks(seconds, 0.5):
        signal_one(world, signal.SIGKILL)


async def worker_stopped(world: HostileWorld, seconds: float) -> None:
    pid = signal_one(world, signal.SIGSTOP)
    await asyncio.sleep(seconds)
    send_signal(pid, signal.SIGCONT)


async def workers_starved(world: HostileWorld, seconds: float) -> None:
    """Let all workers run a tenth of the time."""
    pids = [pid for one in world.bouncers for pid in one.workers()]
    try:
        async for _ in ticks(seconds, 0.01):
            for pid in pids:
                send_signal(pid, signal.SIGSTOP)
            await asyncio.sleep(0.09)
            for pid in pids:
                send_signal(pid, signal.SIGCONT)
    finally:
        for pid in pids:
            send_signal(pid, signal.SIGCONT)


async def bouncer_stopped(world: HostileWorld, seconds: float) -> None:
    pid = world.bouncers[-1].pid
    send_signal(pid, signal.SIGSTOP)
    await asyncio.sleep(seconds)
    send_signal(pid, signal.SIGCONT)


async def bouncer_killed(world: HostileWorld, seconds: float) -> None:
    await world.kill()


async def bouncer_restarted(world: HostileWorld, seconds: float) -> None:
    await world.restart()


# --- sockets


async def slow_heads(world: HostileWorld, seconds: float) -> None:
    """Let 150 clients send a byte at a time."""
    wire = request("slow", [1])

    async def loris(writer: asyncio.StreamWriter, reader: asyncio.StreamReader) -> None:
        for byte in wire[:-10]:
            writer.write(bytes((byte,)))
            await writer.drain()
            await asyncio.sleep(0.2)

    await many(world, 150, seconds, loris)


async def slow_readers(world: HostileWorld, seconds: float) -> None:
    """Let 40 clients ask for megabytes, several at a time, and read none."""

    async def glutton(writer: asyncio.StreamWriter, reader: asyncio.StreamReader) -> None:
        writer.write(b"".join(request(f"big-{n}", [n], poison="big") for n in range(4)))
        await asyncio.sleep(seconds)

    await many(world, 40, seconds, glutton)


async def half_bodies(world: HostileWorld, seconds: float) -> None:
    """Let 30 clients announce a body and hold half of it, or hang up there."""
    wire = request("half", list(range(200)))

    async def half(writer: asyncio.StreamWriter, reader: asyncio.StreamReader) -> None:
        writer.write(wire[: len(wire) * 2 // 3])
        await writer.drain()
        await asyncio.sleep(seconds * world.draw.random())

    await many(world, 30, seconds, half)


async def huge_bodies(world: HostileWorld, seconds: float) -> None:
    """Let 6 clients announce a gigabyte and send as much as is read, and 6 send endless chunks."""
    head = b"POST /invocations HTTP/1.1\r\nhost: 127.0.0.1\r\ncontent-type: application/json\r\n"

    async def announced(writer: asyncio.StreamWriter, reader: asyncio.StreamReader) -> None:
        writer.write(head + b"content-length: 1073741824\r\n\r\n")
        while True:
            writer.write(b"x" * 65536)
            await writer.drain()

    async def chunked(writer: asyncio.StreamWriter, reader: asyncio.StreamReader) -> None:
        writer.write(head + b"transfer-encoding: chunked\r\n\r\n")
        while True:
            writer.write(_CHUNK)
            await writer.drain()

    await asyncio.gather(many(world, 6, seconds, announced), many(world, 6, seconds, chunked))


async def resets_and_garbage(world: HostileWorld, seconds: float) -> None:
    """Send whole requests and noise, cut off by RST."""

    async def rude(writer: asyncio.StreamWriter, reader: asyncio.StreamReader) -> None:
        for _ in range(2):
            writer.write(request("rude", [1]) if world.draw.random() < 0.5 else world.draw.randbytes(300))
            await writer.drain()
            await asyncio.sleep(0.1 * world.draw.random())
        sock = writer.get_extra_info("socket")
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        writer.transport.abort()

    async for _ in ticks(seconds, 0.5):
        await many(world, 20, 2.0, rude)


# --- requests


def poisoned(kind: str, per_s: float) -> Do:
    """Return a fault that sends requests which make the model misbehave, to the gateway and to bouncers by turns."""

    async def do(world: HostileWorld, seconds: float) -> None:
        places = [world.gateway, *world.bouncers]
        tasks = [
            asyncio.create_task(_ask_once(places[turn % len(places)].address, f"{kind}-{turn}", kind))
            async for turn in ticks(seconds, 1.0 / per_s)
        ]
        await _wait(tasks, 10.0)

    return do


async def memory_limit(world: HostileWorld, seconds: float) -> None:
    """Allow workers 64 MiB more than they use, and ask them for two gigabytes."""
    with ExitStack() as limits:
        for pid in (pid for bouncer in world.bouncers for pid in bouncer.workers()):
            with suppress(psutil.Error, OSError):
                most = psutil.Process(pid).memory_info().vms + (64 << 20)
                limits.enter_context(limited(pid, resource.RLIMIT_AS, most))
        await poisoned("memory", 2.0)(world, seconds)


# --- functions


def function_that(mode: str) -> Do:
    """Return a fault that sends more than the instances can take, while functions answer in this mode."""

    async def do(world: HostileWorld, seconds: float) -> None:
        world.function.mode = mode
        try:
            await _crowd(world, seconds)
        finally:
            world.function.mode = RIGHT

    return do


async def _crowd(world: HostileWorld, seconds: float) -> None:
    """Send bouncers 500 honest requests a second, more than they can take: none may get another's answer."""
    tasks = []
    async for turn in ticks(min(seconds, 3.0), 0.05):
        address = world.bouncers[turn % len(world.bouncers)].address
        tasks += [asyncio.create_task(_of_crowd(world, address, f"crowd-{turn}-{n}")) for n in range(25)]
        if len(tasks) > 1500:
            break
    await _wait(tasks, 15.0)


async def _of_crowd(world: HostileWorld, address: tuple[str, int], identity: str) -> None:
    numbers = [len(identity), 7]
    with suppress(OSError):
        line = await ClientLine.to(address, CROWD)
        try:
            reply = await line.ask(request(identity, numbers), 12.0)
        finally:
            line.close()
        what = verdict(identity, numbers, reply)
        if what in BROKEN and what != LOST:
            world.tally.stories.append(f"{what} in a crowd: {identity} got {reply.status} {reply.body[:120]!r}")


# --- the machine


async def descriptors_of_bouncer(world: HostileWorld, seconds: float) -> None:
    """Allow a bouncer two more descriptors, while 100 more connections come and a worker must be replaced."""
    bouncer = world.bouncers[-1]
    with limited(bouncer.pid, resource.RLIMIT_NOFILE, _descriptors(bouncer.pid) + 2):
        crowd = asyncio.create_task(many(world, 100, seconds, _idle(seconds), [bouncer]))
        await asyncio.sleep(0.2)
        for pid in bouncer.workers()[:1]:
            send_signal(pid, signal.SIGKILL)
        await crowd


async def descriptors_of_gateway(world: HostileWorld, seconds: float) -> None:
    """Allow the gateway two more descriptors, while 100 more connections come."""
    with limited(world.gateway.pid, resource.RLIMIT_NOFILE, _descriptors(world.gateway.pid) + 2):
        await many(world, 100, seconds, _idle(seconds), [world.gateway])


async def disk_full(world: HostileWorld, seconds: float) -> None:
    """Fill the disk of the first bouncer's log and standard error, then free it."""
    assert world.disk is not None, "this fault is only drawn where there is a small disk"
    filler = world.disk / "filler"
    try:
        with suppress(OSError), filler.open("wb", buffering=0) as out:
            for size in (1 << 20, 4096, 1):
                with suppress(OSError):
                    while True:
                        out.write(b"x" * size)
        await asyncio.sleep(seconds)
    finally:
        filler.unlink(missing_ok=True)


ALL = [
    HostileFault("workers killed", "SIGKILL of a worker, twice a second", "workers", workers_killed),
    HostileFault("worker stopped", "SIGSTOP of a worker", "workers", worker_stopped),
    HostileFault("workers starved", "all of them run a tenth of the time", "workers", workers_starved),
    HostileFault("bouncer killed", "SIGKILL behind the gateway; started again", "bouncer", bouncer_killed),
    HostileFault("bouncer stopped", "SIGSTOP behind the gateway", "bouncer", bouncer_stopped),
    HostileFault("bouncer restarted", "SIGTERM under load; then stderr is full or gone", "bouncer", bouncer_restarted),
    HostileFault("slow heads", "150 clients send a byte at a time", "sockets", slow_heads),
    HostileFault("slow readers", "40 clients ask for megabytes and read none", "sockets", slow_readers),
    HostileFault("half bodies", "30 clients hold half a body", "sockets", half_bodies),
    HostileFault("huge bodies", "gigabytes announced, chunks without an end", "sockets", huge_bodies),
    HostileFault("resets, garbage", "noise and whole requests, cut off by RST", "sockets", resets_and_garbage),
    HostileFault("poison: raises", "10/s on which the model raises", "poison", poisoned("raise", 10.0)),
    HostileFault("poison: crashes", "on which its process dies", "poison", poisoned("crash", 0.7)),
    HostileFault("poison: hangs", "on which it never returns", "poison", poisoned("hang", 0.5)),
    HostileFault("poison: leaks", "5/s that keep 16 MiB each", "poison", poisoned("leak", 5.0)),
    HostileFault("poison: lies", "5/s for which it returns too few results", "poison", poisoned("lie", 5.0)),
    HostileFault("poison: prints", "5/s that print 100 kB", "poison", poisoned("print", 5.0)),
    HostileFault("poison: large", "5/s answered by a megabyte", "poison", poisoned("big", 5.0)),
    HostileFault(MEMORY, "RLIMIT_AS of workers, asked for 2 GiB", "poison", memory_limit),
    *(
        HostileFault(f"function: {mode}", f"overload, and the function: {what}", "functions", function_that(mode))
        for mode, what in (
            (RIGHT, "answers"), (HANG, "never answers"), (THROTTLE, "429"), (DRIP, "a byte in half a second"),
            (ENDLESS, "an answer without an end"), (RESET, "resets"),
        )
    ),
    HostileFault("descriptors, bouncer", "none are left, and a worker dies", "machine", descriptors_of_bouncer),
    HostileFault("descriptors, gateway", "none are left for 100 more connections", "machine", descriptors_of_gateway),
    HostileFault("disk full", "of the feedback log and of stderr", "disk", disk_full),
]  # fmt: skip


# --- tools


async def ticks(seconds: float, every_s: float) -> AsyncIterator[int]:
    """Yield 0, 1, 2, ... for `seconds`, once every `every_s`; at least once."""
    loop = asyncio.get_running_loop()
    until_s, turn = loop.time() + seconds, 0
    while True:
        yield turn
        turn += 1
        if loop.time() + every_s >= until_s:
            return
        await asyncio.sleep(every_s)


Client = Callable[[asyncio.StreamWriter, asyncio.StreamReader], Awaitable[None]]


async def many(
    world: HostileWorld, count: int, seconds: float, client: Client, places: list[HostileProgram] | None = None
) -> None:
    """Run `count` rude clients at a time on the gateway and the bouncers by turns, for `seconds` at most."""
    where = places or [world.gateway, *world.bouncers]

    async def one(number: int) -> None:
        with suppress(OSError, asyncio.IncompleteReadError):
            reader, writer = await asyncio.open_connection(*where[number % len(where)].address, local_addr=(FOES, 0))
            try:
                await client(writer, reader)
            finally:
                writer.transport.abort()

    await _wait([asyncio.create_task(one(number)) for number in range(count)], seconds)


def _idle(seconds: float) -> Client:
    async def idle(writer: asyncio.StreamWriter, reader: asyncio.StreamReader) -> None:
        await asyncio.sleep(seconds)

    return idle


async def _wait(tasks: list[asyncio.Task[None]], seconds: float) -> None:
    """Wait for the tasks' end, or end them."""
    if tasks:
        _, late = await asyncio.wait(tasks, timeout=seconds)
        for task in late:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def _ask_once(address: tuple[str, int], identity: str, poison: str) -> None:
    with suppress(OSError):
        line = await ClientLine.to(address, FOES)
        try:
            await line.ask(request(identity, [1], poison=poison), 8.0)
        finally:
            line.close()


@contextmanager
def limited(pid: int, limit: int, soft: int) -> Iterator[None]:
    """Set the soft limit of another process for a while."""
    before = resource.prlimit(pid, limit)
    resource.prlimit(pid, limit, (soft, before[1]))
    try:
        yield
    finally:
        with suppress(ProcessLookupError):
            resource.prlimit(pid, limit, before)


def signal_one(world: HostileWorld, number: signal.Signals) -> int:
    """Send a signal to a worker and return its process id, or 0 if no worker runs just now."""
    pids = world.draw.choice(world.bouncers).workers()
    pid = world.draw.choice(pids) if pids else 0
    send_signal(pid, number)
    return pid


def send_signal(pid: int, number: signal.Signals) -> None:
    """Send a signal to a process that may be gone."""
    if pid:
        with suppress(ProcessLookupError):
            os.kill(pid, number)


def _descriptors(pid: int) -> int:
    return len(os.listdir(f"/proc/{pid}/fd"))
