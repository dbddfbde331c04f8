"""The cloud and functions of a controller that may stop leading at any moment: commands are sent only while it leads.

Between a decision and its command a controller reads and writes, and each of these calls may outlast its term. So the
term is checked once more right before the command is sent. Otherwise an old leader could buy instances, or move the
function's alias away from the release that the new leader has chosen.
"""

from __future__ import annotations

from collections.abc import Callable

from mark.control.ports import Cloud, Functions, Launched
from mark.domain.errors import LostLease
from mark.domain.fleet import Fleet, Notice


class _Led:
    def __init__(self, leads: Callable[[], bool]) -> None:
        self._leads = leads

    def _check(self) -> None:
        if not self._leads():
            raise LostLease("the lease ended before the command was sent")


class LedCloud(_Led):
    """The port Cloud, except that commands are not sent and raise LostLease unless `leads` returns true."""

    def __init__(self, cloud: Cloud, leads: Callable[[], bool]) -> None:
        super().__init__(leads)
        self._cloud = cloud

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


class LedFunctions(_Led):
    """The port Functions, except that commands are not sent and raise LostLease unless `leads` returns true."""

    def __init__(self, functions: Functions, leads: Callable[[], bool]) -> None:
        super().__init__(leads)
        self._functions = functions

    def warm(self, environments: int) -> int:
        self._check()
        return self._functions.warm(environments)

    def switch(self, release: str) -> bool:
        self._check()
        return self._functions.switch(release)


_: tuple[type[Cloud], type[Functions]] = LedCloud, LedFunctions
