"""Servers with personal heads that are killed while observations come, and what is lost or doubled by that."""

from __future__ import annotations

import asyncio
import base64
import json
import random
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from mark.serving.learned.shared import snapshot_in
from tests.serving.learned.processes import Client, Gone, Place
from tests.serving.personal.made import TABLE_FILE, place

_KEYS = 200
_BATCH = 10


class PersonalPlace(Place):
    """A place for a server of `songs.toml`, whose vectors come from a table."""

    program = ("mark.cli.main", "serve", "songs.toml")

    def write(self, folder: Path, more: str) -> None:
        place(folder, TABLE_FILE.replace('log = "feedback"', f'log = "feedback"\n{more}'))


@dataclass
class KilledObservations:
    """What came of kills under observations."""

    kills: int = 0
    results: Counter[str] = field(default_factory=Counter)
    repeated: int = 0  # posts that were made again
    seconds: float = 0.0
    lost: int = 0  # told `applied` or `duplicate`, and in no state
    doubled: int = 0  # in a state more than once
    differ: float = 0.0  # between the weights of a key at two servers, at most
    latencies_s: list[float] = field(default_factory=list)  # of posts that were answered


async def rewards_at(client: Client) -> Counter[float]:
    """The rewards in a server's state. Each observation of these tests has a reward of its own."""
    data, number, total = b"", 0, 1
    while len(data) < total:
        page = await client.ask("GET", f"/v2/models/songs/learned/snapshot?number={number}&begin={len(data)}")
        head, _, part = page.body.partition(b"\n")
        said = json.loads(head)
        number, total, data = said["number"], said["bytes"], data + part
    heads = snapshot_in(data).state.partition(b"\n")[2]
    keys = json.loads(heads)["keys"] if heads else {}
    return Counter(reward for rows in keys.values() for reward in json.loads(base64.b64decode(rows))["rewards"])


async def weights_at(client: Client, key: str) -> list[float]:
    answer = await client.ask("GET", f"/v2/models/songs/keys/{key}")
    found: list[float] = json.loads(answer.body)["weights"] if answer.status == 200 else []
    return found


async def killed_under_observations(
    places: Sequence[Place], kills: int, rate: float, seed: int = 0, keep_disk: float = 0.5
) -> KilledObservations:
    """Kill one server after the other while `rate` observations a second are posted to all of them.

    A post that no server answers is repeated at any of them, with the same ids.
    """
    draw, outcome, loop = random.Random(seed), KilledObservations(), asyncio.get_running_loop()
    await asyncio.gather(*(one.start() for one in places))
    clients = [Client(one.url) for one in places]
    told: set[float] = set()
    ended = asyncio.Event()
    numbers = iter(range(1 << 40))

    async def one_batch() -> None:
        pieces = []
        for _ in range(_BATCH):
            number = next(numbers)
            key, item = f"u{draw.randrange(_KEYS)}", f"s{draw.randrange(50)}"
            pieces.append({"id": f"c-{number}", "key": key, "item": item, "reward": number * 1e-6})
        body = json.dumps(pieces).encode()
        for attempt in range(100):
            began_s = loop.time()
            try:
                answer = await clients[draw.randrange(len(clients))].ask("POST", "/v2/models/songs/feedback", body)
                if answer.status != 200:
                    raise Gone(f"status {answer.status}")
            except (Gone, TimeoutError):
                outcome.repeated += 1
                await asyncio.sleep(0.05 * min(attempt, 10))
                continue
            outcome.latencies_s.append(loop.time() - began_s)
            results = [one["result"] for one in json.loads(answer.body)["results"]]
            outcome.results.update(results)
            # A duplicate was applied at another process, before its client heard of it.
            heard = zip(pieces, results, strict=True)
            told.update(float(str(one["reward"])) for one, result in heard if result in ("applied", "duplicate"))
            return
        outcome.results["never answered"] += len(pieces)

    async def load() -> None:
        under_way: set[asyncio.Task[None]] = set()
        due_s = loop.time()
        while not ended.is_set() or under_way:
            if ended.is_set() or len(under_way) >= 100:
                await asyncio.wait(under_way, return_when=asyncio.FIRST_COMPLETED)
            else:
                due_s = max(due_s + _BATCH / rate, loop.time() - 0.5)
                await asyncio.sleep(max(0.0, due_s - loop.time()))
                task = loop.create_task(one_batch())
                under_way.add(task)
                task.add_done_callback(under_way.discard)

    began_s = loop.time()
    loading = loop.create_task(load())
    for _ in range(kills):
        await asyncio.sleep(draw.uniform(0.0, 1.0))
        victim = places[draw.randrange(len(places))]
        victim.kill(disk=draw.random() < keep_disk)
        await victim.start()
        outcome.kills += 1
        if outcome.kills % 20 == 0:
            print(f"{outcome.kills} kills in {loop.time() - began_s:.0f} s", flush=True)
    ended.set()
    await loading
    outcome.seconds = loop.time() - began_s
    states: list[Counter[float]] = []
    for _ in range(20):  # a second for each exchange of facts
        states = [await rewards_at(client) for client in clients]
        if all(state == states[0] for state in states) and told <= states[0].keys():
            break
        await asyncio.sleep(1.5)
    outcome.lost = max(len(told - state.keys()) for state in states)
    outcome.doubled = max(sum(count > 1 for count in state.values()) for state in states)
    for key in (f"u{number}" for number in range(_KEYS)):
        weights = [await weights_at(client, key) for client in clients]
        for other in weights[1:]:
            outcome.differ = max([outcome.differ, *(abs(a - b) for a, b in zip(weights[0], other, strict=True))])
    for client in clients:
        client.close()
    return outcome
