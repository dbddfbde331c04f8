"""Latency of personal heads over HTTP: predictions, the best items of a table, and feedback.

    python benchmarks/data_plane/personal_serving.py [--rate 500] [--seconds 20] [--items 10000]

One server on core 0, clients on core 1, a table of 64 dimensions, 1,000 keys with 20 observations each. Each route has
the rate by itself, as a Poisson stream; latency counts from when a request was due, and processor time is the server's,
which other programs on the machine change little. "Stage" is the processor time of the head alone, in this process and
without HTTP, once the heads are built. Exits 1 where a target is missed.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
import time
from pathlib import Path

import load
import numpy as np
import orjson
import psutil

sys.path[:0] = [str(Path(__file__).resolve().parents[2])]

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


def table(items: int) -> ItemTable:
    vectors = np.random.default_rng(0).normal(size=(items, DIMENSION)).astype(np.float32)
    return ItemTable([f"s{number}" for number in range(items)], vectors, "items.npz")


def stage_ms(items: int) -> tuple[float, float]:
    """The median and the 99th percentile of the processor time that the head takes for a call, in milliseconds."""
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


def latencies(rate_rps: float, seconds: float, items: int, explore: str) -> bool:
    """Measure each route. False: a target was missed."""
    draw, good = np.random.default_rng(2), True
    numbers = iter(range(1 << 30))

    def piece() -> dict[str, object]:
        number = next(numbers)
        reward = round(float(draw.normal()), 3)
        return {"id": f"c-{number}", "key": f"u{number % KEYS}", "item": f"s{draw.integers(items)}", "reward": reward}

    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "songs.toml").write_text(FILE.format(explore=explore))
        found = table(items)
        np.savez(folder / "items.npz", ids=np.array(found.ids), vectors=found.vectors)
        with load.serving(["songs.toml"], folder, "0") as url:
            model = f"{url}/v2/models/songs"
            (server,) = psutil.Process().children()
            lists = [orjson.dumps([piece() for _ in range(500)]) for _ in range(KEYS * ROWS // 500)]
            warm = load.open_loop(load.Target(f"{model}/feedback", b"", bodies=lists), np.arange(len(lists)) * 0.5)
            assert (warm["status"] == 200).all(), "the observations before were not taken"
            due = load.poisson(rate_rps, seconds, 3)
            key = {"content-type": "application/json", "mark-key": "u7"}
            asked = [json.dumps(f"s{draw.integers(items)}").encode() for _ in range(1000)]
            told = [orjson.dumps(piece()) for _ in range(len(due) + 10)]
            for route, target in (
                ("predict", load.Target(f"{url}/invocations", b"", key, bodies=asked)),
                (f"top 10 of {items:,}", load.Target(f"{model}/top", b'{"k": 10}', key)),
                ("feedback", load.Target(f"{model}/feedback", b"", bodies=told)),
            ):
                before_s = sum(server.cpu_times()[:2])
                answers = load.open_loop(target, due)
                cpu_ms = 1e3 * (sum(server.cpu_times()[:2]) - before_s) / len(answers)
                ms = 1e3 * (answers["answered_s"] - answers["scheduled_s"])
                lag_ms = 1e3 * np.nanpercentile(answers["sent_s"] - answers["scheduled_s"], 99)
                failed = int((answers["status"] != 200).sum())
                p50, p99 = np.nanpercentile(ms, (50, 99))
                good = good and p99 <= MOST_P99_MS and not failed
                print(
                    f"{route:18} {rate_rps:g}/s: p50 {p50:6.2f} ms, p99 {p99:6.2f} ms (target {MOST_P99_MS:g}), "
                    f"{failed} of {len(answers)} failed, clients lag {lag_ms:.2f} ms; processor {cpu_ms:.2f} ms",
                    flush=True,
                )
    return good


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--rate", type=float, default=500.0, help="requests a second that are due")
    parser.add_argument("--seconds", type=float, default=20.0)
    parser.add_argument("--items", type=int, default=10_000)
    parser.add_argument("--explore", default="greedy", choices=EXPLORING)
    args = parser.parse_args()
    median, p99 = stage_ms(args.items)
    print(f"stage: median {median * 1e3:.0f} us, p99 {p99 * 1e3:.0f} us (target {MOST_STAGE_MS * 1e3:g})", flush=True)
    good = latencies(args.rate, args.seconds, args.items, args.explore) and p99 <= MOST_STAGE_MS
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
