"""The testbed's commands with an account that refuses."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.infra.testbed.real_processes import wait_for
from tests.infra.testbed.test_daemon import folder, here, status

__all__ = ["folder"]  # the fixture


def test_an_organisation_has_no_say_in_a_generous_account(folder: Path) -> None:
    done = here("up", "quick.toml", "--scp", "no-spot")
    assert done.returncode == 2
    assert "scp" in done.stderr


@pytest.mark.acceptance
def test_a_fleet_serves_within_a_new_account(folder: Path) -> None:
    options = ("--account", "new", "--scp", "no-spot", "--compress", "10", "--seed", "1")
    done = here("up", "quick.toml", *options)
    assert done.returncode == 0, done.stderr
    wait_for(lambda: [one for one in status()["fleet"] if one["state"] == "running"], "an instance")
    done = here("load", "synthetic:poisson?rate=40", "--duration", "120", "--json", "-")
    assert done.returncode in (0, 4), done.stderr  # late answers depend on this machine
    data = json.loads(done.stdout)
    assert (data["unanswered"], data["answered_twice"]) == (0, 0)
    fleet = status()["fleet"]
    assert {one["offer"] for one in fleet} == {"c7i.large/on-demand"}  # the account may not buy spot
    assert len([one for one in fleet if one["state"] in ("pending", "running")]) <= 2  # of 5 vCPUs
    assert here("down").returncode == 0
