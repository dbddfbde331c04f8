"""Commands of the controller to the cloud, each with its reason in money."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class Command:
    """A command. `reason` is one clause in money and load, `usd_per_hour` the change of the running price.

    `rescue`: the SLO monitor asked for it.
    """

    reason: str
    usd_per_hour: float
    rescue: bool = field(default=False, kw_only=True)

    @property
    def verb(self) -> str:
        return type(self).__name__.lower()

    def _object(self) -> str:
        return ""

    def __str__(self) -> str:
        return f"{self.verb} {self._object()}, {self.usd_per_hour:+z.2f} $/h: {self.reason}"


@dataclass(frozen=True, slots=True)
class Launch(Command):
    offer: str
    count: int
    standby: bool = False
    release: str = ""  # to boot from
    alternatives: tuple[str, ...] = ()  # offers that would serve as well
    planned: str = ""  # the planned offer, if `offer` replaces it; "": `offer` was planned

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
    """Stop sending requests; when the queue is empty, the controller terminates the instance (or stops a standby)."""


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
    """Keep `environments` function environments warm."""

    environments: int

    def _object(self) -> str:
        return f"{self.environments} function environments"


@dataclass(frozen=True, slots=True)
class Switch(Command):
    """Let the functions that answer while no instance is ready run `release`."""

    release: str

    def _object(self) -> str:
        return f"functions to release {self.release}"
