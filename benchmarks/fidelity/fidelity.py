"""Compare the testbed's processes with the simulator's kernel on the same traffic of two services, then inject faults.

    python benchmarks/fidelity/fidelity.py [--trace FILE] [--start S] [--scale X] [--calm 600] [--faulty 600]
                                  [--account generous|strict|new] [--out FILE]

The trace is cut: `--history` days of history, a gap of `--lead` seconds, then the load. Both worlds begin with only
that history, buy a fleet for its forecast, and have the fleet ready when the first request comes. The comparison skips
the first `--settle` seconds of the load. In the `--calm` seconds that follow it compares the dollars of instances and
functions, latency quantiles and the share of overflow, over the same seconds and requests in both worlds. It measures
queueing and control: prices come from one catalogue, service times are the profile's in both worlds, and no invoice is
involved. Then, for `--faulty` seconds, a worker is killed (SIGKILL), the cloud takes 40 % of the spot instances, and a
controller is killed; `fidelity_faults` checks the state afterwards. OUT.md, OUT.html and OUT.json have the results.
Exits with 1 if a figure misses its asked precision or a check fails.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import fidelity_faults as faults
import numpy as np
from fidelity_testbed import DAY_S, MINUTE_S, REPOSITORY, SERVICES, Cut, Looks, Testbed, cut

TRACE = REPOSITORY / "traces" / "diurnal_day_5s.csv.gz"
MARKETS = ("on_demand", "spot", "burstable", "functions")
# The asked precision: relative differences of bill and quantiles, the difference of the shares of overflow.
ASKED = {"bill": 0.02, "p50": 0.05, "p99": 0.05, "overflow": 0.02}

Row = dict[str, Any]


@dataclass(frozen=True)
class Part:
    """Requests in order of arrival, in one of the worlds. Seconds from the beginning of the load."""

    arrived_s: np.ndarray
    latency_s: np.ndarray
    by_function: np.ndarray

    def between(self, start_s: float, end_s: float) -> Part:
        inside = (self.arrived_s >= start_s) & (self.arrived_s < end_s)
        return Part(self.arrived_s[inside], self.latency_s[inside], self.by_function[inside])


@dataclass(frozen=True)
class World:
    """One service in the simulator: its requests, dollars up to a time, ready instances by the minute."""

    part: Part
    t_s: np.ndarray
    usd: np.ndarray
    ready: np.ndarray
    decisions: list[tuple[float, str, str]]

    def usd_between(self, start_s: float, end_s: float) -> float:
        return float(np.diff(np.interp([start_s, end_s], self.t_s, self.usd))[0])


def simulated(args: argparse.Namespace, part: Cut) -> dict[str, World]:
    """Simulate the same part in world 1; seconds count from the beginning of the load."""
    from mark.cloud.ec2.draws import service_seed
    from mark.simulation.inputs import open_inputs
    from mark.simulation.request import RunRequest
    from mark.simulation.run import Simulation

    told = {}
    for nth, (name, file) in enumerate(SERVICES.items()):
        request = RunRequest(
            trace=str(part.file), service=str(file), predictor=args.predictor, start_s=part.begin_s - args.lead,
            duration_s=args.lead + args.settle + args.calm, seed=service_seed(0, nth), cold_start=True,
            with_bound=False,
            forecast_seed=0,  # as controllers draw the paths of every service's forecast
        )  # fmt: skip
        inputs = open_inputs(request)
        chunks = inputs.trace.chunks(inputs.start_s, inputs.end_s, request.scale, request.seed)
        arrived_s = np.concatenate([times for times, _ in chunks])
        simulation = Simulation(inputs, "mark", args.predictor, keep=True)
        result = simulation.run()
        timeline, kept = result.timeline, simulation.recording
        # Dollars of a row are those at its end.
        ends_s = np.append(timeline.t_s[1:], inputs.duration_s)
        told[name] = World(
            Part(arrived_s - args.lead, kept.finish_s - arrived_s, kept.slot == -1),
            ends_s - args.lead,
            np.sum([timeline.spent_usd[market] for market in MARKETS], axis=0),
            np.sum([*timeline.instances.values(), np.zeros(len(timeline.t_s))], axis=0),
            [(one.at_s - args.lead, one.text, one.outcome) for one in result.decisions],
        )
    return told


def measured(rows: list[dict[str, str]]) -> Part:
    """Return the part that a load's log describes."""
    due_s, answered_s = (np.array([float(r[name]) for r in rows]) for name in ("due_s", "answered_s"))
    return Part(due_s, answered_s - due_s, np.array([r["answered_by"] == "function" for r in rows]))


def compared(
    testbed: dict[str, Part], worlds: dict[str, World], looks: Looks, begin_unix_s: dict[str, float],
    args: argparse.Namespace,
) -> list[Row]:  # fmt: skip
    """Return the compared figures of both worlds, over the calm part."""
    first = min(begin_unix_s.values())
    ends = [first + args.settle, first + args.settle + args.calm]
    from_unix_s, to_unix_s = (nearest(looks, end)[0] for end in ends)
    usd = usd_between(looks, from_unix_s, to_unix_s)
    simulated_usd = sum(
        worlds[name].usd_between(from_unix_s - begin_s, to_unix_s - begin_s) for name, begin_s in begin_unix_s.items()
    )
    rows = [row("all", "bill", simulated_usd, usd)]
    for name in testbed:
        parts = [one.between(args.settle, args.settle + args.calm) for one in (worlds[name].part, testbed[name])]
        for what, q in (("p50", 0.5), ("p99", 0.99)):
            rows.append(row(name, what, *(1e3 * float(np.nanquantile(part.latency_s, q)) for part in parts)))
        shares = [float(part.by_function.mean()) for part in parts]
        rows.append(row(name, "overflow", *shares, absolute=True))
    return rows


def usd_between(looks: Looks, from_unix_s: float, to_unix_s: float) -> float:
    """Return the dollars of all instances and functions, by the testbed's looks that are nearest to the two times."""
    (_, before), (_, after) = (nearest(looks, end) for end in (from_unix_s, to_unix_s))
    return float(sum(after["bill_usd"][market] - before["bill_usd"][market] for market in MARKETS))


def nearest(looks: Looks, at_unix_s: float) -> tuple[float, dict[str, Any]]:
    return min(looks, key=lambda look: abs(look[0] - at_unix_s))


def row(service: str, what: str, simulation: float, testbed: float, *, absolute: bool = False) -> Row:
    off = testbed - simulation if absolute else testbed / simulation - 1.0
    return {"service": service, "what": what, "simulated": simulation, "testbed": testbed, "off": off,
            "asked": ASKED[what], "kept": abs(off) <= ASKED[what]}  # fmt: skip


def table(rows: list[Row]) -> str:
    lines = ["| service | what | simulated | testbed | off | asked |", "|---|---|--:|--:|--:|--:|"]
    for r in rows:
        off = f"{100 * r['off']:+.1f} {'points' if r['what'] == 'overflow' else '%'}"
        digits = 1 if r["what"].startswith("p") else 4
        worlds = f"{r['simulated']:.{digits}f} | {r['testbed']:.{digits}f}"
        lines.append(f"| {r['service']} | {r['what']} | {worlds} | {off} | {100 * r['asked']:.0f} |")
    return "\n".join(lines)


def minutes(
    testbed: dict[str, Part], worlds: dict[str, World], looks: Looks, begin_unix_s: dict[str, float],
    args: argparse.Namespace,
) -> str:  # fmt: skip
    """Return a table by minute, simulated / testbed: running instances, p50, and the share of functions in percent."""
    lines = ["| minute | " + " | ".join(f"{n}: instances | p50 ms | functions %" for n in testbed) + " |"]
    lines.append("|--:|" + "--:|--:|--:|" * len(testbed))
    for minute in range(round((args.settle + args.calm) / MINUTE_S)):
        cells = []
        for name, part in testbed.items():
            world, begin_s = worlds[name], minute * MINUTE_S
            _, look = nearest(looks, begin_unix_s[name] + begin_s)
            there = sum(i["service"] == name and i["state"] == "running" for i in look["fleet"])
            row_of = int(np.argmin(np.abs(world.t_s - begin_s - MINUTE_S)))
            cells.append(f"{world.ready[row_of]:.0f} / {there}")
            both = [one.between(begin_s, begin_s + MINUTE_S) for one in (world.part, part)]
            cells.append(" / ".join(f"{1e3 * np.nanmedian(one.latency_s):.0f}" for one in both))
            cells.append(" / ".join(f"{100 * one.by_function.mean():.1f}" for one in both))
        lines.append(f"| {minute + 1} | " + " | ".join(cells) + " |")
    return "\n".join(lines)


def run(args: argparse.Namespace, folder: Path) -> int:
    part = cut(args, folder)
    worlds = simulated(args, part)
    with Testbed(folder, args, part) as testbed:
        begin_unix_s = {name: origin + args.lead for name, origin in testbed.origins().items()}
        first = min(begin_unix_s.values())
        touching = testbed.touch(first)
        watching = testbed.watch(first)
        done = faults.plan(testbed, first + args.settle + args.calm, args.faulty)
        told = testbed.load(begin_unix_s)
        for thread in (touching, watching, *done.timers):
            thread.join()
        logs = {name: faults.log_of(folder, name) for name in SERVICES}
        decisions = {name: testbed.asked(f"/api/v1/services/{name}/decisions?count=500") for name in SERVICES}
        wrong = faults.check(testbed, told, logs, done.faults, args)
    parts = {name: measured(log) for name, log in logs.items()}
    rows = compared(parts, worlds, testbed.looks, begin_unix_s, args)
    text = table(rows) + "\n\n" + minutes(parts, worlds, testbed.looks, begin_unix_s, args)
    print(text, *(wrong or ["everything else as it should be"]), sep="\n")
    args.out.with_suffix(".md").write_text("\n".join([text, "", *wrong]) + "\n")
    data = {
        "rows": rows, "wrong": wrong, "loads": told, "faults": done.faults, "begin_unix_s": begin_unix_s,
        "looks": testbed.looks, "busy": testbed.busy, "decisions": decisions,
        "simulated": {name: world.decisions for name, world in worlds.items()},
    }  # fmt: skip
    args.out.with_suffix(".json").write_text(json.dumps(data, indent=1) + "\n")
    plot(parts, worlds, args)
    return 0 if all(r["kept"] for r in rows) and not wrong else 1


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--trace", type=lambda text: Path(text).resolve(), default=TRACE)
    parser.add_argument(
        "--start", type=float, default=0.75 * DAY_S, help="second of the trace at which the load begins"
    )
    parser.add_argument("--scale", type=float, default=0.16)
    parser.add_argument("--history", type=float, default=2.0, metavar="DAYS")
    parser.add_argument("--lead", type=float, default=300.0, help="seconds to make the first fleet ready")
    parser.add_argument("--settle", type=float, default=480.0)
    parser.add_argument("--calm", type=float, default=600.0)
    parser.add_argument("--faulty", type=float, default=600.0, help="seconds with faults; 0: no faults")
    parser.add_argument("--predictor", default="auto")
    parser.add_argument("--account", default="generous", help="limits of the testbed's AWS, as in `mark testbed up`")
    parser.add_argument("--recovery", type=float, default=60.0, help="seconds after a fault that do not count")
    parser.add_argument("--out", type=Path, default=Path("out/fidelity"))
    parser.add_argument("--keep", type=Path, help="folder for all logs")
    args = parser.parse_args()
    args.out.parent.mkdir(parents=True, exist_ok=True)
    if args.keep is not None:
        args.keep.mkdir(parents=True)
        return run(args, args.keep)
    with tempfile.TemporaryDirectory(prefix="mark-fidelity-") as name:
        return run(args, Path(name))


def plot(testbed: dict[str, Part], worlds: dict[str, World], args: argparse.Namespace) -> None:
    """Plot latency by quantile in both worlds."""
    import plotly.graph_objects as go
    from plotly.subplots import make_subplots

    quantiles = np.arange(1, 100) / 100
    figure = make_subplots(rows=1, cols=len(testbed), subplot_titles=list(testbed), shared_yaxes=True)
    simulation = {name: world.part for name, world in worlds.items()}
    for column, name in enumerate(testbed, start=1):
        for world, parts, colour in (("simulated", simulation, "#1f77b4"), ("testbed", testbed, "#d62728")):
            part = parts[name].between(args.settle, args.settle + args.calm)
            line = go.Scatter(
                x=100 * quantiles, y=1e3 * np.nanquantile(part.latency_s, quantiles), name=world, legendgroup=world,
                showlegend=column == 1, line={"color": colour},
            )  # fmt: skip
            figure.add_trace(line, row=1, col=column)
    figure.update_xaxes(title="percentile")
    figure.update_yaxes(title="latency, ms", col=1)
    figure.update_layout(title="Latency of a service: simulated and on the testbed", template="plotly_white")
    figure.write_html(args.out.with_suffix(".html"), include_plotlyjs=True)


if __name__ == "__main__":
    sys.exit(main())
