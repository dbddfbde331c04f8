"""A site whose function is an image: pushed by docker's stand-in, run by Lambda, and gone with the site.

It takes five minutes for three applies and as many waits for load balancers, so `make acceptance` runs it.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from mark_infra.aws.site import load_site
from mark_infra.deploy import function_package
from mark_infra.deploy.artifacts import libraries_name
from mark_infra.deploy.checkout import constraints
from mark_infra.deploy.deploy import destroy, plan
from mark_infra.deploy.shipments import shipment
from mark_infra.deploy.target import DeployTarget

from tests.infra.conftest import REGION, MotoServer
from tests.infra.deploy.docker_stand_in import docker_stand_in
from tests.terraform.conftest import Terraform
from tests.terraform.mocked_site import APPLIED, IMAGE_URI, resources
from tests.terraform.test_site import PROFILE as X86_PROFILE
from tests.terraform.test_site import SERVICE, asked_at, aws, check_nothing_is_left, moto, no_packages  # noqa: F401

PROFILE = X86_PROFILE.replace("lambda:", "lambda-arm64:")
MODEL = "import mark\n\n\nclass Echo(mark.Model):\n    def predict(self, batch): return batch\n"


@pytest.mark.acceptance
def test_a_function_that_no_zip_holds_is_deployed(
    moto: MotoServer,  # noqa: F811
    terraform: Terraform,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    terraform.init(terraform.home / "examples" / "complete")  # skips the test if the provider cannot be had
    asked_at(moto, monkeypatch)
    monkeypatch.setenv("MOTO_LAMBDA_STUB_ECR", "true")
    docker = docker_stand_in(tmp_path, monkeypatch, registry=True)
    monkeypatch.setattr("mark_infra.deploy.packed_services.wheelhouse", no_packages)
    monkeypatch.setattr(function_package, "MOST_ZIP_BYTES", 100_000)
    target = DeployTarget(name="mark", region=REGION, clients=("192.0.2.0/24",), state=tmp_path / "s", emulated=True)
    libraries = target.folder / "artifacts" / "libraries" / libraries_name(b"", constraints(), machine="aarch64")
    libraries.mkdir(parents=True)
    service = tmp_path / "echo"
    service.mkdir()
    (service / "echo.toml").write_text(SERVICE.format(name="echo", model="echo:Echo", function="lambda-arm64:1024"))
    (service / "profile.csv").write_text(PROFILE)
    (service / "echo.py").write_text(MODEL)
    said: list[str] = []

    planned = plan([shipment(str(service / "echo.toml"))], target, said.append)
    assert not docker.calls("build"), "nothing is built before it is agreed to"
    assert any("ECR" in charge.what for charge in planned.charges)
    deployed = planned.apply()
    (image,) = moto.client("ecr").describe_images(repositoryName="mark/mark/echo")["imageDetails"]
    (function,) = moto.client("lambda").list_functions()["Functions"]
    assert (function["PackageType"], function["Architectures"]) == ("Image", ["arm64"])
    code = moto.client("lambda").get_function(FunctionName=function["FunctionName"])["Code"]
    assert code["ImageUri"].endswith(f"/mark/mark/echo@{image['imageDigest']}")
    assert "mark_echo-overflow:1" in deployed.site_file.read_text()
    assert docker.calls("build")[0]["argv"][1:3] == ["--platform", "linux/arm64"]

    again = plan([shipment(str(service / "echo.toml"))], target, said.append)
    assert (again.changes, again.to_push) == ([], ()), again.terraform.text()
    moto.client("ecr").create_repository(repositoryName="mark/mark/of-a-service-before")
    again.apply()
    (repository,) = moto.client("ecr").describe_repositories()["repositories"]
    assert repository["repositoryName"] == "mark/mark/echo"
    assert len(docker.calls("push")) == 1

    # Another model makes another image and another version of the function.
    (service / "echo.py").write_text(f"{MODEL}\n")
    changed = plan([shipment(str(service / "echo.toml"))], target, said.append)
    assert not [change for change in changed.changes if change.action == "replace"]
    assert "mark_echo-overflow:2" in changed.apply().site_file.read_text()
    assert len(moto.client("ecr").describe_images(repositoryName="mark/mark/echo")["imageDetails"]) == 2

    # The controller moves the alias that the load balancer calls, and an apply leaves it in place.
    alias = {"FunctionName": function["FunctionName"], "Name": "balancer"}
    assert load_site(deployed.site_file).service("echo").function_alias == alias["Name"]
    client = moto.client("lambda")
    assert client.get_alias(**alias)["FunctionVersion"] == "1", "the new release has not served yet"
    client.update_alias(**alias, FunctionVersion="2")
    assert changed.terraform.plan() == [], changed.terraform.text()

    # A service may give up its function and get one again.
    arn = load_site(deployed.site_file).service("echo").function_group
    for name, targets in (("none", 0), ("lambda-arm64:1024", 1)):
        (service / "echo.toml").write_text(SERVICE.format(name="echo", model="echo:Echo", function=name))
        step = plan([shipment(str(service / "echo.toml"))], target, said.append)
        there = load_site(step.apply().site_file).service("echo")
        assert (there.function is None) == (there.function_group is None) == (targets == 0)
        health = moto.client("elbv2").describe_target_health(TargetGroupArn=arn)  # it stays because the rules name it
        assert len(health["TargetHealthDescriptions"]) == len(client.list_functions()["Functions"]) == targets
    assert step.terraform.plan() == [], step.terraform.text()

    moto.client("ecr").create_repository(repositoryName="mark/mark/stray")
    assert destroy(target, said.append) == []
    assert moto.client("ecr").describe_repositories()["repositories"] == []
    check_nothing_is_left(moto)


@pytest.mark.slow
def test_a_sites_image_is_no_artifact_in_its_bucket(applied: dict[str, Any]) -> None:
    functions = {one["function_name"]: one for one in resources(applied, "aws_lambda_function").values()}
    packed = {name: (one["package_type"], one["image_uri"]) for name, one in functions.items()}
    (image,) = (name for name in packed if packed[name] == ("Image", IMAGE_URI))
    keys = {one["key"] for one in resources(applied, "aws_s3_object").values() if one["key"].startswith("functions/")}
    assert (len(packed), len(keys)) == (len(APPLIED), len(APPLIED) - 1)
    assert {packed[name][0] for name in packed if name != image} == {"Zip"}
