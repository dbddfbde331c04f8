"""A site of several services that changes again and again while it serves: by real Terraform, `plan`, `apply` and `mark
controller`, on the testbed's cloud.

It takes ten minutes for six applies, their roll-outs and a wait for a load balancer, so `make acceptance` runs it.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from mark_infra.aws.site import Site, dump_site, load_site
from mark_infra.deploy.artifacts import libraries_name
from mark_infra.deploy.checkout import constraints
from mark_infra.deploy.deploy import Planned, destroy, plan, site_releases
from mark_infra.deploy.shipments import shipment
from mark_infra.deploy.target import DeployTarget
from mark_infra.testbed.machines_port import Machine

from tests.infra.conftest import REGION, MotoServer
from tests.infra.testbed.answering import Bouncers
from tests.infra.testbed.conftest import Aws
from tests.infra.testbed.real_processes import get, wait_for
from tests.infra.testbed.watching import Watch
from tests.terraform.conftest import Terraform
from tests.terraform.test_site import (  # noqa: F401
    SCALE,
    asked_at,
    aws,
    check_nothing_is_left,
    controlled,
    is_weighed,
    moto,
    no_packages,
)

SERVICE = """
[service]
name = "{name}"
model = "model:Model"
slo_ms = 600
slo_attainment = 0.98
profile = "profile.csv"
[fleet]
catalog = "aws-2026"
markets = ["{market}"]
instances = ["{types}"]
min_instances = 2
max_instances = 20
max_usd_per_hour = 10.0
[overflow]
function = "none"
[rollout]
canary_s = 60
"""
# All types have the same times, so capacity is the number of instances.
PROFILE = "model,instance,batch,latency_ms\nmodel:Model,c5.large,1,20\nmodel:Model,c6i.large,1,20\n"
MODEL = "import mark\n\n\nclass Model(mark.Model):\n    def predict(self, batch): return [{version} for _ in batch]\n"
MARKETS = {"a": "on-demand", "b": "on-demand", "c": "spot", "d": "on-demand"}
PATIENCE_S = 240.0
OTHER_ZONES = (f"{REGION}b", f"{REGION}d")


class ChangingSite:
    """The site, its service files, and the controller that each deployment replaces."""

    def __init__(self, folder: Path, aws: Aws, moto: MotoServer, target: DeployTarget) -> None:  # noqa: F811
        self.folder, self.aws, self.moto, self.target = folder, aws, moto, target
        self.site: Site | None = None
        self.done: dict[str, str] = {}  # the release of each service whose roll-out was reported as done
        self._controller = ExitStack()
        self.page = ""

    def describe(self, name: str, version: int = 1, types: str = "c5.*") -> None:
        """Write a service's folder."""
        there = self.folder / name
        there.mkdir(exist_ok=True)
        text = SERVICE.format(name=name, market=MARKETS[name], types=types)
        for file, content in (("service.toml", text), ("profile.csv", PROFILE), ("model.py", MODEL)):
            (there / file).write_text(content.replace("{version}", str(version)))

    def plan(self, names: Sequence[str]) -> Planned:
        return plan([shipment(str(self.folder / name / "service.toml")) for name in names], self.target, print)

    def deploy(self, names: Sequence[str], zones: tuple[str, ...] = ()) -> Planned:
        """Apply, replace the controller as its group does (the new one first), and follow the roll-out to its end."""
        self.target, self.done = replace(self.target, zones=zones), {}
        planned = self.plan(names)
        self.site = load_site(planned.apply().site_file)
        here = self.folder / f"controller-{time.monotonic_ns()}"
        here.mkdir()
        (here / "site.toml").write_text(dump_site(replace(self.site, time_scale=SCALE)))
        files = [str(self.folder / name / "service.toml") for name in names]
        with ExitStack() as started:
            self.page = started.enter_context(controlled(self.moto, files, here / "site.toml", here))
            self._controller.close()
            self._controller = started.pop_all()
        for news in site_releases(self.target).news(names):
            assert news.good
            if news.settled:
                self.done[news.service] = self.site.service(news.service).release
        assert set(self.done) == set(names)
        for name in names:
            wait_for(partial(self._settled, name), f"all of {name} as deployed", PATIENCE_S)
        return planned

    def end(self) -> None:
        self._controller.close()

    def serving(self, name: str) -> int:
        return len(self.routed(name))

    def old(self, name: str) -> set[str]:
        """Return instances of replaced releases that could still answer."""
        done = self.done.get(name)
        return {id for id, one in self.routed(name, draining=True).items() if done not in (None, one.release)}

    def routed(self, name: str, *, draining: bool = False) -> dict[str, Machine]:
        """Return by id the instances that answer and get requests from the balancer; with `draining` also those that
        leave."""
        if self.site is None or name not in self.site.services:
            return {}
        balancers, tags = self.moto.backend("elbv2"), self.moto.backend("ec2").tags
        groups = self.site.service(name).target_groups
        weighed = {
            group["TargetGroupArn"]
            for one in list(balancers.load_balancers.values())
            for listener in list(one.listeners.values())
            for rule in list(listener.rules.values())
            for action in rule.actions
            for group in action.data.get("ForwardConfig", {}).get("TargetGroups", [])
            if float(group["Weight"]) > 0
        }
        targets = {id for arn in groups if arn in weighed for id in list(balancers.target_groups[arn].targets)}
        machines = self.aws.machines
        assert isinstance(machines, Bouncers)
        answering = {id: one for id, one in machines.answering().items() if id in targets}
        return {id: one for id, one in answering.items() if draining or not tags[id].get("mark:draining")}

    def _settled(self, name: str) -> bool:
        """Are exactly the deployed instances there, in their zones, and does the balancer send requests to each?"""
        assert self.site is not None
        there = self.site.service(name)
        fleet = get(f"{self.page}/api/v1/services/{name}/fleet")[1]["instances"]
        routed = self.routed(name)
        return (
            len(fleet) == len(routed) == 2
            and {one["phase"] for one in fleet} == {"ready"}
            and {one.release for one in routed.values()} == {there.release}
            and {one.zone for one in routed.values()} <= set(there.subnets)
        )


def touched(planned: Planned, name: str) -> set[tuple[str, str]]:
    """Return the changed resources of a service by address, with their actions."""
    return {(one.address, one.action) for one in planned.changes if f'["{name}"]' in one.address}


def priorities(moto: MotoServer, site: Site) -> dict[str, str]:  # noqa: F811
    arns = [arn for there in site.services.values() for arn in there.listener_rules]
    return {one["RuleArn"]: one["Priority"] for one in moto.client("elbv2").describe_rules(RuleArns=arns)["Rules"]}


@pytest.mark.acceptance
def test_no_change_of_a_site_takes_what_its_plan_needs(
    aws: Aws,  # noqa: F811
    moto: MotoServer,  # noqa: F811
    terraform: Terraform,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    terraform.init(terraform.home / "examples" / "complete")  # skips the test if the provider cannot be had
    asked_at(moto, monkeypatch)
    monkeypatch.setattr("mark_infra.deploy.packed_services.wheelhouse", no_packages)
    target = DeployTarget(name="mark", region=REGION, clients=("192.0.2.0/24",), state=tmp_path / "s", emulated=True)
    (target.folder / "artifacts" / "libraries" / libraries_name(b"", constraints())).mkdir(parents=True)
    site = ChangingSite(tmp_path, aws, moto, target)
    watch = Watch(site.serving, site.old, lambda: site.page, SCALE)
    three, four = ("b", "c", "d"), ("a", "b", "c", "d")

    def deployed(names: Sequence[str], **where: Any) -> Planned:
        """Deploy, and check that a second plan has nothing to do."""
        planned = site.deploy(names, **where)
        again = site.plan(names)
        assert again.changes == [], again.terraform.text()
        assert {one.action for one in planned.changes if one.kind == "aws_subnet"} <= {"create"}
        assert site.site is not None
        for name in names:
            wait_for(partial(is_weighed, moto, site.site, name), f"all requests of {name} for its instances")
        return planned

    for name in four:
        site.describe(name)
    with watch:
        try:
            watch.services = three
            deployed(three)
            assert site.site is not None
            first, were = site.site, {name: set(site.routed(name)) for name in three}
            rules = priorities(moto, first)

            watch.services = four
            added = deployed(four)
            assert all(not touched(added, name) for name in three)
            assert {one.action for one in added.changes} == {"create", "update"}
            assert priorities(moto, site.site).items() >= rules.items()
            assert {name: set(site.routed(name)) for name in three} == were

            site.describe("b", version=2)
            changed = deployed(four)
            assert all(not touched(changed, name) for name in ("a", "c", "d"))
            assert set(site.routed("b")).isdisjoint(were["b"])
            assert {name: set(site.routed(name)) for name in ("c", "d")} == {name: were[name] for name in ("c", "d")}

            site.describe("c", types="c6i.*")
            deployed(four)
            assert {one.instance_type for one in site.routed("c").values()} == {"c6i.large"}

            moved = deployed(four, zones=OTHER_ZONES)
            assert all(not touched(moved, name) for name in four)
            assert {one.zone for name in four for one in site.routed(name).values()} <= set(OTHER_ZONES)

            site.describe("b")
            site.describe("c")
            deployed(four)
            for name in three:
                assert site.site.service(name).release == first.service(name).release
                assert site.site.service(name).subnets == first.service(name).subnets
            assert priorities(moto, site.site).items() >= rules.items()
        finally:
            site.end()
            print(watch)
    watch.check()
    assert aws.cloud.problems() == []
    assert destroy(site.target, print) == []
    check_nothing_is_left(moto)
