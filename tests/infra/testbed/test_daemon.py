"""The whole testbed by its commands: up, load, an interruption, kills, status, down; and no process or file is left."""

from __future__ import annotations

import io
import json
import os
import signal
import subprocess
import sys
import urllib.request
from concurrent.futures import ThreadPoolExecutor
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path
from typing import Any

import psutil
import pytest
from mark_infra.aws.site import load_site
from mark_infra.testbed.daemon import write_secret
from mark_infra.testbed.testbed_folder import SITE

from mark.cli.main import main
from tests.infra.testbed.real_processes import get, processes_of, wait_for

SERVICE = """
[service]
name = "quick"
model = "quick"
slo_ms = 500
slo_attainment = 0.9
routing = "alb"
profile = "profiles.csv"
[fleet]
catalog = "catalog.csv"
markets = ["on-demand", "spot"]
instances = ["c7i.*"]
max_instances = 3
max_usd_per_hour = 5.0
[overflow]
function = "lambda:1024"
"""
PROFILES = """model,instance,batch,latency_ms,cold_ms,basis
quick,c7i.large,1,20,,assumed
quick,c7i.large,4,30,,assumed
quick,lambda:1024,1,30,500,assumed
"""
CATALOG = """instance,market,zone,usd_per_hour,vcpu,memory_gib,gpus,boot_mean_s,boot_p95_s,interruptions_per_hour,\
retired,usd_per_gb_second,usd_per_million_requests,billing_step_ms,concurrency,ramp_per_10s,keep_alive_s
c7i.large,on-demand,,0.1,2,4,0,3,3,,false,,,,,,
c7i.large,spot,us-east-1a,0.03,2,4,0,3,3,0.01,false,,,,,,
lambda:1024,function,,,,,,,,,false,0.0000167,0.2,1,4,4,600
"""


def mark(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run it as a process of its own."""
    return subprocess.run(
        [sys.executable, "-m", "mark.cli.main", "testbed", *arguments],
        cwd=folder, capture_output=True, text=True, timeout=170, check=False,
    )  # fmt: skip


def here(*arguments: str) -> subprocess.CompletedProcess[str]:
    """Run it in this process, which has imported all modules, and in the test's folder."""
    out, err = io.StringIO(), io.StringIO()
    with redirect_stdout(out), redirect_stderr(err):
        code = main(["testbed", *arguments])
    return subprocess.CompletedProcess(arguments, code, out.getvalue(), err.getvalue())


def status() -> Any:
    done = here("status", "--json", "-")
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "quick.toml").write_text(SERVICE)
    (tmp_path / "profiles.csv").write_text(PROFILES)
    (tmp_path / "catalog.csv").write_text(CATALOG)
    yield tmp_path
    for process in processes_of(tmp_path):
        process.kill()
    psutil.wait_procs(processes_of(tmp_path), timeout=60)


def test_secret_appears_only_when_all_of_it_is_written(tmp_path: Path) -> None:
    """`up` waits for the file and reads it immediately."""
    file = tmp_path / "daemon.json"
    with pytest.raises(UnicodeEncodeError):
        write_secret(file, "\ud800")  # cannot be written
    assert not file.exists()
    write_secret(file, "{}")
    assert (file.read_text(), file.stat().st_mode & 0o777) == ("{}", 0o600)


@pytest.mark.slow
def test_a_day_of_the_testbed(folder: Path) -> None:
    done = mark(folder, "up", "quick.toml", "--compress", "10", "--seed", "1")
    assert done.returncode == 0, done.stderr
    assert "AWS endpoint" in done.stdout
    assert "Live page http://127.0.0.1:" in " ".join(done.stdout.split())
    assert (folder / ".mark-testbed" / "daemon.json").stat().st_mode & 0o077 == 0  # only the owner may read the token
    again = here("up", "quick.toml")
    assert (again.returncode, "runs here already" in again.stderr) == (2, True)

    # There is one class: its group gets all requests, by the weight that the controller gave to the rule. After the
    # load the controller may end every instance, so the gateway is asked while the load goes on.
    there = load_site(folder / ".mark-testbed" / SITE).service("quick")
    gateway, everything = there.gateway, {(there.target_groups[0], 999.0)}
    assert gateway is not None
    with ThreadPoolExecutor(1) as pool:
        load = ("load", "synthetic:poisson?rate=20", "--duration", "60", "--log", "log.csv", "--json", "-")
        loading = pool.submit(mark, folder, *load)
        wait_for(lambda: groups(gateway) == everything, "a replica that gets everything")
        done = loading.result()
    assert done.returncode == 0, done.stderr
    data = json.loads(done.stdout)
    assert data["world"] == "testbed"
    requests = data["requests"]
    assert requests["total"] == sum(requests[by] for by in ("instances", "functions", "rejected")) > 60
    assert requests["instances"] > requests["total"] / 4  # the exact share depends on this machine
    assert (data["unanswered"], data["answered_twice"]) == (0, 0)
    assert len((folder / "log.csv").read_text().splitlines()) == requests["total"] + 1

    controller = wait_for(lambda: status()["controllers"][0], "a controller")
    os.kill(controller["pid"], signal.SIGKILL)
    shown = wait_for(lambda: restarted(controller["pid"]), "another controller")
    assert shown["launched"] >= 1
    assert shown["problems"] == []
    spot = [one for one in shown["fleet"] if "/spot/" in one["offer"] and one["state"] == "running"]
    said = here("interrupt", "--share", "1")
    assert said.returncode == 0, said.stderr
    assert all(one["id"] in said.stdout for one in spot)
    page = urllib.request.urlopen(shown["controllers"][0]["url"], timeout=60.0)
    with page:
        assert b"<html" in page.read()

    children = processes_of(folder)
    assert len(children) >= 4  # daemon, functions, gateway, controller
    done = mark(folder, "down")
    assert done.returncode == 0, done.stderr
    assert "would have cost $" in done.stdout
    assert not (folder / ".mark-testbed").exists()
    assert processes_of(folder) == []
    assert here("status").returncode == 2


def groups(gateway: str) -> set[tuple[str, float]]:
    """Return target groups of the gateway's replicas, with their weights."""
    replicas = get(f"{gateway}/admin/replicas")[1]["replicas"].values()
    return {(one["group"], one["weight"]) for one in replicas}


def restarted(old: int) -> dict[str, Any] | None:
    shown: dict[str, Any] = status()
    controller = shown["controllers"][0]
    return shown if controller["starts"] == 2 and controller["pid"] not in (None, old) and controller["url"] else None


@pytest.mark.slow
def test_a_daemon_that_is_killed_takes_everything_along(folder: Path) -> None:
    assert mark(folder, "up", "quick.toml").returncode == 0
    daemon = json.loads((folder / ".mark-testbed" / "daemon.json").read_text())["pid"]
    assert len(psutil.Process(daemon).children(recursive=True)) >= 3
    os.kill(daemon, signal.SIGKILL)
    wait_for(lambda: not processes_of(folder), "the end of everything")
    assert here("status").returncode == 2
    up = mark(folder, "up", "quick.toml")  # leftovers of the old one are no obstacle
    assert up.returncode == 0, up.stderr
    assert here("down").returncode == 0


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("up", "nowhere.toml"), "nowhere.toml"),
        (("up", "quick.toml", "quick.toml"), "names a service twice"),
        (("up", "quick.toml", "--compress", "0"), "--compress: must be above zero"),
        (("up", "quick.toml", "--faults", "nowhere.toml"), "faults: no such file: nowhere.toml"),
        (("load", "synthetic:poisson?rate=1"), "no testbed runs here"),
        (("interrupt", "--share", "2"), "--share: must lie between 0 and 1"),
        (("down",), "no testbed runs here"),
    ],
)
def test_what_cannot_be_is_one_line_and_exit_2(folder: Path, arguments: tuple[str, ...], said: str) -> None:
    done = here(*arguments)
    assert done.returncode == 2
    assert said in done.stderr
    assert len(done.stderr.strip().splitlines()) == 1
