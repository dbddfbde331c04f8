"""Releases on the testbed: real bouncers, a real balancer and a real controller, always under load."""

from __future__ import annotations

import json
import subprocess
import sys
import threading
import time
import urllib.error
import urllib.request
from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest
from mark_infra.aws.site import Site, dump_site
from mark_infra.testbed.environment import of_aws
from mark_infra.testbed.gateways import ProcessGateways
from mark_infra.testbed.machines import Processes, ServedProgram
from mark_infra.testbed.provision import Wish, provision

from mark.domain.catalog.tables import load_catalog
from tests.infra.testbed.conftest import Aws, serving
from tests.infra.testbed.real_processes import BARE, get, held_port, wait_for
from tests.infra.testbed.test_daemon import CATALOG

SCALE = 20.0  # control seconds in a real second: a tick every three real seconds
SERVICE = """
[service]
name = "quick"
model = "model:Quick"
slo_ms = 1000
slo_attainment = 0.9
profile = "profiles.csv"
[fleet]
catalog = "catalog.csv"
markets = ["on-demand"]
instances = ["c7i.*"]
min_instances = 2
max_instances = 6
max_usd_per_hour = 5.0
[rollout]
canary_s = 60
"""
PROFILES = "model,instance,batch,latency_ms\nmodel:Quick,c7i.large,1,20\n"
MODEL = """
import mark


class Quick(mark.Model):
    def predict(self, inputs):
        {body}
"""
GOOD = "return [{name!r} for _ in inputs]"
BAD = "raise RuntimeError('this release is ill')"


@dataclass
class Client:
    """A client that asks until it is closed. `said` counts the model's answers since it was cleared, `statuses` all."""

    url: str
    said: Counter[str] = field(default_factory=Counter)
    statuses: Counter[int] = field(default_factory=Counter)
    _ends: threading.Event = field(default_factory=threading.Event)

    def __enter__(self) -> Client:
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ends.set()
        self._thread.join()

    def _run(self) -> None:
        while not self._ends.wait(0.03):
            said, status = self.ask()
            self.said[said] += 1
            self.statuses[status] += 1

    def ask(self) -> tuple[str, int]:
        return self.post(1)

    def post(self, number: int) -> tuple[str, int]:
        body = json.dumps([number]).encode()
        request = urllib.request.Request(f"{self.url}/invocations", body, {"content-type": "application/json"})
        try:
            with urllib.request.urlopen(request, timeout=30.0) as answer:
                return str(json.load(answer)), answer.status
        except urllib.error.HTTPError as error:
            with error:
                return "", error.code
        except OSError:
            return "", 0


class Releasing:
    """A site of one service, whose controller is replaced with each release."""

    def __init__(self, folder: Path, aws: Aws, site: Site, url: str) -> None:
        self.folder, self.aws, self.site, self.url = folder, aws, site, url
        self.controller: subprocess.Popen[str] | None = None
        self.versions: dict[str, str] = {}

    def deploy(self, release: str, zones: Collection[str] = ()) -> None:
        """Deploy from the release's folder, into these zones of the site if not into all."""
        ec2, there = self.aws.client("ec2"), self.site.service("quick")
        if release not in self.versions:
            made = ec2.create_launch_template_version(
                LaunchTemplateId=there.launch_template, SourceVersion="1", LaunchTemplateData={}
            )
            self.versions[release] = str(made["LaunchTemplateVersion"]["VersionNumber"])
        subnets = {zone: subnet for zone, subnet in there.subnets.items() if not zones or zone in zones}
        version = self.versions[release]
        named = replace(there, release=release, launch_template_version=version, subnets=subnets)
        (self.folder / "mark-site.toml").write_text(dump_site(replace(self.site, services={"quick": named})))
        self.end()
        log = self.folder / f"controller-{release}-{len(list(self.folder.glob('controller-*')))}.log"
        command = [
            *(sys.executable, "-m", "mark.cli.main", "controller", str(self.folder / release / "quick.toml")),
            *("--site", "mark-site.toml", "--port", "0", "--policy", "greedy", "--predictor", "seasonal-naive"),
        ]
        variables = of_aws(BARE, "us-east-1") | {"AWS_ENDPOINT_URL": self.aws.url}
        with log.open("w") as said:
            self.controller = subprocess.Popen(command, cwd=self.folder, env=variables, stderr=said, text=True)
        self.page = wait_for(lambda: _page(log), "its page")

    def end(self) -> None:
        if self.controller is not None:
            self.controller.terminate()
            self.controller.wait()

    def rollout(self) -> dict[str, Any]:
        told = get(f"{self.page}/api/v1/services/quick")[1]
        return (told or {}).get("rollout") or {}

    def phases(self) -> list[str]:
        told = get(f"{self.page}/api/v1/services/quick/fleet")[1] or {}
        return [one["phase"] for one in told.get("instances", ())]

    def settled(self, stage: str) -> dict[str, Any]:
        found: dict[str, Any] = wait_for(
            lambda: told if (told := self.rollout()).get("stage") == stage else None, f"{stage}: {self.rollout()}", 120
        )
        return found


def _page(log: Path) -> str:
    return next((line.split()[-1] for line in log.read_text().splitlines() if "is ready on" in line), "")


@contextmanager
def releasing(folder: Path, releases: Mapping[str, Mapping[str, str]], zones: Sequence[str]) -> Iterator[Releasing]:
    """Yield a site without deployments; `releases` are the files of each."""
    for release, files in releases.items():
        (folder / release).mkdir()
        for name, text in files.items():
            (folder / release / name).write_text(text)
    programs = {f"quick@{release}": ServedProgram(folder / release / "quick.toml") for release in releases}
    logs = folder / "logs"
    with held_port() as port, Processes(programs, logs, port=port) as machines:
        gateways = ProcessGateways(logs, of={}, region="us-east-1")
        catalog = load_catalog(str(folder / next(iter(releases)) / "catalog.csv"))
        with serving(catalog=catalog, now=time.time, time_scale=SCALE, machines=machines, gateways=gateways) as aws:
            made = provision(
                aws.client, [Wish("quick")], region="us-east-1", zones=zones,
                store=f"sqlite:{folder / 'state.db'}", bouncer_port=port, time_scale=SCALE,
            )  # fmt: skip
            balancer = aws.cloud.balancer
            assert balancer is not None
            (group,) = made.service("quick").target_groups
            url = wait_for(lambda: balancer.url(group), "its gateway")
            there = Releasing(folder, aws, made, url)
            try:
                yield there
            finally:
                there.end()


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Releasing]:
    monkeypatch.setenv("MOTO_EC2_LOAD_DEFAULT_AMIS", "false")
    common = {"quick.toml": SERVICE, "profiles.csv": PROFILES, "catalog.csv": CATALOG}
    bodies = {"a": GOOD.format(name="a"), "b": GOOD.format(name="b"), "ill": BAD}
    releases = {release: {**common, "model.py": MODEL.format(body=body)} for release, body in bodies.items()}
    with releasing(tmp_path, releases, ["us-east-1a"]) as made:
        yield made


@pytest.mark.slow
def test_releases_come_and_go_and_no_request_is_lost(site: Releasing) -> None:
    """A good release takes over and is taken back, and a bad one is stopped at its canary."""
    site.deploy("a")
    wait_for(lambda: site.phases() == ["ready"] * 2, "the first fleet")
    assert Client(site.url).ask()[1] == 200
    with Client(site.url) as client:
        site.deploy("b")
        site.settled("canary")
        told = site.settled("done")
        assert (told["release"], told["before"]) == ("b", "a")
        assert says(client) == {"b"}
        assert get(f"{site.page}/api/v1/services/quick/rollback", {})[0] == 204
        site.settled("stopped")
        assert says(client) == {"a"}
    assert client.statuses.keys() == {200}
    assert client.statuses.total() > 300
    with Client(site.url) as client:
        site.deploy("ill")
        told = site.settled("stopped")
        assert "errors" in told["reason"]
        assert told["instances"].keys() == {"a"}
        assert says(client) == {"a"}
    assert client.statuses.keys() == {200, 500}
    assert client.statuses[500] < client.statuses.total() / 2
    assert site.aws.cloud.problems() == []


def says(client: Client) -> set[str]:
    """Return the different answers from now on."""
    client.said.clear()
    wait_for(lambda: client.said.total() > 50, "answers")
    return set(client.said)
