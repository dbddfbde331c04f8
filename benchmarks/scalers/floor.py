"""A floor that cannot hurt: HPA and KEDA alone, above mark's floor, and above the best static minimum.

    python benchmarks/scalers/floor.py --traces FOLDER [--hours 24] [--worlds 12] [--workers 2] [--out out/floor.json]

On each part of a trace a scaler runs with a target at which a replica has 70 % of its capacity: alone, above the floor,
and above the floor while its exporter fails (an hour's crash, Prometheus down for an hour with the last number kept for
three minutes, NaN for ten minutes, a clock set an hour ahead and back). Failing, the floor must not add 0.05 points of
late requests. The best static minimum is the smallest one with which the scaler alone has no more late requests than
above the floor; what it costs more is the floor's saving. Every boot takes its mean, because runs that launch the same
instances would otherwise draw other boot times, and a burst answers that with more late requests than a floor ever
does. Exits 1 where a floor hurts.
"""

from __future__ import annotations

import argparse
import json
import sys
from concurrent.futures import ProcessPoolExecutor
from dataclasses import replace
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any

from leaderboard import WORLDS
from worlds import HOUR_S, World, late_share, run, scaler

from mark.planning.policies.floored import Outage
from mark.simulation.inputs import Inputs
from mark.simulation.result import SimulationResult

SHARE = 0.7
KINDS = ("hpa", "keda")
HARM = 0.0005  # of all requests
MOST = 512  # replicas of a static minimum


def outages(hours: float) -> tuple[Outage, ...]:
    """Return the exporter's faults, spread over the part and shortened to it."""
    end_s = hours * HOUR_S
    hour_s = min(HOUR_S, end_s / 8.0)
    return (
        Outage(0.10 * end_s, 0.10 * end_s + hour_s),  # a crash
        Outage(0.35 * end_s, 0.35 * end_s + hour_s, 180.0),  # Prometheus down: an old number is shown three ticks long
        Outage(0.60 * end_s, 0.60 * end_s + 600.0),  # NaN
        Outage(0.75 * end_s, 0.75 * end_s + 60.0),  # the clock is an hour ahead: the number looks old for a tick
        Outage(0.85 * end_s, 0.85 * end_s + 600.0, 600.0),  # and set back: an old number looks fresh
    )


def summed(result: SimulationResult) -> dict[str, float]:
    return {"usd": result.bill.total, "late": late_share(result)}


def best_static(inputs: Inputs, kind: str, late: float, share: float) -> tuple[int, dict[str, float]] | None:
    """Return the smallest static minimum with no more late requests than `late`; None if it exceeds `MOST`."""

    def at(least: int) -> dict[str, float]:
        return summed(run(scaler(inputs, kind, share, least)))

    low, high = 0, 1
    found = at(high)
    while found["late"] > late:
        if high >= MOST:
            return None
        low, high = high, min(MOST, 2 * high)
        found = at(high)
    while high - low > 1:
        middle = (low + high) // 2
        tried = at(middle)
        low, high, found = (low, middle, tried) if tried["late"] <= late else (middle, high, found)
    return high, found


def on_world(world: World, folder: Path, hours: float, share: float = SHARE) -> list[dict[str, Any]]:
    inputs = world.inputs(folder, hours, certain_boots=True)
    inputs = replace(inputs, request=replace(inputs.request, with_bound=False))
    rows = []
    for kind in KINDS:
        own = scaler(inputs, kind, share)
        alone, above = summed(run(own)), summed(run(own, with_floor=True))
        failing = summed(run(own, with_floor=True, outages=outages(hours)))
        static = best_static(inputs, kind, above["late"], share)
        rows.append(
            {
                "world": world.label,
                "scaler": kind,
                "alone": alone,
                "floor": above,
                "failing": failing,
                "static": None if static is None else {"min": static[0], **static[1]},
                "harm": max(above["late"], failing["late"]) - alone["late"],
                "saving": None if static is None else 1.0 - above["usd"] / static[1]["usd"],
            }
        )
    return rows


def table(rows: list[dict[str, Any]]) -> str:
    text = [
        "| trace | scaler | alone | with the floor | floor failing | best static minimum | saving |",
        "|---|---|--:|--:|--:|--:|--:|",
    ]
    for row in rows:
        alone, floor, failing, static = (row[key] for key in ("alone", "floor", "failing", "static"))
        said = [f"${one['usd']:.2f}, {100 * one['late']:.2f} %" for one in (alone, floor, failing)]
        said.append("none" if static is None else f"${static['usd']:.2f} (min {static['min']})")
        said.append("" if row["saving"] is None else f"{100 * row['saving']:.0f} %")
        text.append(f"| {row['world']} | {row['scaler']} | {' | '.join(said)} |")
    return "\n".join(text) + "\n"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--traces", type=Path, required=True, help="the folder of traces")
    parser.add_argument("--hours", type=float, default=24.0)
    parser.add_argument("--worlds", type=int, default=len(WORLDS), help="the first so many parts")
    parser.add_argument("--share", type=float, default=SHARE, help="the target, as a share of a replica's capacity")
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--out", type=Path)
    args = parser.parse_args()
    rows: list[dict[str, Any]] = []
    with ProcessPoolExecutor(args.workers) as pool:
        one = partial(on_world, folder=args.traces, hours=args.hours, share=args.share)
        for found in pool.map(one, WORLDS[: args.worlds]):
            rows += found
            print(table(found), flush=True)
    savings = [row["saving"] for row in rows if row["saving"] is not None]
    worst = max(row["harm"] for row in rows)
    print(f"late requests that a floor added: {100 * worst:.3f} points at most")
    print(f"saving over the best static minimum: {100 * median(savings):.0f} % in the median of {len(savings)}")
    if args.out is not None:
        args.out.write_text(json.dumps({"hours": args.hours, "share": args.share, "rows": rows}, indent=1) + "\n")
    sys.exit(1 if worst > HARM else 0)


if __name__ == "__main__":
    main()
