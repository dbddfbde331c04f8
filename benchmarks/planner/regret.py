"""Bill over the clairvoyant bound, on a day of the Twitter stream and on five families of traffic (docs/results.md).

    python benchmarks/planner/regret.py day [--workers 2]
    python benchmarks/planner/regret.py families [--services inception-v3,lstm-ptb] [--workers 2]
            [--out out/regret.json]

The runs buy on demand and functions, with seed 0. `mark-paper` has the paper's LSTM, trained on all traffic before the
part. The traffic is real, from MARK_DATA or ../shared/data. `families` takes some twenty minutes a service with two
workers, `day` ten minutes.
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path

import numpy as np
from miss_price import DATA, NASA, SCALES, STREAM, TAXI, TWITTER, WORLD_CUP

from mark.domain.time import DAY_S
from mark.simulation.request import RunRequest
from mark.simulation.result import SimulationResult
from mark.studies.compare import compare
from mark.studies.executor import executor_for

POLICIES = ("mark", "oracle", "mark-paper", "mark-paper:artefact")
OF_THE_DAY = (
    "mark", "mark:seasonal-naive", "mark-paper", "mark-paper:auto", "mark-paper:artefact", "mark-paper:seasonal-naive",
    "best-fixed", "static-peak", "static-mean", "reactive", "target-tracking", "target-tracking-best",
    "fixed:c5.xlarge=30", "oracle",
)  # fmt: skip
FAMILIES = ((STREAM, (7, 12)), (WORLD_CUP, (40, 52)), (TWITTER, (4, 5)), (NASA, (12, 19)), (TAXI, (70, 101)))
STREAM_SCALE = 2.5


def runs(trace: str, day: float, service: str, policies: tuple[str, ...], workers: int) -> dict[str, SimulationResult]:
    """Run a day of a trace under every policy."""
    request = RunRequest(
        trace=str(DATA / f"{trace}.csv.gz"),
        service=service,
        scale=SCALES.get(trace, STREAM_SCALE),
        start_s=day * DAY_S,
        duration_s=DAY_S,
    )
    return compare(request, policies, executor=executor_for(workers))


def row(name: str, result: SimulationResult) -> dict[str, object]:
    """Return a run's row of the tables."""
    bill, own = result.bill.total, result.bound_own_usd
    return {
        "policy": name,
        "usd": round(bill, 2),
        "in_time": result.slo_result.attainment,
        "p98_ms": result.latency_ms.p98,
        "by_functions": result.requests.functions / result.requests.total,
        "regret": result.regret,
        "regret_own": None if result.regret is None or not own else bill / own,
        "reason": result.regret_reason,
    }


def told(found: dict[str, object]) -> str:
    regret, own = found["regret"], found["regret_own"]
    number = f"{regret:.3f} (own late: {own:.3f})" if regret is not None else f"none: {found['reason']}"
    return f"{found['policy']}: ${found['usd']}, {found['in_time']:.2%}, {found['by_functions']:.1%}, regret {number}"


def day(workers: int) -> list[dict[str, object]]:
    found = runs(f"{STREAM[:-4]}_1s", 7, "inception-v3", OF_THE_DAY, workers)
    rows = [row(name, result) for name, result in found.items()]
    for one in rows:
        print(told(one), flush=True)
    return rows


def families(services: list[str], workers: int) -> list[dict[str, object]]:
    rows: list[dict[str, object]] = []
    for service in services:
        means: dict[str, list[float]] = {name: [] for name in POLICIES}
        for trace, days in FAMILIES:
            of_family: dict[str, list[float]] = {name: [] for name in POLICIES}
            for start in days:
                for name, result in runs(trace, start, service, POLICIES, workers).items():
                    one = {"service": service, "trace": trace, "day": start} | row(name, result)
                    rows.append(one)
                    print(service, trace, start, told(one), flush=True)
                    if result.regret is not None:
                        of_family[name].append(result.regret)
            for name, regrets in of_family.items():
                if regrets:
                    means[name].append(float(np.mean(regrets)))
        print(service, "mean of families:", {name: round(float(np.mean(of)), 3) for name, of in means.items() if of})
    return rows


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=("day", "families"))
    parser.add_argument("--services", default="inception-v3,lstm-ptb")
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--out", type=Path, default=Path("out/regret.json"))
    args = parser.parse_args()
    rows = day(args.workers) if args.what == "day" else families(args.services.split(","), args.workers)
    args.out.parent.mkdir(parents=True, exist_ok=True)
    args.out.write_text(json.dumps(rows, indent=1))
    return 0


if __name__ == "__main__":
    sys.exit(main())
