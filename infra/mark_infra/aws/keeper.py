"""A thread beside the controller that reads EC2 and the bouncers, so that no tick waits for them."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from typing import Protocol

from mark.domain.errors import CloudError
from mark_infra.aws.ec2_cloud import Ec2Cloud
from mark_infra.aws.inventory import PERIOD_S, DescribedInstance, Inventory
from mark_infra.aws.orphans import Reconciler
from mark_infra.aws.readiness import AskedBouncers
from mark_infra.aws.scheduled_events import ScheduledEvents
from mark_infra.background import Background

FORGET_ROUNDS = 3600
_log = logging.getLogger(__name__)


class KeptTerm(Protocol):
    """The parts that are kept during one term of this process."""

    clouds: Mapping[str, Ec2Cloud]  # by service
    reconciler: Reconciler


class Keeper(Background):
    """Refreshes the inventory, asks the bouncers of `services` and, in a `term`, does the upkeep, each second.

    It also ends orphans each second, asks for scheduled events each minute, and forgets numbers of gone instances each
    hour. `start` returns after the first round, so that a controller begins with current data. An error in the work for
    one service does not keep the others from theirs; it is logged, and the work is tried again a second later.
    """

    def __init__(
        self,
        inventory: Inventory,
        bouncers: AskedBouncers,
        services: Sequence[str],
        term: Callable[[], KeptTerm | None],
        events: ScheduledEvents,
    ) -> None:
        super().__init__(self._run, "keeper")
        self._inventory, self._bouncers, self._services = inventory, bouncers, services
        self._term, self._events = term, events
        self._rounds = 0

    def start(self) -> None:
        self.step()
        super().start()

    def step(self) -> None:
        """Do one round; errors are logged and not raised."""
        _guarded(self._inventory.refresh, "inventory")
        _guarded(self._ask, "bouncers")
        if (term := self._term()) is not None:
            for cloud in term.clouds.values():
                _guarded(cloud.upkeep, cloud.service)
            _guarded(term.reconciler.sweep, "orphans")
            if self._rounds % FORGET_ROUNDS == FORGET_ROUNDS - 1:
                for cloud in term.clouds.values():
                    _guarded(cloud.forget_ghosts, cloud.service)
            self._rounds += 1
        _guarded(self._events.refresh, "scheduled events")  # last, because events are days ahead

    def _ask(self) -> None:
        services = self._inventory.snapshot().services
        machines: list[DescribedInstance] = [m for name in self._services for m in services.get(name, ())]
        self._bouncers.poll(machines)

    def _run(self) -> None:
        while not self._ends.wait(PERIOD_S):
            self.step()


def _guarded(work: Callable[[], object], what: str) -> None:
    try:
        work()
    except CloudError as error:
        _log.warning("%s: %s", what, error)
    except Exception:  # a fault of ours in one task must not end the thread
        _log.exception("%s", what)
