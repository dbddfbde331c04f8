"""Check that a floor does no harm: HPA and KEDA alone, above mark's floor, and above the best static minimum.

    python benchmarks/scalers/floor.py --traces FOLDER [--hours 24] [--worlds 40] [--kinds keda] [--workers 2]
            [--out docs/measured/floor.json] [--table FILE.md]

On each part of a trace a scaler runs with a target at which a replica has 70 % of its capacity: alone, above the floor,
and above the floor while its exporter fails (an hour's crash, Prometheus down for an hour with the last number kept for
three minutes, NaN for ten minutes, a clock set an hour ahead and back). The floor must not add 0.05 points of late
requests, even if it fails. The best static minimum is the smallest number of replicas with which the scaler has no more
late requests than above the floor; its extra cost is the floor's saving. Every boot takes its mean time. Otherwise runs
that launch the same instances would draw different boot times, and in a burst these add more late requests than a floor
ever does. Exits with 1 if a floor does harm.
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

from floored import Outage
from worlds import HOUR_S, World, late_share, run, scaler

from mark.simulation.inputs import Inputs
from mark.simulation.result import SimulationResult

SHARE = 0.7
KINDS = ("hpa", "keda")
# Forty days of five traces. The traces take turns, so that even the first few days are of different traces.
DAYS = tuple(
    World(name, scale, day + turn)
    for turn in range(8)
    for name, scale, day in (
        ("twitter_stream_2021_d00_14_60s.csv.gz", 3.0, 4.4),
        ("worldcup98_apr30_jun30_60s.csv.gz", 0.2, 40.4),
        ("nasa_1995_07_60s.csv.gz", 120.0, 5.4),
        ("twitter_ticker_AMZN_300s.csv.gz", 400.0, 10.4),
        ("twitter_ticker_FB_300s.csv.gz", 1500.0, 20.4),
    )
)
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


def best_static(inputs: Inputs, kind: str, late: float, share: float, most: int) -> tuple[int, dict[str, float]] | None:
    """Return the smallest static minimum with no more late requests than `late`; None if it exceeds `MOST`.

    The search begins with `most`, the most replicas that the scaler had.
    """

    def at(least: int) -> dict[str, float]:
        return summed(run(scaler(inputs, kind, share, least)))

    low, high = 0, max(1, most)
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


def on_world(
    world: World, folder: Path, hours: float, share: float = SHARE, kinds: tuple[str, ...] = KINDS
) -> list[dict[str, Any]]:
    inputs = world.inputs(folder, hours, certain_boots=True)
    inputs = replace(inputs, request=replace(inputs.request, with_bound=False))
    rows = []
    for kind in kinds:
        own = scaler(inputs, kind, share)
        by_itself = run(own)
        alone, above = summed(by_itself), summed(run(own, with_floor=True))
        failing = summed(run(own, with_floor=True, outages=outages(hours)))
        static = best_static(inputs, kind, above["late"], share, by_itself.fleet.peak_instances)
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


def table(rows: list[dict[str, Any]], hours: float) -> str:
    """Return a line for each trace and scaler: medians, and the most late requests that a floor added."""
    groups: dict[tuple[str, str], list[dict[str, Any]]] = {}
    for row in rows:
        groups.setdefault((row["world"].partition(" day ")[0], row["scaler"]), []).append(row)
    text = [
        f"{len(rows)} parts of {hours:g} hours. Medians, but the most points of late requests that a floor added:",
        "",
        "| trace | days | scaler | late alone | with the floor | points added at most | best static minimum | saving |",
        "|---|---|---|--:|--:|--:|--:|--:|",
    ]
    for (trace, kind), some in [*groups.items(), (("all", "all"), rows)]:
        days = "" if trace == "all" else ", ".join(one["world"].partition(" day ")[2] for one in some)
        alone, floor = (100 * median(one[key]["late"] for one in some) for key in ("alone", "floor"))
        added = 100 * max(one["harm"] for one in some)
        known = [one for one in some if one["static"] is not None]
        least = f"{median(one['static']['min'] for one in known):g}" if known and trace != "all" else ""
        saving = f"{round(100 * median(one['saving'] for one in known))} %" if known else ""
        text.append(f"| {trace} | {days} | {kind} | {alone:.2f} % | {floor:.2f} % | {added:.3f} | {least} | {saving} |")
    return "\n".join(text) + "\n"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--traces", type=Path, required=True, help="the folder of traces")
    parser.add_argument("--hours", type=float, default=24.0)
    parser.add_argument("--worlds", type=int, default=len(DAYS), help="number of days, from the first on")
    parser.add_argument("--kinds", default=",".join(KINDS), help="the scalers")
    parser.add_argument("--share", type=float, default=SHARE, help="the target, as a share of a replica's capacity")
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--out", type=Path)
    parser.add_argument("--table", type=Path)
    args = parser.parse_args()
    rows: list[dict[str, Any]] = []
    with ProcessPoolExecutor(args.workers) as pool:
        one = partial(
            on_world, folder=args.traces, hours=args.hours, share=args.share, kinds=tuple(args.kinds.split(","))
        )
        for found in pool.map(one, DAYS[: args.worlds]):
            rows += found
            # After each day, because a run takes hours and may be stopped.
            for path, content in (
                (args.out, json.dumps({"hours": args.hours, "share": args.share, "rows": rows}, indent=1) + "\n"),
                (args.table, table(rows, args.hours)),
            ):
                if path is not None:
                    path.write_text(content)
            print(found[0]["world"], flush=True)
    print(table(rows, args.hours))
    sys.exit(1 if max(row["harm"] for row in rows) > HARM else 0)


if __name__ == "__main__":
    main()
