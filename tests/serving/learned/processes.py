"""Servers that learn together, as processes that can be killed, and a client of them."""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from itertools import count
from pathlib import Path
from typing import Any

from mark.serving.learned.shared import snapshot_in
from mark.serving.overflow.http_client import Address, Asker, CallFailure, HttpAnswer, Reach, Upstream

ROOT = Path(__file__).resolve().parents[3]
MODEL = "import mark\n\nclass Echo(mark.Model):\n    def predict(self, batch):\n        return batch\n"
SERVICE = """
[service]
name = "m"
model = "model:Echo"
slo_ms = 5000
slo_attainment = 0.98
[feedback]
log = "feedback"
{more}
"""
BOOT_S = 300.0  # of a server on a busy machine
_DRAIN_S = 120.0  # likewise


class Gone(Exception):
    """The server gave no answer."""


class Client(Asker["asyncio.Future[HttpAnswer]"]):
    """Asks one server over kept connections."""

    def __init__(self, url: str) -> None:
        self._loop = asyncio.get_running_loop()
        self.address = Address.of(url)
        self._line: Upstream[asyncio.Future[HttpAnswer]] = Upstream(self.address, self, Reach(), self._loop)

    async def ask(self, method: str, path: str, body: bytes = b"", **headers: str) -> HttpAnswer:
        asked: asyncio.Future[HttpAnswer] = self._loop.create_future()
        more = "".join(f"{name.replace('_', '-')}: {value}\r\n" for name, value in headers.items())
        head = f"{method} {path} HTTP/1.1\r\nhost: {self.address.authority.decode()}\r\n{more}"
        head += f"content-type: application/json\r\ncontent-length: {len(body)}\r\n\r\n"
        self._line.ask(asked, head.encode() + body)
        async with asyncio.timeout(30.0):
            return await asked

    def answered(self, tag: asyncio.Future[HttpAnswer], answer: HttpAnswer) -> None:
        if not tag.done():
            tag.set_result(answer)

    def failed(self, tag: asyncio.Future[HttpAnswer], began: bool, why: CallFailure) -> None:
        if not tag.done():
            tag.set_exception(Gone(why))

    def close(self) -> None:
        self._line.close()

    # In the words of the service

    async def infer(self, identity: str) -> None:
        """Send one inference request. Raises Gone without an answer."""
        answer = await self.ask("POST", "/invocations", b"[1]", x_request_id=identity)
        if answer.status != 200:
            raise Gone(f"status {answer.status}")

    async def feedback(self, pieces: Sequence[tuple[str, Any]]) -> list[str]:
        """Send feedback and return the results. Raises Gone without results."""
        body = json.dumps([{"id": identity, "label": label} for identity, label in pieces]).encode()
        answer = await self.ask("POST", "/v2/models/m/feedback", body)
        if answer.status != 200:
            raise Gone(f"status {answer.status}")
        return [one["result"] for one in json.loads(answer.body)["results"]]

    async def state(self, model: str) -> bytes:
        """Return the learner's state."""
        data, number, total = b"", 0, 1
        while len(data) < total:
            page = await self.ask("GET", f"/v2/models/{model}/learned/snapshot?number={number}&begin={len(data)}")
            head, _, part = page.body.partition(b"\n")
            said = json.loads(head)
            number, total, data = said["number"], said["bytes"], data + part
        return snapshot_in(data).state

    async def counts(self) -> Counter[int]:
        """Return how often the learner of `tallying` has each label."""
        counts = json.loads(await self.state("m"))["counts"]
        return Counter({int(number): count for number, count in counts.items()})

    async def metric(self, name: str) -> float:
        page = (await self.ask("GET", "/metrics")).body.decode()
        return sum(float(line.split()[-1]) for line in page.splitlines() if line.startswith(name))


class Place:
    """A place for a server: its address, its folder, and the process if one runs."""

    program: tuple[str, ...] = ("tests.serving.learned.tallying", "m.toml")

    def __init__(self, folder: Path, port: int, more: str = "") -> None:
        folder.mkdir()
        self.write(folder, more)
        self.folder, self.port = folder, port
        self.url = f"http://127.0.0.1:{port}"
        self.peers: list[str] = []
        self.released = 0
        self.process: subprocess.Popen[bytes] | None = None

    def write(self, folder: Path, more: str) -> None:
        """Write the files that the server needs."""
        (folder / "model.py").write_text(MODEL)
        (folder / "m.toml").write_text(SERVICE.format(more=more))

    async def start(self) -> None:
        """Start the server, and wait until it is ready."""
        reading, writing = os.pipe()
        command = [sys.executable, "-m", *self.program, "--port", str(self.port)]
        command += ["--ready-fd", str(writing), *(f"--peer={peer}" for peer in self.peers)]
        environment = os.environ | {"PYTHONPATH": os.pathsep.join([str(ROOT), *filter(None, sys.path)])}
        with (self.folder / "said").open("ab") as said:
            self.process = subprocess.Popen(
                command, cwd=self.folder, stderr=said, stdout=said, pass_fds=(writing,), env=environment
            )
        os.close(writing)
        with open(reading, "rb") as ready:
            async with asyncio.timeout(BOOT_S):
                if not await asyncio.get_running_loop().run_in_executor(None, ready.read):
                    raise AssertionError((self.folder / "said").read_text())

    def kill(self, disk: bool) -> None:
        """Kill the process; without `disk`, delete its files too."""
        assert self.process is not None, "it was started"
        self.process.send_signal(signal.SIGKILL)
        self.process.wait(30)
        if not disk:
            shutil.rmtree(self.folder / "feedback")

    def release(self, number: int) -> None:
        """Write the files of another release, if its servers differ."""
        self.released = number

    def stop(self) -> None:
        if self.process is not None and self.process.poll() is None:
            self.process.terminate()
            try:
                self.process.wait(_DRAIN_S)
            finally:
                self.process.kill()
                self.process.wait()


@contextmanager
def places(folder: Path, count: int, more: str = "", kind: type[Place] = Place) -> Iterator[list[Place]]:
    """Yield places on free ports, each with the others as peers. No server is left behind.

    The ports stay bound while a server is down: otherwise another process could get one before the server is back.
    """
    with ExitStack() as stack:
        held = [stack.enter_context(socket.socket()) for _ in range(count)]
        for one in held:
            one.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)  # the server listens although this one is bound
            one.bind(("127.0.0.1", 0))
        found = [kind(folder / str(n), one.getsockname()[1], more) for n, one in enumerate(held)]
        for place in found:
            place.peers = [other.url for other in found if other is not place]
            stack.callback(place.stop)
        yield found


class Labels:
    """Feedback on answers: each label is a different number. The learner of `tallying` counts them."""

    path = "/v2/models/m/feedback"

    def __init__(self, batch: int = 10) -> None:
        self._batch, self._numbers = batch, count()

    async def batch(self, client: Client) -> dict[int, dict[str, Any]]:
        numbers = [next(self._numbers) for _ in range(self._batch)]
        answered = await asyncio.gather(*(client.infer(f"c{one}") for one in numbers), return_exceptions=True)
        there = (one for one, error in zip(numbers, answered, strict=True) if error is None)
        return {one: {"id": f"c{one}", "label": one} for one in there}

    async def numbers(self, client: Client) -> Counter[int]:
        return await client.counts()

    async def off(self, place: Place, client: Client, numbers: Counter[int]) -> float:
        return 0.0
