"""Changes of a serving site on the testbed: real bouncers, a real balancer and real controllers, under load.

Another archive, other types, other zones, and back. tests/terraform/test_site_changes.py runs the same script with
Terraform.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from mark_infra.testbed.balancer import HEALTHY

from tests.infra.conftest import MotoServer
from tests.infra.testbed.real_processes import wait_for
from tests.infra.testbed.test_daemon import CATALOG
from tests.infra.testbed.test_releases import PROFILES, SCALE, SERVICE, Client, Releasing, releasing, says
from tests.infra.testbed.watching import Watch

# The instances answer far more than the clients ask, so that the plan's need does not depend on this computer's speed.
INSTANCES, CLIENTS = 3, 2
ZONES = ("us-east-1a", "us-east-1b")
OTHER_TYPE = {
    "catalog.csv": f"{CATALOG}c6i.large,on-demand,,0.1,2,4,0,3,3,,false,,,,,,\n",
    "profiles.csv": f"{PROFILES}model:Quick,c6i.large,1,20\n",
}
# A model that answers with its version and writes down its requests.
MODEL = """
import os
import mark


class Quick(mark.Model):
    def predict(self, inputs):
        with open(f"{folder}/asked-{{os.getpid()}}", "a") as asked:
            asked.writelines(f"{{number}}\\n" for number, in inputs)
        return [{version!r} for _ in inputs]
"""


@dataclass
class NumberedClient(Client):
    """A client whose requests all differ."""

    first: int = 0
    sent: int = 0

    def ask(self) -> tuple[str, int]:
        self.sent += 1
        return self.post(self.first + self.sent)


@dataclass
class Changes:
    """The site for its watch, and the changes to it."""

    site: Releasing
    done: str = ""  # the release whose roll-out was reported as done
    moto: MotoServer = field(init=False)

    def __post_init__(self) -> None:
        self.moto = MotoServer(self.site.aws.url)

    def deploy(self, release: str, zone: str) -> dict[str, Any]:
        """Deploy until the controller reports it done; return the instances once no old one is left."""
        if release != self.done:
            self.done = ""
        self.site.deploy(release, [zone])
        wait_for(lambda: self.serves(release), f"the end of the roll-out of {release}", 180)
        self.done = release
        wait_for(lambda: self.all_in(zone), f"all in {zone}: {self.site.phases()}", 120)
        return {one["InstanceType"]: one["Placement"]["AvailabilityZone"] for one in self.running().values()}

    def serves(self, release: str) -> bool:
        told = self.site.rollout()
        return (told.get("release"), told.get("stage")) == (release, "done")

    def all_in(self, zone: str) -> bool:
        zones = [one["Placement"]["AvailabilityZone"] for one in self.running().values()]
        return zones == [zone] * INSTANCES and self.site.phases() == ["ready"] * INSTANCES

    def running(self) -> dict[str, dict[str, Any]]:
        found = self.site.aws.instances(instance_state_name=["pending", "running"])
        return {one["InstanceId"]: one for one in found}

    def healthy(self) -> dict[str, dict[str, str]]:
        """Return tags of the healthy instances to which the balancer sends requests."""
        balancer, backend = self.site.aws.cloud.balancer, self.moto.backend
        assert balancer is not None
        (group,) = self.site.site.service("quick").target_groups
        targets = list(backend("elbv2").target_groups[group].targets)
        return {id: backend("ec2").tags[id] for id in targets if balancer.health(group, id) == HEALTHY}

    def serving(self, service: str) -> int:
        return sum(not tags.get("mark:draining") for tags in self.healthy().values())

    def old(self, service: str) -> set[str]:
        return {id for id, tags in self.healthy().items() if self.done not in ("", tags["mark:release"])}


@pytest.fixture
def changes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Changes]:
    monkeypatch.setenv("MOTO_EC2_LOAD_DEFAULT_AMIS", "false")
    types = SERVICE.replace("min_instances = 2", f"min_instances = {INSTANCES}")
    other_types = types.replace("c7i.*", "c6i.*")
    releases = {
        version: {**OTHER_TYPE, "quick.toml": text, "model.py": MODEL.format(folder=tmp_path, version=version)}
        for version, text in (("a", types), ("b", types), ("c", other_types))
    }
    with releasing(tmp_path, releases, ZONES) as site:
        yield Changes(site)


@pytest.mark.acceptance
def test_a_site_is_changed_and_no_request_is_lost(changes: Changes, tmp_path: Path) -> None:
    """One instance answers each request, and no old version does once the new one is reported to serve alone."""
    here, there = ZONES
    assert changes.deploy("a", here) == {"c7i.large": here}
    watch = Watch(changes.serving, changes.old, lambda: changes.site.page, SCALE, ("quick",))
    with ExitStack() as all_of_it:
        all_of_it.enter_context(watch)
        clients = [NumberedClient(changes.site.url, first=n * 1_000_000) for n in range(1, CLIENTS + 1)]
        for client in clients:
            all_of_it.enter_context(client)
        for release, zone, types in (
            ("b", here, "c7i.large"),
            ("c", here, "c6i.large"),
            ("c", there, "c6i.large"),
            ("a", here, "c7i.large"),
        ):
            assert changes.deploy(release, zone) == {types: zone}
            assert [says(client) for client in clients] == [{release}] * CLIENTS
    asked = Counter(int(line) for file in tmp_path.glob("asked-*") for line in file.read_text().split())
    sent = {client.first + number for client in clients for number in range(1, client.sent + 1)}
    print(f"{watch}; {len(sent)} requests, {sum(client.statuses[200] for client in clients)} answered")
    assert [client.statuses.keys() for client in clients] == [{200}] * CLIENTS
    assert {number for number, times in asked.items() if times > 1} == set()
    assert asked.keys() == sent
    watch.check()
    assert changes.site.aws.cloud.problems() == []
