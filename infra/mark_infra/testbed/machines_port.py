"""The port `Machines`, which makes the instances of the testbed's cloud real."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol

from mark.profiling.played_faults import FaultStream


@dataclass(frozen=True, slots=True)
class Machine:
    """An instance of the cloud. `boot_s`: wall seconds from `Machines.boot` until its bouncer is ready."""

    instance_id: str
    instance_type: str
    address: str  # of the loopback, 127.x.y.z; no other existing machine has it
    service: str
    boot_s: float
    zone: str = "us-east-1a"
    spot: bool = False
    release: str = ""  # the release that it boots, if its service has several
    faults: FaultStream | None = None  # the faults that it plays, if its service has any


@dataclass(frozen=True, slots=True)
class MachineState:
    """The state of a machine. `late_s`: how long after its boot's end it became ready; None: not ready yet.

    `ends`: its end was requested, but its processes are not gone yet. `crashes`: how often its bouncer restarted.
    """

    machine: Machine
    late_s: float | None = None
    ends: bool = False
    crashes: int = 0


class Machines(Protocol):
    """Starts and ends machines. Calls do not wait for their effects; every method may be called from any thread.

    An unknown instance id raises KeyError, except in `end`, which then does nothing.
    """

    def boot(self, machine: Machine) -> None:
        """Start a machine, also again after a stop. Raises ValueError if its id or address is in use, and OSError."""
        ...

    def announce(self, instance_id: str, action: str, at_unix_s: float) -> None:
        """Show a notice in the machine's metadata service.

        `terminate`, `stop` and `hibernate` happen at this time (Unix seconds); `rebalance` is a recommendation to
        leave, noticed at this time. The caller must still end the machine with `end`.
        """
        ...

    def set_speed(self, instance_id: str, speed: float) -> None:
        """Set the machine's computing speed; 1 is its profile's. A burstable without credits runs at its baseline."""
        ...

    def crash(self, instance_id: str) -> None:
        """Stop the machine without a notice: it answers no more until it is ended and booted again."""
        ...

    def end(self, instance_id: str) -> None:
        """Shut the machine down: its processes get SIGTERM, and some seconds later SIGKILL; then it is gone."""
        ...

    def running(self) -> Mapping[str, MachineState]:
        """Return all machines that were booted and are not gone, by instance id."""
        ...
