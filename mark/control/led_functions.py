"""The functions of a controller that may stop leading at any moment: a command is sent only while it leads.

Otherwise an old leader could move the alias away from the release that the new leader has chosen. See also `led_cloud`.
"""

from __future__ import annotations

from collections.abc import Callable

from mark.control.ports import Functions
from mark.domain.errors import LostLease


class LedFunctions:
    """The port Functions, except that commands are not sent and raise LostLease unless `leads` returns true."""

    def __init__(self, functions: Functions, leads: Callable[[], bool]) -> None:
        self._functions, self._leads = functions, leads

    def warm(self, environments: int) -> int:
        self._check()
        return self._functions.warm(environments)

    def switch(self, release: str) -> bool:
        self._check()
        return self._functions.switch(release)

    def _check(self) -> None:
        if not self._leads():
            raise LostLease("the lease ended before the command was sent")


_: type[Functions] = LedFunctions
