"""The steps of a roll-out: canaries of the new release, then the replacement of the old one."""

from __future__ import annotations

import math
from collections.abc import Mapping

from mark.control import boots as failed_boots
from mark.control import held_releases
from mark.control import rollout as releases
from mark.control.headroom import Limit
from mark.control.health import mark_unhealthy, overdue
from mark.control.plan_follower import OLD, Decided, PlanFollower
from mark.control.snapshot import Snapshot
from mark.control.state import ControllerState, counts_toward_target
from mark.domain.backoff import ROLLOUT
from mark.domain.command import Command, Launch, Switch, Terminate
from mark.domain.copying import replace
from mark.domain.fleet import Fleet, Instance, Phase
from mark.domain.plan import Plan
from mark.domain.service import ResolvedService


class RolloutSteps:
    """Tries a new release, replaces the old one by it, and switches the function. Immutable."""

    def __init__(self, resolved: ResolvedService, follower: PlanFollower) -> None:
        self._resolved, self._follower = resolved, follower
        self._offers = {offer.name: offer for offer in resolved.offers}

    def roll_out(self, s: Snapshot, state: ControllerState) -> Decided:
        """Try a new release on canaries, then replace the old release by it."""
        settings, slo = self._resolved.service.rollout, self._resolved.slo
        plan = state.plan
        planned = None if plan is None else sum(plan.counts.values())
        known = state.rollout
        if known is not None and known.booting and s.now_s - state.boots_seen_s > failed_boots.LOOKS_S:
            known = replace(known, booting={})  # they may have become ready and ended since then
        rollout = releases.rolled(known, s.wanted_release, s.fleet, s.releases, s.now_s, slo, settings, planned=planned)
        if rollout is not None and releases.is_rolling_out(rollout):
            held = state.held.get(rollout.release)
            if held is not None and held.gone and held.refusals > releases.FAILED_BOOTS:
                # Roll back, because only the previous release can replace a lost instance.
                taken = releases.stopped(rollout, f"nothing of it can be launched: {held.reason}")
                if taken.release != rollout.release:  # if no rollback is possible, it stays held, with longer pauses
                    state = replace(state, held=held_releases.launched(state.held, rollout.release))
                rollout = taken
        if rollout is not None and known is not None and known.release in {*rollout.refused} - {*known.refused}:
            # Failed boots and overdue instances of the rejected release say nothing about the previous one.
            late: dict[str, tuple[int, ...]] = {}
            for i in overdue(s.fleet, s.now_s):
                late[i.offer] = (*late.get(i.offer, ()), i.number)
            state = replace(state, boots={o: failed_boots.Boots(given_up=n) for o, n in late.items()})
        if rollout is not state.rollout:
            state = replace(state, rollout=rollout)
        if rollout is None or rollout.stage is releases.RolloutStage.DONE or plan is None:
            return (), state, ()
        fleet = mark_unhealthy(s.fleet, s.now_s)
        if rollout.stage is releases.RolloutStage.CANARY:
            changes, waits = self._canaries(s, state, fleet, plan)
            if not changes and isinstance(waits, Limit):
                changes = self._room_of_bad(state, fleet)
            return changes, _waiting(state, waits), ()
        # A stopped instance of the old release would serve it again after a resume.
        ends: list[Command] = [Terminate(OLD, 0.0, i.offer, i.number) for i in fleet.pooled() if rollout.is_old(i)]
        old = [i for i in fleet.instances if rollout.is_old(i) and counts_toward_target(i)]
        have = self._follower.by_planned_offer(state, fleet, plan)
        if sum(i.phase is Phase.READY for those in have.values() for i in those) >= sum(plan.counts.values()):
            bridging = [i for i in fleet.instances if i.standby and i.phase is Phase.READY and rollout.is_old(i)]
            ends += [self._follower.end(i, OLD) for i in bridging]
        if s.now_s < rollout.retry_s or not old:
            state = state if s.now_s < rollout.retry_s else _waiting(state, "")
            return [*ends, *self._follower.end_excess(s, state, plan, have)], state, ()
        if limit := self._surge_limit(s, state, plan, have):
            commands: list[Command] = [*ends, *self._follower.end_excess(s, state, plan, have)]
            if len(commands) == len(ends):
                commands += self._room_of_bad(state, fleet)
            return commands, _waiting(state, limit), ()
        followed, state, first = self._follower.follow(s, _waiting(state, ""), fleet)
        return [*ends, *followed], state, first

    def _room_of_bad(self, state: ControllerState, fleet: Fleet) -> list[Command]:
        """At a limit, end some instances of a rejected release to make room for good ones.

        End more only after good instances have replaced these.
        """
        rollout = state.rollout
        assert rollout is not None
        bad = [
            i
            for i in fleet.instances
            if rollout.is_old(i) and (rollout.back or i.release in rollout.refused) and counts_toward_target(i)
        ]
        under_way = any(
            i.phase is Phase.DRAINING or (i.phase is Phase.PENDING and not rollout.is_old(i))
            for i in (*fleet.instances, *fleet.leaving)
        )
        if not bad or under_way:
            return []
        count = max(1, math.ceil(self._resolved.service.rollout.surge_share * len(bad)))
        reason = f"makes room for release {rollout.release}, at the limit"
        return [self._follower.end(i, reason) for i in bad[:count]]

    def switch(self, s: Snapshot, state: ControllerState) -> Decided:
        """Switch the function, which answers while no instance is ready, to the release that serves.

        This includes the release of a roll-back.
        """
        rollout = state.rollout
        if rollout is None or self._resolved.function is None:
            return (), state, ()
        if rollout.release == state.switched or s.now_s < state.switch_at_s:
            return (), state, ()
        command = Switch("it is the release that serves", 0.0, rollout.release)
        return [command], replace(state, switch_at_s=s.now_s + ROLLOUT.first_s), ()

    def _canaries(
        self, s: Snapshot, state: ControllerState, fleet: Fleet, plan: Plan
    ) -> tuple[list[Command], str | Limit]:
        """Return launches of missing canaries beside the planned instances, and why they wait ("" if they do not)."""
        rollout = state.rollout
        assert rollout is not None
        there = [i for i in fleet.instances if rollout.on_trial(i) and counts_toward_target(i)]
        if over := self._follower.beyond_limits(fleet, there):
            return over, over[0].reason
        offer = self._to_try(s, state, plan)
        # A launch without an answer may have started the canary, of any offer.
        if there or offer is None or any(s.unsure.values()):
            return [], rollout.waits if rollout.since_s < math.inf else ""
        if s.now_s < rollout.retry_s:
            return [], rollout.waits
        most, limit = self._follower.headroom(s.fleet, offer)
        # After a failed boot, launch one canary at a time.
        wanted = 1 if rollout.failed else releases.canaries(fleet, self._resolved.service.rollout)
        count = min(wanted, most)
        if count == 0:
            return [], limit
        usd_per_hour = count * self._offers[offer].usd_per_hour
        reason = f"tries release {rollout.candidate} beside {rollout.release}"
        return [Launch(reason, usd_per_hour, offer, count, release=rollout.candidate)], ""

    def _to_try(self, s: Snapshot, state: ControllerState, plan: Plan) -> str | None:
        """Return the offer for canaries: the plan's most frequent available one, else the cheapest available one.

        Without an available offer return the plan's most frequent one, and None if the plan is empty.
        """
        targets = sorted((t for t in plan.targets if t.count > 0), key=lambda t: (t.count, t.offer), reverse=True)
        planned = [t.offer for t in targets]
        others = sorted(self._resolved.offers, key=lambda o: (o.usd_per_hour, o.name))
        put_off = {name for name, known in state.beliefs.items() if s.now_s < known.until_s}
        put_off.update(name for name, boots in state.boots.items() if s.now_s < boots.until_s)
        wanted = [*planned, *(o.name for o in others if o.credits is None)] if planned else []
        return next((name for name in wanted if name not in put_off), next(iter(planned), None))

    def _surge_limit(
        self, s: Snapshot, state: ControllerState, plan: Plan, have: Mapping[str, list[Instance]]
    ) -> Limit | None:
        """Return the limit if it forbids surge instances for every offer with an old release; None if one may surge."""
        assert state.rollout is not None
        limit = None
        for target, added in self._follower.with_rescued(s, state, plan, have):
            there = have.get(target.offer, [])
            if not any(map(state.rollout.is_old, there)):
                continue
            most, reached = self._follower.headroom(s.fleet, target.offer)
            if most > 0 or self._follower.surge(state, s.fleet, target.offer, target.count + added, there):
                return None
            limit = limit or reached
        return limit


def _waiting(state: ControllerState, waits: str | Limit) -> ControllerState:
    if state.rollout is None or state.rollout.waits == waits:
        return state
    return replace(state, rollout=replace(state.rollout, waits=waits))
