"""The testbed beside the simulator: the same traffic, two services, processes against the kernel; then with faults.

    python benchmarks/fidelity.py [--trace FILE] [--start S] [--scale X] [--calm 600] [--faulty 600] [--out FILE]

Both worlds begin with nothing (cold start) and without history. The first `--settle` seconds are not looked at; of the
`--calm` seconds that follow, the dollars of instances and functions, latency quantiles and the share of overflow are
compared. It measures queueing and control: prices come from one catalogue, service times are the profile's in both, and
no invoice is involved. Then, for `--faulty` seconds, a worker is killed (SIGKILL), the cloud takes 40 % of the spot
instances, and a controller is killed; it is checked that every request was answered exactly once, by the client's log
and the servers', that nothing was launched twice or left behind, that the controller's bill is the meter's to the cent,
and that the SLO was kept outside `--recovery` seconds after each fault. OUT.md, OUT.html and OUT.json have the results;
exits 1 where something is not as asked.
"""

from __future__ import annotations

import argparse
import csv
import json
import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
import urllib.request
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import psutil

REPOSITORY = Path(__file__).resolve().parent.parent
SERVICES = {name: REPOSITORY / "examples" / "testbed" / f"{name}.toml" for name in ("words", "image")}
MARK = [sys.executable, "-m", "mark.cli.main"]
DAY_7_18H_S = 604_800 + 18 * 3600
TRACE = REPOSITORY / "traces" / "diurnal_day_5s.csv.gz"
# (what, asked): relative differences of bill and quantiles, the difference of the shares of overflow.
MARKETS = ("on_demand", "spot", "burstable", "functions")
ASKED = {"bill": 0.03, "p50": 0.10, "p99": 0.10, "overflow": 0.02}


Row = dict[str, Any]


@dataclass(frozen=True)
class Part:
    """Requests in order of arrival, in one of the worlds. `usd` is of the calm part."""

    arrived_s: np.ndarray
    latency_s: np.ndarray
    by_function: np.ndarray
    usd: float

    def between(self, start_s: float, end_s: float) -> Part:
        inside = (self.arrived_s >= start_s) & (self.arrived_s < end_s)
        return Part(self.arrived_s[inside], self.latency_s[inside], self.by_function[inside], self.usd)


def mark(*arguments: str, folder: Path) -> str:
    """The output of a command; its error is ours."""
    done = subprocess.run([*MARK, *arguments], cwd=folder, capture_output=True, text=True, check=False)
    if done.returncode:
        raise SystemExit(f"mark {' '.join(arguments)}: {done.returncode}: {done.stderr.strip()[-500:]}")
    return done.stdout


class Testbed:
    """One run of all services; a context."""

    def __init__(self, folder: Path, args: argparse.Namespace, controllers: int) -> None:
        self.folder, self.args, self.controllers = folder, args, controllers
        self.seconds = args.settle + args.calm + args.faulty

    def __enter__(self) -> Testbed:
        files = [str(file) for file in SERVICES.values()]
        mark("testbed", "up", *files, "--seed", "1", "--log-requests", "--controllers", str(self.controllers),
             "--predictor", self.args.predictor, folder=self.folder)  # fmt: skip
        return self

    def __exit__(self, *_: object) -> None:
        mark("testbed", "down", "--keep-logs", folder=self.folder)

    def status(self) -> dict[str, Any]:
        return dict(json.loads(mark("testbed", "status", "--json", "-", folder=self.folder)))

    def load(self) -> dict[str, dict[str, Any]]:
        """All services at once: what each load printed."""
        part = ["--start", str(self.args.start), "--duration", str(self.seconds), "--scale", str(self.args.scale)]
        running = {
            name: subprocess.Popen(
                [*MARK, "testbed", "load", str(self.args.trace), "--service", name, *part, "--seed", str(seed),
                 "--cold-start", "--json", "-", "--log", f"{name}.csv"],
                cwd=self.folder, stdout=subprocess.PIPE, text=True,
            )
            for seed, name in enumerate(SERVICES)
        }  # fmt: skip
        told = {}
        for name, process in running.items():
            out, _ = process.communicate(timeout=self.seconds + 300)
            if process.returncode:
                raise SystemExit(f"the load of {name} failed")
            told[name] = json.loads(out)
        return told


def simulated(args: argparse.Namespace) -> dict[str, Part]:
    """The same part in world 1."""
    from mark.simulation.inputs import open_inputs
    from mark.simulation.request import RunRequest
    from mark.simulation.run import Simulation

    told = {}
    for seed, (name, file) in enumerate(SERVICES.items()):
        request = RunRequest(
            trace=str(args.trace), service=str(file), predictor=args.predictor, scale=args.scale, start_s=args.start,
            duration_s=args.settle + args.calm, train_s=0.0, seed=seed, cold_start=True, with_bound=False,
        )  # fmt: skip
        inputs = open_inputs(request)
        chunks = inputs.trace.chunks(inputs.start_s, inputs.end_s, request.scale, request.seed)
        arrived_s = np.concatenate([times for times, _ in chunks])
        simulation = Simulation(inputs, "mark", args.predictor, record=len(arrived_s))
        timeline = simulation.run().timeline
        kept = simulation.recording
        usd = sum(timeline.spent_usd[market] for market in MARKETS)
        told[name] = Part(
            arrived_s,
            kept.finish_s - arrived_s,
            kept.slot == -1,
            float(np.interp(args.settle + args.calm, timeline.t_s, usd) - np.interp(args.settle, timeline.t_s, usd)),
        )
    return told


def measured(rows: list[dict[str, str]]) -> Part:
    """What a load's log says; nothing of dollars."""
    due_s, answered_s = (np.array([float(r[name]) for r in rows]) for name in ("due_s", "answered_s"))
    return Part(due_s, answered_s - due_s, np.array([r["answered_by"] == "function" for r in rows]), 0.0)


def compared(testbed: dict[str, Part], simulation: dict[str, Part], usd: float, args: argparse.Namespace) -> list[Row]:
    """What is asked about, in both worlds, over the calm part."""
    rows = [row("all", "bill", sum(one.usd for one in simulation.values()), usd)]
    for name in testbed:
        parts = [one.between(args.settle, args.settle + args.calm) for one in (simulation[name], testbed[name])]
        for what, q in (("p50", 0.5), ("p99", 0.99)):
            rows.append(row(name, what, *(1e3 * float(np.nanquantile(part.latency_s, q)) for part in parts)))
        shares = [float(part.by_function.mean()) for part in parts]
        rows.append(row(name, "overflow", *shares, absolute=True))
    return rows


def row(service: str, what: str, simulation: float, testbed: float, *, absolute: bool = False) -> Row:
    off = testbed - simulation if absolute else testbed / simulation - 1.0
    return {"service": service, "what": what, "simulated": simulation, "testbed": testbed, "off": off,
            "asked": ASKED[what], "kept": abs(off) <= ASKED[what]}  # fmt: skip


def loaded(testbed: Testbed, args: argparse.Namespace) -> tuple[dict[str, Any], list[tuple[float, str]], list[Any]]:
    """Load, at last with faults: what loads printed, (Unix time, what) of faults, the status around the calm part."""
    faults: list[tuple[float, str]] = []
    looks: list[Any] = []

    def fault(what: str, act: Callable[[], object]) -> None:
        faults.append((time.time(), what))
        print(what, flush=True)
        act()

    def kill_controller() -> None:
        os.kill(next(c["pid"] for c in testbed.status()["controllers"] if c["pid"]), signal.SIGKILL)

    def interrupt() -> None:
        mark("testbed", "interrupt", "--share", "0.4", "--seed", "1", folder=testbed.folder)

    calm_s = args.settle + args.calm
    plan: list[tuple[float, Callable[[], object]]] = [
        (args.settle, lambda: looks.append(testbed.status())),
        (calm_s, lambda: looks.append(testbed.status())),
    ]
    if args.faulty:
        plan += [
            (calm_s + 0.15 * args.faulty, lambda: fault("a worker is killed", lambda: kill_worker(testbed))),
            (calm_s + 0.35 * args.faulty, lambda: fault("40 % of spot is interrupted", interrupt)),
            (calm_s + 0.7 * args.faulty, lambda: fault("a controller is killed", kill_controller)),
        ]
    timers = [threading.Timer(at_s, act) for at_s, act in plan]
    for timer in timers:
        timer.start()
    told = testbed.load()
    for timer in timers:
        timer.join()
    return told, faults, looks


def kill_worker(testbed: Testbed) -> None:
    """The first worker of the first bouncer."""
    daemon = json.loads((testbed.folder / ".mark-testbed" / "daemon.json").read_text())["pid"]
    workers = [p for p in psutil.Process(daemon).children(recursive=True) if "mark.serving.worker" in p.cmdline()]
    workers[0].kill()


def check(
    testbed: Testbed, told: dict[str, dict[str, Any]], faults: list[tuple[float, str]], args: argparse.Namespace
) -> list[str]:
    """What should not be, in sentences."""
    wrong = []
    for name, data in told.items():
        rows = list(csv.DictReader((testbed.folder / f"{name}.csv").open()))
        unanswered = [r["request_id"] for r in rows if int(r["status"]) == 0]
        if unanswered:
            wrong.append(f"{name}: {len(unanswered)} of {len(rows)} requests without an answer, {unanswered[:3]}")
        if data["answered_twice"]:
            wrong.append(f"{name}: {data['answered_twice']} answered twice")
        served = answered_in_logs(testbed.folder, name)
        lost = [r["request_id"] for r in rows if r["status"] == "200" and served[r["request_id"]] < 1]
        if lost:
            wrong.append(f"{name}: {len(lost)} answers that no bouncer says it gave, {lost[:3]}")
        twice = [i for i, count in served.items() if count > 1]
        if twice:
            wrong.append(f"{name}: {len(twice)} requests answered well by two bouncers, {twice[:3]}")
        outside, kept = outside_faults(rows, data, faults, args)
        print(f"{name}: {kept:.4f} in time outside {args.recovery:g} s after each fault ({outside} requests); "
              f"{data['slo']['attainment']:.4f} in all; {data['requests']}")  # fmt: skip
        if kept < data["slo"]["target"]:
            wrong.append(f"{name}: {kept:.4f} in time outside the recovery, {data['slo']['target']} asked")
    status = testbed.status()
    wrong += status["problems"]
    wrong += bills(status)
    return wrong


def answered_in_logs(folder: Path, service: str) -> Counter[str]:
    """Good answers by request id, as all bouncers of a service logged them."""
    counts: Counter[str] = Counter()
    for file in (folder / ".mark-testbed" / "logs").glob("i-*.log"):
        for line in file.open(errors="replace"):
            if '"request_id"' in line and '"status": 200' in line:
                said = json.loads(line)
                counts[said["request_id"]] += 1
    return counts


def outside_faults(
    rows: list[dict[str, str]], data: dict[str, Any], faults: list[tuple[float, str]], args: argparse.Namespace
) -> tuple[int, float]:
    """Requests due outside the recovery from the cold start and the faults: how many, and the share in time."""
    due_s = np.array([float(r["due_s"]) for r in rows])
    good = np.array([r["status"] == "200" for r in rows])
    latency_s = np.array([float(r["answered_s"]) for r in rows]) - due_s
    calm = due_s >= args.settle
    for at_unix_s, _ in faults:
        at_s = at_unix_s - data["began_unix_s"]
        calm &= (due_s < at_s) | (due_s >= at_s + args.recovery)
    in_time = good & (latency_s <= data["slo"]["rt_max_ms"] / 1e3 + 1e-6)
    return int(calm.sum()), float(in_time[calm].mean())


def bills(status: dict[str, Any]) -> list[str]:
    """The controllers' bills beside the meter's, by market, in cents."""
    urls = [c["url"] for c in status["controllers"] if c["url"]]
    url = next(url for url in urls if got(f"{url}/readyz")["ready"] == "leads")
    theirs: Counter[str] = Counter()
    for name in SERVICES:
        said = got(f"{url}/api/v1/services/{name}/bill")
        theirs.update({market: said[market] for market in status["bill_usd"]})
    print(f"bill: the controller says ${theirs['total']:.4f}, the meter ${status['bill_usd']['total']:.4f}")
    return [
        f"bill, {market}: the controller says ${theirs[market]:.4f}, the meter ${usd:.4f}"
        for market, usd in status["bill_usd"].items()
        if abs(theirs[market] - usd) >= 0.01
    ]


def got(url: str) -> dict[str, Any]:
    with urllib.request.urlopen(url, timeout=10.0) as answer:
        return dict(json.load(answer))


def table(rows: list[Row]) -> str:
    lines = ["| service | what | simulated | testbed | off | asked |", "|---|---|--:|--:|--:|--:|"]
    for r in rows:
        off = f"{100 * r['off']:+.1f} {'points' if r['what'] == 'overflow' else '%'}"
        digits = 1 if r["what"].startswith("p") else 4
        worlds = f"{r['simulated']:.{digits}f} | {r['testbed']:.{digits}f}"
        lines.append(f"| {r['service']} | {r['what']} | {worlds} | {off} | {100 * r['asked']:.0f} |")
    return "\n".join(lines)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--trace", type=lambda text: Path(text).resolve(), default=TRACE)
    parser.add_argument("--start", type=float, default=0.0)
    parser.add_argument("--scale", type=float, default=0.2)
    parser.add_argument("--settle", type=float, default=180.0)
    parser.add_argument("--calm", type=float, default=600.0)
    parser.add_argument("--faulty", type=float, default=600.0, help="0: no faults")
    parser.add_argument("--predictor", default="auto")
    parser.add_argument("--recovery", type=float, default=60.0, help="seconds after a fault that do not count")
    parser.add_argument("--out", type=Path, default=Path("out/fidelity"))
    args = parser.parse_args()
    args.out.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="mark-fidelity-") as name:
        folder = Path(name)
        with Testbed(folder, args, controllers=2 if args.faulty else 1) as testbed:
            told, faults, (first, last) = loaded(testbed, args)
            logs = {name: list(csv.DictReader((folder / f"{name}.csv").open())) for name in SERVICES}
            simulation = simulated(args)
            usd = sum(last["bill_usd"][market] - first["bill_usd"][market] for market in MARKETS)
            rows = compared({name: measured(log) for name, log in logs.items()}, simulation, usd, args)
            text = table(rows)
            print(text, flush=True)
            wrong = check(testbed, told, faults, args)
    print(*(wrong or ["everything else as it should be"]), sep="\n")
    args.out.with_suffix(".md").write_text("\n".join([text, "", *wrong]) + "\n")
    looks = [{k: v for k, v in look.items() if k != "fleet"} for look in (first, last)]
    args.out.with_suffix(".json").write_text(
        json.dumps({"rows": rows, "wrong": wrong, "loads": told, "faults": faults, "looks": looks}, indent=2) + "\n"
    )
    plot({name: measured(log) for name, log in logs.items()}, simulation, args)
    return 0 if all(r["kept"] for r in rows) and not wrong else 1


def plot(testbed: dict[str, Part], simulation: dict[str, Part], args: argparse.Namespace) -> None:
    """Latency by quantile in both worlds."""
    import plotly.graph_objects as go
    from plotly.subplots import make_subplots

    quantiles = np.arange(1, 100) / 100
    figure = make_subplots(rows=1, cols=len(testbed), subplot_titles=list(testbed), shared_yaxes=True)
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
