"""The artifacts that instances and functions boot from."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import pytest
from mark_infra.aws.platforms import PLATFORMS
from mark_infra.deploy.boots import PlatformBoot, ServiceBoots, image_parameter
from mark_infra.deploy.packed_services import PackedService, Packer, _check_imports
from mark_infra.deploy.sent_function import SentFunction
from mark_infra.deploy.shipments import (
    shipment,
    shipments,
)
from mark_infra.deploy.target import DeployTarget
from mark_infra.deploy.wheelhouse import PackagesWanted, Wheelhouse

from mark.domain.errors import BadInput
from tests.infra.deploy.service_files import PIPELINE, pipeline, service


def test_a_model_that_could_not_be_imported_is_refused(tmp_path: Path) -> None:
    sent = shipment(service(tmp_path))
    (tmp_path / "echo.py").write_text("import mark\nimport pandas\n")
    with pytest.raises(BadInput, match=r"^echo\.py: .* in requirements\.txt: pandas$"):
        _check_imports(sent, {"mark"})
    _check_imports(sent, {"mark", "pandas"})


def test_each_platform_has_packages_and_a_disk_of_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The first platform's packages are where they always were; wheels without GPU code are for types without GPUs."""
    built, gib = tmp_path / "s" / "artifacts", 1024**3
    asked: list[tuple[str, bool, str | None, str]] = []

    def wheels(wanted: PackagesWanted, own: Path, pins: Path, to: Path) -> Wheelhouse:
        asked.append((wanted.machine, wanted.gpus, wanted.cpu_index, to.relative_to(built).as_posix()))
        size = 3 * gib if wanted.gpus else 2**20
        return Wheelhouse(to.parent / "wheels.tar", size, size, frozenset({"mark"}))

    monkeypatch.setattr("mark_infra.deploy.packed_services.wheelhouse", wheels)
    file = Path(service(tmp_path / "service", "c5.large", "c7g.large", "g5.xlarge"))
    file.write_text(file.read_text().replace("lambda:1024", "none"))
    sent, nothing = shipment(str(file)), cast(Any, None)
    before = {"services": {"echo": {"parameter": image_parameter(PLATFORMS["x86_64-gpu"]), "id": "ami-gpu"}}}
    for had, first, folders in (
        ({}, "x86_64", ["wheels", "arm64/wheels", "x86_64-gpu/wheels"]),
        (before, "x86_64-gpu", ["x86_64/wheels", "arm64/wheels", "wheels"]),
    ):
        asked.clear()
        target = DeployTarget(state=tmp_path / "s", cpu_index="https://cpu")
        packer = Packer(target, nothing, nothing, Path("own"), Path("pins"), had, nothing)
        images = packer.images([sent]).services["echo"]
        made = packer.archives([sent])[sent.folder]
        packed = packer.pack(sent, images, made)
        assert [folder for *_, folder in asked] == folders
        assert [what for *what, _ in asked] == [
            ["x86_64", False, "https://cpu"],
            ["aarch64", False, "https://cpu"],
            ["x86_64", True, None],
        ]
        said = packed.described(str, {})
        every = {said["platform"]: said, **said["more_platforms"]}
        assert said["platform"] == first
        assert {name: one["disk_gb"] for name, one in every.items()} == {"x86_64": 8, "arm64": 8, "x86_64-gpu": 88}
        assert every["x86_64-gpu"]["image_id"] == ("ami-gpu" if had else None)
        cost = packed.cost(packed.shipment.deployment.offers)
        assert (cost.disk_gib, cost.other_disks_gib["x86_64-gpu"]) == (8.0, 88.0)
    with pytest.raises(BadInput, match="echo needs a disk of 88 GiB"):
        replace(packer, target=replace(target, max_disk_gib=80)).pack(sent, images, made)


def test_a_stages_function_is_described_and_billed_as_a_services(tmp_path: Path) -> None:
    """It answers to the stage's name, and may cost the stage's part of the limit for functions."""
    both = PIPELINE.replace("slo_ms = 400\n", 'slo_ms = 400\nfunction = "lambda:1024"\n')
    packages = Wheelhouse(tmp_path / "wheels.tar", 1, 1, frozenset())
    boots = ServiceBoots("x86_64", {"x86_64": PlatformBoot(PLATFORMS["x86_64"], None, packages, 8, 600)})
    sent = SentFunction(tmp_path / "two-first.zip")
    for text, usd_per_hour in ((PIPELINE, 2.0), (both, 1.0)):
        first = shipments(pipeline(tmp_path, text))[0]
        packed = PackedService(first, tmp_path / "two.tar.gz", boots, sent)
        described = packed.described(lambda path: path.name, {"two-first": 7})
        assert (described["pipeline"], described["stage"]) == ("two", "first")
        assert described["function"] == {
            "zip": "two-first.zip",
            "image_uri": None,
            "architecture": "x86_64",
            "memory_mb": 1024,
            "environment": {
                "MARK_MODEL": "echo:Echo",
                "MARK_MODEL_PATH": "service",
                "MARK_NAME": "first",
                "MARK_VERSION": "1",
            },
            "max_usd_per_hour": usd_per_hour,
            "reserved_concurrency": 7,
        }
        cost = packed.cost(packed.shipment.deployment.offers)
        assert (cost.function, cost.max_function_usd_per_hour) == ("lambda:1024", usd_per_hour)
