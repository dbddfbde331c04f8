"""A site whose instances boot from baked images: applied on moto, changed, and destroyed.

Minutes, as with any site on moto; run by `make test-slow`.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from mark_infra.aws.site import load_site
from mark_infra.deploy.artifacts import archive, libraries_name
from mark_infra.deploy.bake import BUILDER
from mark_infra.deploy.checkout import constraints
from mark_infra.deploy.deploy import DeployTarget, destroy, plan, shipment
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
    """Say that they have booted as soon as somebody waits for them."""

    def __init__(self, moto: MotoServer) -> None:
        self._moto, self.launched = moto, list[dict[str, Any]]()

    def pause(self, seconds: float) -> None:
        logs = self._moto.client("logs")
        filters = [
            {"Name": "tag-key", "Values": [BUILDER]},
            {"Name": "instance-state-name", "Values": ["running"]},
        ]
        found = self._moto.client("ec2").describe_instances(Filters=filters)["Reservations"]
        for instance in (i for r in found for i in r["Instances"]):
            self.launched.append(instance)
            where = {"logGroupName": "/mark/mark/services/echo", "logStreamName": f"boot/{instance['InstanceId']}"}
            logs.create_log_stream(**where)
            event = {"timestamp": int(datetime.now(UTC).timestamp() * 1e3), "message": "baked\n"}
            logs.put_log_events(**where, logEvents=[event])


def images(moto: MotoServer) -> list[str]:
    filters = [{"Name": "tag:mark:site", "Values": ["mark"]}]
    return [one["ImageId"] for one in moto.client("ec2").describe_images(Owners=["self"], Filters=filters)["Images"]]


@pytest.mark.slow
@pytest.mark.acceptance
def test_a_site_boots_from_images_that_are_baked_first(
    moto: MotoServer, terraform: Terraform, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    terraform.init(terraform.home / "examples" / "complete")
    monkeypatch.setenv("AWS_ENDPOINT_URL", moto.url)
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.setenv(name, "test")
    packages = "first"

    def wheels(wanted: PackagesWanted, own: Path, pins: Path, to: Path) -> Wheelhouse:
        file = archive({own.name: own, "packages": packages.encode()}, to.parent / f"{wanted.service}-wheels.tar")
        return Wheelhouse(file, file.stat().st_size, 0, frozenset({"mark"}))

    monkeypatch.setattr("mark_infra.deploy.deploy.wheelhouse", wheels)
    (tmp_path / "echo.toml").write_text(SERVICE.format(name="echo", model="echo:Echo", function="lambda:1024"))
    (tmp_path / "profile.csv").write_text(PROFILE)
    code = "import mark\n\n\nclass Echo(mark.Model):\n    def predict(self, batch): return batch\n"
    (tmp_path / "echo.py").write_text(code)
    target = DeployTarget(
        name="mark", region=REGION, clients=("192.0.2.0/24",), state=tmp_path / "s", emulated=True, bake=True
    )
    (target.folder / "artifacts" / "libraries" / libraries_name(b"", constraints())).mkdir(parents=True)
    builders, said = Builders(moto), list[str]()

    def deployed(where: DeployTarget = target) -> str:
        """What instances boot from then."""
        planned = replace(plan([shipment(str(tmp_path / "echo.toml"))], where, said.append), pause=builders.pause)
        there = load_site(planned.apply().site_file).service("echo")
        assert planned.terraform.plan() == [], planned.terraform.text()
        ec2 = moto.client("ec2")
        found = ec2.describe_launch_template_versions(
            LaunchTemplateId=there.launch_template, Versions=[there.launch_template_version]
        )
        return str(found["LaunchTemplateVersions"][0]["LaunchTemplateData"]["ImageId"])

    first = deployed()
    assert images(moto) == [first]
    (builder,) = builders.launched
    assert builder["ImageId"] != first
    there = moto.client("ec2").describe_instances(InstanceIds=[builder["InstanceId"]])["Reservations"]
    assert [i["State"]["Name"] for r in there for i in r["Instances"]] == ["terminated"]

    (tmp_path / "echo.py").write_text(f"{code}# another release, the same packages\n")
    assert deployed() == first
    assert len(builders.launched) == 1

    packages = "second"
    second = deployed()
    assert second != first
    assert images(moto) == [second], "no controller has served the first: nothing rolls back to it"

    assert deployed(replace(target, bake=False)) == builder["ImageId"]
    assert destroy(target, said.append) == []
    assert images(moto) == []
