"""A service that gives up its function, and takes one again: applied on the testbed's cloud.

Minutes, as tests.terraform.test_site.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from mark_infra.aws.site import SiteService, load_site
from mark_infra.deploy.artifacts import libraries_name
from mark_infra.deploy.checkout import constraints
from mark_infra.deploy.deploy import DeployTarget, destroy, plan, shipment

from tests.infra.conftest import REGION, MotoServer
from tests.terraform.conftest import Terraform
from tests.terraform.test_site import PROFILE, SERVICE, aws, check_nothing_is_left, moto, no_packages  # noqa: F401


@pytest.mark.slow
def test_a_function_goes_and_comes_again(
    moto: MotoServer,  # noqa: F811
    terraform: Terraform,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    terraform.init(terraform.home / "examples" / "complete")  # skips where there is no provider
    for name, value in (
        ("AWS_ENDPOINT_URL", moto.url),
        ("AWS_DEFAULT_REGION", REGION),
        ("AWS_ACCESS_KEY_ID", "test"),
        ("AWS_SECRET_ACCESS_KEY", "test"),
    ):
        monkeypatch.setenv(name, value)
    monkeypatch.setattr("mark_infra.deploy.deploy.wheelhouse", no_packages)
    target = DeployTarget(name="mark", region=REGION, clients=("192.0.2.0/24",), state=tmp_path / "s", emulated=True)
    (target.folder / "artifacts" / "libraries" / libraries_name(b"", constraints())).mkdir(parents=True)
    folder = tmp_path / "echo"
    folder.mkdir()
    (folder / "profile.csv").write_text(PROFILE)
    (folder / "echo.py").write_text(
        "import mark\n\n\nclass Echo(mark.Model):\n    def predict(self, batch): return batch\n"
    )
    said: list[str] = []

    def deployed(function: str) -> SiteService:
        (folder / "echo.toml").write_text(SERVICE.format(name="echo", model="echo:Echo", function=function))
        planned = plan([shipment(str(folder / "echo.toml"))], target, said.append)
        there = load_site(planned.apply().site_file).service("echo")
        assert planned.terraform.plan() == [], planned.terraform.text()
        return there

    def behind() -> list[Any]:
        health = moto.client("elbv2").describe_target_health(TargetGroupArn=first.function_group)
        return [one["Target"]["Id"] for one in health["TargetHealthDescriptions"]]

    first = deployed("lambda:1024")
    assert (first.function, first.function_alias) == ("mark_echo-overflow:1", "balancer")
    assert [one.rpartition(":")[2] for one in behind()] == ["balancer"]
    without = deployed("none")
    assert (without.function, without.function_alias, without.function_group) == (None, None, None)
    assert behind() == [], "the group stays, as the rules name it"
    assert moto.client("lambda").list_functions()["Functions"] == []
    again = deployed("lambda:1024")
    assert (again.function, again.function_group) == ("mark_echo-overflow:1", first.function_group)
    assert len(behind()) == 1
    assert destroy(target, said.append) == []
    check_nothing_is_left(moto)
