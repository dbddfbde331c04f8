"""A second attempt of a slow request, before two real bouncers of which one stops for a while now and then."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.serving.test_server_process import INFER, address, body, served

MODEL = """
import itertools, os, time
import mark

class Stops(mark.Model):
    inputs = [mark.TensorSpec("x", "FP32", (2,))]
    outputs = [mark.TensorSpec("y", "FP32", (2,))]
    batches = itertools.count(1)

    def predict(self, batch):
        time.sleep(0.5 if next(self.batches) % int(os.environ["STOPS_EVERY"]) == 0 else 0.002)
        return batch
"""
SERVICE = '[service]\nname = "echo"\nmodel = "model:Stops"\nslo_ms = 5000\nslo_attainment = 0.98\n'
REQUESTS = 400


def asked(first: str, second: str, *options: str) -> tuple[list[float], dict[str, Any]]:
    """Send REQUESTS requests through a gateway, two at a time.

    Returns the sorted latencies and the gateway's own report.
    """
    command = [sys.executable, "-m", "mark.cli.main", "gateway", "--port", "0", *options]
    gateway = subprocess.Popen([*command, "--replica", first, "--replica", second], stderr=subprocess.PIPE, text=True)
    try:
        url = address(gateway)
        took_s: list[float] = []

        async def main() -> dict[str, Any]:
            numbers = iter(range(REQUESTS))
            async with httpx.AsyncClient(base_url=url, timeout=30.0, trust_env=False) as client:

                async def one_after_the_other() -> None:
                    for number in numbers:
                        began_s = time.perf_counter()
                        got = await client.post(INFER, content=body(number))
                        took_s.append(time.perf_counter() - began_s)
                        assert (got.status_code, got.json()["id"]) == (200, str(number))

                await asyncio.gather(*(one_after_the_other() for _ in range(2)))
                said: dict[str, Any] = (await client.get("/admin/replicas")).json()
                return said

        state = asyncio.run(main())
        gateway.terminate()
        assert gateway.wait(20) == 0
        return sorted(took_s), state
    finally:
        gateway.kill()
        gateway.communicate()


@pytest.mark.slow
def test_hedging_shortens_the_tail_for_a_little_more_work(tmp_path: Path) -> None:
    """Each request is answered once, by either; no count of an attempt that was cancelled stays anywhere."""
    (tmp_path / "model.py").write_text(MODEL)
    (tmp_path / "echo.toml").write_text(SERVICE)
    with served(tmp_path, STOPS_EVERY="20") as (_, first), served(tmp_path, STOPS_EVERY="100000") as (_, second):
        plain_s, _ = asked(first, second)
        hedged_s, state = asked(first, second, "--hedge-after-ms", "50")
        print(json.dumps({"plain_s": plain_s[-10:], "hedged_s": hedged_s[-10:], **state}))
        assert len(plain_s) == len(hedged_s) == REQUESTS
        assert plain_s[-1] > 0.5
        assert hedged_s[-1] < 0.4
        assert 0 < state["hedges"] < 0.05 * REQUESTS
        assert state["in_flight"] == sum(one["in_flight"] for one in state["replicas"].values()) == 0
        for url in (first, second):
            with httpx.Client(base_url=url, trust_env=False) as client:
                until_s = time.monotonic() + 10.0
                while " 0.0\n" not in (page := client.get("/metrics").text.split("mark_running_requests{")[1]):
                    assert time.monotonic() < until_s, page
