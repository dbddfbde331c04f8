"""The testbed beside the simulator: the same ten minutes of traffic, two services, processes against the kernel.

    python benchmarks/fidelity.py [--trace FILE] [--start S] [--duration 600] [--scale 0.2] [--faults] [--out FILE]

Both worlds begin with nothing (cold start) and without history. Compared are the bill, latency quantiles and the share
of overflow; OUT.md and OUT.json have the table. It measures queueing and control: prices come from one catalogue,
service times are the profile's in both, and no invoice is involved.

With `--faults` the cloud takes 40 % of the spot instances in the middle, a controller and a worker are killed
(SIGKILL), and instead of the comparison it is checked that every request was answered exactly once, that nothing was
launched twice or left behind, that the controller's bill is the meter's to the cent, and that the SLO was kept outside
`--recovery` seconds after each fault. Exits 1 where one of that is not so.
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
ASKED = {"bill": 0.03, "p50": 0.10, "p99": 0.10, "overflow": 0.02}


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
        part = ["--start", str(self.args.start), "--duration", str(self.args.duration), "--scale", str(self.args.scale)]
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
            out, _ = process.communicate(timeout=self.args.duration + 300)
            if process.returncode:
                raise SystemExit(f"the load of {name} failed")
            told[name] = json.loads(out)
        return told


def simulated(args: argparse.Namespace, folder: Path) -> dict[str, dict[str, Any]]:
    """The same part in world 1."""
    told = {}
    for seed, (name, file) in enumerate(SERVICES.items()):
        said = mark(
            "simulate", str(args.trace), "--service", str(file), "--start", str(args.start), "--duration",
            str(args.duration), "--scale", str(args.scale), "--train", "0", "--seed", str(seed), "--cold-start",
            "--predictor", args.predictor, "--json", "-", folder=folder,
        )  # fmt: skip
        told[name] = json.loads(said)
    return told


def compared(testbed: dict[str, dict[str, Any]], simulation: dict[str, dict[str, Any]]) -> list[dict[str, Any]]:
    """Rows of (service, what, simulated, testbed, difference, asked)."""
    rows = []
    # The testbed's bill is of all services.
    bills = [sum(one["bill_usd"]["total"] for one in simulation.values()),
             max(one["bill_usd"]["total"] for one in testbed.values())]  # fmt: skip
    rows.append(row("all", "bill", *bills))
    for name in testbed:
        here, there = simulation[name], testbed[name]
        rows += [row(name, q, here["latency_ms"][q], there["latency_ms"][q]) for q in ("p50", "p99")]
        shares = [one["requests"]["functions"] / one["requests"]["total"] for one in (here, there)]
        rows.append(row(name, "overflow", *shares, absolute=True))
    return rows


def row(service: str, what: str, simulation: float, testbed: float, *, absolute: bool = False) -> dict[str, Any]:
    off = testbed - simulation if absolute else testbed / simulation - 1.0
    return {"service": service, "what": what, "simulated": simulation, "testbed": testbed, "off": off,
            "asked": ASKED[what], "kept": abs(off) <= ASKED[what]}  # fmt: skip


def with_faults(
    testbed: Testbed, args: argparse.Namespace
) -> tuple[dict[str, dict[str, Any]], list[tuple[float, str]]]:
    """Load while things go wrong: what the loads printed, and (Unix time, what) of each fault."""
    faults: list[tuple[float, str]] = []

    def later(seconds: float, what: str, act: Any) -> threading.Timer:
        def run() -> None:
            faults.append((time.time(), what))
            act()

        timer = threading.Timer(seconds, run)
        timer.start()
        return timer

    timers = [
        later(args.duration * 0.4, "worker killed", lambda: kill_worker(testbed)),
        later(args.duration * 0.5, "40 % of spot interrupted", lambda: mark(
            "testbed", "interrupt", "--share", "0.4", "--seed", "1", folder=testbed.folder)),
        later(args.duration * 0.65, "controller killed", lambda: os.kill(
            next(c["pid"] for c in testbed.status()["controllers"] if c["pid"]), signal.SIGKILL)),
    ]  # fmt: skip
    told = testbed.load()
    for timer in timers:
        timer.join()
    return told, faults


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
        outside, kept = outside_faults(
            rows, data["slo"]["rt_max_ms"] / 1e3, faults, data["began_unix_s"], args.recovery
        )
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
    rows: list[dict[str, str]], rt_max_s: float, faults: list[tuple[float, str]], began_unix_s: float, recovery_s: float
) -> tuple[int, float]:
    """Requests due outside the recovery from the cold start and the faults: how many, and the share in time."""
    due_s = np.array([float(r["due_s"]) for r in rows])
    good = np.array([r["status"] == "200" for r in rows])
    latency_s = np.array([float(r["answered_s"]) for r in rows]) - due_s
    calm = np.ones(len(rows), dtype=bool)
    for at_s in (0.0, *(at - began_unix_s for at, _ in faults)):
        calm &= (due_s < at_s) | (due_s >= at_s + recovery_s)
    in_time = good & (latency_s <= rt_max_s + 1e-6)
    return int(calm.sum()), float(in_time[calm].mean())


def bills(status: dict[str, Any]) -> list[str]:
    """The controllers' bills beside the meter's, by market, in cents."""
    url = next(c["url"] for c in status["controllers"] if c["url"])
    theirs: Counter[str] = Counter()
    for name in SERVICES:
        with urllib.request.urlopen(f"{url}/api/v1/services/{name}/bill", timeout=10.0) as answer:
            theirs.update(dict(json.load(answer)["bill_usd"]))
    print(f"bill: the controller says ${theirs['total']:.4f}, the meter ${status['bill_usd']['total']:.4f}")
    return [
        f"bill, {market}: the controller says ${theirs[market]:.4f}, the meter ${usd:.4f}"
        for market, usd in status["bill_usd"].items()
        if abs(theirs[market] - usd) >= 0.01
    ]


def table(rows: list[dict[str, Any]]) -> str:
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
    parser.add_argument("--duration", type=float, default=600.0)
    parser.add_argument("--scale", type=float, default=0.2)
    parser.add_argument("--predictor", default="auto")
    parser.add_argument("--faults", action="store_true")
    parser.add_argument("--recovery", type=float, default=60.0, help="seconds after a fault that do not count")
    parser.add_argument("--out", type=Path, default=Path("out/fidelity"))
    args = parser.parse_args()
    args.out.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="mark-fidelity-") as name:
        folder = Path(name)
        with Testbed(folder, args, controllers=2 if args.faults else 1) as testbed:
            if args.faults:
                told, faults = with_faults(testbed, args)
                wrong = check(testbed, told, faults, args)
                print(*(wrong or ["everything as it should be"]), sep="\n")
                args.out.with_suffix(".json").write_text(json.dumps({"loads": told, "wrong": wrong}, indent=2) + "\n")
                return 1 if wrong else 0
            told = testbed.load()
        simulation = simulated(args, folder)
    rows = compared(told, simulation)
    text = table(rows)
    print(text)
    args.out.with_suffix(".md").write_text(text + "\n")
    args.out.with_suffix(".json").write_text(
        json.dumps({"rows": rows, "testbed": told, "simulated": simulation}, indent=2) + "\n"
    )
    return 0 if all(r["kept"] for r in rows) else 1


if __name__ == "__main__":
    sys.exit(main())
