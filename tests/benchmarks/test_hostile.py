"""The checks of `benchmarks/hostile/hostile.py` see what they are for, and a short run of it finds nothing."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[2] / "benchmarks" / "hostile"))
from hostile_clients import DOUBLED, LOST, ODD, RIGHT, SWAPPED, HonestClient, HonestTally, answer_to
from hostile_watch import HeldResources, held_by, left_behind, not_flat

BENCHMARKS = Path(__file__).parents[2] / "benchmarks" / "hostile"
Spoil = Callable[[int, bytes, bytes], bytes | None]  # answer number, the answer, the one before: None hangs up


class SpoilingServer:
    """An honest model behind a proxy that spoils some of its answers."""

    def __init__(self, spoil: Spoil) -> None:
        self._spoil, self._number, self._before = spoil, 0, b""
        self._writers: set[asyncio.StreamWriter] = set()

    async def start(self) -> tuple[str, int]:
        self.listener = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        host, port = self.listener.sockets[0].getsockname()
        return host, port

    async def stop(self) -> None:
        self.listener.close()
        while self._writers:
            for writer in self._writers:
                writer.transport.abort()
            await asyncio.sleep(0.0)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._writers.add(writer)
        with suppress(OSError, asyncio.IncompleteReadError):
            while True:
                head = (await reader.readuntil(b"\r\n\r\n")).decode()
                headers = dict(line.split(": ") for line in head.split("\r\n")[1:-2])
                asked = json.loads(await reader.readexactly(int(headers["content-length"])))
                body = json.dumps(answer_to(asked["id"], asked["x"])).encode()
                lines = f"x-request-id: {headers['x-request-id']}\r\ncontent-length: {len(body)}\r\n\r\n"
                answer = b"HTTP/1.1 200 OK\r\n" + lines.encode() + body
                self._number += 1
                said = self._spoil(self._number, answer, self._before)
                self._before = answer
                if said is None:
                    break
                writer.write(said)
                await writer.drain()
        writer.close()
        with suppress(OSError):
            await writer.wait_closed()
        self._writers.discard(writer)


def heard(spoil: Spoil, requests: int = 30) -> tuple[Counter[str], list[str]]:
    """What an honest client says of this many requests to such a server."""

    async def main() -> HonestTally:
        server, tally = SpoilingServer(spoil), HonestTally()
        client = HonestClient("c", await server.start(), tally, patience_s=5.0)
        for number in range(requests):
            await client.ask(f"c-{number}")
            await asyncio.sleep(0.0)
        client.close()
        await server.stop()
        return tally

    tally = asyncio.run(asyncio.wait_for(main(), 30.0))
    return tally.counts["calm"], tally.stories


def test_an_honest_server_breaks_nothing() -> None:
    assert heard(lambda number, answer, before: answer) == (Counter({RIGHT: 30}), [])


@pytest.mark.parametrize(
    ("planted", "found"),
    [
        (lambda number, answer, before: None if number == 7 else answer, LOST),
        (lambda number, answer, before: answer * (2 if number == 7 else 1), DOUBLED),
        (lambda number, answer, before: before if number == 7 else answer, SWAPPED),
        (lambda number, answer, before: answer[:-2] + bytes((answer[-2] ^ (number == 7), answer[-1])), SWAPPED),
        (lambda number, answer, before: answer.replace(b"200 OK", b"404 No") if number == 7 else answer, ODD),
    ],
    ids=["lossy", "doubling", "swapping", "wrong", "odd"],
)
def test_a_planted_proxy_is_found(planted: Spoil, found: str) -> None:
    counts, stories = heard(planted, 12)
    assert counts[found] >= 1
    assert stories
    assert all(story.startswith(f"{found} during calm") for story in stories[:1])


def looks(rise_mib_per_minute: float = 0.0, **rises: int) -> list[HeldResources]:
    """Looks of nine minutes, uneven as they are, with what rises from look to look."""
    return [
        HeldResources(
            at_s=60.0 * minute,
            rss_mib=60.0 + (minute % 3) + rise_mib_per_minute * minute,
            descriptors=30 + minute % 2 + rises.get("descriptors", 0) * minute,
            memory_files=16 + rises.get("memory_files", 0) * minute,
            shared_memory=rises.get("shared_memory", 0) * minute,
            processes=3,
        )
        for minute in range(9)
    ]


def test_what_grows_is_not_flat() -> None:
    assert not_flat("a", looks()) == not_flat("a", looks(1.0)) == []
    assert "rss_mib rose" in not_flat("a", looks(15.0))[0]
    for what in ("descriptors", "memory_files", "shared_memory"):
        assert what in not_flat("a", looks(**{what: 2}))[0]


LEAK = """
import os, sys
kept = []
for line in sys.stdin:
    kept.append((b"x" * (12 << 20), os.memfd_create("leaked"), os.open(os.devnull, os.O_RDONLY)))
    print("more", flush=True)
"""


def test_a_real_leak_is_seen_and_its_end(tmp_path: Path) -> None:
    """As is a process that is left behind."""
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
    with subprocess.Popen([sys.executable, "-c", LEAK], cwd=tmp_path, text=True, **pipes) as leaking:
        found = []
        for second in range(9):
            leaking.stdin.write("\n")
            leaking.stdin.flush()
            leaking.stdout.readline()
            found.append(held_by(leaking.pid, float(second)))
        said = not_flat("leaking", found)
        assert {line.split()[1] for line in said} >= {"rss_mib", "descriptors", "memory_files"}
        assert left_behind([leaking.pid], tmp_path) != []
        assert left_behind([leaking.pid], tmp_path / "elsewhere") == []
        leaking.stdin.close()
    assert left_behind([leaking.pid], tmp_path) == []


KINDS = [
    "workers killed", "worker stopped", "bouncer killed", "bouncer restarted", "slow heads", "huge bodies",
    "poison: raises", "poison: crashes", "poison: lies", "function: hang", "function: endless",
    "descriptors, bouncer", "disk full",
]  # fmt: skip


@pytest.mark.acceptance
def test_a_short_run_breaks_nothing(tmp_path: Path) -> None:
    """Of each part of the data plane, and honest clients lose nothing."""
    command = [sys.executable, str(BENCHMARKS / "hostile.py"), "--minutes", "0.5", "--warm-up-s", "0", "--seed", "1"]
    command += ["--only", ";".join(KINDS), "--out", str(tmp_path / "hostile")]
    done = subprocess.run(command, capture_output=True, text=True, timeout=600.0, check=False)
    assert done.returncode == 0, done.stderr[-4000:]
    said = json.loads((tmp_path / "hostile.json").read_text())
    assert said["stories"] == []
    asked = sum(of.get(RIGHT, 0) for of in said["faults"].values())
    assert asked > 200
