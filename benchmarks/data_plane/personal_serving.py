"""Latency of personal heads over HTTP: predictions, the best items of a table, and feedback.

    python benchmarks/data_plane/personal_serving.py [--rate 500] [--seconds 20] [--rounds 5] [--items 10000]

The server has core 0, the clients have core 1. The table has 64 dimensions, and 1,000 keys have 20 observations each.
Each route gets the full rate as a Poisson stream. Latency counts from the due time of a request. Processor time is the
server's, because other programs on the machine change it little. A second server on core 0 serves a plain model without
heads. The clients ask the routes and the plain model in turns, so that the ratios hold on a busy machine, too. "Stage"
is the processor time of the head alone, in this process and without HTTP, once the heads are built. Exits with 1 if a
target is missed.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path

import httpx
import load
import numpy as np
import orjson
import psutil

sys.path[:0] = [str(Path(__file__).resolve().parents[2])]

from mark.domain.arrays import FloatArray  # noqa: E402
from mark.models.answer import Answer  # noqa: E402
from mark.models.results import call_with  # noqa: E402
from mark.personal.settings import EXPLORING, PersonalSettings  # noqa: E402
from mark.personal.table import ItemTable  # noqa: E402
from mark.serving.backend.metrics import ModelMetrics  # noqa: E402
from mark.serving.backend.request import Request  # noqa: E402
from mark.serving.personal.heads import PersonalHeads  # noqa: E402
from mark.serving.personal.notes import HeadFact, key_name  # noqa: E402
from mark.serving.personal.stage import PersonalStage  # noqa: E402

DIMENSION, KEYS, ROWS = 64, 1000, 20
MOST_P99_MS, MOST_STAGE_MS = 10.0, 0.1
FILE = """
[service]
name = "songs"
slo_ms = 1000
slo_attainment = 0.99
[feedback]
log = "feedback"
[personal]
table = "items.npz"
explore = {{ policy = "{explore}" }}
"""
PLAIN = """
[service]
name = "plain"
model = "echo:Echo"
slo_ms = 1000
slo_attainment = 0.99
"""
ECHO = "import mark\n\nclass Echo(mark.Model):\n    def predict(self, batch):\n        return batch\n"


def table(items: int) -> ItemTable:
    vectors = np.random.default_rng(0).normal(size=(items, DIMENSION)).astype(np.float32)
    return ItemTable([f"s{number}" for number in range(items)], vectors, "items.npz")


def stage_ms(items: int) -> tuple[float, float]:
    """Return the median and the 99th percentile of the head's processor time for a call, in milliseconds."""
    heads = PersonalHeads(PersonalSettings(), "v", now=time.monotonic, table=table(items))
    draw = np.random.default_rng(1)
    for number in range(KEYS * ROWS):
        item = f"s{draw.integers(items)}"
        heads.apply(HeadFact(key_name(f"u{number % KEYS}"), 1.0, "v", float(draw.normal()), item).to_json())
    stage = PersonalStage(heads, ModelMetrics("songs", "1", "personal"), time.monotonic)
    taken: list[float] = []

    def answer(request: Request, answer: Answer) -> None:
        assert answer.reply.status == 200, bytes(answer.reply.body)

    for number in range(KEYS + 20_000):
        request = Request(call_with(f"s{draw.integers(items)}"), 1, 0.0, 1e9, answer)
        request.key = f"u{number % KEYS}"
        began_ns = time.thread_time_ns()
        stage.offer(request)
        taken.append(1e-6 * (time.thread_time_ns() - began_ns))
    steady = taken[KEYS:]  # the first call of a key builds its head
    return float(np.median(steady)), float(np.percentile(steady, 99))


@dataclass(slots=True)
class Route:
    """A route of one of two servers, and its measured requests."""

    name: str
    target: load.Target
    server: psutil.Process
    cpu_s: float = 0.0
    count: int = 0
    failed: int = 0
    ms: list[FloatArray] = field(default_factory=list)
    lag_ms: list[FloatArray] = field(default_factory=list)

    def ask(self, due_s: FloatArray) -> None:
        before_s = cpu_s(self.server)
        answers = load.open_loop(self.target, due_s)
        self.cpu_s += cpu_s(self.server) - before_s
        self.count += len(answers)
        self.failed += int((answers["status"] != 200).sum())
        self.ms.append(1e3 * (answers["answered_s"] - answers["scheduled_s"]))
        self.lag_ms.append(1e3 * (answers["sent_s"] - answers["scheduled_s"]))

    def percentile_ms(self, q: float) -> float:
        return float(np.nanpercentile(np.concatenate(self.ms), q))


def cpu_s(server: psutil.Process) -> float:
    """Return processor time of a server and of its workers."""
    return sum(sum(one.cpu_times()[:2]) for one in (server, *server.children(recursive=True)))


@contextmanager
def served(file: str, folder: Path) -> Iterator[tuple[str, psutil.Process]]:
    before = set(psutil.Process().children())
    with load.serving([file], folder, "0") as url:
        (server,) = set(psutil.Process().children()) - before
        yield url, server


def latencies(rate_rps: float, seconds: float, items: int, explore: str, rounds: int) -> bool:
    """Measure each route in turn, `rounds` times. False: a target was missed."""
    draw = np.random.default_rng(2)
    numbers = iter(range(1 << 30))

    def piece() -> dict[str, object]:
        number = next(numbers)
        reward = round(float(draw.normal()), 3)
        return {"id": f"c-{number}", "key": f"u{number % KEYS}", "item": f"s{draw.integers(items)}", "reward": reward}

    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "songs.toml").write_text(FILE.format(explore=explore))
        (folder / "plain.toml").write_text(PLAIN)
        (folder / "echo.py").write_text(ECHO)
        found = table(items)
        np.savez(folder / "items.npz", ids=np.array(found.ids), vectors=found.vectors)
        with served("songs.toml", folder) as (url, server), served("plain.toml", folder) as (plain_url, plain):
            model = f"{url}/v2/models/songs"
            lists = [orjson.dumps([piece() for _ in range(500)]) for _ in range(KEYS * ROWS // 500)]
            for one in lists:  # again where a busy server refuses it; each id counts once
                while httpx.post(f"{model}/feedback", content=one, timeout=60.0).status_code != 200:
                    time.sleep(0.2)
            key = {"content-type": "application/json", "mark-key": "u7"}
            asked = [json.dumps(f"s{draw.integers(items)}").encode() for _ in range(1000)]
            routes = [
                Route("plain", load.Target(f"{plain_url}/invocations", b"[1.0]"), plain),
                Route("predict", load.Target(f"{url}/invocations", b"", key, bodies=asked), server),
                Route(f"top 10 of {items:,}", load.Target(f"{model}/top", b'{"k": 10}', key), server),
                Route("feedback", load.Target(f"{model}/feedback", b""), server),
            ]
            for turn in range(rounds):
                due_s = load.poisson(rate_rps, seconds / rounds, turn)
                for route in routes:
                    if route.name == "feedback":
                        told = [orjson.dumps(piece()) for _ in range(len(due_s) + 10)]
                        route.target = replace(route.target, bodies=told)
                    route.ask(due_s)
    base50, base99 = (routes[0].percentile_ms(q) for q in (50, 99))
    good = True
    for route in routes:
        p50, p99 = route.percentile_ms(50), route.percentile_ms(99)
        lag = np.nanpercentile(np.concatenate(route.lag_ms), 99)
        if route is not routes[0]:
            good = good and p99 <= MOST_P99_MS and not route.failed
        print(
            f"{route.name:18} {rate_rps:g}/s: p50 {p50:.2f} ms ({p50 / base50:.1f} x plain), "
            f"p99 {p99:.2f} ms ({p99 / base99:.1f} x, target {MOST_P99_MS:g} ms), "
            f"{route.failed} of {route.count} failed, "
            f"clients' lag {lag:.1f} ms; processor {1e3 * route.cpu_s / route.count:.2f} ms a request",
            flush=True,
        )
    return good


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--rate", type=float, default=500.0, help="requests due per second")
    parser.add_argument("--seconds", type=float, default=20.0, help="seconds of each route, in all rounds together")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--items", type=int, default=10_000)
    parser.add_argument("--explore", default="greedy", choices=EXPLORING)
    args = parser.parse_args()
    median, p99 = stage_ms(args.items)
    print(f"stage: median {median * 1e3:.0f} us, p99 {p99 * 1e3:.0f} us (target {MOST_STAGE_MS * 1e3:g})", flush=True)
    good = latencies(args.rate, args.seconds, args.items, args.explore, args.rounds) and p99 <= MOST_STAGE_MS
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
