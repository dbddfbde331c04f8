"""Run a service with parity models as processes: bouncers, two gateways, one conductor, and a client in an open loop.

A batch takes the profile's time, and an instance's slow periods delay its answers on their way. Both come from the
draws of the simulator, which gets the times at which the client really sent.
"""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from insured_conductor import MODEL, PARITY, REQUEST_S, RT_MAX_S, WEIGHTS, K, simulated

from mark.domain.arrays import FloatArray
from mark.domain.faults import Faults
from mark.insurance.insurance_settings import DEGRADED, EXACT, SUM, InsuranceSettings, ParitySettings
from mark.profiling.measure import mean_and_half_s
from mark.profiling.played_faults import FAULT_STREAM, FaultStream

sys.path.append(str(Path(__file__).resolve().parent / "data_plane"))
import load

MODEL_CODE = f"""
import mark
import numpy as np

WEIGHTS = np.array({WEIGHTS.tolist()}, np.float32)

class Linear(mark.Model):
    def predict(self, batch):
        return np.asarray(batch, np.float32) @ WEIGHTS
"""
SERVICE = """
[service]
name = "insured"
model = "linear:Linear"
slo_ms = {rt_max_ms:g}
slo_attainment = 0.99
profile = "profile.csv"
[faults]
slow_share = {faults.slow_share!r}
slow_s = {faults.slow_s!r}
slow_answer_ms = {answer_ms:g}
[insurance]
parity = "parity/"
after_ms = {after_ms:g}
accept = "degraded"
fill_ms = "never"
"""
FAULTS = Faults(slow_share=0.05, slow_s=5.0, slow_answer_s=0.3)
_END_S, _PATIENCE_S = 60.0, 20.0


@dataclass(frozen=True)
class Fleet:
    """The fleets of a run and their times. The machine's own delays must be small against `rt_max_s`."""

    model: int = MODEL
    parity: int = PARITY
    k: int = K
    request_s: float = REQUEST_S
    rt_max_s: float = RT_MAX_S
    after_s: float = 0.2  # early enough that no reconstruction is late because of the machine
    rate_rps: float = 30.0
    faults: Faults = FAULTS

    @property
    def settings(self) -> InsuranceSettings:
        parity = ParitySettings(SUM, self.k, input_shape=(2,), output_shape=(3,))
        return InsuranceSettings(parity, after_s=self.after_s, accept=DEGRADED, fill_s=float("inf"))


@dataclass(frozen=True, eq=False)
class Served:
    """Sending times since the faults began, and latencies, infinite without an answer; with the conductor's counts."""

    sent_s: FloatArray
    latency_s: FloatArray
    lag_s: FloatArray  # of the client
    claims: Mapping[str, Any]
    missed: int  # queries that the conductor answered late, or not at all
    refused: int  # calls of the model and of the parity model


def served(fleet: Fleet, arrivals_s: FloatArray, seed: int, folder: Path) -> Served:
    """Play the arrivals to processes in `folder`."""
    _write(fleet, folder)
    began_unix_s = time.time()
    stages = {"model": (fleet.model, seed), "parity": (fleet.parity, seed + 1)}
    bouncers = [
        (("serve", "insured.toml", "--stage", stage, "--pace"), FaultStream(began_unix_s, of_stage, number))
        for stage, (count, of_stage) in stages.items()
        for number in range(1, count + 1)
    ]
    with ExitStack() as running:
        urls = running.enter_context(_processes([one for one, _ in bouncers], folder, [two for _, two in bouncers]))
        parts = {"model": urls[: fleet.model], "parity": urls[fleet.model :]}
        gateways = [("gateway", "--routing", "alb", *(f"--replica={url}" for url in part)) for part in parts.values()]
        at = zip(stages, running.enter_context(_processes(gateways, folder)), strict=True)
        conductor = ("serve", "insured.toml", *(part for name, url in at for part in ("--stage-at", f"{name}={url}")))
        (url,) = running.enter_context(_processes([conductor], folder))
        bodies = [json.dumps({"instances": [[number % 7, 1.0]]}).encode() for number in range(7)]
        target = load.Target(f"{url}/invocations", b"", bodies=bodies)
        start_s = time.time() - began_unix_s
        answers = load.open_loop(target, arrivals_s, 64, _PATIENCE_S)
        claims = json.loads(_page(f"{url}/v2/models/insured/insurance"))
        page = _page(f"{url}/metrics")
        refused = sum(_total(_page(f"{one}/metrics"), "mark_refused_total") for one in urls)
    latency_s = answers["answered_s"] - answers["sent_s"]
    latency_s[answers["status"] != 200] = np.inf
    sent_s = answers["sent_s"] + start_s
    missed = _total(page, 'mark_deadline_misses_total{model="insured",stage=""')
    return Served(sent_s, latency_s, answers["sent_s"] - answers["scheduled_s"], claims, int(missed), int(refused))


def sockets(hours: float, seed: int) -> bool:
    """Print late and reconstructed shares of processes and simulator; True within 0.3 points and 10 %."""
    fleet = Fleet()
    arrivals_s = load.poisson(fleet.rate_rps, 3600.0 * hours, seed)
    with tempfile.TemporaryDirectory(prefix="insured-sockets-") as name:
        real = served(fleet, arrivals_s, seed, Path(name))
    queries = len(real.sent_s)
    model = simulated(real.sent_s, fleet.settings, seed, fleet.faults)
    alone = simulated(real.sent_s, replace(fleet.settings, accept=EXACT), seed, fleet.faults)
    late = {name: one > fleet.rt_max_s + 1e-9 for name, one in (("real", real.latency_s), ("simulated", model[0]))}
    p50_ms, p99_ms = 1e3 * np.quantile(real.lag_s, [0.5, 0.99])
    own_ms = 1e3 * (np.median(real.latency_s) - np.median(model[0]))
    print(f"{queries:,} queries; the client's lag: p50 {p50_ms:.1f} ms, p99 {p99_ms:.1f} ms; the processes' own time "
          f"{own_ms:.1f} ms; {real.refused} calls refused by instances")  # fmt: skip
    counts = {"real": real.claims["reconstructed"], "simulated": model[1]}
    for name, of_world in late.items():
        print(f"{name:<10} late {of_world.mean():.3%}  reconstructed {counts[name] / queries:.3%}")
    print(f"the conductor counts {real.missed / queries:.3%} late; {dict(real.claims)}")
    print(f"simulated without insurance: late {(alone[0] > fleet.rt_max_s + 1e-9).mean():.3%}")
    difference, half = mean_and_half_s(late["real"].astype(float) - late["simulated"].astype(float))
    print(f"late differs by {100 * difference:+.3f} +- {100 * half:.3f} points")
    return abs(difference) <= 0.003 and abs(counts["real"] - counts["simulated"]) <= 0.1 * counts["simulated"]


def _write(fleet: Fleet, folder: Path) -> None:
    rt_max_ms, after_ms = 1e3 * fleet.rt_max_s, 1e3 * fleet.after_s
    answer_ms = 1e3 * fleet.faults.slow_answer_s
    text = SERVICE.format(rt_max_ms=rt_max_ms, after_ms=after_ms, answer_ms=answer_ms, faults=fleet.faults)
    (folder / "insured.toml").write_text(text)
    (folder / "linear.py").write_text(MODEL_CODE)
    (folder / "profile.csv").write_text(
        f"model,instance,batch,latency_ms,basis\nlinear:Linear,here,1,{1e3 * fleet.request_s:g},assumed\n"
    )
    (folder / "parity").mkdir()
    said = {"schema": 1, "code": SUM, "k": fleet.k, "models": ["linear:Linear"]}
    said |= {"input": {"shape": [2]}, "output": {"shape": [3]}}
    (folder / "parity" / "parity.json").write_text(json.dumps(said))


@contextmanager
def _processes(
    commands: Sequence[Sequence[str]], folder: Path, streams: Sequence[FaultStream] = ()
) -> Iterator[list[str]]:
    """Yield the addresses of `mark` processes that start together."""
    with ExitStack() as ends:
        processes = []
        for number, command in enumerate(commands):
            environment = {FAULT_STREAM: streams[number].as_text()} if streams else {}
            process = subprocess.Popen(
                [sys.executable, "-m", "mark.cli.main", *command, "--port", "0"],
                cwd=folder, stderr=subprocess.PIPE, text=True, env=os.environ | environment,
            )  # fmt: skip
            ends.callback(_end, process)
            processes.append(process)
        yield [_address(process) for process in processes]


def _address(process: subprocess.Popen[str]) -> str:
    assert process.stderr is not None
    said = []
    for line in process.stderr:
        said.append(line)
        if " is ready on " in line:
            return line.split()[-1]
    raise RuntimeError("".join(said))


def _end(process: subprocess.Popen[str]) -> None:
    process.send_signal(signal.SIGTERM)
    process.communicate(timeout=_END_S)


def _page(url: str) -> str:
    with urllib.request.build_opener(urllib.request.ProxyHandler({})).open(url, timeout=_PATIENCE_S) as page:
        return str(page.read().decode())


def _total(page: str, name: str) -> float:
    """Return the sum of a metric's values whose lines begin with `name`."""
    return sum(float(value) for value in re.findall(rf"^{re.escape(name)}.* (\S+)$", page, re.MULTILINE))
