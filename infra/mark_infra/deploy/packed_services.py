"""The files from which a service's instances and function boot, below the site's folder."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from mark.config.pipeline_config import PipelineConfig
from mark.domain.errors import BadInput
from mark.domain.offer import Offer
from mark.studies.report.monthly import ServiceCost
from mark_infra.aws.gate import Gate
from mark_infra.aws.platforms import Platform, platform_of
from mark_infra.deploy.artifacts import archive, libraries, size_of
from mark_infra.deploy.bake import ImageWanted, types_of
from mark_infra.deploy.baked_images import content_of, newest_image
from mark_infra.deploy.boots import (
    PlatformBoot,
    ServiceBoots,
    boot_timeout_of,
    first_platform,
    image_parameter,
    of_platform,
    platforms_of,
)
from mark_infra.deploy.checkout import boot_script
from mark_infra.deploy.conductors import PackedConductors, pack_conductors
from mark_infra.deploy.disk import disk_gib
from mark_infra.deploy.function_package import function_contents
from mark_infra.deploy.image_repositories import ImageRepositories
from mark_infra.deploy.images import PinnedImages, pinned
from mark_infra.deploy.imports import absent_imports
from mark_infra.deploy.sent_function import SentFunction, send
from mark_infra.deploy.shipments import Shipment, check_archive, environment_of, libraries_of, models_of
from mark_infra.deploy.target import DeployTarget
from mark_infra.deploy.wheelhouse import PackagesWanted, wheelhouse

Say = Callable[[str], None]


GRPC_PACKAGES = ("grpcio", "protobuf")  # a bouncer's additional packages for gRPC


@dataclass(frozen=True, slots=True)
class PackedService:
    """A service with all files from which its instances and its function boot."""

    shipment: Shipment
    archive: Path
    boots: ServiceBoots
    sent: SentFunction | None

    @property
    def name(self) -> str:
        return self.shipment.service.name

    def described(self, path: Callable[[Path], str], reserved: Mapping[str, int | None]) -> dict[str, Any]:
        """Return the value for Terraform's variable, without the place; `path` returns the name of a file there."""
        service = self.shipment.service
        described: dict[str, Any] = {
            "slo_ms": service.slo.rt_max_s * 1e3,
            "slo_attainment": service.slo.attainment,
            "max_usd_per_hour": service.max_usd_per_hour,
            "archive": path(self.archive),
            **self.boots.described(path),
        }
        if self.shipment.pipeline is not None:
            described |= {"pipeline": self.shipment.pipeline.name, "stage": service.stage}
        if service.together:
            described["together"] = list(service.together)
        if self.shipment.whole is not None and self.shipment.whole.learns:
            described["learns"] = True
        if self.sent is not None and self.shipment.deployment.function is not None:
            function = self.shipment.deployment.function.offer
            described["function"] = {
                "zip": None if self.sent.file is None else path(self.sent.file),
                "image_uri": self.sent.image_uri,
                "architecture": "arm64" if function.arm64 else "x86_64",
                "memory_mb": function.memory_mb,
                "environment": environment_of(self.shipment, function.name),
                "max_usd_per_hour": _finite(service.max_function_usd_per_hour),
                "reserved_concurrency": reserved[self.name],
            }
        return described

    def images_wanted(self) -> list[ImageWanted]:
        """Return the images to bake, including those baked before."""
        wanted = []
        for boot in self.boots.of.values():
            if boot.content:
                types = types_of(of_platform(self.shipment.deployment, boot.platform))
                wanted.append(ImageWanted(self.name, boot.content, types, boot.platform.name))
        return wanted

    def cost(self, offers: Sequence[Offer]) -> ServiceCost:
        """Return the service's cost; `offers` are its offers in the site's zones."""
        deployment, service = self.shipment.deployment, self.shipment.service
        cheapest = min(offers, key=lambda offer: (offer.usd_per_hour, offer.name), default=None)
        disks = {name: float(boot.disk_gib) for name, boot in self.boots.of.items()}
        own = min(disks) if cheapest is None else platform_of(cheapest.instance, cheapest.gpus).name
        function = deployment.function
        return ServiceCost(
            name=service.name,
            cheapest=cheapest.name if cheapest is not None else "instance (none suits)",
            usd_per_hour=cheapest.usd_per_hour if cheapest is not None else 0.0,
            max_usd_per_hour=service.max_usd_per_hour,
            disk_gib=disks[own],
            other_disks_gib={name: gib for name, gib in disks.items() if name != own},
            function=function.offer.name if function is not None else None,
            function_usd_per_million=function.usd_per_request * 1e6 if function is not None else 0.0,
            max_function_usd_per_hour=_finite(service.max_function_usd_per_hour),
            image_gb=self.sent.image_gb if self.sent is not None else 0.0,
        )


@dataclass(frozen=True, slots=True)
class Packer:
    """Makes the files from which services boot, below the site's folder. `before` is Terraform's output of images."""

    target: DeployTarget
    gate: Gate
    repositories: ImageRepositories
    own: Path  # the wheel of mark
    pins: Path
    before: Mapping[str, Any]
    say: Say

    def images(self, shipments: Sequence[Shipment]) -> PinnedImages:
        parameters = {one.service.name: [*map(image_parameter, platforms_of(one.deployment))] for one in shipments}
        return pinned(parameters, self.before, newest=self.target.newest_images)

    def for_controller(self) -> Path:
        """Return the packages of the controller, which runs on Arm."""
        wanted = PackagesWanted("controller", {}, machine="aarch64", extras=("aws", "serve"))
        return wheelhouse(wanted, self.own, self.pins, self.target.folder / "artifacts" / "controller" / "wheels").file

    def archives(self, shipments: Sequence[Shipment]) -> dict[str, Path]:
        """Return the archives by folder name; the stages of a pipeline share one. Raises MarkError."""
        of: dict[str, list[Shipment]] = {}
        for one in shipments:
            of.setdefault(one.folder, []).append(one)
        made = {}
        for folder, sent in of.items():
            made[folder] = archive(sent[0].files, self.target.folder / "artifacts" / f"{folder}.tar.gz")
            check_archive(made[folder], *sent)
        return made

    def pack(self, one: Shipment, images: Mapping[str, str | None], to: Path) -> PackedService:
        """Pack one service with its archive; `images` are by their parameters. Raises BadInput, MarkError."""
        name, built = one.service.name, self.target.folder / "artifacts"
        platforms = platforms_of(one.deployment)
        before = self.before.get("services", {}).get(name)
        first = first_platform([platform.name for platform in platforms], before)
        sizes = (to.stat().st_size, size_of(one.files))
        boots = {}
        for platform in platforms:
            # The first platform's files keep the place that they had before there were platforms.
            folder = built if platform.name == first else built / platform.name
            boots[platform.name] = self._boot(one, platform, images[image_parameter(platform)], sizes, folder)
        return PackedService(one, to, ServiceBoots(first, boots), self._function(one))

    def _boot(
        self, one: Shipment, platform: Platform, image: str | None, sizes: tuple[int, int], folder: Path
    ) -> PlatformBoot:
        name, kinds = one.service.name, libraries_of(one)
        grpc = self.target.grpc_port is not None and one.pipeline is None
        on_instances = (*kinds, *GRPC_PACKAGES) if grpc else kinds
        # Instances with GPUs must not use the index of wheels without GPU code.
        cpu_index = None if platform.gpus else self.target.cpu_index
        wanted = PackagesWanted(name, one.files, on_instances, platform.machine, platform.gpus, cpu_index)
        packages = wheelhouse(wanted, self.own, self.pins, folder / "wheels")
        _check_imports(one, packages.modules)
        log_bytes = 0 if one.service.feedback is None else one.service.feedback.disk_bytes
        disk = disk_gib(name, packages, *sizes, gpus=platform.gpus, limit=self.target.max_disk_gib, log_bytes=log_bytes)
        content = ""
        if self.target.bake:
            # Bake from the planned image, and not from one that Amazon publishes in the meantime.
            image = image or newest_image(self.gate, image_parameter(platform))
            content = content_of(image, packages.file, boot_script(), disk)
        timeout_s = boot_timeout_of(of_platform(one.deployment, platform))
        return PlatformBoot(platform, image, packages, disk, timeout_s, content)

    def conductors(self, config: PipelineConfig, files: Mapping[str, Path | bytes], to: Path) -> PackedConductors:
        """Pack the conductors of a pipeline with an archive. Raises BadInput, MarkError."""
        target, built = self.target, self.target.folder / "artifacts" / "conductors"
        return pack_conductors(
            config, files, to, self.own, self.pins, built, cpu_index=target.cpu_index, max_disk_gib=target.max_disk_gib
        )

    def _function(self, one: Shipment) -> SentFunction | None:
        if one.deployment.function is None:
            return None
        built = self.target.folder / "artifacts"
        machine = "aarch64" if one.deployment.function.offer.arm64 else "x86_64"
        needs = libraries(one.files, libraries_of(one), built / "libraries", self.pins, self.target.cpu_index, machine)
        contents = function_contents(one.files, needs)
        return send(one.service.name, contents, machine, built, self.repositories, self.say)


def _check_imports(sent: Shipment, provided: Collection[str]) -> None:
    """Raise BadInput for code that instances could not import."""
    for reference, folder in models_of(sent):
        for file, name in absent_imports(reference.partition(":")[0], sent.files, provided, folder):
            raise BadInput(
                "imports a package that instances will not have: name it in requirements.txt", f"{file}", name
            )


def _finite(usd_per_hour: float) -> float | None:
    return usd_per_hour if math.isfinite(usd_per_hour) else None
