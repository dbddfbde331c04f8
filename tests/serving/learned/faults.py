"""Faults under load: servers that are killed, cut off from each other, or replaced while clients send feedback."""

from __future__ import annotations

import asyncio
import json
import random
from collections import Counter
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, Protocol

from tests.serving.learned.processes import Client, Gone, Place

KILL, PARTITION, ROLLOUT = "kills", "partitions", "roll-outs"
_CUT_S = (0.3, 3.0)  # a peer that is silent for a second counts as lost
_AT_ONCE = 100  # posts


class Told(Protocol):
    """Feedback that clients send. Each piece has a number, which a server's state has as often as it was learned."""

    path: str

    async def batch(self, client: Client) -> dict[int, dict[str, Any]]:
        """Return the next pieces by number, about answers of this server if they are about answers."""
        ...

    async def numbers(self, client: Client) -> Counter[int]:
        """Return the numbers in the state of a server."""
        ...

    async def off(self, place: Place, client: Client, numbers: Counter[int]) -> float:
        """Return the largest difference between a server's answers and those expected after these pieces."""
        ...


class Wire:
    """The way to a port. While it is `cut`, nothing passes in either direction, and no side is told."""

    def __init__(self, port: int) -> None:
        self._port = port
        self._whole = asyncio.Event()
        self._whole.set()
        self._writers: set[asyncio.StreamWriter] = set()
        self._tasks: set[asyncio.Task[None]] = set()
        self.url = ""

    async def open(self) -> None:
        self._server = await asyncio.start_server(self._carry, "127.0.0.1", 0)
        self.url = f"http://127.0.0.1:{self._server.sockets[0].getsockname()[1]}"

    def cut(self, cut: bool) -> None:
        (self._whole.clear if cut else self._whole.set)()

    async def close(self) -> None:
        self._whole.set()
        self._server.close()
        for writer in tuple(self._writers):
            writer.close()
        if self._tasks:
            await asyncio.wait(self._tasks, timeout=5.0)

    async def _carry(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None, "the server of streams made one"
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        self._writers.add(writer)
        try:
            await self._whole.wait()
            from_there, to_there = await asyncio.open_connection("127.0.0.1", self._port)
            self._writers.add(to_there)
            await asyncio.gather(self._pass(reader, to_there), self._pass(from_there, writer))
            self._writers.discard(to_there)
        except OSError:  # no process listens
            pass
        finally:
            writer.close()
            self._writers.discard(writer)

    async def _pass(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(OSError):  # one side has closed
            while data := await reader.read(1 << 16):
                await self._whole.wait()
                writer.write(data)
                await writer.drain()
        writer.close()


@dataclass
class Outcome:
    """The outcome of faults under load."""

    faults: Counter[str] = field(default_factory=Counter)
    killed_apart: int = 0  # servers that were killed in partitions
    results: Counter[str] = field(default_factory=Counter)  # of pieces, the last result that their client got
    repeated: int = 0  # posts that were made again
    seconds: float = 0.0
    lost: int = 0  # told `applied` or `duplicate`, and in no state
    doubled: int = 0  # in a state more than once
    differ: int = 0  # states that differ from the first one
    off: float = 0.0  # largest difference from a fold of the same pieces
    latencies_s: list[float] = field(default_factory=list, repr=False)  # of posts that were answered

    @property
    def good(self) -> bool:
        return not (self.lost or self.doubled or self.differ or self.results["never answered"]) and self.off < 1e-6


async def told_under_faults(
    places: Sequence[Place],
    told: Told,
    rate: float,
    *,
    kills: int = 0,
    partitions: int = 0,
    rollouts: int = 0,
    keep_disk: float = 0.5,
    batch: int = 10,
    seed: int = 0,
    most_s: float = float("inf"),
) -> Outcome:
    """Let faults happen, one after the other in random order, while `rate` pieces a second are told to all servers.

    A killed server loses its disk, but for the share `keep_disk`. In half of the partitions one is killed. A roll-out
    replaces each server by one of the next release. The next fault comes when all servers are ready again, and none
    after `most_s`. A post that no server answers is repeated at any of them.
    """
    draw, outcome, loop = random.Random(seed), Outcome(), asyncio.get_running_loop()
    wires = [Wire(place.port) for place in places] if partitions else []
    for wire in wires:
        await wire.open()
    for place in places if wires else ():
        place.peers = [wire.url for wire, other in zip(wires, places, strict=True) if other is not place]
    await asyncio.gather(*(place.start() for place in places))
    clients = [Client(place.url) for place in places]
    known: set[int] = set()
    ended = asyncio.Event()

    async def one_batch(client: Client) -> None:
        pieces = await told.batch(client)
        body = json.dumps(list(pieces.values())).encode()
        for attempt in range(100 if pieces else 0):
            began_s = loop.time()
            try:
                answer = await clients[draw.randrange(len(clients))].ask("POST", told.path, body)
                if answer.status != 200:
                    raise Gone(f"status {answer.status}")
            except (Gone, TimeoutError):
                outcome.repeated += 1
                await asyncio.sleep(0.05 * min(attempt, 10))
                continue
            outcome.latencies_s.append(loop.time() - began_s)
            results = [one["result"] for one in json.loads(answer.body)["results"]]
            outcome.results.update(results)
            # A duplicate was applied at another process, before its client got the answer.
            known.update(
                number for number, result in zip(pieces, results, strict=True) if result in ("applied", "duplicate")
            )
            return
        outcome.results["never answered"] += len(pieces)

    async def load() -> None:
        under_way: set[asyncio.Task[None]] = set()
        number, due_s = 0, loop.time()
        while not ended.is_set() or under_way:
            if ended.is_set() or len(under_way) >= _AT_ONCE:
                await asyncio.wait(under_way, return_when=asyncio.FIRST_COMPLETED)
            else:
                due_s = max(due_s + batch / rate, loop.time() - 0.5)
                await asyncio.sleep(max(0.0, due_s - loop.time()))
                number += 1
                task = loop.create_task(one_batch(clients[number % len(clients)]))
                under_way.add(task)
                task.add_done_callback(under_way.discard)

    async def killed() -> None:
        victim = places[draw.randrange(len(places))]
        victim.kill(disk=draw.random() < keep_disk)
        await victim.start()

    async def happen(fault: str) -> None:
        if fault == KILL:
            await killed()
        elif fault == PARTITION:
            for wire in wires:
                wire.cut(True)
            await asyncio.sleep(draw.uniform(*_CUT_S))
            back = None
            if draw.random() < 0.5:  # a server that acknowledged through the store alone is lost before it is reached
                back = loop.create_task(killed())
                await asyncio.sleep(draw.uniform(*_CUT_S))
                outcome.killed_apart += 1
            for wire in wires:
                wire.cut(False)
            if back is not None:
                await back
        else:
            for place in places:
                await loop.run_in_executor(None, place.stop)
                place.release(outcome.faults[ROLLOUT] + 1)
                await place.start()
        outcome.faults[fault] += 1

    began_s = loop.time()
    loading = loop.create_task(load())
    faults = [KILL] * kills + [PARTITION] * partitions + [ROLLOUT] * rollouts
    draw.shuffle(faults)
    for number, fault in enumerate(faults, 1):
        if loop.time() - began_s > most_s:
            break
        await asyncio.sleep(draw.uniform(0.0, 1.0))
        await happen(fault)
        if number % 20 == 0:
            print(f"{dict(outcome.faults)} in {loop.time() - began_s:.0f} s", flush=True)
    ended.set()
    await loading
    outcome.seconds = loop.time() - began_s
    states: list[Counter[int]] = []
    for _ in range(80):  # a second for each exchange of facts, and far more on a busy machine
        states = [await told.numbers(client) for client in clients]
        if all(state == states[0] for state in states) and known <= states[0].keys():
            break
        await asyncio.sleep(1.5)
    outcome.differ = sum(state != states[0] for state in states)
    outcome.lost = max(len(known - state.keys()) for state in states)
    outcome.doubled = max(sum(count > 1 for count in state.values()) for state in states)
    ended_with = zip(places, clients, states, strict=True)
    outcome.off = max([await told.off(place, client, state) for place, client, state in ended_with])
    for client in clients:
        client.close()
    for wire in wires:
        await wire.close()
    return outcome
