"""The SLO monitor launches instances when recent requests broke the SLO, without a new plan (MArk, section 4.6)."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

from mark.control.ports import RecentAnswers
from mark.domain.backoff import RESCUE
from mark.domain.command import Launch
from mark.domain.offer import Market, Offer
from mark.domain.percent import exact_percent, percent
from mark.domain.service import ResolvedService, SloMonitorSettings
from mark.domain.slo import Slo

DEFAULT_TYPE = "c5.large"
DEFAULTS = SloMonitorSettings()
CERTAIN = 4.0  # standard deviations of the misses in a window, if their clustering is known
DEVIATIONS = 3.0  # standard deviations of a Poisson count, for windows of fewer than M requests
HELPED = 0.9  # a launch helped if the share of misses fell below this fraction of the earlier one


@dataclass(frozen=True, slots=True)
class MonitorState:
    """The monitor's state: `extra` instances stay beside the plan for `pause_s` from `launched_s`."""

    launched_s: float | None = None  # when it last launched instances, or found that they did not help
    extra: int = 0
    pause_s: float = 0.0  # after `launched_s`, before it may launch again
    late: float = 1.0  # share of misses at the last launch
    enough: int = 0  # extra instances that ended the last trouble
    offer: str = ""  # the offer of the extra instances

    def extra_at(self, now_s: float) -> int:
        """Return the number of instances that the plan may not end yet."""
        return self.extra if self.launched_s is not None and now_s - self.launched_s < self.pause_s else 0


class SloMonitor:
    """Pure: turns observations and state into commands and new state (docs/semantics.md, 13).

    Only requests younger than `mark.control.ports.RECENT_S` count. Instances of `offer` (see `default_offer`) are
    launched, at `usd_per_hour` each. With `backs_off` the answer to continued misses depends on the last launch: if it
    helped, the monitor launches again; if it did not (a model that became slow, a late function), the extra instances
    are given up and the pause doubles. Without `backs_off` it always launches again, as in the paper.
    """

    def __init__(
        self,
        slo: Slo,
        offer: str,
        usd_per_hour: float,
        settings: SloMonitorSettings = DEFAULTS,
        *,
        backs_off: bool = True,
    ) -> None:
        self._slo, self._usd_per_hour, self._settings, self._backs_off = slo, usd_per_hour, settings, backs_off
        self.offer = offer

    def check(
        self, now_s: float, recent: RecentAnswers, state: MonitorState, clustering: float | None = None
    ) -> tuple[tuple[Launch, ...], MonitorState]:
        """Launch if the SLO was broken by more than chance and the last launch is long enough ago.

        `clustering` is that of `broken`.
        """
        since_s = math.inf if state.launched_s is None else now_s - state.launched_s
        if since_s < state.pause_s:
            return (), state
        if not broken(recent, self._slo, self._settings, clustering):
            return (), state if state.extra == 0 else replace(state, extra=0, enough=state.extra)
        late = 1.0 - recent.in_time / recent.count
        count, pause_s = self._settings.count, self._settings.pause_s
        if self._backs_off and state.extra > 0:
            if late >= HELPED * state.late:
                return (), MonitorState(now_s, 0, RESCUE.doubled_s(state.pause_s), late)
            pause_s = state.pause_s
        elif self._backs_off and since_s < 2.0 * state.pause_s:
            # The trouble ended with `enough` instances and came back without them, so they are kept longer now.
            count, pause_s = max(count, state.enough), RESCUE.doubled_s(state.pause_s)
        reason = (
            f"SLO monitor: {percent(recent.in_time / recent.count)} of the last {recent.count} requests within "
            f"{self._slo.rt_max_s * 1e3:.0f} ms, promised {exact_percent(self._slo.attainment)}"
        )
        launch = Launch(reason, count * self._usd_per_hour, self.offer, count, rescue=True)
        extra = count + (state.extra if self._backs_off else 0)
        return (launch,), MonitorState(now_s, extra, pause_s, late, offer=self.offer)


def broken(recent: RecentAnswers, slo: Slo, settings: SloMonitorSettings, clustering: float | None = None) -> bool:
    """Return whether the last requests broke the SLO.

    `clustering` is the variance of the number of misses over its mean, in fleets that keep the SLO. With it, a window
    breaks the SLO if it has more misses than chance explains, because a fleet that keeps 99 % may fall short of it in a
    third of its windows. Without it, a full window breaks the SLO if less than SL_min of it is in time, and a shorter
    one if it has more misses than chance explains.
    """
    allowed = (1.0 - slo.attainment) * recent.count
    missed = recent.count - recent.in_time
    if clustering is not None:
        return missed > allowed + CERTAIN * (math.sqrt(clustering * allowed) + 1.0)
    if recent.count >= settings.window:
        return recent.in_time < slo.attainment * recent.count
    return missed > allowed + DEVIATIONS * (math.sqrt(allowed) + 1.0)


def default_offer(resolved: ResolvedService) -> Offer | None:
    """Return the offer to launch: the configured type (c5.large by default) if it may be bought, else the cheapest.

    On-demand offers come first, because a rescue should not be interrupted. None without offers.
    """
    return next(iter(rescue_offers(resolved)), None)


def rescue_offers(resolved: ResolvedService) -> list[Offer]:
    """Return the offers that the monitor may launch, in order of preference."""
    wanted = resolved.service.slo_monitor.instance or DEFAULT_TYPE
    return sorted(
        resolved.offers,
        key=lambda o: (o.instance != wanted, o.market is not Market.ON_DEMAND, o.usd_per_hour, o.name),
    )
