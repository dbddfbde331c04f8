"""Debian's Prometheus on loopback, with series that are imported before it starts.

`make .prometheus/.done` unpacks it; one on the PATH serves as well.
"""

from __future__ import annotations

import json
import shutil
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.infra.testbed.real_processes import wait_for
from tests.prometheus import Stored

UNPACKED = Path(__file__).resolve().parents[1] / ".prometheus" / "usr" / "bin"


@contextmanager
def real_prometheus(
    series: Sequence[Stored], folder: Path, *options: str, web: str = "", scheme: str = "http"
) -> Iterator[str]:
    """Yield the address of a Prometheus that has `series`; NaN values are scrapes without the target.

    `options` are its flags, `web` is its web configuration file: users, certificates.
    """
    folder.mkdir(parents=True, exist_ok=True)
    _import(series, folder)
    (folder / "prometheus.yml").write_text("global: {scrape_interval: 1h}\n")
    (folder / "web.yml").write_text(web)
    command = [
        program("prometheus"),
        f"--config.file={folder / 'prometheus.yml'}",
        f"--web.config.file={folder / 'web.yml'}",
        f"--storage.tsdb.path={folder / 'data'}",
        "--storage.tsdb.retention.time=100y",
        "--web.listen-address=127.0.0.1:0",
        "--log.format=json",
        *options,
    ]
    log = folder / "log"
    with log.open("wb") as into:
        process = subprocess.Popen(command, stdout=into, stderr=subprocess.STDOUT)
    try:
        wait_for(lambda: process.poll() is not None or _ready(log), "a Prometheus that is ready")
        assert process.poll() is None, log.read_text()
        (address,) = (line["address"] for line in _logged(log) if line.get("msg", "") == "Listening on")
        yield f"{scheme}://{address}"
    finally:
        process.kill()
        process.wait()


def program(name: str) -> str:
    """Return the path of one of Prometheus' programs, or skip the test."""
    path = shutil.which(name, path=str(UNPACKED)) or shutil.which(name)
    if path is None:
        pytest.skip(f"{name} is not here: make .prometheus/.done")
    return path


def _import(series: Sequence[Stored], folder: Path) -> None:
    lines: dict[str, list[str]] = {}  # by metric, because a metric's lines must be together
    for one in series:
        name = one.labels["__name__"]
        for at_s, value in zip(one.times_s.tolist(), one.values.tolist(), strict=True):
            if value == value:
                lines.setdefault(name, []).append(f"{name}{_labels(one.labels)} {value!r} {at_s:.3f}\n")
    text = "".join(f"# TYPE {name} unknown\n{''.join(found)}" for name, found in lines.items()) + "# EOF\n"
    (folder / "samples").write_text(text)
    command = [
        program("promtool"),
        "tsdb",
        "create-blocks-from",
        "openmetrics",
        str(folder / "samples"),
        str(folder / "data"),
    ]
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)


def _labels(labels: Mapping[str, str]) -> str:
    return "{" + ",".join(f"{name}={json.dumps(value)}" for name, value in labels.items() if name != "__name__") + "}"


def _logged(log: Path) -> Iterator[dict[str, str]]:
    """The whole lines of the log."""
    for line in log.read_text().splitlines(keepends=True):
        if line.endswith("\n"):
            yield json.loads(line)


def _ready(log: Path) -> bool:
    return any(line.get("msg", "").startswith("Server is ready") for line in _logged(log))
