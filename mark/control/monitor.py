"""The SLO monitor: when the last requests broke the promise, it buys before the forecast does (MArk, section 4.6)."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

from mark.control.ports import RecentAnswers
from mark.domain.backoff import RESCUE
from mark.domain.command import Launch
from mark.domain.offer import Market, Offer
from mark.domain.service import ResolvedService, SloMonitorSettings
from mark.domain.slo import Slo

DEFAULT_TYPE = "c5.large"
DEFAULTS = SloMonitorSettings()
CERTAIN = 4.0  # deviations of the misses in a window, where it is known how they cluster
DEVIATIONS = 3.0  # of a Poisson count: misses of fewer than M requests that are not chance
HELPED = 0.9  # the share of misses is less than so much of what it was


@dataclass(frozen=True, slots=True)
class MonitorState:
    """`extra` instances are kept beside what the plan wants, until `pause_s` have passed since `launched_s`."""

    launched_s: float | None = None  # when it last asked for instances, or found that they were no help
    extra: int = 0
    pause_s: float = 0.0  # until it may ask again
    late: float = 1.0  # share of misses when it last asked
    enough: int = 0  # extra instances that ended the last trouble
    offer: str = ""  # of the extra instances

    def extra_at(self, now_s: float) -> int:
        """Instances that the plan may not end yet."""
        return self.extra if self.launched_s is not None and now_s - self.launched_s < self.pause_s else 0


class SloMonitor:
    """Pure: observation and state in, commands and new state out (docs/semantics.md, 13).

    Requests are looked back at as far as they are not older than `mark.control.ports.RECENT_S`.
    `offer` is what is launched (`default_offer` names it), at `usd_per_hour` each. With `backs_off` the answer to
    misses that go on depends on what the last launch did: where it helped there is one more; where it did not (a model
    that became slow, a function that is late) it ends, and the pause is twice as long. The paper's launches again.
    """

    def __init__(
        self,
        slo: Slo,
        offer: str,
        usd_per_hour: float,
        settings: SloMonitorSettings = DEFAULTS,
        *,
        backs_off: bool = True,
        clustering: float | None = None,
    ) -> None:
        self._slo, self._usd_per_hour, self._settings, self._backs_off = slo, usd_per_hour, settings, backs_off
        self._clustering = clustering
        self.offer = offer

    def check(
        self, now_s: float, recent: RecentAnswers, state: MonitorState
    ) -> tuple[tuple[Launch, ...], MonitorState]:
        """Launch when the promise was broken by more than chance and the last launch is long enough ago."""
        since_s = math.inf if state.launched_s is None else now_s - state.launched_s
        if since_s < state.pause_s:
            return (), state
        if not broken(recent, self._slo, self._settings, self._clustering):
            return (), state if state.extra == 0 else replace(state, extra=0, enough=state.extra)
        late = 1.0 - recent.in_time / recent.count
        count, pause_s = self._settings.count, self._settings.pause_s
        if self._backs_off and state.extra > 0:
            if late >= HELPED * state.late:
                return (), MonitorState(now_s, 0, RESCUE.doubled_s(state.pause_s), late)
            pause_s = state.pause_s
        elif self._backs_off and since_s < 2.0 * state.pause_s:
            # It ended with what was enough and came back without it: that is kept longer now.
            count, pause_s = max(count, state.enough), RESCUE.doubled_s(state.pause_s)
        reason = (
            f"SLO monitor: {recent.in_time / recent.count:.1%} of the last {recent.count} requests within "
            f"{self._slo.rt_max_s * 1e3:.0f} ms, promised {self._slo.attainment:.1%}"
        )
        launch = Launch(reason, count * self._usd_per_hour, self.offer, count)
        extra = count + (state.extra if self._backs_off else 0)
        return (launch,), MonitorState(now_s, extra, pause_s, late, offer=self.offer)


def broken(recent: RecentAnswers, slo: Slo, settings: SloMonitorSettings, clustering: float | None = None) -> bool:
    """Of a full window fewer than SL_min in time; of fewer requests more misses than chance explains.

    `clustering` is the variance of the number of misses over its mean, in fleets that keep the promise. Where it is
    known, chance must not explain the misses of a full window either: one fleet that keeps 99 % has fewer in a third of
    its windows.
    """
    allowed = (1.0 - slo.attainment) * recent.count
    missed = recent.count - recent.in_time
    if clustering is not None:
        return missed > allowed + CERTAIN * (math.sqrt(clustering * allowed) + 1.0)
    if recent.count >= settings.window:
        return recent.in_time < slo.attainment * recent.count
    return missed > allowed + DEVIATIONS * (math.sqrt(allowed) + 1.0)


def default_offer(resolved: ResolvedService) -> Offer | None:
    """What the monitor launches: the type of the settings, or c5.large if it may be bought, else the cheapest type.

    Of one type on-demand comes first: what is to end an emergency should not be taken away again. None without offers.
    """
    return next(iter(rescue_offers(resolved)), None)


def rescue_offers(resolved: ResolvedService) -> list[Offer]:
    """What the monitor launches, and what instead where that is not to be had, in order of trial."""
    wanted = resolved.service.slo_monitor.instance or DEFAULT_TYPE
    return sorted(
        resolved.offers,
        key=lambda o: (o.instance != wanted, o.market is not Market.ON_DEMAND, o.usd_per_hour, o.name),
    )
