"""Is this machine the instance type that a profile will call it?"""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

from mark.domain.offer import Catalog

_DMI = Path("/sys/devices/virtual/dmi/id")


@dataclass(frozen=True, slots=True)
class ProfiledMachine:
    """`instance` is the EC2 type, None elsewhere."""

    processors: int
    instance: str | None = None

    def mismatch(self, named: str, catalog: Catalog) -> str | None:
        """What is wrong with calling this machine `named`; None where nothing is, and for a name that is not sold."""
        vcpu = next((offer.vcpu for offer in catalog.offers if offer.instance == named), None)
        if vcpu is None or named == self.instance:
            return None
        if self.instance is not None:
            return f"this machine is a {self.instance}, and the profile calls it {named}"
        return (
            f"this machine ({self.processors} processors) is no EC2 instance that says so, and the profile calls it "
            f"{named} ({vcpu:g} vCPUs): these are its times only if it is as fast"
        )


def this_machine(dmi: Path = _DMI) -> ProfiledMachine:
    """This machine as its firmware describes it: EC2's names the type."""
    processors = len(os.sched_getaffinity(0))
    try:
        if "Amazon EC2" in (dmi / "sys_vendor").read_text():
            return ProfiledMachine(processors, (dmi / "product_name").read_text().strip())
    except (OSError, ValueError):
        pass
    return ProfiledMachine(processors)
