"""Random services and traffic: check that `mark` keeps what the best fixed fleet keeps, and compare their dollars.

    python benchmarks/planner/random_services.py [--wide] [--cases 60] [--first 0] [--hours 24]
            [--out out/random_services.json]

A case draws one to four types of a catalogue with their speeds, the service's times, tail, batches, RT_max, promise and
function, and constant, diurnal or spiky traffic of 0.5 to 60 requests/s after a day of history. With `--wide` it also
draws markets (spot, burstables), commitments, routing, batching, limits, a warm pool, a past of nothing to three days,
and traffic with clocked jobs, steps, growth, outages or weekends of 0.05 to 200 requests/s. Case k is the same in every
run. It counts if the best fixed fleet keeps SL_min + 0.2 points. It is bad if `mark` misses the promise, or costs more
than 1.05 times that fleet. The promise is for a day, so `mark` may spend more of its budget in a part of one. A case
takes 2 to 20 s. Exits with 1 if a case is bad.
"""

from __future__ import annotations

import argparse
import json
import random
import sys
import tempfile
from collections import Counter
from collections.abc import Mapping
from pathlib import Path

import numpy as np
from tails import beside_best_fixed, write_service

from mark.domain.time import DAY_S, HOUR_S

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
BURSTABLE = {"t3.large": 1.3, "t4g.large": 1.2}
BIN_S = 5.0


def plain(number: int, folder: Path) -> dict[str, object]:
    """Write the service of a case; return its numbers, and as `run` the arguments of `beside_best_fixed`."""
    draws = random.Random(number)
    types = draws.sample(sorted(TYPES), draws.choice([1, 2, 2, 3, 4]))
    mean_ms, tail = draws.choice([15, 40, 90, 200]), draws.choice([1.2, 1.5, 2, 3])
    slack, attainment = draws.choice([2, 3, 5, 10]), draws.choice([0.95, 0.98, 0.99])
    function = draws.choice(["none", "none", "late", "in time"])
    slo_ms, per_item = mean_ms * max(map(TYPES.__getitem__, types)) * slack, draws.choice([0.1, 0.25, 0.6, 0.9])
    factors = {name: TYPES[name] for name in types}
    path = write_service(folder, factors, (mean_ms, tail, per_item), slo_ms, attainment, function)
    rate_rps = draws.choice([0.5, 2.0, 8.0, 20.0, 60.0])
    spiky = f"mmpp?rates={rate_rps / 2:g},{rate_rps * 2:g}&dwell_s={draws.choice([120, 300, 1200])}"
    traffic = "synthetic:" + draws.choice([f"poisson?rate={rate_rps:g}", f"diurnal?rate={rate_rps:g}", spiky])
    drawn = {"types": types, "mean_ms": mean_ms, "tail": tail, "slack": slack, "attainment": attainment}
    drawn |= {"function": function, "per_item": per_item, "traffic": traffic}
    return {**drawn, "run": (traffic, path, attainment, DAY_S)}


def wide(number: int, folder: Path, hours: float) -> dict[str, object]:
    """Write service and traffic of a wide case; see `plain`."""
    draws, factors = random.Random(10_000 + number), TYPES | BURSTABLE
    markets = draws.choice(
        [["on-demand"], ["on-demand", "spot"], ["on-demand", "burstable"], ["on-demand", "spot", "burstable"]]
    )
    pool = sorted(factors if "burstable" in markets else TYPES)
    types = draws.sample(pool, draws.choice([1, 2, 3, 5]))
    if not TYPES.keys() & types:
        types.append("c7i.large")
    mean_ms, tail = draws.choice([8, 30, 90, 300]), draws.choice([1.2, 1.5, 2, 3])
    slack, attainment = draws.choice([2, 3, 5, 10]), draws.choice([0.9, 0.95, 0.98, 0.99, 0.999])
    function, per_item = draws.choice(["none", "late", "in time"]), draws.choice([0.1, 0.25, 0.6, 0.9])
    more: dict[str, dict[str, object]] = {"service": {}, "fleet": {"markets": markets}, "overflow": {}}
    for section, key, chance, values in (
        ("service", "routing", 0.3, ["least-completion", "fewest-in-flight"]),
        ("service", "batching", 0.15, ["paper"]),
        ("fleet", "min_instances", 0.2, [2, 3]),
        ("fleet", "warm_pool", 0.2, [1, 3]),
        ("overflow", "late", 0.2 if function != "none" else 0.0, ["refuse"]),
        ("fleet.committed", draws.choice(types), 0.25, [1, 2]),
    ):
        if draws.random() < chance:
            more.setdefault(section, {})[key] = draws.choice(values)
    slo_ms = mean_ms * max(map(factors.__getitem__, types)) * slack
    shapes = {name: factors[name] for name in types}
    path = write_service(folder, shapes, (mean_ms, tail, per_item), slo_ms, attainment, function, more)
    past_s = draws.choice([0.0, 0.5 * HOUR_S, 2.0 * HOUR_S, DAY_S, DAY_S, 3.0 * DAY_S])
    kind, rate_rps = draws.choice(KINDS), draws.choice([0.05, 0.5, 3.0, 15.0, 60.0, 200.0])
    traffic = folder / "traffic.csv"
    counts = counts_of(kind, rate_rps, past_s + hours * HOUR_S, draws)
    traffic.write_text("t_seconds,count\n" + "".join(f"{BIN_S * i:g},{n}\n" for i, n in enumerate(counts.tolist())))
    drawn = {"types": types, "mean_ms": mean_ms, "tail": tail, "slack": slack, "attainment": attainment}
    drawn |= {"function": function, "per_item": per_item, "more": more, "past_h": past_s / HOUR_S}
    return {**drawn, "traffic": f"{kind} {rate_rps:g}", "run": (str(traffic), path, attainment, past_s)}


KINDS = ("clocked", "steps", "growth", "outage", "week", "lumpy", "diurnal")


def counts_of(kind: str, rate_rps: float, until_s: float, draws: random.Random) -> np.ndarray:
    """Return Poisson counts by `BIN_S` around the rate of a kind of traffic."""
    random_rates = np.random.default_rng(draws.randrange(10**6))
    at_s = np.arange(0.0, until_s, BIN_S)
    day = np.sin(2.0 * np.pi * at_s / DAY_S)
    period_s, burst_s = draws.choice([300, 900, 3600]), draws.choice([20, 60, 300])
    hourly = np.repeat(random_rates.choice([0.2, 0.5, 1.0, 2.0], size=len(at_s) // 720 + 1), 720)[: len(at_s)]
    rates: Mapping[str, np.ndarray] = {
        "clocked": np.where(at_s % period_s < burst_s, 2.0, 0.2),
        "steps": hourly,
        "growth": 0.3 + 1.4 * at_s / until_s,
        "outage": np.where(abs(at_s % (DAY_S / 2.0) - 21_800.0) < 1_800.0, 0.0, 1.0 + 0.5 * day),
        "week": (1.0 + 0.6 * day) * np.where(at_s // DAY_S % 7.0 < 5.0, 1.0, 0.3),
        "lumpy": random_rates.gamma(4.0, 0.25, size=len(at_s)),
        "diurnal": 1.0 + 0.8 * day,
    }
    return random_rates.poisson(np.maximum(0.0, rate_rps * rates[kind]) * BIN_S)


def judged(number: int, hours: float, *, widely: bool = False) -> dict[str, object]:
    """Return both bills and shares of a case, and the verdict."""
    with tempfile.TemporaryDirectory() as name:
        case = wide(number, Path(name), hours) if widely else plain(number, Path(name))
        traffic, path, attainment, past_s = case.pop("run")  # type: ignore[misc]
        found = beside_best_fixed(traffic, path, attainment, hours, number, DEAREST, past_s)
        return {"case": number, **case, **found}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--wide", action="store_true")
    parser.add_argument("--cases", type=int, default=60)
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--hours", type=float, default=24.0)
    parser.add_argument("--out", type=Path, default=Path("out/random_services.json"))
    args = parser.parse_args()
    rows = []
    for number in range(args.first, args.first + args.cases):
        rows.append(judged(number, args.hours, widely=args.wide))
        print(*rows[-1].values(), sep=" | ", flush=True)
    verdicts = Counter(str(row["verdict"]) for row in rows)
    args.out.parent.mkdir(parents=True, exist_ok=True)
    args.out.write_text(json.dumps({"cases": rows, "verdicts": verdicts}, indent=1))
    print(f"{len(rows)} cases: {dict(verdicts)}")
    return int(bool(verdicts["missed"] or verdicts["dear"]))


if __name__ == "__main__":
    sys.exit(main())
