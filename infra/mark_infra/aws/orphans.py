"""Instances whose service the site no longer names; they are terminated after a grace period.

No controller manages such an instance. The grace period lets a person notice a mistake. An instance whose launch the
controller forgot is no orphan, because its tags make it part of the fleet; an instance of an offer that its service may
no longer buy is no orphan either, because the controller replaces it.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Collection

from mark_infra.aws.gate import Gate
from mark_infra.aws.inventory import DescribedInstance, Inventory, InventorySnapshot
from mark_infra.aws.site import Site
from mark_infra.aws.termination import end, in_turn

GRACE_S = 600.0
_log = logging.getLogger(__name__)


def orphans(snapshot: InventorySnapshot, services: Collection[str]) -> list[DescribedInstance]:
    """Return the instances launched by a controller whose service is not among `services`.

    A controller that runs some services of a site passes all services of the site, so that it leaves the others alone.
    """
    return [
        machine
        for service, machines in snapshot.services.items()
        for machine in machines
        if machine.launch and service not in services
    ]


class Reconciler:
    """Terminates orphans after a grace period of ten minutes, which each term begins again."""

    def __init__(
        self,
        gate: Gate,
        inventory: Inventory,
        site: Site,
        *,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self._gate, self._inventory, self._site = gate, inventory, site
        self._monotonic = monotonic
        self._since_s: dict[str, float] = {}  # by instance id

    def sweep(self) -> list[str]:
        """Terminate the orphans whose grace period is over, and return their ids. Raises CloudError."""
        now_s = self._monotonic()
        found = orphans(self._inventory.snapshot(), self._site.services.keys())
        if new := [m.id for m in found if m.id not in self._since_s]:
            _log.warning("no controller answers for %s: to be ended in %.0f s", ", ".join(new), GRACE_S)
        self._since_s = {m.id: self._since_s.get(m.id, now_s) for m in found}
        due = [m.id for m in found if now_s - self._since_s[m.id] >= GRACE_S]
        if due:
            _log.warning("ends %s: no controller answers for them", ", ".join(due))
            in_turn(due, lambda ids: end(self._gate, self._inventory, ids))
        return due
