"""Rescues: launches of the SLO monitor, or of another offer where its own is refused."""

from __future__ import annotations

from mark.control import rollout as releases
from mark.control.agenda import AgendaItem
from mark.control.health import mark_unhealthy
from mark.control.monitor import SloMonitor
from mark.control.plan_follower import Decided, PlanFollower, of_release
from mark.control.refused_launch import Rescue, in_vain
from mark.control.snapshot import Snapshot
from mark.control.state import ControllerState
from mark.domain.command import Launch
from mark.domain.copying import replace
from mark.domain.fleet import Fleet, Phase
from mark.planning.demand.served_load import lateness_of
from mark.planning.planner import Policy
from mark.planning.resolve import buyable


class RescueSteps:
    """Adds instances when the SLO is missed, if the policy has an SLO monitor. Immutable."""

    def __init__(self, policy: Policy, follower: PlanFollower) -> None:
        self._planner, self._follower, self._monitor = policy.planner, follower, None
        self._offers = {offer.name: offer for offer in policy.resolved.offers}
        self._allowed = 1.0 - policy.resolved.slo.attainment
        self._shares = None
        if (offer := follower.added_offer) is not None:
            self._monitor = SloMonitor(
                policy.resolved.slo,
                offer.name,
                offer.usd_per_hour,
                policy.resolved.service.slo_monitor,
                backs_off=policy.planner.replans,
            )
            self._shares = lateness_of(policy.resolved, buyable(policy.resolved)).shares

    def check(self, s: Snapshot, state: ControllerState) -> Decided:
        if self._monitor is None:
            return (), state, ()
        launches, monitor = self._monitor.check(s.now_s, s.recent, state.monitor, self._clustering(s.fleet))
        if launches and self._planner.replans:
            launches = tuple(c for one in launches if (c := self._beside_what_is_left(one, s, state)) is not None)
        if launches and self._follower.replans(state):
            (rescue,) = launches
            found = self._to_be_had(rescue, s, state)
            if found is not None:
                under_way = Rescue(state.monitor, rescue.count, rescue.reason)
                return (found,), replace(state, monitor=monitor, rescue=under_way), (AgendaItem.RESCUE_ELSEWHERE,)
            launches, monitor = (), in_vain(state.monitor, s.now_s)
        return launches, state if monitor is state.monitor else replace(state, monitor=monitor), ()

    def _clustering(self, fleet: Fleet) -> float | None:
        """Return how strongly misses cluster in such a fleet of the cheapest lasting type; None if that is unknown."""
        if self._shares is None:
            return None
        serving = sum(i.phase is Phase.READY for i in fleet.instances)
        return self._shares.clustering_of(serving, self._allowed)

    def elsewhere(self, s: Snapshot, state: ControllerState) -> Decided:
        """Launch the missing part of a refused rescue with another offer.

        If no offer has capacity, count only the launched part; if there is none, restore the monitor's state, so that
        it retries soon. The plan does not launch the missing part, because it was made from the forecast that failed.
        """
        rescue, state = state.rescue, replace(state, rescue=None)
        stopped = {i.number for i in s.fleet.instances if i.phase is Phase.STOPPED}
        left = None if rescue is None else rescue.after(s.outcomes, stopped)
        if left is None or self._monitor is None:
            return (), state, ()
        own = self._offers[self._monitor.offer]
        usd_per_hour = left.lacking * own.usd_per_hour
        other = self._to_be_had(Launch(left.reason, usd_per_hour, own.name, left.lacking, rescue=True), s, state)
        if other is not None:
            return (other,), replace(state, rescue=left), (AgendaItem.RESCUE_ELSEWHERE,)
        extra = state.monitor.extra - left.lacking
        some = extra > left.before.extra
        monitor = replace(state.monitor, extra=extra) if some else in_vain(left.before, s.now_s)
        return (), replace(state, monitor=monitor), ()

    def _to_be_had(self, rescue: Launch, s: Snapshot, state: ControllerState) -> Launch | None:
        """Return the rescue, or a stand-in if its offer is refused or fails to boot and the warm pool lacks it."""
        known, boots = state.beliefs.get(rescue.offer), state.boots.get(rescue.offer)
        refused = known is not None and known.refusals > 0 and s.now_s < known.until_s
        if not refused and not (boots and s.now_s < boots.until_s):
            return rescue
        pooled = of_release(state, s.fleet).pooled()
        starts = any(i.offer == rescue.offer and (i.stopped_s or 0.0) <= s.now_s for i in pooled)
        if starts and state.not_resumed.get(rescue.offer, s.now_s) <= s.now_s:
            return rescue
        return self._follower.stand_in(rescue, s, state)

    def _beside_what_is_left(self, rescue: Launch, s: Snapshot, state: ControllerState) -> Launch | None:
        """Return the rescue less the surplus instances that an earlier rescue left; None if these suffice.

        The surplus instances were to be drained and are now kept. If the rescue did not count them, the next plan would
        end as many of its booting instances.
        """
        plan, rollout = state.plan, state.rollout
        if plan is None or (rollout is not None and rollout.stage is not releases.RolloutStage.DONE):
            return rescue
        have = self._follower.by_planned_offer(state, mark_unhealthy(s.fleet, s.now_s), plan).get(rescue.offer, [])
        left = max(0, len(have) - plan.counts.get(rescue.offer, 0) - state.monitor.extra)
        if left == 0:
            return rescue
        count = rescue.count - left
        each_usd = rescue.usd_per_hour / rescue.count
        return replace(rescue, count=count, usd_per_hour=count * each_usd) if count > 0 else None
