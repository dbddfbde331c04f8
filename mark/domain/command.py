"""Commands: what the controller asks of the cloud, each with its reason in money."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Command:
    """Base: `reason` is one clause in money and load, `usd_per_hour` the change of the running price."""

    reason: str
    usd_per_hour: float

    @property
    def verb(self) -> str:
        return type(self).__name__.lower()

    def _object(self) -> str:
        return ""

    def __str__(self) -> str:
        return f"{self.verb} {self._object()}, {self.usd_per_hour:+.2f} $/h: {self.reason}"


@dataclass(frozen=True, slots=True)
class Launch(Command):
    offer: str
    count: int
    standby: bool = False
    release: str = ""  # to boot from
    alternatives: tuple[str, ...] = ()  # offers that will do as well
    planned: str = ""  # the offer that it counts for; "": its own

    def _object(self) -> str:
        of = f" of release {self.release}" if self.release else ""
        return f"{self.count} {self.offer}" + (" as standby" if self.standby else "") + of


@dataclass(frozen=True, slots=True)
class _OnInstance(Command):
    offer: str
    number: int

    def _object(self) -> str:
        return f"#{self.number} {self.offer}"


@dataclass(frozen=True, slots=True)
class Drain(_OnInstance):
    """Take no new request; when the queue is done the controller terminates (or stops a standby)."""


@dataclass(frozen=True, slots=True)
class Terminate(_OnInstance):
    pass


@dataclass(frozen=True, slots=True)
class Resume(_OnInstance):
    pass


@dataclass(frozen=True, slots=True)
class Stop(_OnInstance):
    pass


@dataclass(frozen=True, slots=True)
class Warm(Command):
    """Have `environments` function environments warm."""

    environments: int

    def _object(self) -> str:
        return f"{self.environments} function environments"


@dataclass(frozen=True, slots=True)
class Switch(Command):
    """Have functions that answer while no instance is ready answer with `release`."""

    release: str

    def _object(self) -> str:
        return f"functions to release {self.release}"
