"""A thread beside the controller that reads EC2 and the bouncers, so that no tick waits for them."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence

from mark.domain.errors import CloudError
from mark_infra.aws.ec2_cloud import Ec2Cloud
from mark_infra.aws.inventory import PERIOD_S, DescribedInstance, Inventory
from mark_infra.aws.orphans import Reconciler
from mark_infra.aws.readiness import AskedBouncers
from mark_infra.aws.scheduled_events import ScheduledEvents
from mark_infra.background import Background

FORGET_ROUNDS = 3600
_log = logging.getLogger(__name__)


class Keeper(Background):
    """Refreshes the inventory, asks the bouncers and, while `leads()`, does the upkeep of every service, each second.

    It also ends orphans each second, asks for scheduled events each minute, and forgets numbers of gone instances each
    hour. `start` returns after the first round, so that a controller begins with current data. An error in the work for
    one service does not keep the others from theirs; it is logged, and the work is tried again a second later.
    """

    def __init__(
        self,
        inventory: Inventory,
        bouncers: AskedBouncers,
        clouds: Sequence[Ec2Cloud],
        reconciler: Reconciler,
        leads: Callable[[], bool],
        events: ScheduledEvents,
    ) -> None:
        super().__init__(self._run, "keeper")
        self._inventory, self._bouncers, self._clouds = inventory, bouncers, tuple(clouds)
        self._reconciler, self._leads, self._events = reconciler, leads, events
        self._rounds = 0

    def start(self) -> None:
        self.step()
        super().start()

    def step(self) -> None:
        """Do one round; errors are logged and not raised."""
        _guarded(self._inventory.refresh, "inventory")
        _guarded(self._ask, "bouncers")
        if self._leads():
            for cloud in self._clouds:
                _guarded(cloud.upkeep, cloud.service)
            _guarded(self._reconciler.sweep, "orphans")
            if self._rounds % FORGET_ROUNDS == FORGET_ROUNDS - 1:
                for cloud in self._clouds:
                    _guarded(cloud.forget_ghosts, cloud.service)
            self._rounds += 1
        else:
            self._reconciler.forget()
        _guarded(self._events.refresh, "scheduled events")  # last, because events are days ahead

    def _ask(self) -> None:
        services = self._inventory.snapshot().services
        machines: list[DescribedInstance] = [m for cloud in self._clouds for m in services.get(cloud.service, ())]
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
