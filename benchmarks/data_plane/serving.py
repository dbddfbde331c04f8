"""The data plane beside mosec, FastAPI, LitServe, BentoML, MLServer and Ray Serve: same machine, same work, one core.

    python benchmarks/data_plane/serving.py [--peers .venv-serving-peers] [--servers mark,mosec,...]
            [--workloads echo,...]
                                 [--rounds 5] [--seconds 5] [--ours COMMAND] [--out out/serving]

A server has core 0 for all its processes, and the client has core 1. The client is wrk if it is installed, else
load.py, and has 64 connections; each sends again when it is answered. The workloads are an echo of 107 bytes of JSON;
4 KiB of float32 times a fixed 1024 x 64 matrix; and a model that takes 5 ms + 0.2 ms x b for a batch of b <= 32, so at
most 2,807 requests/s. That model also gets 90 % of this rate as a Poisson stream, where latency counts from the due
time of a request.

Each round restarts every server, in an order that rotates, so that a machine that gets slower affects all servers
alike. The table has the median of the rounds. Every answer is compared with the right one, byte by byte, and only right
answers count. The table also says how many requests were refused (429, 503), and how many were answered wrongly or not
at all. Writes OUT.json, OUT.md and OUT.html.
"""

from __future__ import annotations

import argparse
import http.client
import json
import os
import shutil
import signal
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import load
import numpy as np
import psutil

HERE = Path(__file__).resolve().parent / "serving_peers"
sys.path.insert(0, str(HERE))
import work  # noqa: E402 (the peers find it in their folder, with a Python without packages of ours)

COMPILED = Path(__file__).resolve().parents[2] / ".compiled"  # as `make bench-serving` makes it
SERVER_CORE, CLIENT_CORE = 0, 1
CONNECTIONS = 64
WORKLOADS = {"echo": "echo, 107 B JSON", "binary": "4 KiB binary x matrix", "sleep": "5 ms + 0.2 ms x batch"}
SLO_MS = 100  # of our service files: far above the need of any workload
BASELINE = "mosec"
TOO_MUCH = "Ray Serve"  # its processes keep one core busy with tens of requests/s, so it runs only if named

DATA = [1.5, 2.5, 3.5, 4.5, 5.5, 6.5, 7.5, 8.5]
# The id is there because MLServer otherwise invents a new id for every answer.
ECHO = json.dumps(
    {"id": "1", "inputs": [{"name": "x", "shape": [1, 8], "datatype": "FP32", "data": DATA}]}, separators=(",", ":")
).encode()
ROW = (np.arange(work.WIDTH) % 17 - 8).astype(np.float32)
PRODUCT = work.product(ROW[None])[0].tobytes()
OIP_HEAD = json.dumps(
    {
        "id": "1",
        "inputs": [
            {
                "name": "x",
                "shape": [1, work.WIDTH],
                "datatype": "FP32",
                "parameters": {"binary_data_size": ROW.nbytes},
            }
        ],
        "parameters": {"binary_data_output": True},
    },
    separators=(",", ":"),
).encode()


@dataclass(frozen=True)
class Server:
    """The command that starts a server ({words} are filled in), and the form of its requests."""

    command: str
    path: str = "/inference"
    workloads: tuple[str, ...] = tuple(WORKLOADS)
    oip_binary: bool = False  # tensors come as the protocol's binary extension, otherwise as bare octets
    python: str = "bin/python"  # within the folder of the peers
    compiled: bool = False


def servers(ours: str) -> dict[str, Server]:
    json_only = ("echo", "sleep")
    return {
        "mark": Server(ours, "/v2/models/{workload}/infer", oip_binary=True),
        "mark-invocations": Server(ours, "/invocations"),
        "mark-compiled": Server(ours, "/v2/models/{workload}/infer", oip_binary=True, compiled=True),
        "mark-compiled-invocations": Server(ours, "/invocations", compiled=True),
        "mosec": Server("{python} mosec_server.py {port} json"),
        "mosec-orjson": Server("{python} mosec_server.py {port} orjson", workloads=json_only),
        "FastAPI": Server("{python} fastapi_server.py {port}"),
        "LitServe": Server("{python} litserve_server.py {port}", "/predict", json_only),
        "BentoML": Server(
            "{python} -m bentoml serve bentoml_server:Echo --host 127.0.0.1 --port {port}", workloads=json_only
        ),
        "MLServer": Server(
            "{python} mlserver_server.py {port} {port2} {port3}",
            "/v2/models/echo/infer",
            json_only,
            python="mlserver/bin/python",
        ),
        "Ray Serve": Server("{python} ray_server.py {port}"),
    }


OURS = f"{Path(sys.executable).parent / 'mark'} serve {{file}} --port {{port}}"
# Ours runs from a service file with a profile beside it; the model of each workload is a class in models.py.
MODELS = {"echo": "models:Echo", "binary": "models:Product", "sleep": "models:Echo"}
SERVICE = """\
[service]
name = "{workload}"
model = "{model}"
profile = "profile.csv"
slo_ms = {slo_ms:g}
slo_attainment = 0.98
[overflow]
function = "none"
"""
# Milliseconds for a batch of 1 and for the largest, on a line between. The first two were measured roughly: they are
# so far below the SLO that they decide nothing.
PROFILES = {"echo": (0.1, 1.0), "binary": (0.1, 1.5), "sleep": (5.2, 11.4)}


def service_file(folder: Path, workload: str) -> Path:
    model, (one_ms, largest_ms) = MODELS[workload], PROFILES[workload]
    rows = [f"{model},here,1,{one_ms}", f"{model},here,{work.LARGEST[workload]},{largest_ms}"]
    (folder / "profile.csv").write_text("\n".join(["model,instance,batch,latency_ms", *rows]) + "\n")
    file = folder / "service.toml"
    file.write_text(SERVICE.format(workload=workload, model=model, slo_ms=SLO_MS))
    return file


@contextmanager
def started(server: Server, workload: str, peers: Path) -> Iterator[tuple[psutil.Process, load.Target, float]]:
    """Yield the running server, a target with the right answer in it, and the seconds until the first such answer."""
    if server.compiled and not COMPILED.is_dir():
        raise SystemExit("the data plane is not compiled here: make .compiled/.done")
    ports = free_ports(3)
    with tempfile.TemporaryDirectory() as folder:
        file = service_file(Path(folder), workload)
        words = {"python": peers.absolute() / server.python, "workload": workload, "file": file}
        words |= dict(zip(("port", "port2", "port3"), ports, strict=True))
        command = [word.format(**words) for word in server.command.split()]
        environment = os.environ | {
            "OMP_NUM_THREADS": "1",
            "WORKLOAD": workload,
            "PYTHONPATH": f"{COMPILED}:{HERE}" if server.compiled else str(HERE),
            "HOME": folder,
        }
        environment |= {"RAY_USAGE_STATS_ENABLED": "0", "BENTOML_DO_NOT_TRACK": "True"}  # no telemetry
        log = Path(folder) / "log"
        began = time.perf_counter()
        with log.open("wb") as output:
            process = psutil.Popen(
                ["taskset", "-c", str(SERVER_CORE), *command],
                cwd=HERE,
                env=environment,
                stdout=output,
                stderr=output,
                start_new_session=True,
            )
        try:
            url = f"http://127.0.0.1:{ports[0]}{server.path.format(workload=workload)}"
            target = question(url, workload, server.oip_binary)
            answer = first_answer(target, process, log)
            ready_s = time.perf_counter() - began
            assert is_right(answer, workload), (server, workload, answer[:300])
            yield process, replace(target, expected=answer), ready_s
        finally:
            stop(process)


def question(url: str, workload: str, oip_binary: bool) -> load.Target:
    if workload != "binary":
        return load.Target(url, ECHO, {"content-type": "application/json"})
    if oip_binary:
        headers = {"content-type": "application/octet-stream", "inference-header-content-length": str(len(OIP_HEAD))}
        return load.Target(url, OIP_HEAD + ROW.tobytes(), headers)
    return load.Target(url, ROW.tobytes(), {"content-type": "application/octet-stream"})


def is_right(answer: bytes, workload: str) -> bool:
    """Return whether an answer is right in meaning; later ones must repeat its bytes.

    Tensors come last in an answer.
    """
    return answer.endswith(PRODUCT) if workload == "binary" else numbers(json.loads(answer)) == DATA


def numbers(value: Any) -> Any:
    """Return the `data` of the first tensor in an answer."""
    if isinstance(value, list):
        return numbers(value[0])
    for key in ("data", "inputs", "outputs"):
        if key in value:
            return value[key] if key == "data" else numbers(value[key])
    return None


def first_answer(target: load.Target, process: psutil.Process, log: Path, patience_s: float = 90.0) -> bytes:
    """Ask until it answers 200, every 20 ms."""
    until = time.perf_counter() + patience_s
    said: object = "nothing"
    while time.perf_counter() < until:
        if not process.is_running() or process.status() == psutil.STATUS_ZOMBIE:
            break
        try:
            connection = http.client.HTTPConnection(*target.address, timeout=10)
            connection.request("POST", target.path, target.body, dict(target.headers))
            response = connection.getresponse()
            body = response.read()
            if response.status == 200:
                return body
            said = (response.status, body[:300])
        except (OSError, http.client.HTTPException) as error:
            said = error
        finally:
            connection.close()
        time.sleep(0.02)
    raise RuntimeError(f"it never answered: {said}\n{log.read_text(errors='replace')[-2000:]}")


def family(process: psutil.Process) -> list[psutil.Process]:
    return [process, *process.children(recursive=True)]


def stop(process: psutil.Process) -> None:
    """Stop the server as an operator would, then by force, including processes that left the group."""
    processes = family(process) if process.is_running() else []
    for one in processes[:1]:
        one.send_signal(signal.SIGTERM)
    _, left = psutil.wait_procs(processes, timeout=5)
    for one in left:
        one.kill()
    psutil.wait_procs(left, timeout=5)


def cpu_s(process: psutil.Process) -> float:
    """Return the processor time of all its processes so far, in steps of 10 ms."""
    times = [one.cpu_times() for one in family(process)]
    return sum(t.user + t.system for t in times)


def closed(target: load.Target, seconds: int) -> dict[str, float]:
    """Return right, refused, wrong, seconds, p50_ms and p99_ms of a closed loop; wrk's latency includes refusals."""
    wrk = shutil.which("wrk")
    if wrk is None:
        found = load.summary(load.closed_loop(target, seconds, CONNECTIONS))
        right = found.requests - found.refused - found.wrong
        took_s = right / found.rate_rps if right else seconds
        return {
            "right": right,
            "refused": found.refused,
            "wrong": found.wrong,
            "seconds": took_s,
            "p50_ms": found.p50_ms,
            "p99_ms": found.p99_ms,
        }
    with tempfile.TemporaryDirectory() as folder:
        body, expected = Path(folder) / "body", Path(folder) / "expected"
        body.write_bytes(target.body)
        expected.write_bytes(target.expected or b"")
        headers = [text for header in target.headers.items() for text in header]
        command = [wrk, "-t1", f"-c{CONNECTIONS}", f"-d{seconds}s", "--timeout", "10s", "-s", str(HERE / "check.lua")]
        command += [target.url, "--", str(body), str(expected), *headers]
        said = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    return dict(json.loads(said.splitlines()[-1]))


def measure(server: Server, workload: str, peers: Path, seconds: int) -> dict[str, float]:
    """Make one run: start, warm up for a second, measure, stop."""
    with started(server, workload, peers) as (process, target, ready_s):
        closed(target, 1)
        cpu_before = cpu_s(process)
        found = closed(target, seconds)
        cpu_us = 1e6 * (cpu_s(process) - cpu_before)
        run = {
            "rate_rps": found["right"] / found["seconds"],
            "p50_ms": found["p50_ms"],
            "p99_ms": found["p99_ms"],
            "refused": found["refused"],
            "wrong": found["wrong"],
            "cpu_us": cpu_us / max(found["right"], 1),
            "ready_s": ready_s,
            "rss_mb": sum(one.memory_info().rss for one in family(process)) / 1e6,
        }
        if workload == "sleep":
            assert run["rate_rps"] < 1.02 * work.CEILING_RPS, f"{run['rate_rps']:.0f}/s: it doesn't do the work"
            arrivals_s = load.poisson(0.9 * work.CEILING_RPS, seconds, seed=1)
            offered = load.summary(load.open_loop(target, arrivals_s, connections=900))
            run |= {
                "open_p50_ms": offered.p50_ms,
                "open_p99_ms": offered.p99_ms,
                "open_refused": offered.refused,
                "open_wrong": offered.wrong,
                "open_lag_p99_ms": offered.lag_p99_ms,
            }
    return run


def free_ports(count: int) -> list[int]:
    """Return ports that were free when checked; all were open together, so that they differ."""
    sockets = [socket.create_server(("127.0.0.1", 0)) for _ in range(count)]
    ports = [one.getsockname()[1] for one in sockets]
    for one in sockets:
        one.close()
    return ports


Table = dict[str, dict[str, dict[str, float]]]  # workload, server, figure


def medians(runs: dict[str, dict[str, list[dict[str, float]]]]) -> Table:
    """Add up refused and wrong answers, and take the median of the rounds of all else."""

    def over(rounds: list[dict[str, float]], key: str) -> float:
        values = [run[key] for run in rounds]
        return sum(values) if key.endswith(("refused", "wrong")) else statistics.median(values)

    return {
        workload: {name: {key: over(rounds, key) for key in rounds[0]} for name, rounds in by_name.items() if rounds}
        for workload, by_name in runs.items()
    }


def markdown(table: Table) -> str:
    lines: list[str] = []
    for workload, rows in table.items():
        sleep = workload == "sleep"
        extra = ["of the ceiling", "p50 / p99 at 90 %, ms"] if sleep else []
        head = ["server", "requests/s", f"x {BASELINE}", *extra, "p50, ms", "p99, ms", "CPU us/request"]
        head += ["ready, s", "RSS, MB", "refused", "wrong"]
        lines += [f"**{WORKLOADS[workload]}**", "", f"| {' | '.join(head)} |", "|---" + "|--:" * (len(head) - 1) + "|"]
        for name, row in sorted(rows.items(), key=lambda item: (-item[1]["rate_rps"], item[0])):
            against = f"{row['rate_rps'] / rows[BASELINE]['rate_rps']:.2f}" if BASELINE in rows else "-"
            cells = [name, f"{row['rate_rps']:,.0f}", against]
            if sleep:
                cells += [f"{row['rate_rps'] / work.CEILING_RPS:.1%}"]
                cells += [f"{row['open_p50_ms']:.1f} / {row['open_p99_ms']:.1f}"]
            cells += [f"{row['p50_ms']:.2f}", f"{row['p99_ms']:.2f}", f"{row['cpu_us']:.0f}", f"{row['ready_s']:.2f}"]
            cells += [f"{row['rss_mb']:.0f}"]
            cells += [f"{row[what] + row.get(f'open_{what}', 0):.0f}" for what in ("refused", "wrong")]
            lines.append(f"| {' | '.join(cells)} |")
        lines.append("")
    return "\n".join(lines)


def plot(table: Table, runs: dict[str, dict[str, list[dict[str, float]]]], file: Path) -> None:
    """Plot requests/s: a panel for each workload, the bar at the median, a dot for each round."""
    from plotly.subplots import make_subplots

    figure = make_subplots(rows=1, cols=len(table), subplot_titles=[WORKLOADS[workload] for workload in table])
    for column, (workload, rows) in enumerate(table.items(), 1):
        names = sorted(rows, key=lambda name: (rows[name]["rate_rps"], name))
        colors = ["#0b6e4f" if name.startswith("mark") else "#9aa5b1" for name in names]
        rates = [rows[name]["rate_rps"] for name in names]
        figure.add_bar(x=rates, y=names, orientation="h", marker_color=colors, row=1, col=column)
        dots = [(run["rate_rps"], name) for name in names for run in runs[workload][name]]
        x, y = zip(*dots, strict=True)
        figure.add_scatter(x=x, y=y, mode="markers", marker={"color": "black", "size": 4}, row=1, col=column)
        if workload == "sleep":
            figure.add_vline(x=work.CEILING_RPS, line_dash="dot", row=1, col=column)
    figure.update_layout(title="Requests/s on one core, 64 connections", showlegend=False, template="plotly_white")
    figure.write_html(file, include_plotlyjs=True)


def main(argv: Sequence[str] = sys.argv[1:]) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--peers", type=Path, default=Path(".venv-serving-peers"), metavar="FOLDER")
    parser.add_argument("--servers", help=f"servers (default: all but {TOO_MUCH})", metavar="A,B")
    parser.add_argument("--workloads", default=",".join(WORKLOADS), metavar="A,B")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=int, default=5)
    parser.add_argument("--ours", default=OURS)
    parser.add_argument(
        "--out", type=Path, default=Path("out/serving"), metavar="PATH", help="path of the results without a suffix"
    )
    args = parser.parse_args(argv)
    os.sched_setaffinity(0, {CLIENT_CORE})
    known = servers(args.ours)
    names = args.servers.split(",") if args.servers else [name for name in known if name != TOO_MUCH]
    runs: dict[str, dict[str, list[dict[str, float]]]] = {
        workload: {name: [] for name in names if workload in known[name].workloads}
        for workload in args.workloads.split(",")
    }
    failed: list[str] = []
    for workload, by_name in runs.items():
        for turn in range(args.rounds):
            order = list(by_name)
            order = order[turn % len(order) :] + order[: turn % len(order)]
            for name in order:
                try:
                    run = measure(known[name], workload, args.peers, args.seconds)
                except RuntimeError as error:
                    print(f"{workload:7s} {name:20s} failed: {error}", flush=True)
                    failed.append(f"{name} ({workload})")
                    continue
                by_name[name].append(run)
                print(f"{workload:7s} {name:20s} {run['rate_rps']:9,.0f}/s  {run['cpu_us']:6.0f} us", flush=True)
    table = medians(runs)
    args.out.parent.mkdir(parents=True, exist_ok=True)
    args.out.with_suffix(".json").write_text(
        json.dumps({"medians": table, "runs": runs, "failed": failed}, indent=2) + "\n"
    )
    args.out.with_suffix(".md").write_text(markdown(table))
    plot(table, runs, args.out.with_suffix(".html"))
    print(markdown(table))
    if failed:
        sys.exit(f"failed: {', '.join(failed)}")


if __name__ == "__main__":
    main()
