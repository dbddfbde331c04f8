"""A selection on the testbed whose two conductors are killed, one after the other, while clients send feedback."""

from __future__ import annotations

import asyncio
import json
import os
import random
import signal
import time
from collections import Counter
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.serving.learned.processes import Client, Gone

SELECTION = """
[service]
name = "pick"
slo_ms = 1500
slo_attainment = 0.9
profile = "profiles.csv"
[fleet]
catalog = "catalog.csv"
markets = ["on-demand"]
instances = ["c7i.*"]
max_instances = 4
max_usd_per_hour = 5.0
[stage.right]
model = "digit:Right"
slo_ms = 700
[stage.wrong]
model = "digit:Wrong"
slo_ms = 700
[conductors]
count = 2
[feedback]
log = "feedback"
store = "store"
[selection]
policy = "exp4"
context = "key"
"""
MODELS = """import mark


class Right(mark.Model):
    def predict(self, batch):
        return [one % 10 for one in batch]


class Wrong(mark.Model):
    def predict(self, batch):
        return [(one + 1) % 10 for one in batch]
"""
PROFILES = """model,instance,batch,latency_ms,basis
digit:Right,c7i.large,1,3,assumed
digit:Right,c7i.large,8,6,assumed
digit:Wrong,c7i.large,1,3,assumed
digit:Wrong,c7i.large,8,6,assumed
"""
Status = Callable[[], dict[str, Any]]
_BACK_S, _EQUAL_S = 90.0, 30.0
_AT_ONCE = 40  # queries of clients


def write_selection(folder: Path) -> None:
    """Write the pipeline file `pick.toml`, its models and profiles."""
    (folder / "pick.toml").write_text(SELECTION)
    (folder / "digit.py").write_text(MODELS)
    (folder / "profiles.csv").write_text(PROFILES)


@dataclass
class Killed:
    """The outcome of kills under load. Each query has a context of its own, so facts that count twice show."""

    kills: int = 0
    seconds: float = 0.0
    results: Counter[str] = field(default_factory=Counter)  # of feedback: the last status that its client received
    failed: Counter[str] = field(default_factory=Counter)  # unanswered queries by reason
    repeated: int = 0  # posts of feedback
    facts: list[int] = field(default_factory=list)  # number of facts of each conductor at the end
    contexts: list[int] = field(default_factory=list)
    off: list[str] = field(default_factory=list)  # weights that differ from those of the first conductor

    @property
    def known(self) -> int:
        """Count the feedback that its client knows to be learned."""
        return self.results["applied"] + self.results["duplicate"]

    @property
    def lost(self) -> int:
        return max(0, *(self.known - facts for facts in self.facts))

    @property
    def doubled(self) -> int:
        return max(facts - contexts for facts, contexts in zip(self.facts, self.contexts, strict=True))


async def killed_under_feedback(status: Status, kills: int, rate: float, seed: int = 0) -> Killed:
    """Kill a conductor with SIGKILL `kills` times, while clients ask `rate` queries a second and send feedback.

    `status` is the testbed's. The next conductor is killed when the gateway asks the one before again.
    """
    found, draw, loop = Killed(), random.Random(seed), asyncio.get_running_loop()
    shown = await loop.run_in_executor(None, status)
    entrance = Client(shown["pipelines"]["pick"])
    conductors = [Client(one["url"]) for one in shown["conductors"].values()]
    assert len(conductors) == 2
    ended = asyncio.Event()

    async def query(number: int) -> None:
        try:
            answer = await entrance.ask(
                "POST", "/invocations", b"%d" % number, x_request_id=f"q{number}", mark_key=f"k{number}"
            )
        except (Gone, TimeoutError) as error:
            found.failed[str(error) or "no answer within 30 s"] += 1
            return
        if answer.status != 200:
            found.failed[f"status {answer.status}: {answer.body[:80].decode()}"] += 1
            return
        body = json.dumps({"id": f"q{number}", "label": number % 10}).encode()
        for attempt in range(60):
            try:
                said = await entrance.ask("POST", "/v2/models/pick/feedback", body)
                if said.status == 200:
                    found.results[json.loads(said.body)["results"][0]["result"]] += 1
                    return
            except (Gone, TimeoutError):
                pass
            found.repeated += 1
            await asyncio.sleep(0.05 * min(attempt, 10))
        found.results["never answered"] += 1

    async def load() -> None:
        under_way: set[asyncio.Task[None]] = set()
        number, due_s = 0, loop.time()
        while not ended.is_set() or under_way:
            if ended.is_set() or len(under_way) >= _AT_ONCE:
                await asyncio.wait(under_way, return_when=asyncio.FIRST_COMPLETED)
            else:
                due_s = max(due_s + 1.0 / rate, loop.time() - 0.5)
                await asyncio.sleep(max(0.0, due_s - loop.time()))
                number += 1
                task = loop.create_task(query(number))
                under_way.add(task)
                task.add_done_callback(under_way.discard)

    began_s = loop.time()
    loading = loop.create_task(load())
    await _until(lambda: _learn_together(conductors, found), "the conductors do not learn from each other")
    for _ in range(kills):
        shown = await loop.run_in_executor(None, status)
        name, one = draw.choice(list(shown["conductors"].items()))
        os.kill(one["pid"], signal.SIGKILL)
        found.kills += 1
        await _until(lambda at=name, old=one["pid"]: _is_back(loop, status, at, old), "the conductor is not back")
        # The gateway leaves a conductor out for a while. Until it is back the other one must not be killed.
        await _until(lambda: _has_both(entrance), "the gateway does not ask the conductor")
        await asyncio.sleep(draw.uniform(0.0, 2.0))
    ended.set()
    await loading
    found.seconds = loop.time() - began_s
    end_s = time.monotonic() + _EQUAL_S
    while True:
        said = [json.loads((await one.ask("GET", "/v2/models/pick/selection")).body) for one in conductors]
        found.facts, found.contexts = [one["feedback"] for one in said], [one["contexts"] for one in said]
        if (len(set(found.facts)) == 1 and found.facts[0] >= found.known) or time.monotonic() > end_s:
            break
        await asyncio.sleep(1.0)
    weights = [{name: one["weight"] for name, one in each["candidates"].items()} for each in said]
    found.off = [f"{name}: {one[name]}" for one in weights for name in one if abs(one[name] - weights[0][name]) > 1e-12]
    for client in (entrance, *conductors):
        client.close()
    return found


async def _is_back(loop: asyncio.AbstractEventLoop, status: Status, name: str, old: int) -> bool:
    one = (await loop.run_in_executor(None, status))["conductors"][name]
    return one["pid"] not in (None, old) and one["url"] is not None


async def _has_both(gateway: Client) -> bool:
    return await gateway.metric("mark_gateway_replica_ready{") == 2.0


async def _learn_together(conductors: list[Client], found: Killed) -> bool:
    """Return whether the controller has told both of each other, and feedback was applied."""
    peers = [await one.metric("mark_learned_peers{") for one in conductors]
    return peers == [1.0, 1.0] and found.results["applied"] > 100


async def _until(holds: Callable[[], Awaitable[bool]], why: str) -> None:
    end_s = time.monotonic() + _BACK_S
    while not await holds():
        assert time.monotonic() < end_s, why
        await asyncio.sleep(0.2)
