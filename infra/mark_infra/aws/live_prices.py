"""Prices asked for again and again, by a thread beside the controller: spot every 5 minutes, on-demand once a day."""

from __future__ import annotations

import logging
import math
import threading
import time
from collections.abc import Callable

from mark_infra.aws.prices import Prices, Refreshed

SPOT_S = 300.0
ON_DEMAND_S = 86400.0
_LEAST_S = 2.0  # of the wall, where time is compressed
_STALE = 3.0  # periods
_log = logging.getLogger(__name__)


class PriceKeeper:
    """Keeps `latest` up to date. Periods are control seconds, `scale` of them to one of the wall.

    `step` asks for what is due; where AWS does not answer, the last good prices stay, and `trouble` says how old.
    """

    def __init__(self, prices: Prices, *, scale: float = 1.0, now_unix_s: Callable[[], float] = time.time) -> None:
        self._prices, self._scale, self._now_unix_s = prices, scale, now_unix_s
        self._spot_s, self._on_demand_s = (max(_LEAST_S, period / scale) for period in (SPOT_S, ON_DEMAND_S))
        self._asked_on_demand_s = -math.inf
        self._good_s = now_unix_s()  # when spot prices were last had
        self._why = ""
        self.latest: Refreshed = prices.last()
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name="prices", daemon=True)

    def start(self) -> None:
        """Go on asking; once. The first answers are had by `step`."""
        if self._thread.ident is None:
            self._thread.start()

    def close(self) -> None:
        """Returns when nothing is asked any more. Repeatable."""
        self._stopping.set()
        if self._thread.ident is not None:
            self._thread.join()

    def step(self) -> None:
        """Ask for what is due. Raises nothing that AWS does."""
        now_s = self._now_unix_s()
        daily = now_s - self._asked_on_demand_s >= self._on_demand_s
        if daily:
            self._asked_on_demand_s = now_s
        refreshed = self._prices.refresh(spot_only=not daily)
        if refreshed.failed:
            self._why = refreshed.failed
            _log.warning("prices stay as they were: %s", refreshed.failed)
        else:
            self._good_s = now_s
        if refreshed.prices != self.latest.prices or refreshed.catalog != self.latest.catalog:
            self.latest = refreshed

    def trouble(self) -> str:
        """How old prices are when they should be newer, with the reason; else ""."""
        age_s = self._now_unix_s() - self._good_s
        if age_s < _STALE * self._spot_s:
            return ""
        return f"prices are {age_s / 60.0:.0f} minutes old: {self._why or 'AWS does not answer'}"

    def _run(self) -> None:
        while not self._stopping.wait(self._spot_s):
            try:
                self.step()
            except Exception:  # a fault of ours must not stop it for good
                _log.exception("prices")
