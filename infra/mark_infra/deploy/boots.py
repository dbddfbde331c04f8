"""What the instances of a service boot from, for each platform of its types: machine image, packages, disk."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from mark.control.health import boot_timeout_s
from mark.domain.service import ResolvedService
from mark_infra.aws.platforms import PLATFORMS, Platform, platform_of
from mark_infra.deploy.wheelhouse import Wheelhouse

# Amazon's own images, whose root device is /dev/xvda.
_AL2023 = "/aws/service/ami-amazon-linux-latest/al2023-ami-kernel-default-{}"
_GPU = "/aws/service/deeplearning/ami/{}/base-oss-nvidia-driver-gpu-amazon-linux-2023/latest/ami-id"


@dataclass(frozen=True, slots=True)
class PlatformBoot:
    """What instances of one platform boot from."""

    platform: Platform
    image_id: str | None  # of what the platform's parameter names; None: the newest
    packages: Wheelhouse
    disk_gib: int
    boot_timeout_s: int
    content: str = ""  # of an image that is to be baked, see `baked_images.content_of`; "": none is

    def described(self, path: Callable[[Path], str]) -> dict[str, Any]:
        """As Terraform's variable has it; `path` tells how a file is named there."""
        return {
            "wheels": path(self.packages.file),
            "image_parameter": image_parameter(self.platform),
            "image_id": self.image_id,
            "disk_gb": self.disk_gib,
            "boot_timeout_s": self.boot_timeout_s,
        }


@dataclass(frozen=True, slots=True)
class ServiceBoots:
    """What a service's instances boot from, by platform. `first` has the service's first launch template, if any has.

    The others have templates of their own.
    """

    first: str | None
    of: Mapping[str, PlatformBoot]

    def described(self, path: Callable[[Path], str]) -> dict[str, Any]:
        """As Terraform's variable for the service has it."""
        # A template that no platform has any more stays, as old ones of the service may be asked for by its id.
        first = self.of[min(self.of) if self.first is None else self.first]
        more = {name: boot.described(path) for name, boot in self.of.items() if name != self.first}
        return {**first.described(path), "platform": self.first, "more_platforms": more}


def image_parameter(platform: Platform) -> str:
    """The public parameter that names the newest machine image."""
    return (_GPU if platform.gpus else _AL2023).format("arm64" if platform.arm64 else "x86_64")


def platforms_of(deployment: ResolvedService) -> tuple[Platform, ...]:
    """Those of the service's types, the one that boots from the least first; of a service without types x86-64."""
    found = {platform_of(offer.instance, offer.gpus) for offer in deployment.offers}
    return tuple(sorted(found)) or (PLATFORMS["x86_64"],)


def of_platform(deployment: ResolvedService, platform: Platform) -> ResolvedService:
    """The service with its types of one platform alone."""
    pairs = zip(deployment.offers, deployment.candidates, strict=True)
    kept = [(offer, one) for offer, one in pairs if platform_of(offer.instance, offer.gpus) == platform]
    return replace(
        deployment, offers=tuple(offer for offer, _ in kept), candidates=tuple(candidate for _, candidate in kept)
    )


def first_platform(platforms: Sequence[str], before: Mapping[str, Any] | None) -> str | None:
    """Whose instances are launched from the service's first template; `before` is Terraform's output of its images.

    It stays the same, so that what is launched from it is not replaced when types of other platforms come. When its own
    types have gone, the first template passes to another platform only if none of those that are left has one already:
    a release that is rolled back to needs the templates by which it was launched.
    """
    if before is None:
        return platforms[0]
    # Sites of before there were platforms had one image for all types.
    old = next((one.name for one in PLATFORMS.values() if image_parameter(one) == before["parameter"]), None)
    first: str | None = before.get("platform", old)
    if first in platforms:
        return first
    return None if set(platforms) & set(before.get("more", ())) else platforms[0]


def boot_timeout_of(deployment: ResolvedService) -> int:
    """Seconds that the controller waits for the slowest of the types."""
    return math.ceil(boot_timeout_s(max((offer.boot.mean_s for offer in deployment.offers), default=0.0)))
