"""Bring the fleet to the plan: launches of missing instances, ends of surplus ones, within the limits."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Mapping, Sequence

from mark.control import rollout as releases
from mark.control.agenda import AgendaItem
from mark.control.headroom import Limit, counted, headroom, limits_of
from mark.control.interruption import instead_of
from mark.control.monitor import default_offer, rescue_offers
from mark.control.snapshot import Snapshot
from mark.control.state import ControllerState, counted_as, counts_toward_target
from mark.domain.command import Command, Drain, Launch, Terminate, Warm
from mark.domain.copying import replace
from mark.domain.fleet import Fleet, Instance, Phase
from mark.domain.offer import Market
from mark.domain.plan import Plan, Target
from mark.planning.market.spot import without_spares
from mark.planning.planner import Policy

OLD = "it would serve an old release"
_ADDED = "added by the SLO monitor"

# The commands, the new state, and the steps to put in front of the agenda.
Decided = tuple[Sequence[Command], ControllerState, tuple[AgendaItem, ...]]


class PlanFollower:
    """Makes the commands that a plan asks for. Immutable.

    `added_offer` is the offer of the SLO monitor's instances, which come on top of the plan; None without a monitor.
    """

    def __init__(self, policy: Policy) -> None:
        self._planner, self._resolved = policy.planner, policy.resolved
        self.added_offer = default_offer(policy.resolved) if policy.planner.monitors_slo else None
        self._offers = {offer.name: offer for offer in policy.resolved.offers}
        self._capacity_rps = {
            o.name: c.capacity_rps for o, c in zip(policy.resolved.offers, policy.resolved.candidates, strict=True)
        }
        self._rescue_offers = rescue_offers(policy.resolved)

    def replans(self, state: ControllerState) -> bool:
        """Return whether a refused launch or an interruption leads to a new plan."""
        return self._planner.replans and state.believed is not None

    def follow(self, s: Snapshot, state: ControllerState, fleet: Fleet) -> Decided:
        """Launch missing instances, and defer the end of surplus ones until the outcome of the launches is known."""
        plan = state.plan
        assert plan is not None
        fleet = without_canaries(state, fleet)
        there = {i.number for i in fleet.instances}
        if not state.stands_for.keys() <= there:
            state = replace(state, stands_for={n: offer for n, offer in state.stands_for.items() if n in there})
        commands: list[Command] = []
        launches: list[Launch] = []
        taking: set[str] = set()  # offers whose launches replace instances of an old release
        if plan.leaving and not self._follows_blindly(state):  # an old plan's instances may have earned credits since
            spent = [i for i in fleet.instances if i.number in plan.leaving and counts_toward_target(i)]
            commands += [self.end(i, "its credits are spent") for i in spent]
            fleet = replace(fleet, instances=tuple(i for i in fleet.instances if i.number not in plan.leaving))
        have = self.by_planned_offer(state, fleet, plan)
        served = _served_meanwhile(state, s.fleet)
        for target, added in self.with_rescued(s, state, plan, have):
            there_now = have.get(target.offer, ())
            count, surge = target.count, 0
            if state.rollout is not None and any(map(state.rollout.is_old, there_now)):
                # Also replace the SLO monitor's instances, which stay at least as long as the plan's.
                count += added
                surge = self.surge(state, s.fleet, target.offer, count, there_now)
            missing = count + surge - len(there_now) - s.unsure.get(target.offer, 0)
            if missing > 0 and served > 0:
                missing, served = missing - min(missing, served), served - min(missing, served)
            if missing > 0:
                launch = self._launch_of(target, missing, standby=False)
                if target.offer not in plan.counts:
                    launch = self._added_as(s, state, target.offer, missing) or launch
                launches.append(launch)
                if surge > 0:
                    taking.add(target.offer)
        commands += self._elsewhere(s, state, launches, taking)
        deferred = [*self.end_excess(s, state, plan, have), *self._follow_standbys(s, state, plan, fleet)]
        if plan.warm > 0:
            deferred.append(Warm("a cold start would miss the SLO, a ping costs next to nothing", 0.0, plan.warm))
        return commands, replace(state, deferred=tuple(deferred)), (AgendaItem.SETTLE,)

    def by_planned_offer(self, state: ControllerState, fleet: Fleet, plan: Plan) -> dict[str, list[Instance]]:
        """Return the instances by the planned offer that they count for.

        Another process's plan may be older than the running instances. For such a plan, surplus instances of an
        equivalent offer count toward an offer that lacks some.
        """
        have: dict[str, list[Instance]] = {}
        counted = counted_as(state.stands_for, fleet, plan.counts)
        for i in fleet.instances:
            if i.number in counted:
                have.setdefault(counted[i.number], []).append(i)
        if self._follows_blindly(state):
            for offer, count in plan.counts.items():
                for other in instead_of(self._offers[offer], self._resolved):
                    those = have.get(other.name, [])
                    added = state.monitor.extra if other.name == state.monitor.offer else 0
                    more = len(those) - plan.counts.get(other.name, 0) - added
                    spare = min(more, count - len(have.get(offer, ())))
                    if spare > 0:
                        those.sort(key=lambda i: (i.phase is not Phase.READY, i.launched_s, i.number))
                        have.setdefault(offer, []).extend(those[:spare])
                        del those[:spare]
        return have

    def _follows_blindly(self, state: ControllerState) -> bool:
        """Return whether the plan is another process's, because this process still lacks a forecast to plan by."""
        return self._planner.needs_forecast and state.believed is None

    def end_excess(
        self, s: Snapshot, state: ControllerState, plan: Plan, have: Mapping[str, list[Instance]]
    ) -> list[Command]:
        """Return ends of surplus instances; of an offer with an old release, ends of replaced instances instead."""
        reasons = {target.offer: target.reason for target in plan.targets}
        commands = []
        rescued = self._rescued(s, state)
        serving_on = releases.serving_on(state.rollout, s.fleet)
        for offer, instances in have.items():
            # The SLO monitor's instances come on top, because the plan was made from the forecast that failed.
            wanted = plan.counts.get(offer, 0) + rescued.get(offer, 0)
            excess = len(instances) - wanted
            if (rollout := state.rollout) is not None and any(map(rollout.is_old, instances)):
                unplanned = offer not in plan.counts and self._is_last(state, plan, have)
                if unplanned and self._added_as(s, state, offer, 1) is None:
                    wanted = 0  # otherwise the roll-out would wait for a replacement that cannot be launched
                # End instances of an old release first, and only after others are ready.
                reason = f"release {rollout.release} takes the place of {{}}"
                # Leaving instances of the new release count as replacements while they are ready.
                ending = releases.replaceable(rollout, max(0, wanted - serving_on), instances)
                serving_on -= min(wanted, serving_on)
                commands += [self.end(i, reason.format(i.release or "one without a name")) for i in ending]
            elif excess > 0:
                reason = reasons.get(offer, "the plan needs none of it any more")
                ending = sorted(instances, key=_ending_order(offer))[:excess]
                if self._follows_blindly(state):  # an old plan may have been made for a lower load
                    commands += self.beyond_limits(s.fleet, ending)
                else:
                    commands += [self.end(i, reason) for i in ending]
        return commands

    def end_spares(self, s: Snapshot, state: ControllerState, fleet: Fleet) -> tuple[list[Command], ControllerState]:
        """End the plan's spare instances as soon as the others are ready, without waiting for the next tick."""
        if state.plan is None or not any(target.spare for target in state.plan.targets):
            return [], state
        have = self.by_planned_offer(state, without_canaries(state, fleet), state.plan)
        ready = {offer: sum(i.phase is Phase.READY for i in instances) for offer, instances in have.items()}
        plan = without_spares(state.plan, ready, self._capacity_rps)
        if plan.counts == state.plan.counts:
            return [], state
        return self.end_excess(s, state, plan, have), replace(state, plan=plan)

    def with_rescued(
        self, s: Snapshot, state: ControllerState, plan: Plan, have: Mapping[str, list[Instance]]
    ) -> list[tuple[Target, int]]:
        """Return the plan's targets, each with the number of instances that the SLO monitor added of its offer.

        If the plan lacks the monitor's offer, add a target of zero, so that a roll-out replaces those instances too. Do
        so only after all planned instances are replaced, because boots of this offer say nothing about planned offers,
        and only if a launch may succeed.
        """
        rescued = self._rescued(s, state)
        targets = [(target, rescued.get(target.offer, 0)) for target in plan.targets]
        for offer, count in rescued.items():
            unplanned = count > 0 and offer not in plan.counts
            if unplanned and self._is_last(state, plan, have) and self._added_as(s, state, offer, count) is not None:
                targets.append((Target(offer, 0, _ADDED), count))
        return targets

    def _added_as(self, s: Snapshot, state: ControllerState, offer: str, count: int) -> Launch | None:
        """Return a launch that replaces the SLO monitor's instances of an unplanned offer; None if no offer is left."""
        launch = self._launch_of(Target(offer, 0, _ADDED), count, standby=False)
        return launch if self._is_had(s, state, offer) else self.stand_in(launch, s, state)

    def stand_in(self, rescue: Launch, s: Snapshot, state: ControllerState) -> Launch | None:
        """Return a launch of another offer that counts for the rescue's offer; None if no launch may succeed.

        Burstable offers are excluded, because they would spend their credits.
        """
        others = (o for o in self._rescue_offers if o.market is not Market.BURSTABLE and o.name != rescue.offer)
        other = next((o for o in others if self._is_had(s, state, o.name)), None)
        if other is None:
            return None
        return replace(
            rescue,
            reason=f"{rescue.reason}; {rescue.offer} is not to be had",
            usd_per_hour=rescue.count * other.usd_per_hour,
            offer=other.name,
            planned=rescue.offer,
        )

    def _is_last(self, state: ControllerState, plan: Plan, have: Mapping[str, list[Instance]]) -> bool:
        """Return whether all planned instances have the release that is to serve."""
        rollout = state.rollout
        return rollout is None or not any(rollout.is_old(i) for offer in plan.counts for i in have.get(offer, ()))

    def _is_had(self, s: Snapshot, state: ControllerState, offer: str) -> bool:
        """Return whether a launch of the offer may succeed: no failed boots, refusal or limit is known."""
        known, boots = state.beliefs.get(offer), state.boots.get(offer)
        refused = known is not None and s.now_s < known.until_s
        return not refused and not (boots and boots.failed) and self.headroom(s.fleet, offer)[0] > 0

    def _rescued(self, s: Snapshot, state: ControllerState) -> dict[str, int]:
        """Return the SLO monitor's instances by offer, at most as many as the limits allow beside the plan."""
        if self.added_offer is None:
            return {}
        # The monitor's next launch is of `added_offer`, which may differ after a price change.
        offer = state.monitor.offer if state.monitor.offer in self._offers else self.added_offer.name
        # Count the price of the cheapest offer whose instances stand in for this one.
        standing = {i.offer for i in s.fleet.instances if state.stands_for.get(i.number) == offer}
        cheapest = min((offer, *standing & self._offers.keys()), key=lambda name: self._offers[name].usd_per_hour)
        room, _ = self.room({} if state.plan is None else state.plan.counts, cheapest)
        return {offer: min(state.monitor.extra_at(s.now_s), room)}

    def _follow_standbys(self, s: Snapshot, state: ControllerState, plan: Plan, fleet: Fleet) -> list[Command]:
        """Return launches of missing standbys, and ends of surplus ones and of those with an old release."""
        standbys: dict[str, list[Instance]] = {}
        commands: list[Command] = []
        for i in fleet.instances:
            if not i.standby:
                continue
            if state.rollout is None or not state.rollout.is_old(i):
                standbys.setdefault(i.offer, []).append(i)
            elif i.phase is Phase.STOPPED:
                commands.append(Terminate(OLD, 0.0, i.offer, i.number))
        for target in plan.standbys:
            missing = target.count - len(standbys.get(target.offer, ())) - s.unsure_standbys.get(target.offer, 0)
            if missing > 0:
                commands.append(self._launch_of(target, missing, standby=True))
        wanted = {target.offer: target.count for target in plan.standbys}
        for offer, instances in standbys.items():
            stopped = [i for i in instances if i.phase is Phase.STOPPED]
            ending = stopped[: max(0, len(instances) - wanted.get(offer, 0))]
            commands += [Terminate("the plan keeps fewer standbys", 0.0, i.offer, i.number) for i in ending]
        return commands

    def _launch_of(self, target: Target, count: int, *, standby: bool) -> Launch:
        # A stopped standby costs only its disk.
        usd_per_hour = 0.0 if standby else count * self._offers[target.offer].usd_per_hour
        return Launch(target.reason, usd_per_hour, target.offer, count, standby)

    def _elsewhere(
        self, s: Snapshot, state: ControllerState, launches: Sequence[Launch], taking: Collection[str]
    ) -> list[Launch]:
        """Return the launches, with refused offers in `taking` replaced by another offer of the same market.

        Launches in `taking` replace an old release, which would otherwise keep running. The other offer must not be
        launched already in this round.
        """
        if not taking or not self.replans(state):
            return list(launches)
        put_off = {name for name, known in state.beliefs.items() if s.now_s < known.until_s and known.refusals}
        asked = put_off.union(launch.offer for launch in launches)
        found: list[Launch] = []
        for launch in launches:
            if launch.offer in taking and launch.offer in put_off:
                own = self._offers[launch.offer]
                others = (o for o in instead_of(own, self._resolved) if o.market is own.market)
                if (other := next((o for o in others if o.name not in asked), None)) is not None:
                    asked.add(other.name)
                    usd_per_hour = launch.count * other.usd_per_hour
                    launch = replace(launch, offer=other.name, usd_per_hour=usd_per_hour, planned=launch.offer)
            found.append(launch)
        return found

    def end(self, instance: Instance, reason: str) -> Command:
        """Return the command that drains the instance, or terminates one that boots."""
        # An instance in its first boot cannot be stopped, so it is terminated; a resumed one returns to the warm pool.
        verb = Terminate if instance.phase is Phase.PENDING and not instance.resumed else Drain
        return verb(reason, -self._offers[instance.offer].usd_per_hour, instance.offer, instance.number)

    def beyond_limits(self, fleet: Fleet, these: Sequence[Instance]) -> list[Command]:
        """Return the ends of instances among `these` that exceed the limits, which may have been lowered."""
        if not these:
            return []
        # Draining instances do not count, because they leave soon.
        gone = {i.number for i in fleet.instances if i.phase is Phase.DRAINING}.union(i.number for i in these)
        running = counted(replace(fleet, instances=tuple(i for i in fleet.instances if i.number not in gone)))
        commands: list[Command] = []
        for i in these:
            room, limit = self.room(running, i.offer)
            if room == 0:
                commands.append(self.end(i, str(limit)))
            else:
                running[i.offer] += 1
        return commands

    def surge(self, state: ControllerState, fleet: Fleet, offer: str, count: int, there: Sequence[Instance]) -> int:
        """Return how many instances beyond `count` the roll-out may have, within the limits."""
        settings = self._resolved.service.rollout
        more = releases.surge(state.rollout, count, there, settings)
        if more == 0:
            return 0
        beyond = max(0, len(there) - count)  # instances that exist already
        return min(more, beyond + self.headroom(fleet, offer)[0])

    def headroom(self, fleet: Fleet, offer: str) -> tuple[int, Limit]:
        """Return how many more of the offer the limits allow beside the fleet, and which limit binds."""
        return self.room(counted(fleet), offer)

    def room(self, running: Mapping[str, int], offer: str) -> tuple[int, Limit]:
        """Return how many more of the offer the limits allow beside the `running` ones, and which limit binds."""
        usd_per_hour = {name: one.usd_per_hour for name, one in self._offers.items()}
        return headroom(limits_of(self._resolved), self._offers[offer], running, usd_per_hour)


def without_canaries(state: ControllerState, fleet: Fleet) -> Fleet:
    """Return the fleet without canaries, which serve beside the planned instances."""
    rollout = state.rollout
    if rollout is None or rollout.stage is not releases.RolloutStage.CANARY:
        return fleet
    return replace(fleet, instances=tuple(i for i in fleet.instances if not rollout.on_trial(i)))


def _served_meanwhile(state: ControllerState, fleet: Fleet) -> int:
    """Return how many leaving instances keep serving during a canary trial, and are replaced only after it.

    A replacement during the trial would run the previous release, and be replaced itself right after the trial.
    """
    rollout = state.rollout
    if rollout is None or rollout.stage is not releases.RolloutStage.CANARY:
        return 0
    return releases.serving_on(rollout, fleet)


def of_release(state: ControllerState, fleet: Fleet) -> Fleet:
    """Return the fleet without stopped instances of other releases than the one that serves."""
    rollout = state.rollout
    if rollout is None:
        return fleet
    left = tuple(i for i in fleet.instances if i.phase is not Phase.STOPPED or i.release == rollout.release)
    return fleet if len(left) == len(fleet.instances) else replace(fleet, instances=left)


def _ending_order(planned: str) -> Callable[[Instance], tuple[float, bool, bool, float, int]]:
    """Return the sort key: fewest credits first (burstables), then booting, then stand-ins, then youngest."""

    def order(i: Instance) -> tuple[float, bool, bool, float, int]:
        credits = math.inf if i.credits is None else i.credits
        return credits, i.phase is not Phase.PENDING, i.offer == planned, -i.launched_s, -i.number

    return order
