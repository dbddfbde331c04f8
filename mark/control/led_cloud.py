"""The cloud of a controller that may stop leading at any moment: a command is sent only while it leads.

Between a decision and its command a controller reads and writes, and each of these calls may outlast its term. So the
term is checked once more right before the command is sent.
"""

from __future__ import annotations

from collections.abc import Callable

from mark.control.ports import Cloud, Launched
from mark.domain.errors import LostLease
from mark.domain.fleet import Fleet, Notice


class LedCloud:
    """The port Cloud, except that commands are not sent and raise LostLease unless `leads` returns true."""

    def __init__(self, cloud: Cloud, leads: Callable[[], bool]) -> None:
        self._cloud, self._leads = cloud, leads

    def fleet(self) -> Fleet:
        return self._cloud.fleet()

    def notices(self) -> tuple[Notice, ...]:
        return self._cloud.notices()

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
        self._check()
        return self._cloud.launch(offer, count, token, standby=standby, release=release, alternatives=alternatives)

    def drain(self, number: int) -> None:
        self._check()
        self._cloud.drain(number)

    def terminate(self, number: int) -> None:
        self._check()
        self._cloud.terminate(number)

    def stop(self, number: int) -> None:
        self._check()
        self._cloud.stop(number)

    def resume(self, number: int) -> None:
        self._check()
        self._cloud.resume(number)

    def _check(self) -> None:
        if not self._leads():
            raise LostLease("the lease ended before the command was sent")


_: type[Cloud] = LedCloud
