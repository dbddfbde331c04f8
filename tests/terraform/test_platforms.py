"""Instance types of other platforms join a service and leave it: which resources change, and of which services."""

from __future__ import annotations

import base64
import json
import tomllib
from pathlib import Path
from typing import Any

import pytest
from mark_infra.aws.site import load_site

from tests.terraform.conftest import Terraform
from tests.terraform.mocked_site import MockedSite, Step, changes, resources

FLEET = 'module.fleet["a"]'


@pytest.fixture
def site(mocked: Terraform, tmp_path: Path) -> MockedSite:
    return MockedSite(mocked, tmp_path)


@pytest.mark.slow
def test_types_of_another_platform_change_nothing_of_the_others(site: MockedSite, tmp_path: Path) -> None:
    """Only the release changes, because it covers all artifacts of a service; so it is rolled out."""
    first = {"platform": "x86_64"}
    arm, gpu = site.more("arm64", 8), site.more("x86_64-gpu", 91)
    alone = site.services(["a", "b"], {"a": first, "b": first})
    beside = site.services(["a", "b"], {"a": first | {"more_platforms": arm | gpu}, "b": first})
    before, joined, after, left = site.run(
        Step(alone, default="a"),
        Step(beside, default="a", apply=False),
        Step(beside, default="a"),
        Step(alone, default="a", apply=False),
    )
    done = changes(joined)
    done.pop("module.controller.aws_autoscaling_group.this", None)  # changes with the version of its template
    assert done == {
        **{f'{FLEET}.aws_launch_template.more["{name}"]': ["create"] for name in ("arm64", "x86_64-gpu")},
        **{f'module.state.aws_s3_object.artifact["wheels/a/{name}"]': ["create"] for name in ("arm64", "x86_64-gpu")},
        f"{FLEET}.aws_iam_role_policy.this": ["update"],  # the right to fetch the new packages
        "module.controller.aws_launch_template.this": ["update"],
        'module.controller.aws_s3_object.boot["site.toml"]': ["update"],
    }
    gone = {at for at, actions in changes(left).items() if actions == ["delete"]}
    assert gone == {at for at, actions in done.items() if actions == ["create"]}
    releases = [told(state, tmp_path)["releases"] for state in (before, after)]
    assert releases[0]["b"] == releases[1]["b"]
    assert releases[0]["a"] != releases[1]["a"]


@pytest.mark.slow
def test_each_platform_boots_from_its_own(applied: dict[str, Any]) -> None:
    templates = resources(applied, "aws_launch_template")
    own = {
        name: templates[f'module.fleet["echo"].aws_launch_template.{name}'] for name in ("this", 'more["x86_64-gpu"]')
    }
    disks = {name: one["block_device_mappings"][0]["ebs"][0]["volume_size"] for name, one in own.items()}
    assert disks == {"this": 8, 'more["x86_64-gpu"]': 91}
    images = {name: one["image_id"] for name, one in own.items()}
    assert images == {"this": "ami-0123456789abcdef0", 'more["x86_64-gpu"]': "ami-0000000000000gpu0"}
    scripts = {name: base64.b64decode(one["user_data"]).decode() for name, one in own.items()}
    assert "fetch 'artifacts/wheels/echo'" in scripts["this"]
    assert "fetch 'artifacts/wheels/echo/x86_64-gpu'" in scripts['more["x86_64-gpu"]']
    assert "\nmost_s=840\n" in scripts['more["x86_64-gpu"]']
    rights = resources(applied, "aws_iam_role_policy")["module.controller.aws_iam_role_policy.this"]
    policy = json.loads(rights["policy"])
    allowed = next(one["Resource"] for one in policy["Statement"] if one["Sid"] == "LaunchWith")
    assert {arn.rpartition("/")[2] for arn in allowed if ":image/" in arn} == set(images.values())
    site_file = resources(applied, "aws_s3_object")['module.controller.aws_s3_object.boot["site.toml"]']["content"]
    platforms = tomllib.loads(site_file)["services"]["echo"]["platforms"]
    same = {"launch_template": "lt-0123456789abcdef0", "version": "1"}
    assert platforms == {"x86_64": same, "x86_64-gpu": same}


@pytest.mark.acceptance
def test_what_no_type_boots_from_is_not_told(site: MockedSite, tmp_path: Path) -> None:
    """The types of the first platform are gone. Its template stays, so that a release can be rolled back to it."""
    arm = site.more("arm64", 8)
    described = [{"platform": platform, "more_platforms": arm} for platform in ("x86_64", None)]
    one, other = (site.services(["a"], {"a": one}) for one in described)
    _, state, plan = site.run(Step(one), Step(other), Step(one, apply=False))
    assert set(told(state, tmp_path)["platforms"]["a"]) == {"arm64"}
    assert not [at for at, actions in changes(plan).items() if {"create", "delete"} & set(actions)]


def told(state: dict[str, Any], folder: Path) -> dict[str, Any]:
    """Return the controller's description of services."""
    file = folder / "site.toml"
    file.write_text(resources(state, "aws_s3_object")['module.controller.aws_s3_object.boot["site.toml"]']["content"])
    services = load_site(file).services.items()
    return {
        "releases": {name: there.release for name, there in services},
        "platforms": {name: there.platforms for name, there in services},
    }
