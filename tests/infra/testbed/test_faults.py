"""A whole testbed whose instances crash: how each part reacts, by the commands."""

from __future__ import annotations

import csv
import json
import re
import urllib.request
from pathlib import Path
from typing import Any

import pytest

from tests.infra.testbed.real_processes import wait_for
from tests.infra.testbed.test_daemon import SERVICE, folder, here, status

__all__ = ["folder"]  # the fixture

SEED = 1356  # the first launch crashes 22 s after its boot, at --compress 5, the second one 78 s
FAULTS = "[faults]\ncrashes_per_hour = 30\n"
PROFILES = "model,instance,batch,latency_ms,basis\nquick,c7i.large,1,200,assumed\nquick,c7i.large,4,500,assumed\n"


@pytest.mark.acceptance
def test_what_a_crash_takes_is_answered_once_by_another(folder: Path) -> None:
    """The gateway tries a second time; the controller finds the instance silent and replaces it."""
    service = SERVICE.replace('"alb"', '"least-completion"').replace('"lambda:1024"', '"none"')
    service = service.replace("slo_ms = 500", "slo_ms = 4000").replace("max_i", "min_instances = 2\nmax_i")
    (folder / "quick.toml").write_text(service)
    (folder / "profiles.csv").write_text(PROFILES)
    (folder / "faults.toml").write_text(FAULTS)
    done = here("up", "quick.toml", "--compress", "5", "--seed", str(SEED), "--faults", "faults.toml", "--log-requests")
    assert done.returncode == 0, done.stderr
    fleet = wait_for(running_two, "two instances")
    done = here("load", "synthetic:poisson?rate=8", "--duration", "200", "--log", "log.csv", "--json", "-")
    assert done.returncode == 0, done.stderr
    data = json.loads(done.stdout)
    shown = wait_for(lambda: replaced(fleet), "one is replaced")
    assert shown["crashed"] >= 1
    assert shown["bouncers_restarted"] == 0
    assert (data["unanswered"], data["answered_twice"]) == (0, 0)
    with (folder / "log.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert len({row["request_id"] for row in rows}) == len(rows) == data["requests"]["total"]
    assert {row["status"] for row in rows} <= {"200", "503"}  # a refusal is an answer, given once
    assert data["requests"]["rejected"] < len(rows) / 10
    ((gateway,),) = [list(shown["services"].values())]
    with urllib.request.urlopen(f"{gateway}/metrics", timeout=60.0) as answer:
        assert re.search(r"^mark_gateway_retries_total [1-9]", answer.read().decode(), re.M)
    assert here("down").returncode == 0


def running_two() -> list[str]:
    running = [one["id"] for one in status()["fleet"] if one["state"] == "running"]
    return running if len(running) == 2 else []


def replaced(fleet: list[str]) -> dict[str, Any] | None:
    """Return the status once one of these instances is gone and there is no problem."""
    shown: dict[str, Any] = status()
    return shown if not set(fleet) <= {one["id"] for one in shown["fleet"]} and shown["problems"] == [] else None
