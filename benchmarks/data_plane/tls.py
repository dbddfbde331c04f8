"""The cost of TLS for a bouncer's requests, for new connections, and for the controller's rounds of metrics.

    python benchmarks/data_plane/tls.py [--rounds 5] [--seconds 3] [--bouncers 500]

A bouncer without TLS and one with a certificate, made as instances on AWS make it, take turns on core 0. wrk has core 1
and keeps 64 connections, or opens a new connection for each request. CPU is the time of the bouncer and its worker.
Then the controller's scraper asks `--bouncers` addresses of loopback for metrics every five seconds. Here CPU is the
time of this process from one round to the next. The figures are medians; compare only medians of the same run.
"""

from __future__ import annotations

import argparse
import asyncio
import http.client
import itertools
import multiprocessing
import os
import queue
import ssl
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from multiprocessing.connection import Connection
from pathlib import Path

import load
import psutil
import serving
from mark_infra.telemetry.clock import WallClock
from mark_infra.telemetry.scraper import Scraper
from mark_infra.telemetry.telemetry import ScrapeTarget

from mark.serving.frontend.http import Exchange, HttpLimits, HttpServer
from mark.serving.frontend.tls import TlsFiles

SCHEMES = ("http", "https")
LOADS = {"echo": ("echo", ()), "binary": ("binary", ()), "connect": ("echo", ("-H", "Connection: close"))}
SCALE = 1.0  # of the clock


def certificate(folder: Path) -> TlsFiles:
    """Make a certificate as the unit of terraform/modules/fleet/bouncer.sh.tftpl does."""
    files = TlsFiles(folder / "tls.crt", folder / "tls.key")
    command = "openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -days 3650 -subj /CN=i-1"
    said = ["-keyout", str(files.key), "-out", str(files.certificate)]
    subprocess.run([*command.split(), *said], check=True, capture_output=True)
    return files


@contextmanager
def bouncer(folder: Path, workload: str, tls: TlsFiles | None) -> Iterator[tuple[psutil.Process, str]]:
    """Yield the process, and its address."""
    (port,) = serving.free_ports(1)
    file = serving.service_file(folder, workload)
    command = ["taskset", "-c", str(serving.SERVER_CORE), *serving.OURS.format(file=file, port=port).split()]
    if tls is not None:
        command += ["--tls-cert", str(tls.certificate), "--tls-key", str(tls.key)]
    with (folder / "log").open("wb") as log:
        path = f"{serving.HERE}:{os.environ.get('PYTHONPATH', '')}"  # the models are loaded
        process = psutil.Popen(
            command, env=os.environ | {"PYTHONPATH": path}, stdout=log, stderr=log, start_new_session=True
        )
    try:
        url = f"{'http' if tls is None else 'https'}://127.0.0.1:{port}"
        until_s = time.perf_counter() + 90.0
        while got(url, "/v2/health/ready") is None:
            assert process.poll() is None, (folder / "log").read_text()
            assert time.perf_counter() < until_s, (folder / "log").read_text()
            time.sleep(0.05)
        yield process, url
    finally:
        serving.stop(process)


def got(url: str, path: str) -> bytes | None:
    """Return the body of a good answer."""
    address, port = url.rsplit("/", 1)[1].split(":")
    connection: http.client.HTTPConnection = http.client.HTTPConnection(address, int(port))
    if url.startswith("https:"):
        connection = http.client.HTTPSConnection(address, int(port), context=ssl._create_unverified_context())
    try:
        connection.request("GET", path)
        answer = connection.getresponse()
        body = answer.read()
        return body if answer.status == 200 else None
    except OSError:
        return None
    finally:
        connection.close()


def run(process: psutil.Process, target: load.Target, seconds: float, extra: Sequence[str]) -> tuple[float, float]:
    """Return requests/s, and CPU in microseconds a request, of answers with 200."""
    with tempfile.NamedTemporaryFile("w", suffix=".lua") as script:
        body = "".join(f"\\{byte}" if byte > 99 else f"\\{byte:03}" for byte in target.body)
        script.write(f'wrk.method = "POST"\nwrk.body = "{body}"\n')
        script.write("".join(f'wrk.headers["{name}"] = "{value}"\n' for name, value in target.headers.items()))
        script.write(
            "done = function(summary) local e = summary.errors\nio.write(summary.requests, ' ', summary.duration, ' ', "
            "e.connect + e.read + e.write + e.status + e.timeout, '\\n') end\n"
        )
        script.flush()
        command = ["taskset", "-c", str(serving.CLIENT_CORE), "wrk", "-t1", f"-c{serving.CONNECTIONS}"]
        command += [f"-d{seconds:g}s", "-s", script.name, *extra, target.url]
        before_s = serving.cpu_s(process)
        said = subprocess.run(command, check=True, capture_output=True, text=True).stdout.splitlines()[-1]
        requests, duration_us, errors = map(float, said.split())
        assert errors == 0.0, said
        return 1e6 * requests / duration_us, 1e6 * (serving.cpu_s(process) - before_s) / requests


def requests(rounds: int, seconds: float) -> bytes:
    """Print a bouncer's throughput and return a page of its metrics."""
    page = b""
    for name, (workload, extra) in LOADS.items():
        with ExitStack() as stack:
            folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
            tls, there = certificate(folder), {}
            for scheme in SCHEMES:
                (folder / scheme).mkdir()
                there[scheme] = stack.enter_context(
                    bouncer(folder / scheme, workload, tls if scheme == "https" else None)
                )
            found: dict[str, list[tuple[float, float]]] = {scheme: [] for scheme in SCHEMES}
            for number in range(rounds + 1):
                for scheme in SCHEMES[:: 1 if number % 2 else -1]:
                    process, url = there[scheme]
                    target = serving.question(f"{url}/v2/models/{workload}/infer", workload, True)
                    measured = run(process, target, seconds if number else 1.0, extra)
                    found[scheme] += [measured] if number else []
            for scheme, measured_all in found.items():
                rate_rps, cpu_us = (statistics.median(values) for values in zip(*measured_all, strict=True))
                print(f"{name}, {scheme}: {rate_rps:,.0f} requests/s, {cpu_us:.0f} us of CPU each", flush=True)
            page = got(there["http"][1], "/metrics") or page
    return page


def serve_pages(page: bytes, tls: TlsFiles | None, port: Connection) -> None:
    """Serve the page at every address of loopback, with the bouncers' own HTTP server."""

    async def forever() -> None:
        server = HttpServer(lambda e: _answered(e, page), HttpLimits(connections=10_000))
        port.send(await server.start("0.0.0.0", 0, None if tls is None else tls.context()))
        await asyncio.Event().wait()

    asyncio.run(forever())


def _answered(exchange: Exchange, page: bytes) -> None:
    exchange.answer(200, page)


def scrapes(page: bytes, count: int, tls: TlsFiles | None, rounds: int) -> tuple[float, float]:
    """Return the CPU seconds of the first round, in which connections are made, and the median of the later ones."""
    ours, theirs = multiprocessing.Pipe()
    server = multiprocessing.get_context("spawn").Process(target=serve_pages, args=(page, tls, theirs), daemon=True)
    server.start()
    port, scheme = ours.recv(), "http" if tls is None else "https"
    addresses = [f"127.0.{n // 250 + 1}.{n % 250 + 1}" for n in range(count)]
    targets = [ScrapeTarget(a, f"{scheme}://{a}:{port}", "c5.large/on-demand", 0.0) for a in addresses]
    heard: queue.Queue[tuple[float, int]] = queue.Queue()
    scraper, began_s = Scraper(), time.process_time()
    scraper.watch(
        WallClock(time.time(), SCALE),
        lambda: targets,
        None,
        lambda window, asked, answered, gateway: heard.put((time.process_time(), len(answered))),
    )
    ends = [heard.get()]
    while sum(answered == count for _, answered in ends) <= rounds:  # some are late on a busy machine
        ends.append(heard.get())
    scraper.close()
    server.kill()
    server.join()
    full = next(n for n, (_, answered) in enumerate(ends) if answered == count)
    rounds_s = [after[0] - before[0] for before, after in itertools.pairwise(ends[full:]) if after[1] == count]
    return ends[full][0] - began_s, statistics.median(rounds_s)


def main(argv: Sequence[str] = sys.argv[1:]) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=3.0)
    parser.add_argument("--bouncers", type=int, default=500)
    arguments = parser.parse_args(argv)
    page = requests(arguments.rounds, arguments.seconds)
    with tempfile.TemporaryDirectory() as folder:
        tls = certificate(Path(folder))
        found: dict[str, list[tuple[float, float]]] = {scheme: [] for scheme in SCHEMES}
        for _ in range(arguments.rounds):
            for scheme in SCHEMES:
                found[scheme].append(scrapes(page, arguments.bouncers, tls if scheme == "https" else None, 5))
    for scheme, rounds_s in found.items():
        first_s, later_s = (statistics.median(values) for values in zip(*rounds_s, strict=True))
        print(
            f"{arguments.bouncers} bouncers' metrics ({len(page)} B), {scheme}: {later_s:.3f} s of CPU a round", end=""
        )
        print(f", {first_s:.3f} s until all are connected")


if __name__ == "__main__":
    main()
