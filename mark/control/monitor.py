"""The SLO monitor: when the last requests broke the promise, it buys before the forecast does (MArk, section 4.6)."""

from __future__ import annotations

from dataclasses import dataclass

from mark.control.ports import RecentAnswers
from mark.domain.command import Launch
from mark.domain.offer import Market, Offer
from mark.domain.service import ResolvedService
from mark.domain.slo import Slo

WINDOW = 1000  # M: requests looked back at
COUNT = 1  # L: instances launched at a time
PAUSE_S = 300.0  # between two launches
DEFAULT_TYPE = "c5.large"  # T, where it meets the SLO


@dataclass(frozen=True, slots=True)
class MonitorState:
    launched_s: float | None = None  # when it last asked for instances


class SloMonitor:
    """Pure: observation and state in, commands and new state out (docs/semantics.md, 13).

    `offer` is what is launched (`default_offer` names it), at `usd_per_hour` each.
    """

    def __init__(
        self,
        slo: Slo,
        offer: str,
        usd_per_hour: float,
        *,
        window: int = WINDOW,
        count: int = COUNT,
        pause_s: float = PAUSE_S,
    ) -> None:
        self._slo, self._usd_per_hour = slo, usd_per_hour
        self._window, self._count = window, count
        self.offer, self.pause_s = offer, pause_s

    def check(
        self, now_s: float, recent: RecentAnswers, state: MonitorState
    ) -> tuple[tuple[Launch, ...], MonitorState]:
        """Launch when fewer than SL_min of a full window were in time and the last launch is long enough ago."""
        if recent.count < self._window or recent.in_time >= self._slo.attainment * recent.count:
            return (), state
        if state.launched_s is not None and now_s - state.launched_s < self.pause_s:
            return (), state
        reason = (
            f"SLO monitor: {recent.in_time / recent.count:.1%} of the last {recent.count} requests within "
            f"{self._slo.rt_max_s * 1e3:.0f} ms, promised {self._slo.attainment:.1%}"
        )
        launch = Launch(reason, self._count * self._usd_per_hour, self.offer, self._count)
        return (launch,), MonitorState(now_s)


def default_offer(resolved: ResolvedService) -> Offer | None:
    """What the monitor launches: c5.large if it may be bought, else the cheapest type; None without any offer.

    Of one type on-demand comes first: what is to end an emergency should not be taken away again.
    """
    return min(
        resolved.offers,
        key=lambda o: (o.instance != DEFAULT_TYPE, o.market is not Market.ON_DEMAND, o.usd_per_hour, o.name),
        default=None,
    )
