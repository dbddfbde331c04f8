"""A pipeline on the testbed: a fleet for each stage, and a conductor before them that comes back when it is killed."""

from __future__ import annotations

import json
import os
import signal
import urllib.request
from pathlib import Path
from typing import Any

import psutil
import pytest

from tests.infra.testbed.real_processes import processes_of, wait_for
from tests.infra.testbed.test_daemon import CATALOG, here, mark, status

PIPELINE = """
[service]
name = "two"
slo_ms = 1500
slo_attainment = 0.9
profile = "profiles.csv"
[fleet]
catalog = "catalog.csv"
markets = ["on-demand", "spot"]
instances = ["c7i.*"]
max_instances = 6
max_usd_per_hour = 5.0
[stage.first]
model = "quick"
slo_ms = 600
[stage.second]
model = "quick"
after = ["first"]
slo_ms = 900
"""
PROFILES = """model,instance,batch,latency_ms,basis
quick,c7i.large,1,20,assumed
quick,c7i.large,4,30,assumed
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "two.toml").write_text(PIPELINE)
    (tmp_path / "profiles.csv").write_text(PROFILES)
    (tmp_path / "catalog.csv").write_text(CATALOG)
    (tmp_path / "query.json").write_text('{"text": "how much"}')
    yield tmp_path
    for process in processes_of(tmp_path):
        process.kill()
    psutil.wait_procs(processes_of(tmp_path), timeout=60)


def test_a_pipeline_without_parts_is_refused_in_one_line(folder: Path) -> None:
    (folder / "two.toml").write_text(PIPELINE.replace("slo_ms = 900\n", ""))
    done = here("up", "two.toml")
    assert done.returncode == 2
    assert "[stage.second] slo_ms: must be said of each stage" in done.stderr
    assert len(done.stderr.strip().splitlines()) == 1


@pytest.mark.slow
def test_each_stage_has_a_fleet_and_the_conductor_comes_back(folder: Path) -> None:
    done = mark(folder, "up", "two.toml", "--seed", "1", "--history", "synthetic:poisson?rate=10")
    assert done.returncode == 0, done.stderr
    refused = mark(folder, "load", "synthetic:poisson?rate=10", "--duration", "5")
    assert (refused.returncode, "body: must be said for a pipeline" in refused.stderr) == (2, True)
    load = ["load", "synthetic:poisson?rate=10", "--duration", "20", "--body", "query.json", "--json", "-"]
    done = mark(folder, *load)
    assert done.returncode == 0, done.stderr
    data = json.loads(done.stdout)
    assert (data["service"], data["unanswered"], data["answered_twice"]) == ("two", 0, 0)
    assert data["requests"]["instances"] == data["requests"]["total"] > 100
    assert data["bill_usd"]["total"] > 0.0

    shown = status()
    fleets = {one["service"] for one in shown["fleet"] if one["state"] == "running"}
    assert fleets == {"two-first", "two-second"}
    assert shown["stages"] == {"two": ["two-first", "two-second"]}
    with urllib.request.urlopen(f"{shown['controllers'][0]['url']}/api/v1/pipelines/two", timeout=10.0) as answer:
        seen = json.load(answer)
    assert [(one["service"], one["after"]) for one in seen["stages"]] == [("two-first", []), ("two-second", ["first"])]
    assert seen["queries_per_s"] > 0.0
    assert seen["usd_per_hour"] > 0.0
    assert seen["longest_path_ms"] == 1500.0
    assert all(one["running"] and one["capacity_rps"] > 0.0 for one in seen["stages"])
    # "quick" takes 20 ms, and what a query has to wait.
    assert all(20.0 <= one["slo"]["recent_ms"] < 600.0 for one in seen["stages"])
    assert seen["bottleneck"]["stage"] in ("first", "second")
    conductor = shown["conductors"]["two"]
    os.kill(conductor["pid"], signal.SIGKILL)
    again = wait_for(lambda: back(conductor["pid"]), "another conductor")
    assert again["url"] == conductor["url"]
    done = mark(folder, *load)
    assert json.loads(done.stdout)["unanswered"] == 0

    assert mark(folder, "down").returncode == 0
    assert processes_of(folder) == []


def back(old: int) -> dict[str, Any] | None:
    conductor: dict[str, Any] = status()["conductors"]["two"]
    return conductor if conductor["pid"] not in (None, old) and conductor["url"] else None
