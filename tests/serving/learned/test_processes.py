"""Servers that learn together, as real processes on real sockets, killed while feedback comes."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import uvloop

from mark.cli.main import main
from tests.samples import first
from tests.serving.learned.faults import KILL, told_under_faults
from tests.serving.learned.processes import ROOT, Client, Labels, Place, places


@pytest.fixture
def two(tmp_path: Path) -> Iterator[list[Place]]:
    """Two places with each other as peers."""
    with places(tmp_path, 2) as found:
        yield found


def test_a_server_that_lost_its_disk_is_ready_with_all_that_was_applied(two: list[Place]) -> None:
    async def talk() -> None:
        a, b = two
        await asyncio.gather(a.start(), b.start())
        at_a, at_b = Client(a.url), Client(b.url)
        for identity in ("x", "y", "z"):
            await at_a.infer(identity)
        assert await at_b.feedback([("x", 5), ("y", "no number"), ("nobodys", 1)]) == ["applied", "applied", "unknown"]
        assert await at_b.metric('mark_learned_facts_total{model="m",result="applied"}') == 1.0
        a.kill(disk=False)
        assert await at_b.feedback([("z", 7), ("x", 5)]) == ["unknown", "duplicate"]
        await a.start()
        assert await at_a.counts() == {5: 1}
        assert await at_a.feedback([("x", 5)]) == ["duplicate"]
        for client in (at_a, at_b):
            client.close()
        b.stop()
        b.peers = []
        await b.start()
        again = Client(b.url)
        assert await again.counts() == {5: 1}  # a peer's fact was on its disk
        again.close()

    uvloop.run(talk())


@pytest.mark.parametrize("keep_disk", first(0, [0.0, 1.0], slow=1))
def test_kills_under_feedback_lose_and_double_nothing(two: list[Place], keep_disk: float) -> None:
    outcome = uvloop.run(told_under_faults(two, Labels(), 200.0, kills=4, keep_disk=keep_disk))
    assert outcome.good, outcome
    assert outcome.faults == {KILL: 4}
    assert outcome.results["applied"] > 30


@pytest.mark.parametrize(
    ("more", "options", "said"),
    [
        ("", ["--peer", "http://127.0.0.1:1"], "peers: nothing here learns from feedback"),
        ('store = "facts"', [], "[feedback] store: nothing here learns from feedback"),
        ("", ["--peer", "127.0.0.1"], "peers: must be http://host:port or https://host:port: 127.0.0.1"),
        ("", ["--peer", "http://10.0.0.5:1"], "peers: would be reached in clear"),
    ],
)
def test_peers_and_a_store_of_nothing_are_bad_input(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], more: str, options: list[str], said: str
) -> None:
    place = Place(tmp_path / "one", 0, more)
    assert main(["serve", str(place.folder / "m.toml"), "--port", "0", *options]) == 2
    assert said in capsys.readouterr().err.splitlines()[-1]


def test_a_learner_needs_feedback(tmp_path: Path) -> None:
    place = Place(tmp_path / "one", 0)
    text = (place.folder / "m.toml").read_text().partition("[feedback]")[0]
    (place.folder / "m.toml").write_text(text)
    command = [sys.executable, "-m", "tests.serving.learned.tallying", "m.toml", "--port", "0"]
    environment = os.environ | {"PYTHONPATH": os.pathsep.join([str(ROOT), *filter(None, sys.path)])}
    done = subprocess.run(command, cwd=place.folder, env=environment, capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stderr.splitlines()[-1]) == (
        2,
        "m: learns from feedback, and there is no section [feedback]",
    )
