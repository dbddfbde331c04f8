"""Three controllers as processes, over one store and one cloud: one acts, and each launch happens once."""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest
from mark_infra.aws.notices import WAIT_S
from mark_infra.aws.site import dump_site
from mark_infra.testbed.environment import of_aws
from mark_infra.testbed.provision import Wish, provision

from mark.control.lease import TTL_S
from mark.domain.catalog.tables import load_catalog
from tests.infra.testbed.conftest import Aws, serving
from tests.infra.testbed.real_processes import BARE, get, wait_for
from tests.infra.testbed.test_daemon import CATALOG, PROFILES, SERVICE

SCALE = 50.0  # a tick every 1.2 seconds

USD_PER_HOUR = 0.1  # of one instance


@dataclass
class Controller:
    """A `mark controller`, and its page."""

    process: subprocess.Popen[str]
    url: str

    def view(self) -> dict[str, Any]:
        told: dict[str, Any] | None = get(f"{self.url}/api/v1/services")[1]
        return told["services"][0] if told else {"mode": "silent"}


@pytest.fixture
def aws(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Aws]:
    monkeypatch.setenv("MOTO_EC2_LOAD_DEFAULT_AMIS", "false")
    (tmp_path / "quick.toml").write_text(SERVICE.replace("[overflow]\nfunction", "#"))
    (tmp_path / "profiles.csv").write_text(PROFILES)
    (tmp_path / "catalog.csv").write_text(CATALOG)
    with serving(catalog=load_catalog(str(tmp_path / "catalog.csv")), now=time.time, time_scale=SCALE) as made:
        site = provision(
            made.client, [Wish("quick", None)], region="us-east-1", zones=["us-east-1a"],
            store=f"sqlite:{tmp_path / 'state.db'}", time_scale=SCALE,
        )  # fmt: skip
        (tmp_path / "mark-site.toml").write_text(dump_site(replace(site, time_scale=SCALE)))
        yield made


@pytest.fixture
def three(aws: Aws, tmp_path: Path) -> Iterator[list[Controller]]:
    command = [
        *(sys.executable, "-m", "mark.cli.main", "controller", "quick.toml", "--site", "mark-site.toml"),
        *("--port", "0", "--policy", "greedy", "--predictor", "seasonal-naive"),
    ]
    variables = of_aws(BARE, "us-east-1") | {"AWS_ENDPOINT_URL": aws.url}
    logs = [(tmp_path / f"controller-{n}.log") for n in range(3)]
    began: list[subprocess.Popen[str]] = []
    try:
        for log in logs:
            with log.open("w") as said:
                began.append(subprocess.Popen(command, cwd=tmp_path, env=variables, stderr=said, text=True))
        urls = [wait_for(lambda log=log: ready(log), "its page") for log in logs]  # type: ignore[misc]
        yield [Controller(process, url) for process, url in zip(began, urls, strict=True)]
    finally:
        for process in began:
            process.kill()
            process.wait()


def ready(log: Path) -> str:
    return next((line.split()[-1] for line in log.read_text().splitlines() if "is ready on" in line), "")


def launches(aws: Aws) -> dict[str, set[str]]:
    """Return instances by launch token, ended ones included."""
    found: dict[str, set[str]] = {}
    for instance in aws.instances():
        (token,) = (tag["Value"] for tag in instance["Tags"] if tag["Key"] == "mark:launch")
        found.setdefault(token, set()).add(instance["InstanceId"])
    return found


def live(aws: Aws) -> list[str]:
    return [i["InstanceId"] for i in aws.instances(instance_state_name=["pending", "running"])]


def acting(controllers: list[Controller]) -> Controller:
    found: Controller = wait_for(
        lambda: next((c for c in controllers if c.view()["mode"] == "acting"), None), "a controller that acts"
    )
    return found


def pass_s(aws: Aws, control_s: float) -> None:
    until_s = aws.cloud.lifecycle.control_s(time.time()) + control_s
    wait_for(lambda: aws.cloud.lifecycle.control_s(time.time()) > until_s, "more ticks")


def same_bill(aws: Aws, controller: Controller) -> bool:
    """Compare bills but for the seconds since the controller looked."""
    told, true = get(f"{controller.url}/api/v1/services/quick/bill")[1], aws.cloud.bill().as_json()
    assert true["total"] > 0.0
    return all(abs(told[market] - usd) < 60.0 * USD_PER_HOUR / 3600.0 for market, usd in true.items())


@pytest.mark.slow
def test_failovers_launch_nothing_twice_and_the_bill_goes_on(aws: Aws, three: list[Controller]) -> None:
    """One controller exits in order right after its launch, the next one is killed: tags and the cloud's state tell."""
    (first,) = wait_for(lambda: live(aws), "the first fleet")
    leader = acting(three)
    leader.process.terminate()
    others = [c for c in three if c is not leader]
    leader = acting(others)
    (last,) = (c for c in others if c is not leader)
    assert last.view()["mode"] == "standing by"
    pass_s(aws, 150.0)
    assert live(aws) == [first]
    leader.process.send_signal(signal.SIGKILL)
    began_s = time.monotonic()
    # Messages taken by its last long poll come back only after half a minute.
    wait_for(lambda: time.monotonic() > began_s + WAIT_S + 0.5, "the end of its long poll")
    aws.client("ec2").terminate_instances(InstanceIds=[first])  # gives the leader something to do
    acting([last])
    took_s = time.monotonic() - began_s
    (second,) = wait_for(lambda: live(aws), "another instance")
    pass_s(aws, 150.0)
    assert live(aws) == [second]
    assert sorted(map(sorted, launches(aws).values())) == sorted([[first], [second]])
    assert aws.cloud.problems() == []
    assert took_s < TTL_S + 10.0, "the lease's time, and a look of a busy computer"
    wait_for(lambda: same_bill(aws, last), "the bill")
    last.process.terminate()
    assert last.process.wait(30) == 0
