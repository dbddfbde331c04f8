"""Inject faults of clients, models, functions and machines into the live data plane while honest clients keep asking.

No accepted request may be lost, answered twice or given another request's answer; no resource may grow; and all
processes must end when asked.

    python benchmarks/hostile/hostile.py [--minutes 10] [--seed 0] [--only "NAME;NAME"] [--out out/hostile]

`mark gateway` stands before two bouncers (`mark serve`, two workers each) on loopback; functions are a server in this
process. First each kind of fault comes once, for a second. Then, a minute after the start at the earliest, the seed
draws one or two kinds at a time; the next faults come after a pause, once both bouncers are ready again. The checks:

- every request that an honest client sent has one answer, its own (`hostile_clients`), even during faults;
- in the pauses nine in ten requests are answered right, and all programs are ready again within a minute of a fault;
- no process ends by itself; a process that is asked to end does so, with exit code 0, and leaves nothing behind;
- after the first minute, memory of the gateway and of the bouncer that is never killed, descriptors and shared memory
  stay flat within `hostile_watch.MOST_RISE`, as measured in rests of half a minute. A worker stays within its bound.

Exits with 1 and prints the story if a check fails. Writes PATH.json and PATH.md: the kinds of faults, how often each
came, and the outcomes of honest requests during them.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import platform
import random
import resource
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx
import psutil
from hostile_clients import BROKEN, CALM, FAILED, REFUSED, RIGHT, TURNED_AWAY, HonestClient, HonestTally
from hostile_faults import ALL, MEMORY, HostileFault, OverflowFunction
from hostile_watch import LOOKS, HeldResources, held_by, left_behind, not_flat, rises

MODEL = """
import os, signal, time
import mark

class Honest(mark.Model):
    warmup = ({"id": "warm", "x": [1]},)
    kept = []

    def predict(self, batch):
        kinds = {item.get("poison") for item in batch}
        if "raise" in kinds:
            raise ValueError("poison")
        if "crash" in kinds:
            os.kill(os.getpid(), signal.SIGSEGV)
        if "hang" in kinds:
            time.sleep(60)
        if "leak" in kinds:
            self.kept.append(b"x" * (16 << 20))
        if "memory" in kinds:
            b"x" * (2 << 30)
        if "print" in kinds:
            print("x" * 100_000)
        time.sleep(0.01 + 0.02 * len(batch))
        made = [
            {"id": item["id"], "y": sum(i * x for i, x in enumerate(item["x"], 1)) % 1_000_003}
            | ({"large": "x" * 1_000_000} if item.get("poison") == "big" else {})
            for item in batch
        ]
        return made[:-1] if "lie" in kinds else made
"""
SERVICE = """
[service]
name = "m"
model = "model:Honest"
slo_ms = 1000
slo_attainment = 0.98
"""
FEEDBACK = '[feedback]\nlog = "{}"\n'
WORKERS, WORKER_MIB = 2, 400.0
_WORKER_SLACK_MIB = 200.0  # a worker is measured once a second, and its successor is loaded beside it
_CALM_SHARE = 0.9
_WELL_S = 60.0
_FIRST_S = 1.0  # seconds of each fault in the first round
# Seconds of a rest, longer than an idle connection to a replica or a function is kept; of work between two rests; and
# of the shortest run that has rests.
_REST_S, _WORK_S, _LONG_S = 35.0, 150.0, 240.0
_ERRORS = ("full", "closed", "file")  # the targets of the second bouncer's standard error, by turns
_AIM_GONE = (ProcessLookupError, FileNotFoundError, psutil.NoSuchProcess)  # another fault ended the target


class ServedProgram:
    """A `mark` process on a port that it keeps, through restarts."""

    def __init__(self, name: str, folder: Path, words: Sequence[str], log: Path | None = None) -> None:
        self.name, self.port = name, 0
        self._folder, self._words, self._log = folder, words, log or folder / f"{name}.log"
        self._process: subprocess.Popen[bytes] | None = None
        self.expected_to_run = False

    @property
    def pid(self) -> int:
        assert self._process is not None, "it is started before it is asked for"
        return self._process.pid

    @property
    def address(self) -> tuple[str, int]:
        return "127.0.0.1", self.port

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def workers(self) -> list[int]:
        with suppress(psutil.Error):
            return [child.pid for child in psutil.Process(self.pid).children()]
        return []

    async def start(self, errors: str = "file") -> None:
        """Start it and wait until it is ready. Raises RuntimeError if it ends instead."""
        ready = self._folder / f"{self.name}.ready"
        ready.unlink(missing_ok=True)
        command = [sys.executable, "-m", "mark.cli.main", *self._words]
        command += ["--port", str(self.port), "--ready-file", str(ready)]
        out = self._errors(errors)
        try:
            self._process = subprocess.Popen(
                command, cwd=self._folder, stdin=subprocess.DEVNULL, stdout=out, stderr=out, start_new_session=True
            )
        finally:
            os.close(out)
        while not ready.exists():
            if self._process.poll() is not None:
                raise RuntimeError(f"{self.name} ended with {self._process.returncode}\n{self.log()[-2000:]}")
            await asyncio.sleep(0.05)
        self.port = json.loads(ready.read_text())["port"]
        self.expected_to_run = True

    def ended_by_itself(self) -> int | None:
        """Return its exit code if it ended without being asked, else None."""
        assert self._process is not None
        return self._process.poll() if self.expected_to_run else None

    async def end(self, *, kill: bool = False, within_s: float = 60.0) -> int | None:
        """End it and return its exit code; None if it did not end in time and was killed."""
        assert self._process is not None
        self.expected_to_run = False
        (self._process.kill if kill else self._process.terminate)()
        with suppress(TimeoutError):
            return await asyncio.wait_for(asyncio.to_thread(self._process.wait), within_s)
        self._process.kill()
        return None

    def stop_at_once(self) -> None:
        """Kill the program and its workers in any state."""
        if self._process is not None and self._process.poll() is None:
            family = [psutil.Process(self.pid)]
            with suppress(psutil.Error):
                family += family[0].children(recursive=True)
            for one in family:
                with suppress(psutil.Error):
                    one.kill()
            self._process.wait()

    def log(self) -> str:
        return self._log.read_text(errors="replace") if self._log.exists() else ""

    def _errors(self, kind: str) -> int:
        if kind == "full":
            return os.open("/dev/full", os.O_WRONLY)
        if kind == "closed":
            reads, writes = os.pipe()
            os.close(reads)
            return writes
        return os.open(self._log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)


@dataclass
class DoneFault:
    """How often a kind came, and how long it took at most until all was ready again, in seconds."""

    count: int = 0
    well_s: float = 0.0


@dataclass
class HostileRun:
    """A data plane with its honest clients, and all that went wrong. `stories` breaks no promise while it is empty."""

    folder: Path
    seed: int
    rate_rps: float = 40.0
    clients: int = 16
    tally: HonestTally = field(default_factory=HonestTally)
    function: OverflowFunction = field(default_factory=OverflowFunction)
    stories: list[str] = field(default_factory=list)
    done: dict[str, DoneFault] = field(default_factory=dict)
    looks: dict[str, list[HeldResources]] = field(default_factory=dict)
    worst_worker_mib: float = 0.0
    lag_s: float = 0.0  # at most, of this process itself: it belongs beside the slowest answers
    disk: Path | None = None

    def __post_init__(self) -> None:
        self.draw = random.Random(self.seed)
        self.active: frozenset[str] = frozenset()
        self._pids: set[int] = set()
        self._restarts = 0
        self._began_s = time.monotonic()

    # --- the port of faults

    async def kill(self) -> None:
        victim = self.bouncers[-1]
        workers = victim.workers()
        await victim.end(kill=True)
        await asyncio.sleep(1.0)
        self.stories += [f"bouncer killed: {line}" for line in left_behind(workers, self.folder)]
        await victim.start(self._next_errors())

    async def restart(self) -> None:
        victim = self.bouncers[-1]
        code = await victim.end()
        print(f"{self._now_s():6.1f} s    {victim.name} has ended with {code}", flush=True)
        if code != 0:
            self.stories.append(f"bouncer restarted: it ended with {code} after SIGTERM\n{victim.log()[-1000:]}")
        await victim.start(self._next_errors())

    def _next_errors(self) -> str:
        self._restarts += 1
        return _ERRORS[(self._restarts - 1) % len(_ERRORS)]

    # The run

    async def start(self) -> None:
        (self.folder / "model.py").write_text(MODEL)
        url = await self.function.start()
        self.disk = _small_disk(self.folder / "disk")
        logs = [self.disk or self.folder, self.folder]
        self.bouncers = []
        for name, logs_at in zip(("steady", "victim"), logs, strict=True):
            (self.folder / f"{name}.toml").write_text(SERVICE + FEEDBACK.format(logs_at / f"{name}.feedback"))
            words = ["serve", f"{name}.toml", "--workers", str(WORKERS), "--max-batch", "8", "--hang-s", "2"]
            words += ["--worker-memory-mib", str(WORKER_MIB), "--function", url, "--function-ms", "20"]
            self.bouncers.append(ServedProgram(name, self.folder, words, logs_at / f"{name}.log"))
        await asyncio.gather(*(bouncer.start() for bouncer in self.bouncers))
        words = ["gateway", "--timeout-s", "8", "--backoff-s", "0.5", "--probe-s", "0.5"]
        for bouncer in self.bouncers:
            words += ["--replica", bouncer.url]
        self.gateway = ServedProgram("gateway", self.folder, words)
        await self.gateway.start()

    async def run(self, seconds: float, warm_up_s: float, kinds: Sequence[HostileFault]) -> None:
        """Send honest load and faults of these kinds for `seconds`; then ask all programs to end."""
        stop, self._began_s = asyncio.Event(), time.monotonic()
        honest = [
            HonestClient(
                f"honest-{self.seed}-{number}",
                self.gateway.address,
                self.tally,
                lambda: self.active,
                pause_s=self.clients / self.rate_rps,
                shut=lambda: "descriptors, gateway" in self.active,
                seed=self.seed,
            )
            for number in range(self.clients)
        ]
        asking = [asyncio.create_task(client.run(stop)) for client in honest]
        watching = asyncio.create_task(self._watch(stop))
        try:
            for fault in kinds:
                if not (self.stories or self.tally.stories):
                    await self._do([fault], _FIRST_S, calm_s=0.2)
            while self._now_s() < warm_up_s and not self.stories:
                await asyncio.sleep(0.1)
            rests = seconds >= _LONG_S
            rested_s = -_WORK_S
            while self._now_s() < seconds - rests * _REST_S and not (self.stories or self.tally.stories):
                if rests and self._now_s() - rested_s >= _WORK_S:
                    await self._rest()
                    rested_s = self._now_s()
                await self._do(self._drawn(kinds), self.draw.uniform(2.0, 6.0), calm_s=3.0)
            if rests and not self.stories:
                await self._rest()
        finally:
            stop.set()
            await asyncio.wait(asking, timeout=30.0)
            for task in asking:
                if task.done() and not task.cancelled() and task.exception() is not None:
                    self.stories.append(f"a client of ours failed: {task.exception()!r}")
                task.cancel()
            await watching
        self._judge()
        await self.end()

    def _drawn(self, kinds: Sequence[HostileFault]) -> list[HostileFault]:
        first = self.draw.choice(kinds)
        beside = [fault for fault in kinds if fault.part != first.part]
        return [first, self.draw.choice(beside)] if beside and self.draw.random() < 0.4 else [first]

    async def _do(self, faults: Sequence[HostileFault], seconds: float, calm_s: float) -> None:
        names = frozenset(fault.name for fault in faults)
        print(f"{self._now_s():6.1f} s  {' and '.join(sorted(names))}, {seconds:.1f} s", flush=True)
        self.active = names
        try:
            for end in await asyncio.gather(*(fault.do(self, seconds) for fault in faults), return_exceptions=True):
                if isinstance(end, BaseException) and not isinstance(end, _AIM_GONE):
                    raise end
            took_s = await self._well()
        except RuntimeError as error:  # it could not be started again
            self.stories.append(f"after {' and '.join(sorted(names))}: {error}")
            return
        finally:
            for name in names:
                self.done.setdefault(name, DoneFault()).count += 1
        if took_s is None:
            self.stories.append(f"not ready again {_WELL_S:g} s after {' and '.join(sorted(names))}: {self._state()}")
            return
        said = f"ready again after {took_s:.1f} s; our own lag: {self.lag_s:.1f} s"
        print(f"{self._now_s():6.1f} s    {said}", flush=True)
        for name in names:
            self.done[name].well_s = max(self.done[name].well_s, took_s)
        await asyncio.sleep(0.5)  # the last requests before its end
        self.active = frozenset()
        await asyncio.sleep(calm_s)

    async def _rest(self) -> None:
        """Rest until kept connections have timed out; then record the held resources."""
        await asyncio.sleep(_REST_S)
        for _ in range(LOOKS):
            for program in (self.gateway, self.bouncers[0]):
                with suppress(psutil.Error):
                    self.looks.setdefault(program.name, []).append(held_by(program.pid, self._now_s()))
            await asyncio.sleep(0.5)
        print(f"{self._now_s():6.1f} s  rested: {json.dumps(rises(self.looks))}", flush=True)

    async def _well(self) -> float | None:
        """Return the seconds until all workers are ready and the gateway knows; None if they were not in time."""
        began_s = time.monotonic()
        async with httpx.AsyncClient(trust_env=False, timeout=5.0) as client:
            while time.monotonic() - began_s < _WELL_S:
                with suppress(httpx.HTTPError, ValueError, KeyError):
                    state = (await client.get(f"{self.gateway.url}/admin/replicas")).json()["replicas"]
                    ready = [one["ready"] for one in state.values()]
                    if all(ready) and [len(one.workers()) for one in self.bouncers] == [WORKERS] * 2:
                        pages = [(await client.get(f"{one.url}/metrics")).text for one in self.bouncers]
                        if all(_ready(page) == WORKERS for page in pages):
                            return time.monotonic() - began_s
                await asyncio.sleep(0.1)
        return None

    def _state(self) -> str:
        return "; ".join(f"{one.name}: {len(one.workers())} workers, {one.log()[-500:]}" for one in self.bouncers)

    async def _watch(self, stop: asyncio.Event) -> None:
        """Look once a second whether a process ends by itself, and at the memory of workers."""
        programs = [self.gateway, *self.bouncers]
        while not stop.is_set():
            for program in programs:
                code = program.ended_by_itself()
                if code is not None:
                    program.expected_to_run = False
                    self.stories.append(
                        f"{program.name} ended by itself with {code} during {', '.join(sorted(self.active)) or CALM}\n"
                        f"{program.log()[-2000:]}"
                    )
                self._pids.update(program.workers())
                for pid in program.workers() if MEMORY not in self.active else ():
                    with suppress(psutil.Error):
                        has_mib = psutil.Process(pid).memory_info().rss / 2**20
                        self.worst_worker_mib = max(self.worst_worker_mib, has_mib)
            slept_s = time.monotonic()
            with suppress(TimeoutError):
                await asyncio.wait_for(stop.wait(), 1.0)
            self.lag_s = max(self.lag_s, time.monotonic() - slept_s - 1.0)

    def _judge(self) -> None:
        self.stories += self.tally.stories
        for name, looks in self.looks.items():
            self.stories += not_flat(name, looks)
        calm = self.tally.counts[CALM]
        if calm.total() >= 50 and calm[RIGHT] < _CALM_SHARE * calm.total():
            self.stories.append(f"in pauses {calm[RIGHT]} of {calm.total()} were answered right: {dict(calm)}")
        if self.worst_worker_mib > WORKER_MIB + _WORKER_SLACK_MIB:
            self.stories.append(f"a worker had {self.worst_worker_mib:.0f} MiB, it may have {WORKER_MIB:g}")

    async def end(self) -> None:
        """Ask everything to end, and look whether it does."""
        programs = [self.gateway, *self.bouncers]
        for program in programs:
            self._pids.update((program.pid, *program.workers()))
            if program.ended_by_itself() is None:
                code = await program.end()
                if code != 0:
                    self.stories.append(f"{program.name} ended with {code} after SIGTERM\n{program.log()[-1000:]}")
        self.stories += left_behind(self._pids, self.folder)

    def close(self) -> None:
        """End all programs, in any state."""
        for program in (*getattr(self, "bouncers", ()), *([self.gateway] if hasattr(self, "gateway") else ())):
            program.stop_at_once()
        self.function.stop()
        if self.disk is not None:
            subprocess.run(["umount", str(self.disk)], check=False)

    def _now_s(self) -> float:
        return time.monotonic() - self._began_s

    # --- the report

    def result(self) -> dict[str, Any]:
        """Return the numbers, for JSON."""
        tally = self.tally
        return {
            "seed": self.seed,
            "seconds": round(self._now_s(), 1),
            "honest": dict(tally.every),
            "machine": {"processors": os.cpu_count(), "python": platform.python_version(), "linux": platform.release()},
            "faults": {
                name: {
                    "count": self.done[name].count if name in self.done else None,
                    "well_s": round(self.done[name].well_s, 2) if name in self.done else None,
                    **dict(counts),
                    "statuses": {str(status): n for status, n in sorted(tally.statuses[name].items())},
                    "slowest_s": round(tally.slowest_s[name], 3),
                }
                for name, counts in tally.counts.items()
            },
            "held": rises(self.looks),
            "worst_worker_mib": round(self.worst_worker_mib, 1),
            "lag_s": round(self.lag_s, 3),
            "function_calls": self.function.calls,
            "stories": self.stories,
        }


def markdown(result: dict[str, Any]) -> str:
    """Return the table."""
    lines = [
        "| fault | times | asked | right | refused | 500 | not let in | broken | slowest, s | ready again, s |",
        "|---|--:|--:|--:|--:|--:|--:|--:|--:|--:|",
    ]
    for name, of in sorted(result["faults"].items(), key=lambda one: (one[0] != CALM, one[0])):
        asked = sum(of.get(what, 0) for what in (RIGHT, REFUSED, FAILED, TURNED_AWAY, *BROKEN))
        broken = sum(of.get(what, 0) for what in BROKEN)
        cells = [name, of["count"] if of["count"] is not None else "-", asked]
        cells += [of.get(what, 0) for what in (RIGHT, REFUSED, FAILED, TURNED_AWAY)]
        cells += [broken, f"{of['slowest_s']:.2f}", "-" if of["well_s"] is None else f"{of['well_s']:.1f}"]
        lines.append("| " + " | ".join(map(str, cells)) + " |")
    return "\n".join(lines) + "\n"


def _ready(page: str) -> float:
    return sum(float(line.split()[-1]) for line in page.splitlines() if line.startswith("mark_workers_ready{"))


def _small_disk(folder: Path) -> Path | None:
    """Mount a file system of 32 MiB at `folder`, if this process may; else return None."""
    folder.mkdir()
    command = ["mount", "-t", "tmpfs", "-o", "size=32m", "none", str(folder)]
    if os.geteuid() != 0 or shutil.which("mount") is None:
        return None
    made = subprocess.run(command, check=False, capture_output=True).returncode == 0
    return folder if made else None


async def hostile(seconds: float, warm_up_s: float, seed: int, only: Sequence[str] = ()) -> HostileRun:
    """Make a run. A program that could not be started is a story, too."""
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(8192, most), most))
    folder = Path(tempfile.mkdtemp(prefix="hostile-")).resolve()
    run = HostileRun(folder, seed)
    try:
        try:
            await run.start()
            kinds = [fault for fault in ALL if not only or fault.name in only]
            kinds = [fault for fault in kinds if fault.part != "disk" or run.disk is not None]
            await run.run(seconds, warm_up_s, kinds)
        except RuntimeError as error:
            run.stories.append(str(error))
    finally:
        run.close()
        shutil.rmtree(folder, ignore_errors=True)
    return run


def main(argv: Sequence[str] = sys.argv[1:]) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--minutes", type=float, default=10.0)
    parser.add_argument("--warm-up-s", type=float, default=60.0, metavar="S")
    parser.add_argument("--seed", type=int, default=0)
    kinds = "; ".join(fault.name for fault in ALL)
    parser.add_argument("--only", default="", metavar="NAME;NAME", help=f"kinds of faults, of: {kinds}")
    parser.add_argument("--out", type=Path, default=Path("out/hostile"), metavar="PATH", help="path without a suffix")
    args = parser.parse_args(argv)
    only = [name.strip() for name in args.only.split(";") if name]
    if unknown := set(only) - {fault.name for fault in ALL}:
        parser.error(f"--only: unknown are {'; '.join(sorted(unknown))}")
    run = asyncio.run(hostile(60.0 * args.minutes, args.warm_up_s, args.seed, only))
    result = run.result()
    args.out.parent.mkdir(parents=True, exist_ok=True)
    args.out.with_suffix(".json").write_text(json.dumps(result, indent=2) + "\n")
    args.out.with_suffix(".md").write_text(markdown(result))
    print(markdown(result))
    print(json.dumps({key: result[key] for key in ("honest", "held", "worst_worker_mib", "lag_s")}))
    for story in run.stories:
        print(f"BROKEN: {story}", file=sys.stderr)
    return 1 if run.stories else 0


if __name__ == "__main__":
    sys.exit(main())
