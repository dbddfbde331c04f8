"""A thread that keeps prices current: it asks for spot prices every 5 minutes, for on-demand prices once a day."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from dataclasses import dataclass

from mark.domain.time import DAY_S
from mark_infra.aws.price_list_api import Prices, Refreshed
from mark_infra.background import Background

SPOT_S = 300.0
ON_DEMAND_S = DAY_S
_LEAST_S = 2.0  # shortest period in wall time, when control time is compressed
_FAILURES = 3  # failures in a row that are reported
_log = logging.getLogger(__name__)


@dataclass(slots=True)
class _Asked:
    """The state of one kind of price request, in Unix seconds."""

    period_s: float
    due_s: float
    had_s: float | None = None
    why: str = ""  # reason of the last failure

    def answered(self, why: str, now_s: float) -> None:
        self.why = why
        if not why:
            self.had_s, self.due_s = now_s, now_s + self.period_s

    def trouble(self, now_s: float, late_s: float) -> str:
        why, late = self.why or "AWS does not answer", now_s - self.due_s >= late_s
        if self.had_s is None:
            return f"prices are the catalogue's: {why}" if self.why or late else ""
        return f"prices are {(now_s - self.had_s) / 60.0:.0f} minutes old: {why}" if late else ""


class PriceKeeper(Background):
    """Keeps `latest` up to date. Periods are in control seconds, of which `scale` pass in one wall second.

    `step` asks for the prices that are due or failed before; the caller gets the first ones by it. If AWS does not
    answer, the last good prices stay, and `trouble` reports their age.
    """

    def __init__(self, prices: Prices, *, scale: float = 1.0, now_unix_s: Callable[[], float] = time.time) -> None:
        super().__init__(self._run, "prices")
        self._prices, self._now_unix_s = prices, now_unix_s
        self._spot_s, on_demand_s = (max(_LEAST_S, period / scale) for period in (SPOT_S, ON_DEMAND_S))
        self._spot = _Asked(self._spot_s, now_unix_s())
        self._on_demand = _Asked(on_demand_s, now_unix_s())
        self.latest: Refreshed = prices.last()

    def step(self) -> tuple[str, ...]:
        """Ask for the prices that are due; return notes about the answer. Errors of AWS are not raised."""
        now_s = self._now_unix_s()
        daily = now_s >= self._on_demand.due_s
        refreshed = self._prices.refresh(spot_only=not daily)
        self._spot.answered(refreshed.failed_spot, now_s)
        if daily:
            self._on_demand.answered(refreshed.failed_on_demand, now_s)
        for failed in filter(None, (refreshed.failed_on_demand, refreshed.failed_spot)):
            _log.warning("prices stay as they were: %s", failed)
        # Equal prices keep the old object, so that readers see no change.
        if (refreshed.catalog, refreshed.unsold) != (self.latest.catalog, self.latest.unsold):
            self.latest = refreshed
        return refreshed.notes

    def trouble(self) -> str:
        """Return the age of outdated prices and the reason, or "".

        Prices that were never fetched are reported after the first failure, others after the third in a row.
        """
        now_s, late_s = self._now_unix_s(), (_FAILURES - 1) * self._spot_s
        return "; ".join(filter(None, (asked.trouble(now_s, late_s) for asked in (self._on_demand, self._spot))))

    def _run(self) -> None:
        while not self._ends.wait(self._spot_s):
            try:
                self.step()
            except Exception:  # a fault of ours must not end the thread
                _log.exception("prices")
