"""The machine of a measurement: its instance type, and how many workers keep it busy."""

from __future__ import annotations

import math
import os
import re
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from mark.domain.errors import BadInput, did_you_mean
from mark.domain.offer import Catalog

_DMI = Path("/sys/devices/virtual/dmi/id")
# Share of the memory for workers; the system, the bouncer and requests need the rest.
_MEMORY_SHARE = 0.8
_EC2_TYPE = re.compile(r"(ml\.)?[a-z-]+[0-9][a-z0-9-]*\.(nano|micro|small|medium|large|[0-9]*xlarge|metal(-[0-9]+xl)?)")


@dataclass(frozen=True, slots=True)
class Room:
    """The processors, memory and GPUs that workers may use."""

    vcpus: float
    memory_bytes: float = math.inf
    gpus: bool = False

    def workers(self, vcpus: float, memory_bytes: float) -> int:
        """Return how many workers keep the processors busy, at least one; each uses `vcpus` and `memory_bytes`.

        A worker that mostly waits still counts as one processor, because the gain of more workers was not measured.
        With a GPU there is one worker, because a GPU's share is not measured.
        """
        if self.gpus:
            return 1
        by_memory = _MEMORY_SHARE * self.memory_bytes / memory_bytes if memory_bytes > 0.0 else math.inf
        return max(1, int(min(round(self.vcpus / max(1.0, vcpus)), by_memory)))


@dataclass(frozen=True, slots=True)
class ProfiledMachine:
    """The measured machine; `instance` is the EC2 type, None elsewhere."""

    processors: int
    instance: str | None = None

    def mismatch(self, named: str, catalog: Catalog) -> str | None:
        """Return why this machine should not be called `named`; None if it may, or if the name is not sold."""
        vcpu = next((offer.vcpu for offer in catalog.offers if offer.instance == named), None)
        if vcpu is None or named == self.instance:
            return None
        if self.instance is not None:
            return f"this machine is a {self.instance}, and the profile calls it {named}"
        return (
            f"this machine ({self.processors} processors) does not say that it is an EC2 instance, and the profile "
            f"calls it {named} ({vcpu:g} vCPUs): the times hold for {named} only if this machine is as fast"
        )


def this_machine(dmi: Path = _DMI) -> ProfiledMachine:
    """Return this machine, with the instance type if its firmware says that it is EC2's."""
    processors = len(os.sched_getaffinity(0))
    try:
        if "Amazon EC2" in (dmi / "sys_vendor").read_text():
            return ProfiledMachine(processors, (dmi / "product_name").read_text().strip())
    except (OSError, ValueError):
        pass
    return ProfiledMachine(processors)


def this_room() -> Room:
    """Return the room that this machine has for workers."""
    memory_bytes = float(os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE"))
    return Room(float(this_machine().processors), memory_bytes, Path("/dev/nvidia0").exists())


def check_named(named: str, catalogs: Sequence[Catalog], where: str) -> None:
    """Raise BadInput for a name that looks like a misspelt instance type.

    Types that no catalogue has yet are accepted if they are written as EC2 writes them, and names of other machines.
    """
    known = sorted({offer.instance for catalog in catalogs for offer in catalog.offers})
    if named in known or _EC2_TYPE.fullmatch(named):
        return
    if "." in named or did_you_mean(named, known):
        what = "is no instance type (a machine of your own has a name without a dot)"
        raise BadInput(what, where, named, known=known)


def room_of(named: str | None, catalog: Catalog) -> Room:
    """Return this machine's room, limited to the room of the instance type that the profile names."""
    here = this_room()
    offer = next((offer for offer in catalog.offers if offer.instance == named and offer.vcpu), None)
    if offer is None:
        return here
    memory_bytes = offer.memory_gib * 2.0**30 or math.inf
    return Room(min(here.vcpus, offer.vcpu), min(here.memory_bytes, memory_bytes), here.gpus or offer.gpus > 0)


def cpu_s(pid: int) -> float:
    """Return the processor seconds that a process has used. Raises OSError if it is gone."""
    # Linux's id of another process's clock (`clock_getcpuclockid`), which has nanoseconds instead of ticks of 10 ms.
    return time.clock_gettime(~pid << 3 | 2)


def peak_bytes(pid: int) -> int:
    """Return the peak memory of a process in bytes. Raises OSError if it is gone."""
    status = Path(f"/proc/{pid}/status").read_text()
    return 1024 * int(status.partition("VmHWM:")[2].split()[0])
