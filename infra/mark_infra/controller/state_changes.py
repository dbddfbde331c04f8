"""When instances began and ceased to run, by the events in the queue: the port `Changes`."""

from __future__ import annotations

from mark.control.ports import Changes, Ran, Store
from mark.domain.time import DAY_S
from mark_infra.aws.inventory import Inventory
from mark_infra.aws.notices import NoticeListener, StateChange
from mark_infra.store.store import ServiceStore
from mark_infra.telemetry.clock import WallClock

_PATIENCE_S = 120.0  # for an announced instance to appear
_REMEMBERED = 1000  # gone instances whose number and offer are still known


class StateChanges:
    """The port `Changes` over the queue's events. The store remembers the number and offer of each instance."""

    def __init__(
        self,
        notices: NoticeListener | None,
        numbers: ServiceStore,
        inventory: Inventory,
        clock: WallClock,
        store: Store,
    ) -> None:
        self._notices, self._numbers, self._inventory = notices, numbers, inventory
        self._clock, self._store = clock, store
        self._after = 0
        self._waiting: list[StateChange] = []
        self._known: dict[str, tuple[int, str]] = dict(store.get("told") or {})  # id -> number, offer

    def ran(self) -> tuple[Ran, ...]:
        if self._notices is None:
            return ()
        self._learn()
        found, waiting = [], []
        now_s = self._clock.now_s()
        now_unix_s = self._clock.unix_s(now_s)
        new = self._notices.changes(self._after)
        self._after = new[-1].number if new else self._after
        for change in (*self._waiting, *new):
            if change.instance_id in self._known:
                at_s = self._clock.at_s(change.at_unix_s)
                # A process that leads again gets all changes since its start, and the bill knows the ends of a day.
                if change.state in ("running", "stopping", "shutting-down") and now_s - at_s < DAY_S:
                    found.append(Ran(*self._known[change.instance_id], change.state == "running", at_s))
            elif now_unix_s - change.at_unix_s < _PATIENCE_S:
                waiting.append(change)  # not visible yet, or another service's
        self._waiting = waiting
        return tuple(found)

    def _learn(self) -> None:
        machines = {m.id: m for m in self._inventory.snapshot().of(self._numbers.service)}
        unknown = [id for id in machines if id not in self._known]
        if unknown:
            gone = [id for id in self._known if id not in machines][:-_REMEMBERED]
            known = {id: one for id, one in self._known.items() if id not in gone}
            numbers = self._numbers.numbers(unknown)
            known |= {id: (numbers[id], machines[id].offer) for id in unknown}
            self._store.put("told", known)  # first, so that a failed write is repeated
            self._known = known


_: type[Changes] = StateChanges
