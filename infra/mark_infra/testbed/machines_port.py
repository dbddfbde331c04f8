"""The port `Machines`: what makes the instances of the testbed's cloud real."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol

from mark.profiling.played_faults import FaultStream


@dataclass(frozen=True, slots=True)
class Machine:
    """An instance as the cloud knows it. `boot_s`: wall seconds from `Machines.boot` until its bouncer is ready."""

    instance_id: str
    instance_type: str
    address: str  # of the loopback, 127.x.y.z: no other machine's while this one exists
    service: str
    boot_s: float
    zone: str = "us-east-1a"
    spot: bool = False
    release: str = ""  # what it boots from, where its service has more than one
    faults: FaultStream | None = None  # which it plays, where its service has any


@dataclass(frozen=True, slots=True)
class MachineState:
    """What became of a machine. `late_s`: how long after its boot's end it was ready; None: it is not ready yet.

    `ends`: its end was asked for, and its processes are not gone yet. `crashes`: how often its bouncer restarted.
    """

    machine: Machine
    late_s: float | None = None
    ends: bool = False
    crashes: int = 0


class Machines(Protocol):
    """Starts and ends machines. No call waits for what it sets going; every method may be called from any thread.

    An instance id that is not there (any more) raises KeyError, except in `end`, where nothing is left to do.
    """

    def boot(self, machine: Machine) -> None:
        """Start it, also again after a stop. Raises ValueError where its id or address is taken, and OSError."""
        ...

    def announce(self, instance_id: str, action: str, at_unix_s: float) -> None:
        """The machine's own metadata service says: `terminate`, `stop` or `hibernate` at this time (Unix seconds).

        `rebalance` recommends to leave, noticed at this time. Taking the machine away stays the caller's: `end`.
        """
        ...

    def set_speed(self, instance_id: str, speed: float) -> None:
        """How fast it computes, 1 as its profile says: a burstable out of credits runs at its baseline."""
        ...

    def crash(self, instance_id: str) -> None:
        """Without a notice all of it is gone but its place: it answers no more until it is ended and booted again."""
        ...

    def end(self, instance_id: str) -> None:
        """As on shutting-down: its processes hear SIGTERM, and some seconds later SIGKILL; then it is not there."""
        ...

    def running(self) -> Mapping[str, MachineState]:
        """All machines that were booted and are not gone, by instance id."""
        ...
