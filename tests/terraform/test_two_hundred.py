"""The largest number of services in one site, applied on the testbed's cloud: a second plan changes nothing.

It takes twenty minutes: `make acceptance`. The test does not destroy them, because Terraform writes its state of 16 MB
again for each of 4,383 resources, which takes most of an hour; `test_site.py` destroys sites of a few services.
"""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest
from mark_infra.aws.site import load_site
from mark_infra.deploy.artifacts import libraries_name
from mark_infra.deploy.checkout import constraints
from mark_infra.deploy.deploy import plan
from mark_infra.deploy.shipments import shipment
from mark_infra.deploy.target import DeployTarget

from tests.infra.conftest import REGION, MotoServer
from tests.terraform.conftest import Terraform
from tests.terraform.test_site import PROFILE, SERVICE, asked_at, aws, moto, no_packages  # noqa: F401

SERVICES = 200


@pytest.mark.acceptance
def test_two_hundred_services_are_applied(
    moto: MotoServer,  # noqa: F811
    terraform: Terraform,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Every second one has a function."""
    terraform.init(terraform.home / "examples" / "complete")  # skips the test if the provider cannot be had
    asked_at(moto, monkeypatch)
    monkeypatch.setattr("mark_infra.deploy.packed_services.wheelhouse", no_packages)
    target = DeployTarget(name="mark", region=REGION, clients=("192.0.2.0/24",), state=tmp_path / "s", emulated=True)
    (target.folder / "artifacts" / "libraries" / libraries_name(b"", constraints())).mkdir(parents=True)
    services = []
    for n in range(SERVICES):
        folder = tmp_path / f"s{n:03}"
        folder.mkdir()
        text = SERVICE.format(name=folder.name, model="echo:Echo", function="none" if n % 2 else "lambda:1024")
        (folder / "service.toml").write_text(text.replace("max_instances = 20", "max_instances = 2"))
        (folder / "profile.csv").write_text(PROFILE)
        (folder / "echo.py").write_text(
            "import mark\n\n\nclass Echo(mark.Model):\n    def predict(self, batch): return batch\n"
        )
        services.append(shipment(str(folder / "service.toml")))
    said: list[str] = []

    planned = plan(services, target, said.append)
    deployed = planned.apply()
    site = load_site(deployed.site_file)
    assert len(site.services) == SERVICES
    elb = moto.client("elbv2")
    balancers = elb.describe_load_balancers()["LoadBalancers"]
    listeners = [
        listener["ListenerArn"]
        for one in balancers
        for listener in elb.describe_listeners(LoadBalancerArn=one["LoadBalancerArn"])["Listeners"]
    ]
    pages = elb.get_paginator("describe_rules")
    rules = Counter(sum(len(page["Rules"]) for page in pages.paginate(ListenerArn=arn)) for arn in listeners)
    assert max(rules) <= 101, "a load balancer has 100 rules besides the default"
    assert sum(count * n for count, n in rules.items()) >= 2 * SERVICES
    assert len(moto.client("lambda").list_functions()["Functions"]) >= 50  # of a page
    assert planned.terraform.plan() == [], planned.terraform.text()
