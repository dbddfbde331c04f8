"""Random services and traffic: check that `mark` keeps what the best fixed fleet keeps, and compare their dollars.

    python benchmarks/planner/random_services.py [--cases 60] [--first 0] [--hours 24] [--out out/random_services.json]

A case draws one to four types of a catalogue with their speeds, the service's times, tail, batches, RT_max, promise and
function, and constant, diurnal or spiky traffic of 0.5 to 60 requests/s. Case k is the same in every run. It counts if
the best fixed fleet keeps SL_min + 0.2 points. It is bad if `mark` misses the promise, or costs more than 1.05 times
that fleet. The promise is for a day, so `mark` may spend more of its budget in a part of one. A case takes 2 to 20 s.
Exits with 1 if a case is bad.
"""

from __future__ import annotations

import argparse
import json
import random
import sys
import tempfile
from collections import Counter
from pathlib import Path

from tails import beside_best_fixed, write_service

DEAREST = 1.05
# How long each type takes, as a multiple of c7i.large
TYPES = {
    "c7i.large": 1.0,
    "c7i.xlarge": 0.56,
    "c7i.2xlarge": 0.32,
    "c8g.large": 0.9,
    "c8g.xlarge": 0.5,
    "m7i.large": 1.1,
    "g4dn.xlarge": 0.22,
    "g6.xlarge": 0.12,
}


def service_of(folder: Path, draws: random.Random) -> tuple[str, float, dict[str, object]]:
    """Write a service file and its profile; return its path, the promised share and the drawn numbers."""
    types = draws.sample(sorted(TYPES), draws.choice([1, 2, 2, 3, 4]))
    mean_ms, tail = draws.choice([15, 40, 90, 200]), draws.choice([1.2, 1.5, 2, 3])
    slack, attainment = draws.choice([2, 3, 5, 10]), draws.choice([0.95, 0.98, 0.99])
    function = draws.choice(["none", "none", "late", "in time"])
    slo_ms, per_item = mean_ms * max(map(TYPES.__getitem__, types)) * slack, draws.choice([0.1, 0.25, 0.6, 0.9])
    factors = {name: TYPES[name] for name in types}
    path = write_service(folder, factors, (mean_ms, tail, per_item), slo_ms, attainment, function)
    drawn = {"types": types, "mean_ms": mean_ms, "tail": tail, "slack": slack, "attainment": attainment}
    return path, attainment, {**drawn, "function": function, "per_item": per_item}


def traffic_of(draws: random.Random) -> str:
    rate_rps = draws.choice([0.5, 2.0, 8.0, 20.0, 60.0])
    spiky = f"mmpp?rates={rate_rps / 2:g},{rate_rps * 2:g}&dwell_s={draws.choice([120, 300, 1200])}"
    return "synthetic:" + draws.choice([f"poisson?rate={rate_rps:g}", f"diurnal?rate={rate_rps:g}", spiky])


def judged(number: int, hours: float) -> dict[str, object]:
    """Return both bills and shares of a case, and the verdict."""
    draws = random.Random(number)
    with tempfile.TemporaryDirectory() as name:
        service, attainment, drawn = service_of(Path(name), draws)
        case = {"case": number, **drawn, "traffic": traffic_of(draws)}
        return {**case, **beside_best_fixed(str(case["traffic"]), service, attainment, hours, number, DEAREST)}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cases", type=int, default=60)
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--hours", type=float, default=24.0)
    parser.add_argument("--out", type=Path, default=Path("out/random_services.json"))
    args = parser.parse_args()
    rows = []
    for number in range(args.first, args.first + args.cases):
        rows.append(judged(number, args.hours))
        print(*rows[-1].values(), sep=" | ", flush=True)
    verdicts = Counter(str(row["verdict"]) for row in rows)
    args.out.parent.mkdir(parents=True, exist_ok=True)
    args.out.write_text(json.dumps({"cases": rows, "verdicts": verdicts}, indent=1))
    print(f"{len(rows)} cases: {dict(verdicts)}")
    return int(bool(verdicts["missed"] or verdicts["dear"]))


if __name__ == "__main__":
    sys.exit(main())
