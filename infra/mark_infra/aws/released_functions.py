"""A service's function, in versions as its releases need them: the control port `Functions`.

Instances of a release call their own version of it. The load balancer, while no instance is ready, calls an alias,
which follows the roll-out: a release that was taken back answers nothing any more.
"""

from __future__ import annotations

from collections.abc import Mapping

from mark.control.ports import Functions
from mark_infra.aws.gate import Gate
from mark_infra.aws.warming import LambdaWarming


class ReleasedFunctions:
    """The port `Functions`. `versions` are NAME:VERSION by release; `alias` is their function's, None: it has none.

    Thread-safe, as its parts.
    """

    def __init__(self, warming: LambdaWarming, gate: Gate, versions: Mapping[str, str], alias: str | None) -> None:
        self._warming, self._gate, self._versions, self._alias = warming, gate, dict(versions), alias

    def warm(self, environments: int) -> int:
        return self._warming.warm(environments)

    def switch(self, release: str) -> bool:
        qualified = self._versions.get(release)
        if qualified is None:
            return False
        self._warming.use(qualified)
        name, _, version = qualified.partition(":")
        if self._alias is None or not version:
            return False
        client = self._gate.client("lambda")
        self._gate.call(client.update_alias, FunctionName=name, Name=self._alias, FunctionVersion=version)
        return True


_: type[Functions] = ReleasedFunctions
