"""Platforms: instance types that boot from the same machine image, with the same packages.

A type's platform follows from its processors and from whether it has GPUs. So the builder of images and packages
and the launcher agree on it without telling each other.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

_ARM = re.compile(r"[a-z]+\d+[a-z]*g[a-z]*\.")  # c7g, t4g, m6gd, g5g; not g5


@dataclass(frozen=True, slots=True, order=True)
class Platform:
    """A processor architecture, with GPUs or without."""

    gpus: bool
    arm64: bool

    @property
    def name(self) -> str:
        """As site files, Terraform and the store have it."""
        return f"{'arm64' if self.arm64 else 'x86_64'}{'-gpu' if self.gpus else ''}"

    @property
    def machine(self) -> str:
        """The processor, as Python and pip name it on Linux."""
        return "aarch64" if self.arm64 else "x86_64"

    def __str__(self) -> str:
        return self.name


PLATFORMS = {one.name: one for one in (Platform(gpus, arm64) for gpus in (False, True) for arm64 in (False, True))}


def platform_of(instance: str, gpus: int) -> Platform:
    """Of an instance type that has `gpus` GPUs."""
    return Platform(gpus > 0, _ARM.match(instance) is not None)
