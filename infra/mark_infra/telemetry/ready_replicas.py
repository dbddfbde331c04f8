"""The replicas of another autoscaler as a fleet: a read-only implementation of the port `Cloud`.

Its controller is in dry run, so no replica is launched or terminated here.
"""

from __future__ import annotations

from typing import NoReturn

from mark.control.ports import Clock, Cloud, Launched
from mark.domain.errors import DeniedError
from mark.domain.fleet import Fleet, Instance, Notice, Phase

MOST = 10_000  # a larger Deployment means a broken query


class ReadyReplicas:
    """Replicas numbered from 1. The highest numbers are the youngest, and are removed first."""

    def __init__(self, offer: str, clock: Clock) -> None:
        self._offer, self._clock = offer, clock
        self._since_s: tuple[float, ...] = ()  # when first seen; replaced as a whole, because others read it

    def see(self, replicas: int | None) -> None:
        """Set the number of ready replicas. If Prometheus does not report it, the last number is kept."""
        if replicas is None or not 0 <= replicas <= MOST:
            return
        there, now_s = self._since_s[:replicas], self._clock.now_s()
        self._since_s = (*there, *((now_s,) * (replicas - len(there))))

    def fleet(self) -> Fleet:
        return Fleet(
            tuple(
                Instance(number, self._offer, Phase.READY, since_s, since_s)
                for number, since_s in enumerate(self._since_s, start=1)
            )
        )

    def launch(
        self,
        offer: str,
        count: int,
        token: str,
        *,
        standby: bool = False,
        release: str = "",
        alternatives: tuple[str, ...] = (),
    ) -> Launched:
        _refuse()

    def drain(self, number: int) -> None:
        _refuse()

    def terminate(self, number: int) -> None:
        _refuse()

    def stop(self, number: int) -> None:
        _refuse()

    def resume(self, number: int) -> None:
        _refuse()

    def notices(self) -> tuple[Notice, ...]:
        return ()


def _refuse() -> NoReturn:
    raise DeniedError("these replicas belong to another autoscaler: mark only reads them")


_: type[Cloud] = ReadyReplicas
