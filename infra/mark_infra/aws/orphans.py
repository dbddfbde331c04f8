"""Instances without a service: they are ended, after a grace.

No controller answers for an instance of the site whose service the site does not name any more. The grace lets a person
see a slip. (A launch that the controller forgot is no orphan: its tags make it part of the fleet; nor is one whose
offer its service may not buy any more: the controller replaces it. And of an instance that is long gone only its number
is left, which the keeper lets go.)
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Collection

from mark_infra.aws.ec2_cloud import end
from mark_infra.aws.gate import Gate
from mark_infra.aws.inventory import DescribedInstance, Inventory, InventorySnapshot
from mark_infra.aws.site import Site

GRACE_S = 600.0
_log = logging.getLogger(__name__)


def orphans(snapshot: InventorySnapshot, services: Collection[str]) -> list[DescribedInstance]:
    """Instances whose service is not among `services`.

    A controller that runs some services of a site leaves the others' instances alone, and all of them leave alone what
    no controller launched.
    """
    return [
        machine
        for service, machines in snapshot.services.items()
        for machine in machines
        if machine.launch and service not in services
    ]


class Reconciler:
    """Ends orphans that were there for ten minutes on end."""

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
        """End those whose grace is over, and return their ids. Raises CloudError."""
        now_s = self._monotonic()
        found = orphans(self._inventory.snapshot(), self._site.services.keys())
        if new := [m.id for m in found if m.id not in self._since_s]:
            _log.warning("no controller answers for %s: to be ended in %.0f s", ", ".join(new), GRACE_S)
        self._since_s = {m.id: self._since_s.get(m.id, now_s) for m in found}
        due = [m.id for m in found if now_s - self._since_s[m.id] >= GRACE_S]
        if due:
            _log.warning("ends %s: no controller answers for them", ", ".join(due))
            end(self._gate, self._inventory, due)
        return due
