"""A site whose instances boot from baked images: applied on moto, changed, and destroyed.

It takes minutes, as any site on moto does, so `make test-slow` runs it.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from mark_infra.aws.site import TemplateVersion, load_site
from mark_infra.deploy.artifacts import archive, libraries_name
from mark_infra.deploy.bake import BUILDER
from mark_infra.deploy.checkout import constraints
from mark_infra.deploy.deploy import destroy, plan
from mark_infra.deploy.shipments import shipment
from mark_infra.deploy.target import DeployTarget
from mark_infra.deploy.wheelhouse import PackagesWanted, Wheelhouse

from tests.infra.conftest import REGION, MotoServer, moto_app, serving
from tests.infra.deploy.ec2_gaps import Ec2Gaps
from tests.terraform.conftest import Terraform
from tests.terraform.test_site import PROFILE, SERVICE


@pytest.fixture
def moto() -> Iterator[MotoServer]:
    with serving(Ec2Gaps(moto_app())) as found:
        yield found


class Builders:
    """Builders that report a finished boot as soon as a test waits for them."""

    def __init__(self, moto: MotoServer) -> None:
        self._moto, self.launched = moto, list[dict[str, Any]]()

    def pause(self, seconds: float) -> None:
        logs = self._moto.client("logs")
        filters = [
            {"Name": "tag-key", "Values": [BUILDER]},
            {"Name": "instance-state-name", "Values": ["running"]},
        ]
        found = self._moto.client("ec2").describe_instances(Filters=filters)["Reservations"]
        instances = [i for r in found for i in r["Instances"]]
        for instance in sorted(instances, key=lambda i: i["InstanceType"]):
            self.launched.append(instance)
            where = {"logGroupName": "/mark/mark/services/echo", "logStreamName": f"boot/{instance['InstanceId']}"}
            logs.create_log_stream(**where)
            event = {"timestamp": int(datetime.now(UTC).timestamp() * 1e3), "message": "baked\n"}
            logs.put_log_events(**where, logEvents=[event])


def images(moto: MotoServer) -> list[str]:
    filters = [{"Name": "tag:mark:site", "Values": ["mark"]}]
    return [one["ImageId"] for one in moto.client("ec2").describe_images(Owners=["self"], Filters=filters)["Images"]]


@pytest.mark.acceptance
def test_a_site_boots_from_images_that_are_baked_first(
    moto: MotoServer, terraform: Terraform, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One image is baked for each platform of the site's types."""
    terraform.init(terraform.home / "examples" / "complete")
    monkeypatch.setenv("AWS_ENDPOINT_URL", moto.url)
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.setenv(name, "test")
    packages = "first"

    def wheels(wanted: PackagesWanted, own: Path, pins: Path, to: Path) -> Wheelhouse:
        file = archive({own.name: own, "packages": packages.encode()}, to.parent / f"{wanted.service}-wheels.tar")
        return Wheelhouse(file, file.stat().st_size, 0, frozenset({"mark"}))

    monkeypatch.setattr("mark_infra.deploy.packed_services.wheelhouse", wheels)
    text = SERVICE.format(name="echo", model="echo:Echo", function="lambda:1024")
    (tmp_path / "echo.toml").write_text(text.replace('"c5.*"', '"c5.*", "c7g.*"'))
    (tmp_path / "profile.csv").write_text(f"{PROFILE}echo:Echo,c7g.large,1,20\n")
    code = "import mark\n\n\nclass Echo(mark.Model):\n    def predict(self, batch): return batch\n"
    (tmp_path / "echo.py").write_text(code)
    target = DeployTarget(
        name="mark", region=REGION, clients=("192.0.2.0/24",), state=tmp_path / "s", emulated=True, bake=True
    )
    (target.folder / "artifacts" / "libraries" / libraries_name(b"", constraints())).mkdir(parents=True)
    builders, said = Builders(moto), list[str]()

    def deployed(where: DeployTarget = target) -> dict[str, str]:
        """Deploy the site and return the images of its instances by platform."""
        planned = replace(plan([shipment(str(tmp_path / "echo.toml"))], where, said.append), pause=builders.pause)
        there = load_site(planned.apply().site_file).service("echo")
        assert planned.terraform.plan() == [], planned.terraform.text()
        assert there.platforms["x86_64"] == TemplateVersion(there.launch_template, there.launch_template_version)
        booted = {}
        for platform, one in there.platforms.items():
            found = moto.client("ec2").describe_launch_template_versions(
                LaunchTemplateId=one.launch_template, Versions=[one.version]
            )
            booted[platform] = str(found["LaunchTemplateVersions"][0]["LaunchTemplateData"]["ImageId"])
        return booted

    first = deployed()
    assert list(first) == ["arm64", "x86_64"]
    assert sorted(images(moto)) == sorted(first.values())
    assert [builder["InstanceType"].partition(".")[0] for builder in builders.launched] == ["c5", "c7g"]
    bases = {"x86_64": builders.launched[0]["ImageId"], "arm64": builders.launched[1]["ImageId"]}
    assert len({*bases.values(), *first.values()}) == 4
    ids = [builder["InstanceId"] for builder in builders.launched]
    there = moto.client("ec2").describe_instances(InstanceIds=ids)["Reservations"]
    assert {i["State"]["Name"] for r in there for i in r["Instances"]} == {"terminated"}

    (tmp_path / "echo.py").write_text(f"{code}# another release, the same packages\n")
    assert deployed() == first
    assert len(builders.launched) == 2

    packages = "second"
    second = deployed()
    assert not set(second.values()) & set(first.values())
    assert sorted(images(moto)) == sorted(second.values()), (
        "no controller has served the first: nothing rolls back to it"
    )

    assert deployed(replace(target, bake=False)) == bases
    assert destroy(target, said.append) == []
    assert images(moto) == []
