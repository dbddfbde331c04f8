"""Is this machine the instance type that a profile will call it, and how many workers keep it busy?"""

from __future__ import annotations

import math
import os
import time
from dataclasses import dataclass
from pathlib import Path

from mark.domain.offer import Catalog

_DMI = Path("/sys/devices/virtual/dmi/id")
# Of the memory that workers may take together: the rest is for the system, the bouncer and requests.
_MEMORY_SHARE = 0.8


@dataclass(frozen=True, slots=True)
class Room:
    """What a machine has for workers."""

    vcpus: float
    memory_bytes: float = math.inf
    gpus: bool = False

    def workers(self, vcpus: float, memory_bytes: float) -> int:
        """How many of them keep its processors busy, one at least; each uses so much of both.

        One that waits more than it computes still counts as a processor: more of them would not be measured to gain
        anything. With a GPU it is one, because a GPU's share is not measured.
        """
        if self.gpus:
            return 1
        by_memory = _MEMORY_SHARE * self.memory_bytes / memory_bytes if memory_bytes > 0.0 else math.inf
        return max(1, int(min(round(self.vcpus / max(1.0, vcpus)), by_memory)))


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


def this_room() -> Room:
    """What this machine has for workers."""
    memory_bytes = float(os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE"))
    return Room(float(this_machine().processors), memory_bytes, Path("/dev/nvidia0").exists())


def room_of(named: str | None, catalog: Catalog) -> Room:
    """What this machine has, and no more than the type that a profile calls it."""
    here = this_room()
    offer = next((offer for offer in catalog.offers if offer.instance == named and offer.vcpu), None)
    if offer is None:
        return here
    memory_bytes = offer.memory_gib * 2.0**30 or math.inf
    return Room(min(here.vcpus, offer.vcpu), min(here.memory_bytes, memory_bytes), here.gpus or offer.gpus > 0)


def cpu_s(pid: int) -> float:
    """Seconds of processors that a process of this machine has used; raises OSError for one that is gone."""
    # Linux's number of another process's clock (`clock_getcpuclockid`), in nanoseconds and not in ticks of 10 ms.
    return time.clock_gettime(~pid << 3 | 2)


def peak_bytes(pid: int) -> int:
    """The most memory that a process has held at a time; raises OSError for one that is gone."""
    status = Path(f"/proc/{pid}/status").read_text()
    return 1024 * int(status.partition("VmHWM:")[2].split()[0])
