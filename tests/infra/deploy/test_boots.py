"""Types decide how instances boot: each platform has its image, its packages and its disk."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from mark_infra.aws.platforms import PLATFORMS
from mark_infra.deploy.boots import (
    PlatformBoot,
    ServiceBoots,
    boot_timeout_of,
    first_platform,
    image_parameter,
    of_platform,
    platforms_of,
)
from mark_infra.deploy.shipments import shipment
from mark_infra.deploy.wheelhouse import Wheelhouse

from mark.domain.service import ResolvedService
from tests.infra.deploy.service_files import service
from tests.samples import first

X86, ARM, X86_GPU, ARM_GPU = PLATFORMS.values()


def deployment(folder: Path, *instances: str) -> ResolvedService:
    return shipment(service(folder, *instances)).deployment


@pytest.mark.parametrize(
    ("instances", "platforms"),
    first(
        1,
        [
            (["g5.xlarge", "c5.large", "c7g.large", "g4dn.xlarge"], ["x86_64", "arm64", "x86_64-gpu"]),
            (["c5.large"], ["x86_64"]),
            (["c7g.large"], ["arm64"]),
            (["c5.large", "c7g.large"], ["x86_64", "arm64"]),
        ],
    ),
)
def test_a_service_has_the_platforms_of_its_types(tmp_path: Path, instances: list[str], platforms: list[str]) -> None:
    found = deployment(tmp_path, *instances)
    assert [platform.name for platform in platforms_of(found)] == platforms
    parts = [of_platform(found, platform) for platform in platforms_of(found)]
    assert sorted(offer.name for part in parts for offer in part.offers) == sorted(offer.name for offer in found.offers)
    assert all(len(part.offers) == len(part.candidates) for part in parts)


def test_a_service_without_types_has_a_platform_all_the_same(tmp_path: Path) -> None:
    assert platforms_of(replace(deployment(tmp_path), offers=(), candidates=())) == (X86,)


def test_each_platform_has_an_image_of_its_own() -> None:
    parameters = [image_parameter(platform) for platform in (X86, ARM, X86_GPU, ARM_GPU)]
    assert [name.rsplit("-", 1)[-1] for name in parameters[:2]] == ["x86_64", "arm64"]
    assert [("deeplearning/ami/x86_64/" in name, "deeplearning/ami/arm64/" in name) for name in parameters[2:]] == [
        (True, False),
        (False, True),
    ]


def before(platform: str | None, *more: str) -> dict[str, Any]:
    """Return Terraform's outputs; without a platform they are as before platforms existed."""
    found: dict[str, Any] = {"parameter": image_parameter(X86_GPU), "id": "ami-1"}
    return found | ({} if platform == "" else {"platform": platform, "more": dict.fromkeys(more, found)})


@pytest.mark.parametrize(
    ("platforms", "was", "first"),
    [
        (["x86_64", "x86_64-gpu"], None, "x86_64"),
        (["arm64"], None, "arm64"),
        # A service from before platforms existed keeps the GPUs' template.
        (["x86_64-gpu"], before(""), "x86_64-gpu"),
        (["x86_64", "x86_64-gpu"], before(""), "x86_64-gpu"),
        (["x86_64"], before(""), "x86_64"),
        # A platform that is added does not become the first.
        (["x86_64", "arm64"], before("arm64"), "arm64"),
        (["x86_64", "arm64"], before("arm64", "x86_64"), "arm64"),
        # The first is gone: the others keep their template until no type of theirs is left.
        (["x86_64"], before("arm64", "x86_64"), None),
        (["x86_64", "arm64"], before(None, "x86_64"), None),
        (["arm64"], before(None, "x86_64"), "arm64"),
        (["x86_64"], before("arm64"), "x86_64"),
    ],
)
def test_a_template_stays_its_platforms(platforms: list[str], was: dict[str, Any] | None, first: str | None) -> None:
    assert first_platform(platforms, was) == first


def boots(first: str | None, *platforms: str) -> ServiceBoots:
    packages = {name: Wheelhouse(Path(f"{name}.tar"), 1, 1) for name in platforms}
    disks = {"x86_64": 8, "x86_64-gpu": 91}
    return ServiceBoots(
        first,
        {name: PlatformBoot(PLATFORMS[name], f"ami-{name}", packages[name], disks[name], 600) for name in platforms},
    )


def test_terraform_is_told_of_each_platform() -> None:
    gpu = {
        "wheels": "./x86_64-gpu.tar",
        "image_parameter": image_parameter(X86_GPU),
        "image_id": "ami-x86_64-gpu",
        "disk_gb": 91,
        "boot_timeout_s": 600,
    }
    said = boots("x86_64", "x86_64", "x86_64-gpu").described("./{}".format)
    assert said.pop("more_platforms") == {"x86_64-gpu": gpu}
    assert (said["platform"], said["image_id"], said["disk_gb"]) == ("x86_64", "ami-x86_64", 8)
    assert boots("x86_64-gpu", "x86_64-gpu").described("./{}".format) == {
        **gpu,
        "platform": "x86_64-gpu",
        "more_platforms": {},
    }
    assert boots(None, "x86_64-gpu").described("./{}".format) == {
        **gpu,
        "platform": None,
        "more_platforms": {"x86_64-gpu": gpu},
    }


def test_user_data_has_the_time_that_the_controller_waits() -> None:
    deployment = shipment("lstm-ptb").deployment
    assert max(offer.boot.mean_s for offer in deployment.offers) == 180.0
    assert boot_timeout_of(deployment) == 720
    quick = replace(deployment.offers[0], boot=replace(deployment.offers[0].boot, mean_s=60.0, p95_s=90.0))
    assert boot_timeout_of(replace(deployment, offers=(quick,))) == 600
