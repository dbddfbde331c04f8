"""Jobs that start by the clock: check that `mark` keeps the promise if the best fixed fleet or the oracle does.

    python benchmarks/planner/clocked.py [--only NAME=VALUE ...] [--sample N] [--hours 4] [--seeds 1]
            [--out out/clocked.json]

The traffic has bursts of 100 requests/s over 2 requests/s, after two days of the same. The cases are all combinations
of period, length, jitter of a burst's beginning, and service. The promise is 99 % within 200 ms. A case counts if the
best fixed fleet keeps 99.2 %, or `oracle` 99 %. It is bad if `mark` misses the promise or costs more than 1.02 times
that fleet, without balancer and controller. The three services have one type, two types, and one type beside a function
in time. A case takes 5 s. Exits with 1 if a case is bad.
"""

from __future__ import annotations

import json
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path

import numpy as np
from tails import sweep

from mark.domain.time import DAY_S, HOUR_S, STEP_S
from mark.planning.policies.names import BEST_FIXED
from mark.simulation.request import RunRequest
from mark.studies.compare import compare

ATTAINMENT, MARGIN, DEARER = 0.99, 0.002, 1.02
BASE_RPS, BURST_RPS, BIN_S = 2.0, 100.0, 5.0
CASES: Mapping[str, tuple[object, ...]] = {
    "period_min": (5, 10, 30, 60),
    "burst_s": (10, 60, 180),
    "jitter_s": (0, 60, 180),
    "service": ("one type", "two types", "function"),
}
PROFILE = """model,instance,batch,latency_ms,p99_ms,cold_ms,basis
m,c6i.large,1,38,61,,assumed
m,c6i.large,4,121,170,,assumed
m,c6i.xlarge,1,22,37,,assumed
m,c6i.xlarge,4,66,95,,assumed
m,lambda:2048,1,70,,1900,assumed
"""


def trace_of(folder: Path, case: Mapping[str, object], until_s: float, seed: int) -> str:
    """Return counts by 5 s, each Poisson around its rate; a burst begins up to `jitter_s` after its time."""
    draws = np.random.default_rng(seed)
    period_s = STEP_S * float(str(case["period_min"]))
    rate_rps = np.full(int(until_s / BIN_S), BASE_RPS)
    for begins_s in np.arange(0.0, until_s, period_s):
        first = int((begins_s + draws.uniform(0.0, float(str(case["jitter_s"])))) / BIN_S)
        rate_rps[first : first + int(float(str(case["burst_s"])) / BIN_S)] = BURST_RPS
    counts = draws.poisson(rate_rps * BIN_S)
    path = folder / "clocked.csv"
    path.write_text("t_seconds,count\n" + "".join(f"{BIN_S * i:g},{n}\n" for i, n in enumerate(counts.tolist())))
    return str(path)


def service_of(folder: Path, service: str) -> str:
    (folder / "profile.csv").write_text(PROFILE)
    types = ["c6i.large", "c6i.xlarge"] if service == "two types" else ["c6i.large"]
    function = "lambda:2048" if service == "function" else "none"
    path = folder / "clocked.toml"
    path.write_text(
        f'[service]\nname = "clocked"\nmodel = "m"\nslo_ms = 200\nslo_attainment = {ATTAINMENT}\n'
        f'profile = "profile.csv"\n'
        f'[fleet]\ncatalog = "aws-2026"\ninstances = {json.dumps(types)}\nmax_instances = 100\n'
        f'[overflow]\nfunction = "{function}"\n'
    )
    return str(path)


def judged(case: Mapping[str, object], hours: float, seed: int) -> dict[str, object]:
    """Run `mark`, the best fixed fleet and the oracle on a case, and return their shares in time and a verdict."""
    with tempfile.TemporaryDirectory() as name:
        begins_s = 2.0 * DAY_S
        request = RunRequest(
            trace=trace_of(Path(name), case, begins_s + hours * HOUR_S, seed),
            service=service_of(Path(name), str(case["service"])),
            start_s=begins_s,
            duration_s=hours * HOUR_S,
            with_bound=False,
            seed=seed,
        )
        results = compare(request, ("mark", BEST_FIXED, "oracle"))
    kept = {policy: run.slo_result.attainment or 0.0 for policy, run in results.items()}
    usd = {policy: run.bill.total - run.bill.other for policy, run in results.items()}
    ratio = usd["mark"] / usd[BEST_FIXED]
    verdict = "not asked"
    if kept[BEST_FIXED] >= ATTAINMENT + MARGIN or kept["oracle"] >= ATTAINMENT:
        verdict = "missed" if kept["mark"] < ATTAINMENT else "dear" if ratio > DEARER else "kept"
    shares = {policy: round(100.0 * share, 2) for policy, share in kept.items()}
    return {**case, "seed": seed, **shares, "ratio": round(ratio, 3), "verdict": verdict}


if __name__ == "__main__":
    sys.exit(sweep(__doc__, CASES, judged, hours=4.0, seeds=1, out="out/clocked.json"))
