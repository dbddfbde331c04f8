"""Compare other projects' autoscalers with `mark` on the same parts of traces: dollars over the bound, and lateness.

    python benchmarks/scalers/leaderboard.py --traces FOLDER [--hours 24] [--worlds 12] [--workers 2]
            [--out docs/measured/scalers.json] [--table FILE.md] [--svg docs/scalers.svg]

Every scaler has one instance type and no functions (service.toml), so that only decisions differ. Each scaler runs with
targets at which a replica has 30, 50 and 70 % of its capacity. Its row on a trace is the cheapest run of the three that
keeps the promise, or else the run with the fewest late requests: the choice is made in hindsight, in its favour. In a
Python that has `ray[serve]`, Ray Serve is Ray's own policy, called on a virtual clock.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
from concurrent.futures import ProcessPoolExecutor
from dataclasses import replace
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any

from ray_decisions import RayPolicy
from worlds import World, late_share, run, scaler

from mark.domain.scaler import RaySettings
from mark.planning.policies.as_is import as_is
from mark.planning.policies.pod_scaler import PodScaler, RayRule
from mark.planning.policies.scalers import Leaning
from mark.simulation.inputs import Inputs
from mark.simulation.result import SimulationResult
from mark.simulation.run import Simulation

SHARES = (0.3, 0.5, 0.7)
SCALERS = {"HPA": "hpa", "KEDA": "keda", "Knative": "knative", "Ray Serve": "ray", "EC2 target tracking": "asg"}
# Each begins at 0.4 of a day, so that a part of a few hours is not a night.
WORLDS = (
    World("twitter_stream_2021_d00_14_60s.csv.gz", 3.0, 4.4),
    World("worldcup98_apr30_jun30_60s.csv.gz", 0.2, 40.4),
    World("nasa_1995_07_60s.csv.gz", 120.0, 5.4),
    World("twitter_prod_d0_6_60s.csv.gz", 60.0, 3.4),
    World("elb_requests_d00_09_300s.csv.gz", 400.0, 5.4),
    World("twitter_ticker_AMZN_300s.csv.gz", 400.0, 10.4),
    World("nyc_taxi_d000_143_1800s.csv.gz", 12.0, 20.4),
    World("twitter_ticker_FB_300s.csv.gz", 1500.0, 20.4),
    World("twitter_stream_2021_d00_14_60s.csv.gz", 3.0, 10.4),
    World("worldcup98_apr30_jun30_60s.csv.gz", 0.1, 50.4),
    World("nasa_1995_07_60s.csv.gz", 120.0, 12.4),
    World("twitter_ticker_AAPL_300s.csv.gz", 300.0, 20.4),
)  # fmt: skip


def row(result: SimulationResult, share: float | None = None) -> dict[str, Any]:
    return {"usd": result.bill.total, "late": late_share(result), "share": share, "launched": result.fleet.launched}


def best(rows: list[dict[str, Any]], allowed: float) -> dict[str, Any]:
    """Return the cheapest row that keeps the promise, or else the row with the fewest late requests."""
    keeping = [one for one in rows if one["late"] <= allowed]
    return min(keeping, key=lambda one: one["usd"]) if keeping else min(rows, key=lambda one: one["late"])


def rays_own(inputs: Inputs) -> SimulationResult:
    """Run Ray's own policy instead of ours, if it is installed."""
    own = as_is(inputs.resolved, inputs.evaluated)
    assert isinstance(own.planner, PodScaler)
    rule = own.planner.rule
    assert isinstance(rule, RayRule)
    ray = RayPolicy(
        min_replicas=own.planner.min_instances,
        max_replicas=own.planner.max_instances,
        target_ongoing_requests=rule.target,
        upscale_delay_s=rule.settings.upscale_delay_s,
        downscale_delay_s=rule.settings.downscale_delay_s,
    )

    def scaled(
        now_s: float, ongoing: float, running: int, target: int, per_replica: float, memory: Leaning, of: RaySettings
    ) -> tuple[int, Leaning]:
        return ray.decide(now_s, ongoing, running, target), memory

    planner = replace(own.planner, rule=replace(rule, scaled=scaled))
    return Simulation(inputs, replace(own, planner=planner)).run()


def on_world(world: World, folder: Path, hours: float, shares: tuple[float, ...]) -> dict[str, Any]:
    inputs = world.inputs(folder, hours)
    allowed = 1.0 - inputs.service.slo.attainment
    oracle = Simulation(inputs, "oracle").run()
    quick = replace(inputs, request=replace(inputs.request, with_bound=False))
    rows = {"oracle": row(oracle), "mark": row(Simulation(quick, "mark").run())}
    has_ray = importlib.util.find_spec("ray") is not None
    for name, kind in SCALERS.items():
        found = []
        for share in shares:
            own = scaler(quick, kind, share)
            found.append(row(rays_own(own) if kind == "ray" and has_ray else run(own), share))
        rows[name] = best(found, allowed)
    floors = [row(run(scaler(quick, "hpa", share), with_floor=True), share) for share in shares]
    rows["HPA with mark's floor"] = best(floors, allowed)
    bound = oracle.bound_usd
    requests = oracle.requests.total
    return {"world": world.label, "requests": requests, "bound_usd": bound, "rays_own": has_ray, "rows": rows}


def days(found: list[dict[str, Any]], hours: float) -> str:
    """Return a sentence that names the parts of the traces."""
    parts = ", ".join(one["world"] for one in found)
    requests = sum(one["requests"] for one in found) / 1e6
    some = "1 part" if len(found) == 1 else f"{len(found)} parts"
    return f"{some} of {hours:g} hours with {requests:.1f} million requests in all: {parts}."


def table(found: list[dict[str, Any]], allowed: float = 0.02) -> str:
    """Return a line for each scaler: those that keep the promise most often first, then the cheaper ones."""
    lines = []
    for name in found[0]["rows"]:
        rows = [(one["rows"][name], one["bound_usd"]) for one in found]
        kept = sum(row["late"] <= allowed for row, _ in rows)
        over = [row["usd"] / bound for row, bound in rows if bound]
        late = [100.0 * row["late"] for row, _ in rows]
        lines.append((-kept, median(over), name, f"{kept} of {len(rows)}", median(late), max(late)))
    text = ["| scaler | promise kept | bill / bound | late | worst |", "|---|--:|--:|--:|--:|"]
    for _, over, name, kept, late, worst in sorted(lines):
        text.append(f"| {name} | {kept} | {over:.2f} | {late:.2f} % | {worst:.1f} % |")
    return "\n".join(text) + "\n"


def svg(found: list[dict[str, Any]]) -> str:
    """Return a chart: dollars over the bound to the right, late requests upwards, medians on scales of powers."""
    points = []
    for name in found[0]["rows"]:
        over = median(one["rows"][name]["usd"] / one["bound_usd"] for one in found if one["bound_usd"])
        late = median(100.0 * one["rows"][name]["late"] for one in found)
        points.append((name, over, late))
    most_over, most_late = max(2.0, *(p[1] for p in points)), max(4.0, *(p[2] for p in points))

    def at(over: float, late: float) -> tuple[float, float]:
        return 60 + 480 * ((over - 1.0) / (most_over - 1.0)) ** 0.5, 330 - 290 * (max(0.0, late) / most_late) ** 0.5

    parts = [
        '<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 720 380" font-family="sans-serif" font-size="12">',
        '<rect width="720" height="380" fill="white"/>',
        '<path d="M60 30V330H560" fill="none" stroke="#444"/>',
        '<text x="60" y="365">dollars over the proven bound (median)</text>',
        '<text x="60" y="20">late requests (median)</text>',
    ]
    for over in (1.0, 1.25, 1.5, 2.0, 3.0, 5.0):
        if over <= most_over:
            x, _ = at(over, 0.0)
            parts.append(f'<text x="{x:.0f}" y="347" text-anchor="middle" fill="#666">{over:g}</text>')
    for late in (0.5, 2.0, 5.0, 10.0, 20.0):
        if late <= most_late:
            _, y = at(1.0, late)
            parts.append(f'<text x="52" y="{y + 4:.0f}" text-anchor="end" fill="#666">{late:g} %</text>')
    _, y = at(1.0, 2.0)
    parts.append(f'<path d="M60 {y:.0f}H560" stroke="#b33" stroke-dasharray="4"/>')
    parts.append(f'<text x="565" y="{y + 4:.0f}" fill="#b33">the promise: 2 %</text>')
    labels: list[tuple[float, float]] = []
    for name, over, late in points:
        x, y = at(over, late)
        above = y + 4.0
        while any(abs(x - left) < 140.0 and abs(above - other) < 13.0 for left, other in labels):
            above -= 13.0  # otherwise labels of near points would cover each other
        labels.append((x, above))
        colour = "#06c" if "mark" in name or name == "oracle" else "#444"
        parts.append(f'<circle cx="{x:.0f}" cy="{y:.0f}" r="5" fill="{colour}"/>')
        parts.append(f'<text x="{x + 8:.0f}" y="{above:.0f}" fill="{colour}">{name}</text>')
    return "\n".join([*parts, "</svg>"]) + "\n"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--traces", type=Path, required=True, help="the folder of traces")
    parser.add_argument("--hours", type=float, default=24.0)
    parser.add_argument("--worlds", type=int, default=len(WORLDS), help="number of parts, from the first on")
    parser.add_argument(
        "--shares", default=",".join(map(str, SHARES)), help="targets as shares of a replica's capacity"
    )
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--out", type=Path)
    parser.add_argument("--table", type=Path)
    parser.add_argument("--svg", type=Path)
    args = parser.parse_args()
    shares = tuple(float(share) for share in args.shares.split(","))
    one = partial(on_world, folder=args.traces, hours=args.hours, shares=shares)
    found = []
    with ProcessPoolExecutor(args.workers) as pool:
        for result in pool.map(one, WORLDS[: args.worlds]):
            found.append(result)
            # After each part, because a run takes hours and may be stopped.
            for path, content in (
                (args.out, json.dumps({"hours": args.hours, "worlds": found}, indent=1) + "\n"),
                (args.table, f"{days(found, args.hours)}\n\n{table(found)}"),
                (args.svg, svg(found)),
            ):
                if path is not None:
                    path.write_text(content)
            print(result["world"], flush=True)
    print(table(found))


if __name__ == "__main__":
    main()
