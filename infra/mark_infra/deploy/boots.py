"""The machine image, packages and disk from which a service's instances boot, for each platform of its types."""

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

# Amazon's own images. Their root device is /dev/xvda.
_AL2023 = "/aws/service/ami-amazon-linux-latest/al2023-ami-kernel-default-{}"
_GPU = "/aws/service/deeplearning/ami/{}/base-oss-nvidia-driver-gpu-amazon-linux-2023/latest/ami-id"


@dataclass(frozen=True, slots=True)
class PlatformBoot:
    """The image, packages and disk of one platform's instances."""

    platform: Platform
    image_id: str | None  # an image of the platform's parameter; None: the newest
    packages: Wheelhouse
    disk_gib: int
    boot_timeout_s: int
    content: str = ""  # of the image to bake, see `baked_images.content_of`; "": no baking

    def described(self, path: Callable[[Path], str]) -> dict[str, Any]:
        """Return the value for Terraform's variable; `path` returns the name of a file there."""
        return {
            "wheels": path(self.packages.file),
            "image_parameter": image_parameter(self.platform),
            "image_id": self.image_id,
            "disk_gb": self.disk_gib,
            "boot_timeout_s": self.boot_timeout_s,
        }


@dataclass(frozen=True, slots=True)
class ServiceBoots:
    """A service's boots by platform. `first` is the platform with the service's first launch template, if any.

    Each other platform has another template.
    """

    first: str | None
    of: Mapping[str, PlatformBoot]

    def described(self, path: Callable[[Path], str]) -> dict[str, Any]:
        """Return the value for Terraform's variable of the service."""
        # The first template stays even without a platform, because its old versions may be needed by its id.
        first = self.of[min(self.of) if self.first is None else self.first]
        more = {name: boot.described(path) for name, boot in self.of.items() if name != self.first}
        return {**first.described(path), "platform": self.first, "more_platforms": more}


def image_parameter(platform: Platform) -> str:
    """Return the public parameter that names the newest machine image."""
    return (_GPU if platform.gpus else _AL2023).format("arm64" if platform.arm64 else "x86_64")


def platforms_of(deployment: ResolvedService) -> tuple[Platform, ...]:
    """Return the platforms of the service's types, the simplest first; x86-64 for a service without types."""
    found = {platform_of(offer.instance, offer.gpus) for offer in deployment.offers}
    return tuple(sorted(found)) or (PLATFORMS["x86_64"],)


def of_platform(deployment: ResolvedService, platform: Platform) -> ResolvedService:
    """Return the service with only its types of one platform."""
    pairs = zip(deployment.offers, deployment.candidates, strict=True)
    kept = [(offer, one) for offer, one in pairs if platform_of(offer.instance, offer.gpus) == platform]
    return replace(
        deployment, offers=tuple(offer for offer, _ in kept), candidates=tuple(candidate for _, candidate in kept)
    )


def first_platform(platforms: Sequence[str], before: Mapping[str, Any] | None) -> str | None:
    """Return the platform with the service's first template; `before` is Terraform's output of the service's images.

    It stays the same, so that its instances are not replaced when types of other platforms are added. If its own types
    are gone, the first template passes to another platform only if all remaining platforms lack a template, because a
    roll-back needs the templates that launched the earlier release.
    """
    if before is None:
        return platforms[0]
    # Sites older than platforms have one image for all types.
    old = next((one.name for one in PLATFORMS.values() if image_parameter(one) == before["parameter"]), None)
    first: str | None = before.get("platform", old)
    if first in platforms:
        return first
    return None if set(platforms) & set(before.get("more", ())) else platforms[0]


def boot_timeout_of(deployment: ResolvedService) -> int:
    """Return the seconds that the controller waits for the slowest type to boot."""
    return math.ceil(boot_timeout_s(max((offer.boot.mean_s for offer in deployment.offers), default=0.0)))
