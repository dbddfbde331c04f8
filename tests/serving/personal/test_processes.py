"""Servers with personal heads that learn together, as real processes, killed while observations come."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from pathlib import Path

import pytest
import uvloop

from tests.samples import first
from tests.serving.learned.faults import KILL, PARTITION, ROLLOUT, told_under_faults
from tests.serving.learned.processes import Client, Place, places
from tests.serving.personal.processes import Observations, PersonalPlace, numbers_at, reward_of


@pytest.fixture
def two(tmp_path: Path) -> Iterator[list[Place]]:
    """Two places with each other as peers."""
    with places(tmp_path, 2, kind=PersonalPlace) as found:
        yield found


async def post(client: Client, *pieces: dict[str, object]) -> list[str]:
    answer = await client.ask("POST", "/v2/models/songs/feedback", json.dumps(pieces).encode())
    assert answer.status == 200, answer.body
    return [one["result"] for one in json.loads(answer.body)["results"]]


def test_server_that_lost_its_disk_has_all_heads_and_counts_no_id_twice(two: list[Place]) -> None:
    async def talk() -> None:
        a, b = two
        await asyncio.gather(a.start(), b.start())
        at_a, at_b = Client(a.url), Client(b.url)
        pieces = [{"id": f"c-{n}", "key": "u1", "item": f"s{n}", "reward": reward_of(n)} for n in range(5)]
        assert await post(at_a, *pieces) == ["applied"] * 5
        assert await post(at_b, *pieces) == ["duplicate"] * 5
        a.kill(disk=False)
        await a.start()
        assert await post(at_a, pieces[0]) == ["duplicate"], "its id is in the state that it took from its peer"
        assert await numbers_at(at_a) == dict.fromkeys(range(5), 1)
        deleted = await at_b.ask("DELETE", "/v2/models/songs/keys/u1")
        assert deleted.status == 200
        async with asyncio.timeout(60.0):  # until the deletion reaches the other server
            while (await at_a.ask("GET", "/v2/models/songs/keys/u1")).status != 404:
                await asyncio.sleep(0.1)
        at_a.close()
        at_b.close()
        for one in two:
            one.stop()
        await a.start()
        again = Client(a.url)
        assert (await again.ask("GET", "/v2/models/songs/keys/u1")).status == 404
        assert await post(again, pieces[1]) == ["duplicate"]
        again.close()

    uvloop.run(talk())


@pytest.mark.parametrize("keep_disk", first(0, [0.0, 1.0], slow=1))
def test_kills_under_observations_lose_and_double_nothing(two: list[Place], keep_disk: float) -> None:
    outcome = uvloop.run(told_under_faults(two, Observations(), 200.0, kills=3, keep_disk=keep_disk))
    assert outcome.good, outcome
    assert outcome.faults == {KILL: 3}
    assert outcome.results["applied"] > 30


@pytest.mark.slow
def test_partitions_and_roll_outs_under_observations_lose_and_double_nothing(tmp_path: Path) -> None:
    """A partition leaves the store, and each roll-out brings another table, for which the heads are built again."""
    with places(tmp_path, 2, more=f'store = "{tmp_path / "store"}"', kind=PersonalPlace) as two:
        outcome = uvloop.run(told_under_faults(two, Observations(), 200.0, kills=1, partitions=3, rollouts=1))
    assert outcome.good, outcome
    assert outcome.faults == {KILL: 1, PARTITION: 3, ROLLOUT: 1}
    assert outcome.results["applied"] > 300
