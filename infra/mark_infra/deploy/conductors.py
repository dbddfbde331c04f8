"""The files from which a pipeline's conductors boot: its folder, and its driver's packages. They run no model."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from mark.config.pipeline_config import PipelineConfig
from mark.domain.errors import BadInput
from mark.studies.report.monthly import ConductorsCost
from mark_infra.deploy.artifacts import size_of
from mark_infra.deploy.disk import disk_gib
from mark_infra.deploy.imports import absent_imports
from mark_infra.deploy.wheelhouse import HEADS, PackagesWanted, Wheelhouse, wheelhouse

_MACHINE = "aarch64"  # the processor of the instance type in terraform/modules/conductors


@dataclass(frozen=True, slots=True)
class PackedConductors:
    """A pipeline with all files from which its conductors boot."""

    config: PipelineConfig
    archive: Path
    packages: Wheelhouse
    disk_gib: int

    @property
    def name(self) -> str:
        """The pipeline's name."""
        return self.config.name

    def described(self, path: Callable[[Path], str]) -> dict[str, Any]:
        """Return the value for Terraform's variable, without the place; `path` returns the name of a file there."""
        return {
            "slo_ms": self.config.slo.rt_max_s * 1e3,
            "slo_attainment": self.config.slo.attainment,
            "archive": path(self.archive),
            "wheels": path(self.packages.file),
            "conductors": self.config.conductors,
            "disk_gb": self.disk_gib,
            "learns": self.config.learns,
        }

    def cost(self) -> ConductorsCost:
        """Return the conductors' cost."""
        return ConductorsCost(self.name, self.config.conductors, float(self.disk_gib))


def pack_conductors(
    config: PipelineConfig,
    files: Mapping[str, Path | bytes],
    archive: Path,
    own: Path,
    pins: Path,
    to: Path,
    *,
    cpu_index: str | None = None,
    max_disk_gib: int | None = None,
) -> PackedConductors:
    """Pack the conductors of a pipeline with these `files`, whose archive is `archive`.

    `own` is the wheel of mark, `pins` a constraints file. Raises BadInput for a driver that cannot be imported and for
    packages that do not fit, MarkError for packages that cannot be fetched.
    """
    kinds = () if config.personal is None else (HEADS,)
    wanted = PackagesWanted(config.name, files, kinds, _MACHINE, cpu_index=cpu_index)
    packages = wheelhouse(wanted, own, pins, to / "wheels")
    for file, name in absent_imports((config.driver or "").partition(":")[0], files, packages.modules, ""):
        raise BadInput("imports a package that conductors will not have: name it in requirements.txt", f"{file}", name)
    log_bytes = 0 if config.feedback is None else config.feedback.disk_bytes
    sizes = (archive.stat().st_size, size_of(files))
    disk = disk_gib(
        f"a conductor of {config.name}", packages, *sizes, gpus=False, limit=max_disk_gib, log_bytes=log_bytes
    )
    return PackedConductors(config, archive, packages, disk)
