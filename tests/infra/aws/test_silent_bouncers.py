"""A bouncer that stops answering while its instance runs is replaced, leaves the balancer, and is ended."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest

from mark.control import health
from tests.infra.aws.faulty_world import OD, SERVICE, world
from tests.infra.testbed.real_processes import get, processes_of, wait_for
from tests.infra.testbed.test_daemon import folder, here, status  # noqa: F401

LONG_S = 150.0


@pytest.mark.slow
def test_a_dead_bouncer_is_replaced_by_a_whole_controller(monkeypatch: pytest.MonkeyPatch) -> None:
    """The test uses HTTP and its messages; the other bouncers stay, booting ones too."""
    monkeypatch.setattr(health, "SILENT_S", 2.0)
    with world(30.0, monkeypatch) as made:
        made.script.want({OD.name: 2})
        with made.controller(0, 0.0) as running:
            wait_for(lambda: running.view().capacity_rps > 0.0 and len(running.view().instances) == 2, "the fleet")
            wait_for(lambda: [i.phase for i in running.view().instances] == ["ready"] * 2, "their boot")
            (dead, _, _, _), (alive, _, _, _) = made.lives()
            made.machines.die(dead)
            wait_for(lambda: dead not in {id for id, *_ in made.lives()}, "its end", LONG_S)
            wait_for(lambda: made.counts() == {OD.name: 2}, "its replacement", LONG_S)
            assert alive in {id for id, *_ in made.lives()}
            said = [one.text for one in running.control.manager.decisions(SERVICE, None, 99) if one.verb == "drain"]
            assert len(said) == 1
            assert "its bouncer has not answered for " in said[0]
        assert len(made.launched()) == 2


@pytest.mark.acceptance
def test_a_hung_process_is_replaced_on_the_testbed(folder: Path) -> None:  # noqa: F811
    """Its port is open but never answers. The test takes more than a minute, because silence is not compressed.

    It leaves the balancer. Its queue is unknown, so it is ended minutes later.
    """
    up = here("up", "quick.toml", "--compress", "10", "--seed", "1")
    assert up.returncode == 0, up.stderr

    def running() -> list[dict[str, str]]:
        return [one for one in status()["fleet"] if one["state"] == "running"]

    (first,) = wait_for(running, "an instance", LONG_S)
    page = wait_for(lambda: status()["controllers"][0]["url"], "the controller's page", LONG_S)
    fleet = f"{page}/api/v1/services/quick/fleet"

    def ready() -> bool:
        return any(one["phase"] == "ready" for one in get(fleet)[1]["instances"])  # none before the first look

    wait_for(ready, "its boot, as the controller sees it", LONG_S)
    (bouncer, *_) = wait_for(lambda: processes_of(folder, "mark.cli.main", first["address"]), "its process")
    os.kill(bouncer.pid, signal.SIGSTOP)
    wait_for(lambda: len(get(fleet)[1]["instances"]) == 2, "its replacement", LONG_S)
    wait_for(
        lambda: {one["number"]: one["phase"] for one in get(fleet)[1]["instances"]} == {1: "draining", 2: "ready"},
        "that it leaves",
        LONG_S,
    )
    assert first["id"] in [one["id"] for one in running()], "it may still answer what it has"
    assert status()["problems"] == []
