"""The second half of `fidelity`: faults on the testbed, and whether everything is as it should be after them.

The checks: every request was answered exactly once, by the logs of the client and the servers; no launch was repeated
and no instance left behind; the controller's bill equals the meter's to the cent; the SLO was kept outside `--recovery`
seconds after a fault.
"""

from __future__ import annotations

import argparse
import csv
import json
import os
import signal
import threading
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import psutil

if TYPE_CHECKING:
    from fidelity_testbed import Testbed

Log = list[dict[str, str]]


@dataclass
class Faults:
    """The planned faults. `faults` lists the faults that have happened, as (Unix time, fault)."""

    timers: list[threading.Timer] = field(default_factory=list)
    faults: list[tuple[float, str]] = field(default_factory=list)


def plan(testbed: Testbed, begin_unix_s: float, seconds: float) -> Faults:
    """Plan to kill a worker, interrupt 40 % of spot and kill a controller within `seconds`; nothing if that is 0."""
    made = Faults()

    def at(share: float, what: str, act: Callable[[], object]) -> None:
        def fire() -> None:
            made.faults.append((time.time(), what))
            print(what, flush=True)
            act()

        made.timers.append(threading.Timer(begin_unix_s + share * seconds - time.time(), fire))

    def kill_controller() -> None:
        os.kill(next(c["pid"] for c in testbed.status()["controllers"] if c["pid"]), signal.SIGKILL)

    if seconds:
        at(0.15, "a worker is killed", lambda: kill_worker(testbed.folder))
        at(0.35, "40 % of spot is interrupted", lambda: testbed.mark("interrupt", "--share", "0.4", "--seed", "1"))
        at(0.7, "a controller is killed", kill_controller)
    for timer in made.timers:
        timer.daemon = True
        timer.start()
    return made


def kill_worker(folder: Path) -> None:
    """Kill the first worker of the first bouncer."""
    daemon = json.loads((folder / ".mark-testbed" / "daemon.json").read_text())["pid"]
    workers = [p for p in psutil.Process(daemon).children(recursive=True) if is_worker(p)]
    workers[0].kill()


def is_worker(process: psutil.Process) -> bool:
    return any(part.startswith("mark.serving.worker.worker") for part in process.cmdline())


def log_of(folder: Path, service: str) -> Log:
    """Return a line for each request of the client."""
    with (folder / f"{service}.csv").open() as file:
        return list(csv.DictReader(file))


def check(
    testbed: Testbed, told: dict[str, dict[str, Any]], logs: dict[str, Log], faults: list[tuple[float, str]],
    args: argparse.Namespace,
) -> list[str]:  # fmt: skip
    """Return sentences about all that is wrong."""
    wrong = []
    served = answered_in_logs(testbed.folder)
    for name, data in told.items():
        rows = logs[name]
        unanswered = [r["request_id"] for r in rows if int(r["status"]) == 0]
        if unanswered:
            wrong.append(f"{name}: {len(unanswered)} of {len(rows)} requests without an answer, {unanswered[:3]}")
        if data["answered_twice"]:
            wrong.append(f"{name}: {data['answered_twice']} answered twice")
        lost = [r["request_id"] for r in rows if r["status"] == "200" and served[r["request_id"]] < 1]
        if lost:
            wrong.append(f"{name}: {len(lost)} answers that no bouncer says it gave, {lost[:3]}")
        twice = [r["request_id"] for r in rows if served[r["request_id"]] > 1]
        if twice:
            wrong.append(f"{name}: {len(twice)} requests answered well by two bouncers, {twice[:3]}")
        outside, kept = outside_faults(rows, data, faults, args)
        print(f"{name}: {kept:.4f} in time outside {args.recovery:g} s after each fault ({outside} requests); "
              f"{data['slo']['attainment']:.4f} in all; {data['requests']}")  # fmt: skip
        if kept < data["slo"]["target"]:
            wrong.append(f"{name}: {kept:.4f} in time outside the recovery, {data['slo']['target']} asked")
    wrong += testbed.status()["problems"]
    return wrong + bills(testbed, list(told))


def answered_in_logs(folder: Path) -> Counter[str]:
    """Count good answers by request id, as logged by bouncers, and by gateways for answers of functions."""
    counts: Counter[str] = Counter()
    logs = folder / ".mark-testbed" / "logs"
    for file in (*logs.glob("i-*.log"), *logs.glob("gateway-*.log")):
        own = "" if file.name.startswith("i-") else '"answered_by": "function"'
        for line in file.read_text(errors="replace").splitlines():
            if '"request_id"' in line and '"status": 200' in line and own in line:
                said = json.loads(line)
                counts[said["request_id"]] += 1
    return counts


def outside_faults(
    rows: Log, data: dict[str, Any], faults: list[tuple[float, str]], args: argparse.Namespace
) -> tuple[int, float]:
    """Return the number of requests due outside recovery times, and the share of them in time.

    A recovery time follows the beginning and each fault.
    """
    due_s = np.array([float(r["due_s"]) for r in rows])
    good = np.array([r["status"] == "200" for r in rows])
    latency_s = np.array([float(r["answered_s"]) for r in rows]) - due_s
    calm = due_s >= args.settle
    for at_unix_s, _ in faults:
        at_s = at_unix_s - data["began_unix_s"]
        calm &= (due_s < at_s) | (due_s >= at_s + args.recovery)
    in_time = good & (latency_s <= data["slo"]["rt_max_ms"] / 1e3 + 1e-6)
    return int(calm.sum()), float(in_time[calm].mean())


def bills(testbed: Testbed, services: list[str]) -> list[str]:
    """Return the controllers' bills beside the meter's, by market, in cents."""
    theirs: Counter[str] = Counter()
    meter = testbed.status()["bill_usd"]
    for name in services:
        said = testbed.asked(f"/api/v1/services/{name}/bill")
        theirs.update({market: said[market] for market in meter})
    print(f"bill: the controller says ${theirs['total']:.4f}, the meter ${meter['total']:.4f}")
    return [
        f"bill, {market}: the controller says ${theirs[market]:.4f}, the meter ${usd:.4f}"
        for market, usd in meter.items()
        if abs(theirs[market] - usd) >= 0.01
    ]
