"""The testbed's half of `fidelity`: cut the load from a trace, and run the testbed under this load."""

from __future__ import annotations

import argparse
import asyncio
import json
import subprocess
import sys
import threading
import time
import urllib.request
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import psutil

from mark.cloud.ec2.draws import service_seed
from mark.domain.errors import MarkError

REPOSITORY = Path(__file__).resolve().parents[2]
SERVICES = {name: REPOSITORY / "examples" / "testbed" / f"{name}-slow.toml" for name in ("words", "image")}
MARK = [sys.executable, "-m", "mark.cli.main"]
DAY_S, MINUTE_S = 86400.0, 60.0
LOOK_S = 15.0  # between two looks at the testbed
TOUCH_S = 60.0

Looks = list[tuple[float, dict[str, Any]]]


@dataclass(frozen=True)
class Cut:
    """The load to send: a count file, the part of it that is history, and the load's begin in it (seconds)."""

    file: Path
    history: Path
    begin_s: float


def cut(args: argparse.Namespace, folder: Path) -> Cut:
    """Write history, a gap, and the load, by the minute, scaled."""
    from mark.traffic.traces.reader import open_trace

    trace = open_trace(str(args.trace))
    load_end_s = args.start + args.settle + args.calm + args.faulty
    before_s = args.lead + MINUTE_S * (min(args.history * DAY_S, args.start - args.lead) // MINUTE_S)
    first_s = args.start - before_s
    load = trace.load(first_s, load_end_s, args.scale)
    t_s = np.arange(len(load)) * MINUTE_S
    counts = load.mean_rps * MINUTE_S
    there = np.isfinite(counts) & ((t_s < before_s - args.lead) | (t_s >= before_s))
    made = Cut(folder / "cut.csv", folder / "history.csv", before_s)
    for file, rows in ((made.file, there), (made.history, there & (t_s < before_s))):
        lines = [f"{at:g},{count:.4f}" for at, count in zip(t_s[rows], counts[rows], strict=True)]
        file.write_text("\n".join(["t_seconds,count", *lines]) + "\n")
    return made


class Testbed:
    """One run of the service files; a context. `looks` are (Unix time, status), every `LOOK_S` of the load."""

    def __init__(
        self, folder: Path, args: argparse.Namespace, part: Cut, files: Mapping[str, Path] = SERVICES,
        options: Sequence[str] = (),
    ) -> None:  # fmt: skip
        self.folder, self._args, self._cut, self._files, self._options = folder, args, part, files, options
        self.seconds = args.settle + args.calm + args.faulty
        self.looks: Looks = []
        self.busy: list[float] = []  # share of this computer's cores, between looks

    def __enter__(self) -> Testbed:
        from mark_infra.testbed.control_server import Remote

        files = [str(file) for file in self._files.values()]
        self.mark("up", *files, "--seed", "0", "--log-requests", "--controllers", "2" if self._args.faulty else "1",
                  "--predictor", self._args.predictor, "--history", str(self._cut.history),
                  "--account", self._args.account, *self._options)  # fmt: skip
        self._remote = Remote(self.folder / ".mark-testbed" / "daemon.json")
        return self

    def __exit__(self, *_: object) -> None:
        self.mark("down", "--keep-logs")

    def mark(self, *arguments: str) -> str:
        """Return the output of a `mark testbed` command; exit with its error."""
        done = subprocess.run(
            [*MARK, "testbed", *arguments], cwd=self.folder, capture_output=True, text=True, check=False
        )
        if done.returncode:
            raise SystemExit(f"mark testbed {' '.join(arguments)}: {done.returncode}: {done.stderr.strip()[-500:]}")
        return done.stdout

    def status(self) -> dict[str, Any]:
        return dict(self._remote.ask("/status"))

    def asked(self, path: str) -> Any:
        """Ask the leading controller."""
        urls = [c["url"] for c in self.status()["controllers"] if c["url"]]
        return got(next(url for url in urls if got(f"{url}/readyz")["ready"] == "leads") + path)

    def origins(self, services: Sequence[str] = tuple(SERVICES)) -> dict[str, float]:
        """Return second 0 of each service's clock, in Unix seconds, as soon as a controller leads."""
        from mark_infra.store.store import open_store

        end_s = time.monotonic() + 120.0
        while True:
            try:
                self.asked("/api/v1/services")
                break
            except (OSError, StopIteration):
                if time.monotonic() > end_s:
                    raise SystemExit("no controller leads") from None
            time.sleep(0.5)
        stores = {name: open_store(f"sqlite:{self.folder / '.mark-testbed' / 'state.db'}", name) for name in services}
        found = {name: store.origin_unix_s() for name, store in stores.items()}
        for store in stores.values():
            store.close()
        return found

    def load(self, begin_unix_s: dict[str, float], *options: str) -> dict[str, dict[str, Any]]:
        """Send the load of all files and return each load's output."""
        part = ["--start", str(self._cut.begin_s), "--duration", str(self.seconds)]
        running = {
            name: subprocess.Popen(
                [*MARK, "testbed", "load", str(self._cut.file), "--service", name, *part,
                 "--seed", str(service_seed(0, nth)), "--cold-start", "--begin-at", f"{begin_unix_s[name]:.6f}",
                 "--json", "-", "--log", f"{name}.csv", *options],
                cwd=self.folder, stdout=subprocess.PIPE, text=True,
            )
            for nth, name in enumerate(self._files)
        }  # fmt: skip
        told = {}
        try:
            for name, process in running.items():
                out, _ = process.communicate(timeout=self._args.lead + self.seconds + 300)
                if process.returncode:
                    raise SystemExit(f"the load of {name} failed")
                told[name] = json.loads(out)
        finally:
            for process in running.values():
                process.kill()
        return told

    def touch(self, begin_unix_s: float) -> threading.Thread:
        """Start a thread that asks every machine once a second for the last `TOUCH_S`, as users of the balancers would.

        A machine that slept since its boot is slow at first, because its memory may have been taken away. No gateway
        sees these requests, so they are not counted.
        """
        from mark_infra.testbed.load_generator import replay

        from mark.config.service_file import load_service
        from mark.models.loading import load
        from mark.models.sample import sample_call

        calls = {}
        for name, file in SERVICES.items():
            call = sample_call(load(load_service(str(file)).model, file.parent))
            assert call is not None
            calls[name] = call

        async def ask() -> None:
            fleet = [one for one in self.status()["fleet"] if one["state"] == "running"]
            due_s = np.arange(TOUCH_S - 1.0)
            await asyncio.gather(*(
                replay(f"http://{one['address']}:8080", one["service"], calls[one["service"]], due_s, prefix="touch-")
                for one in fleet
            ))  # fmt: skip

        def touch() -> None:
            time.sleep(max(0.0, begin_unix_s - TOUCH_S - time.time()))
            asyncio.run(ask())

        thread = threading.Thread(target=touch, daemon=True)
        thread.start()
        return thread

    def watch(self, begin_unix_s: float) -> threading.Thread:
        """Start a thread that looks every `LOOK_S` until the load ends."""

        def look() -> None:
            psutil.cpu_percent()
            for n in range(round(self.seconds / LOOK_S) + 1):
                time.sleep(max(0.0, begin_unix_s + n * LOOK_S - time.time()))
                with suppress(MarkError):  # a busy testbed may not answer in time; the next look is near
                    self.looks.append((time.time(), self.status()))
                self.busy.append(psutil.cpu_percent() / 100.0)

        thread = threading.Thread(target=look, daemon=True)
        thread.start()
        return thread


def got(url: str) -> Any:
    with urllib.request.urlopen(url, timeout=10.0) as answer:
        return json.load(answer)
