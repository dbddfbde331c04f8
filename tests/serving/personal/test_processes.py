"""Servers with personal heads that learn together, as real processes, killed while observations come."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from pathlib import Path

import pytest
import uvloop

from tests.serving.learned.processes import Client, Place, places
from tests.serving.personal.killed import PersonalPlace, killed_under_observations, rewards_at


@pytest.fixture
def two(tmp_path: Path) -> Iterator[list[Place]]:
    """Two places with each other as peers. No server is left behind."""
    found = places(tmp_path, 2, kind=PersonalPlace)
    yield found
    for one in found:
        one.stop()


async def post(client: Client, *pieces: dict[str, object]) -> list[str]:
    answer = await client.ask("POST", "/v2/models/songs/feedback", json.dumps(pieces).encode())
    assert answer.status == 200, answer.body
    return [one["result"] for one in json.loads(answer.body)["results"]]


def test_server_that_lost_its_disk_has_all_heads_and_counts_no_id_twice(two: list[Place]) -> None:
    async def talk() -> None:
        a, b = two
        await asyncio.gather(a.start(), b.start())
        at_a, at_b = Client(a.url), Client(b.url)
        pieces = [{"id": f"c-{n}", "key": "u1", "item": f"s{n}", "reward": float(n)} for n in range(5)]
        assert await post(at_a, *pieces) == ["applied"] * 5
        assert await post(at_b, *pieces) == ["duplicate"] * 5
        a.kill(disk=False)
        await a.start()
        assert await post(at_a, pieces[0]) == ["duplicate"], "its id is in the state that it took from its peer"
        assert await rewards_at(at_a) == {float(n): 1 for n in range(5)}
        deleted = await at_b.ask("DELETE", "/v2/models/songs/keys/u1")
        assert deleted.status == 200
        for _ in range(40):
            shown = await at_a.ask("GET", "/v2/models/songs/keys/u1")
            if shown.status == 404:
                break
            await asyncio.sleep(0.1)
        assert shown.status == 404, "a deletion reaches the other server"
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


@pytest.mark.slow
@pytest.mark.parametrize("keep_disk", [1.0, 0.0])
def test_kills_under_observations_lose_and_double_nothing(two: list[Place], keep_disk: float) -> None:
    outcome = uvloop.run(killed_under_observations(two, 5, 200.0, keep_disk=keep_disk))
    assert (outcome.kills, outcome.lost, outcome.doubled) == (5, 0, 0), outcome
    assert outcome.differ < 1e-6
    assert outcome.results["applied"] > 300
    assert outcome.results["never answered"] == 0
