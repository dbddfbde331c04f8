"""Offer a bouncer 150 % of its capacity: the share of answers, their latency, and the time until a refusal.

    python benchmarks/data_plane/overload.py [--seconds 60] [--rate 1.5] [--out out/overload.json]

The model takes 5 ms + 0.5 ms x b for a batch of b <= 16 and computes nothing; RT_max is 100 ms. Its profile is measured
first, by `mark profile`. The server has core 0 with all its processes; the client, an open loop of Poisson arrivals,
and the function, a second server whose model takes 20 ms, share core 1. Exits with 1 if a promise is broken:

- with functions, every request is answered, and 98 % are answered within RT_max;
- without functions, the answers in time are at least 95 % of the capacity, and the median refusal takes 5 ms at most
  (the 99th percentile is only printed, because it depends on the machine as much as on mark).
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import load
import numpy as np

RT_MAX_S = 0.1
MODEL = """
import time
import mark

class Slow(mark.Model):
    inputs = [mark.TensorSpec("x", "FP32", (8,))]
    def predict(self, batch):
        time.sleep(0.005 + 0.0005 * len(batch))
        return batch

class Elsewhere(Slow):
    def predict(self, batch):
        time.sleep(0.02)
        return batch
"""
SERVICE = '[service]\nname = "m"\nmodel = "models:{model}"\nslo_ms = {slo_ms}\nslo_attainment = 0.98\n{more}'
BODY = json.dumps(
    {"inputs": [{"name": "x", "shape": [1, 8], "datatype": "FP32", "data": [1.5] * 8}]}, separators=(",", ":")
).encode()


@contextmanager
def served(folder: Path, file: str, core: int, *options: str) -> Iterator[str]:
    """Yield the address of `mark serve` on that core."""
    command = ["taskset", "-c", str(core), sys.executable, "-m", "mark.cli.main", "serve", file, "--port", "0"]
    process = subprocess.Popen([*command, *options], cwd=folder, stderr=subprocess.PIPE, text=True)
    assert process.stderr is not None
    try:
        for line in process.stderr:
            if " is ready on " in line:
                break
        else:
            raise SystemExit(f"{file} did not start")
        yield line.split()[-1]
    finally:
        process.terminate()
        process.communicate(timeout=60)


def offered(url: str, rate_rps: float, seconds: float, capacity_rps: float) -> dict[str, Any]:
    """Return the outcome of a Poisson stream."""
    os.sched_setaffinity(0, {1})
    answers = load.open_loop(
        load.Target(url + "/v2/models/m/infer", BODY), load.poisson(rate_rps, seconds, 1), connections=512
    )
    os.sched_setaffinity(0, {0, 1})
    took_s = answers["answered_s"] - answers["sent_s"]
    right, refused = answers["right"], answers["status"] == 429
    in_time = right & (took_s <= RT_MAX_S)
    return {
        "requests": len(answers),
        "answered": float(right.mean()),
        "in_time": float(in_time.mean()),
        "by_functions": float((answers["answered_by"] == "function").mean()),
        "goodput_of_capacity": float(in_time.sum() / seconds / capacity_rps),
        "admitted_in_time": float(in_time.sum() / max(1, right.sum())),
        "refused": float(refused.mean()),
        "refusal_ms": [1e3 * float(q) for q in np.quantile(took_s[refused], [0.5, 0.99])] if refused.any() else None,
        "p50_p99_ms": [1e3 * float(q) for q in np.quantile(took_s[right], [0.5, 0.99])],
        "lag_p99_ms": 1e3 * float(np.nanquantile(answers["sent_s"] - answers["scheduled_s"], 0.99)),
        "other": int((~right & ~refused).sum()),
    }


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument("--rate", type=float, default=1.5, help="offered load, as a multiple of the capacity")
    parser.add_argument("--out", default="out/overload.json")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "models.py").write_text(MODEL)
        (folder / "slow.toml").write_text(SERVICE.format(model="Slow", slo_ms=100, more='profile = "profile.csv"\n'))
        more = 'profile = "elsewhere.csv"\n'
        (folder / "elsewhere.toml").write_text(SERVICE.format(model="Elsewhere", slo_ms=2000, more=more))
        # Functions scale: each call takes 20 ms at any number of concurrent calls.
        rows = "".join(f"models:Elsewhere,there,{batch},20,measured\n" for batch in (1, 64))
        (folder / "elsewhere.csv").write_text(f"model,instance,batch,latency_ms,basis\n{rows}")
        profile = [
            sys.executable,
            "-m",
            "mark.cli.main",
            "profile",
            "models:Slow",
            "--batch",
            "1,4,16",
            "--seconds",
            "5",
        ]
        pinned = ["taskset", "-c", "0", *profile, "--out", "profile.csv", "--slo-ms", "100", "--json", "-"]
        said = subprocess.run(pinned, cwd=folder, check=True, capture_output=True, text=True).stdout
        rows = [line.split(",") for line in (folder / "profile.csv").read_text().splitlines()[1:]]
        capacity_rps = max(1e3 * int(row[2]) / float(row[3]) for row in rows)
        assert said.strip().startswith("{"), said[:200]
        rate_rps = args.rate * capacity_rps
        with served(folder, "slow.toml", 0) as url:
            alone = offered(url, rate_rps, args.seconds, capacity_rps)
        with (
            served(folder, "elsewhere.toml", 1) as function,
            served(folder, "slow.toml", 0, "--function", function + "/v2/models/m", "--function-ms", "30") as url,
        ):
            helped = offered(url, rate_rps, args.seconds, capacity_rps)
    result = {"capacity_rps": capacity_rps, "offered_rps": rate_rps, "without": alone, "with_functions": helped}
    print(json.dumps(result, indent=2))
    Path(args.out).parent.mkdir(parents=True, exist_ok=True)
    Path(args.out).write_text(json.dumps(result, indent=2) + "\n")
    kept = (
        helped["answered"] == 1.0
        and helped["in_time"] >= 0.98
        and alone["goodput_of_capacity"] >= 0.95
        and alone["refusal_ms"] is not None
        and alone["refusal_ms"][0] <= 5.0
    )
    return 0 if kept else 1


if __name__ == "__main__":
    sys.exit(main())
