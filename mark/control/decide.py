"""Decide: take a snapshot and the state, return commands and the new state. No port, clock, store or randomness."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence

import numpy as np

from mark.control import boots as failed_boots
from mark.control import held_releases
from mark.control import rollout as releases
from mark.control.agenda import AgendaItem
from mark.control.coming_calls import higher_windows_rps
from mark.control.headroom import Limit, counted, headroom
from mark.control.health import PAUSE_S, mark_unhealthy, none_answers, overdue, to_give_up
from mark.control.interruption import InterruptionHandler, instead_of
from mark.control.monitor import SloMonitor, default_offer, rescue_offers
from mark.control.ports import WINDOW_S
from mark.control.refused_launch import Rescue, in_vain
from mark.control.scheduled_events import why_due
from mark.control.snapshot import Snapshot
from mark.control.state import ControllerState, Replanning, belief, counted_as, counts_toward_target, unfit
from mark.control.traffic_envelope import surprise_rps
from mark.control.views import Limits
from mark.control.warm_pool import WarmPool
from mark.domain.backoff import RESUME, ROLLOUT, STANDBY
from mark.domain.command import Command, Drain, Launch, Switch, Terminate, Warm
from mark.domain.copying import replace
from mark.domain.fleet import Fleet, Instance, Phase
from mark.domain.load import Forecast
from mark.domain.offer import Market
from mark.domain.plan import Plan, Target
from mark.domain.service import ResolvedService
from mark.domain.time import STEP_S
from mark.planning.demand.served_load import lateness_of
from mark.planning.demand.slo_budget import Window
from mark.planning.market.near_equal import near_equal
from mark.planning.market.spot import Belief, without_spares
from mark.planning.planner import PlanningContext, Policy
from mark.planning.resolve import buyable
from mark.traffic.forecast.conditioning import condition_on_rate

HORIZON_STEPS = 60  # one minute each
LATEST = 4  # windows that show the present load
_OLD = "it would serve an old release"
_ADDED = "added by the SLO monitor"
_UNSOLD = "the service may not buy it any more, and its replacement is ready"

# The commands, the new state, and the steps to put in front of the agenda.
Decided = tuple[Sequence[Command], ControllerState, tuple[AgendaItem, ...]]


class Decider:
    """Makes the decisions for one service, by `policy`. Immutable.

    Every plan has at least `min_instances`, because a service without instances does not see arriving requests. With
    `foresees` the forecast knows the future, so arrivals do not correct it.
    """

    def __init__(self, policy: Policy, *, foresees: bool) -> None:
        self._planner, self._resolved = policy.planner, policy.resolved
        corrected = policy.planner.replans and policy.planner.needs_forecast
        self.needs_windows = corrected or policy.every_s < STEP_S
        self.corrects = corrected and not foresees
        self._offers = {offer.name: offer for offer in policy.resolved.offers}
        self._near_equal = near_equal(policy.resolved)
        self._capacity_rps = {
            o.name: c.capacity_rps for o, c in zip(policy.resolved.offers, policy.resolved.candidates, strict=True)
        }
        self._handler = InterruptionHandler(policy.resolved)
        self._pool = WarmPool(policy.resolved)
        offer = default_offer(policy.resolved) if policy.planner.monitors_slo else None
        self._monitor, self._rescue_offers = None, rescue_offers(policy.resolved)
        if offer is not None:
            self._monitor = SloMonitor(
                policy.resolved.slo,
                offer.name,
                offer.usd_per_hour,
                policy.resolved.service.slo_monitor,
                backs_off=policy.planner.replans,
                clustering=_clustering(policy.resolved),
            )
        self._stages: dict[AgendaItem, Callable[[Snapshot, ControllerState], Decided]] = {
            AgendaItem.PLAN_FIRST: self._plan_first,
            AgendaItem.PLAN: self._plan_minute,
            AgendaItem.REPLAN: self._replan,
            AgendaItem.SETTLE: self._settle,
            AgendaItem.NOTICES: self._answer_notices,
            AgendaItem.NOTICES_ANSWERED: self._forget_notices,
            AgendaItem.MONITOR: self._check_slo,
            AgendaItem.RESCUE_ELSEWHERE: self._rescue_elsewhere,
            AgendaItem.SURGE: self._watch_surge,
            AgendaItem.UPKEEP: self._upkeep,
            AgendaItem.REPLACE_SILENT: self._replace_silent,
            AgendaItem.GIVE_UP_SILENT: self._give_up_silent,
            AgendaItem.COUNT_GIVEN_UP: self._count_given_up,
            AgendaItem.ROLL_OUT: self._roll_out,
            AgendaItem.SWITCH: self._switch,
            AgendaItem.LET_GO: self._let_go,
        }

    def decide(self, snapshot: Snapshot, state: ControllerState) -> tuple[tuple[Command, ...], ControllerState]:
        """Go through the agenda up to the first stage that has commands.

        If the new state has an agenda, carry out the commands and call this again with their outcomes.
        """
        agenda = (*snapshot.agenda, *state.agenda)
        while agenda:
            before = state
            commands, state, first = self._stages[agenda[0]](snapshot, state)
            agenda = (*first, *agenda[1:])
            if commands:
                commands, state = self._possible(commands, state, before, snapshot)
            if commands:
                return tuple(commands), replace(state, agenda=agenda)
            if snapshot.outcomes:  # saves a copy per stage in the many rounds that do nothing
                snapshot = replace(snapshot, outcomes=())  # the stage that waited for them has seen them
        return (), replace(state, agenda=()) if state.agenda else state

    def _possible(
        self, commands: Sequence[Command], state: ControllerState, before: ControllerState, s: Snapshot
    ) -> tuple[Sequence[Command], ControllerState]:
        """Return the commands without launches that must wait; the warm pool's resumes replace launches.

        If a launch is left out, the deferred commands are dropped and the SLO monitor's state stays as it was.
        """
        fleet = _of_release(state, s.fleet)
        wanted: Sequence[Command] = self._pool.resumed_first(commands, fleet, state.not_resumed, s.now_s)
        if (rollout := state.rollout) is not None:
            wanted = [replace(c, release=c.release or rollout.release) if isinstance(c, Launch) else c for c in wanted]
        found = held_releases.allowed(state.held, self._not_refused(wanted, state, s.now_s), s.now_s)
        found = failed_boots.allowed(state.boots, found, s.now_s)
        if self.replans(state):
            # Offers that are launched anyway are not alternatives, because the plan spreads the instances over them.
            taken = {c.offer for c in found if isinstance(c, Launch)}
            found = [self._with_alternatives(c, taken, state, s) if isinstance(c, Launch) else c for c in found]
        if len(found) < len(wanted):
            state = replace(state, deferred=(), monitor=before.monitor)
        return found, state

    def _not_refused(self, commands: Sequence[Command], state: ControllerState, now_s: float) -> Sequence[Command]:
        """Return the commands without launches of recently refused offers; a later round retries them.

        If the policy does not plan again after a refusal, all launches stay: the launcher tries other offers instead.
        """
        if not state.beliefs or not self.replans(state):
            return commands
        put_off = {name for name, known in state.beliefs.items() if now_s < known.until_s and known.refusals}
        return [c for c in commands if not (isinstance(c, Launch) and c.offer in put_off)]

    def _with_alternatives(self, command: Launch, taken: set[str], state: ControllerState, s: Snapshot) -> Launch:
        """Return the launch with the offers that the cloud may start instead.

        An offer that was refused, interrupted or did not boot has no alternatives and is none for others. So the
        outcome shows whether it is available again, and its failure affects no other launch.
        """
        doubtful = {name for name, known in state.beliefs.items() if known.refusals or s.now_s < known.until_s}
        doubtful |= {name for name, boots in state.boots.items() if boots.failed}
        if command.standby or command.offer in doubtful:
            return command
        others = (name for name in self._near_equal[command.offer] if name not in doubtful | taken)
        return replace(command, alternatives=tuple(others))

    def replans(self, state: ControllerState) -> bool:
        """Return whether a refused launch or an interruption leads to a new plan."""
        return self._planner.replans and state.believed is not None

    # -- plan ----------------------------------------------------------------------------------------------------------

    def _plan_first(self, s: Snapshot, state: ControllerState) -> Decided:
        """Plan the first fleet within the limits; the simulator makes all of it ready at once."""
        state = replace(state, believed=s.forecast, believed_s=s.now_s)
        plan, state = self._plan(s, state, s.fleet, s.forecast, s.last_minute_rps, first=True)
        targets, notes = [], plan.notes
        counts: Counter[str] = Counter()
        for target in plan.targets:
            most, limit = self._room(counts, target.offer)
            count = min(target.count, most)
            if count < target.count:
                notes += (f"first fleet: {count} of {target.count} {target.offer}: {limit}",)
            counts[target.offer] += count
            targets.append(replace(target, count=count))
        return (), replace(state, plan=replace(plan, targets=tuple(targets), notes=notes)), ()

    def _plan_minute(self, s: Snapshot, state: ControllerState) -> Decided:
        fleet = mark_unhealthy(s.fleet, s.now_s)
        state = self._watch_market(s, state, fleet)
        # While observations are missing, keep the last plan: a new one would use the same old observations.
        if not s.gap or state.plan is None:
            forecast, state = self._corrected(s, state)
            plan, state = self._plan(s, state, fleet, forecast, s.last_minute_rps)
            state = replace(state, plan=plan, believed=forecast, believed_s=s.now_s)
        return self._follow(s, state, fleet)

    def _replan(self, s: Snapshot, state: ControllerState) -> Decided:
        """Plan again with the forecast of the last plan, but without the offers refused since."""
        believed, again, last = state.believed, state.replanning, state.plan
        assert believed is not None
        assert again is not None
        state = replace(state, replanning=replace(again, left=again.left - 1))
        fleet = mark_unhealthy(s.fleet, s.now_s)
        plan, state = self._plan(s, state, fleet, from_now(believed, s.now_s), again.rps)
        if not again.shrink and last is not None:
            plan = _not_less(plan, last, fleet.live())
        plan = replace(plan, notes=(*plan.notes, f"planned again: {again.reason}"))
        return self._follow(s, replace(state, plan=plan), fleet)

    def _ask_again(self, state: ControllerState, rps: float | None, reason: str, *, shrink: bool = True) -> Decided:
        # Each refusal excludes one more offer, so the number of offers bounds the number of new plans.
        replanning = Replanning(reason, rps, shrink, len(self._offers) + 1)
        return (), replace(state, replanning=replanning), (AgendaItem.REPLAN,)

    def _plan(
        self,
        s: Snapshot,
        state: ControllerState,
        fleet: Fleet,
        forecast: Forecast | None,
        rps: float | None,
        *,
        first: bool = False,
    ) -> tuple[Plan, ControllerState]:
        """Return the planner's plan, and the state with the planner's memory and the answers in the SLO's window."""
        late = s.answers.count - s.answers.in_time
        window = state.window or Window(s.now_s, s.answers.count, late)
        window = window.seen(s.now_s, s.answers.count, late, self._resolved.slo.window_s)
        context = PlanningContext(
            s.now_s,
            self._resolved,
            self._without_surge(state, fleet),
            forecast,
            rps,
            {} if first else s.utilization,
            first,
            self._beliefs(state, s.now_s),
            window.answered(s.now_s, self._resolved.slo.window_s),
            higher_windows_rps(s.windows_rps, s.coming),
            s.answers.in_flight,
        )
        memory = self._planner.begin() if state.memory is None else state.memory
        plan, memory = self._planner.plan(context, memory)
        plan = self._not_empty(plan, fleet)
        plan = plan if forecast is None else replace(plan, predictor=forecast.predictor)
        return plan, replace(state, window=window, memory=memory)

    def _without_surge(self, state: ControllerState, fleet: Fleet) -> Fleet:
        """Return the fleet as the planner sees it, without canaries and surge instances of a roll-out."""
        rollout = state.rollout
        if rollout is None or rollout.stage is releases.RolloutStage.DONE or state.plan is None:
            return fleet
        fleet = _without_canaries(state, fleet)
        hidden: set[int] = set()
        for offer, instances in self._have(state, fleet, state.plan).items():
            if any(map(rollout.is_old, instances)):
                last = sorted(instances, key=lambda i: (i.phase is not Phase.READY, i.launched_s, i.number))
                hidden |= {i.number for i in last[state.plan.counts.get(offer, 0) :]}
        return replace(fleet, instances=tuple(i for i in fleet.instances if i.number not in hidden))

    def _beliefs(self, state: ControllerState, now_s: float) -> dict[str, Belief]:
        """Return the beliefs about the market; an offer that does not boot counts as unavailable."""
        held = {offer: one.until_s for offer, one in state.boots.items() if now_s < one.until_s}
        put_off = {offer: belief(state, offer, now_s) for offer in held}
        return {**state.beliefs, **{o: replace(b, until_s=max(b.until_s, held[o])) for o, b in put_off.items()}}

    def _not_empty(self, plan: Plan, fleet: Fleet) -> Plan:
        """Return the plan with at least `min_instances`.

        Missing instances are of the cheapest offer that runs, or of the SLO monitor's offer if none runs.
        """
        missing = self._resolved.service.min_instances - sum(plan.counts.values())
        if missing <= 0:
            return plan
        there = sorted((self._offers[name] for name in fleet.live()), key=lambda o: (o.usd_per_hour, o.name))
        offer = there[0] if there else default_offer(self._resolved)
        if offer is None:
            return plan
        count = plan.counts.get(offer.name, 0) + missing
        target = Target(offer.name, count, "an instance must be there when a request comes")
        return replace(plan, targets=(*(t for t in plan.targets if t.offer != offer.name), target))

    def _corrected(self, s: Snapshot, state: ControllerState) -> tuple[Forecast | None, ControllerState]:
        """Raise the forecast to the rate of a current surge.

        The forecast is made from whole minutes, so it lags behind a surge that began within the last one.
        """
        if s.forecast is None or not self.corrects or s.now_s - state.surprised_s > STEP_S:
            return s.forecast, state
        seen_rps = _surprise_rps(s, LATEST, float(s.forecast.mean_at(0.5)[0]))
        if seen_rps is None:
            return s.forecast, state
        return condition_on_rate(s.forecast, seen_rps), replace(state, surprised_s=s.now_s)

    def _watch_market(self, s: Snapshot, state: ControllerState, fleet: Fleet) -> ControllerState:
        """Count the time since the last look, in which the fleet's spot instances were held without interruption."""
        held = {i.offer for i in fleet.instances if i.phase in (Phase.PENDING, Phase.READY)}
        held = {name for name in held if self._offers[name].market is Market.SPOT}
        known = held | state.beliefs.keys()
        if not known:
            return state
        watched = {name: belief(state, name, s.now_s).watched(s.now_s, name in held) for name in sorted(known)}
        return replace(state, beliefs={**state.beliefs, **watched})

    # -- bring the fleet to the plan -----------------------------------------------------------------------------------

    def _follow(self, s: Snapshot, state: ControllerState, fleet: Fleet) -> Decided:
        """Launch missing instances, and defer the end of surplus ones until the outcome of the launches is known."""
        plan = state.plan
        assert plan is not None
        fleet = _without_canaries(state, fleet)
        there = {i.number for i in fleet.instances}
        if not state.stands_for.keys() <= there:
            state = replace(state, stands_for={n: offer for n, offer in state.stands_for.items() if n in there})
        commands: list[Command] = []
        launches: list[Launch] = []
        taking: set[str] = set()  # offers whose launches replace instances of an old release
        if plan.leaving and not self._follows_blindly(state):  # an old plan's instances may have earned credits since
            spent = [i for i in fleet.instances if i.number in plan.leaving and counts_toward_target(i)]
            commands += [self._end(i, "its credits are spent") for i in spent]
            fleet = replace(fleet, instances=tuple(i for i in fleet.instances if i.number not in plan.leaving))
        have = self._have(state, fleet, plan)
        served = _served_meanwhile(state, s.fleet)
        for target, added in self._with_rescued(s, state, plan, have):
            there_now = have.get(target.offer, ())
            count, surge = target.count, 0
            if state.rollout is not None and any(map(state.rollout.is_old, there_now)):
                # Also replace the SLO monitor's instances, which stay at least as long as the plan's.
                count += added
                surge = self._surge(state, s.fleet, target.offer, count, there_now)
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
        deferred = [*self._end_excess(s, state, plan, have), *self._follow_standbys(s, state, plan, fleet)]
        if plan.warm > 0:
            deferred.append(Warm("a cold start would miss the SLO, a ping costs next to nothing", 0.0, plan.warm))
        return commands, replace(state, deferred=tuple(deferred)), (AgendaItem.SETTLE,)

    def _settle(self, s: Snapshot, state: ControllerState) -> Decided:
        """Plan again after a refusal; otherwise return the deferred commands."""
        deferred = state.deferred
        if deferred:  # copying a state is expensive, and most rounds have nothing to settle
            state = replace(state, deferred=())
        serving = "" if state.rollout is None else state.rollout.release
        if any(o.whole_release and isinstance(o.command, Launch) and o.command.release == serving for o in s.outcomes):
            # The cloud would refuse this release for any plan. End nothing, because no replacement was launched.
            return (), _planned(state), ()
        if any(outcome.refused for outcome in s.outcomes) and self.replans(state):
            # The plan assumed offers that the market refused, so end no instance because of it.
            if state.replanning is None:
                return self._ask_again(state, s.last_minute_rps, "the market refused")
            if state.replanning.left > 0:
                return (), state, (AgendaItem.REPLAN,)
        elif deferred:
            return deferred, state, (AgendaItem.SETTLE,)
        return (), _planned(state), ()

    def _have(self, state: ControllerState, fleet: Fleet, plan: Plan) -> dict[str, list[Instance]]:
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

    def _end_excess(
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
                commands += [self._end(i, reason.format(i.release or "one without a name")) for i in ending]
            elif excess > 0:
                reason = reasons.get(offer, "the plan needs none of it any more")
                ending = sorted(instances, key=_ending_order(offer))[:excess]
                if self._follows_blindly(state):  # an old plan may have been made for a lower load
                    commands += self._beyond_limits(s.fleet, ending)
                else:
                    commands += [self._end(i, reason) for i in ending]
        return commands

    def _with_rescued(
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
        return launch if self._is_had(s, state, offer) else self._as_stand_in(launch, s, state)

    def _is_last(self, state: ControllerState, plan: Plan, have: Mapping[str, list[Instance]]) -> bool:
        """Return whether all planned instances have the release that is to serve."""
        rollout = state.rollout
        return rollout is None or not any(rollout.is_old(i) for offer in plan.counts for i in have.get(offer, ()))

    def _is_had(self, s: Snapshot, state: ControllerState, offer: str) -> bool:
        """Return whether a launch of the offer may succeed: no failed boots, refusal or limit is known."""
        known, boots = state.beliefs.get(offer), state.boots.get(offer)
        refused = known is not None and s.now_s < known.until_s
        return not refused and not (boots and boots.failed) and self._headroom(s.fleet, offer)[0] > 0

    def _rescued(self, s: Snapshot, state: ControllerState) -> dict[str, int]:
        """Return the SLO monitor's instances by offer, at most as many as the limits allow beside the plan."""
        if self._monitor is None:
            return {}
        # The monitor's next launch is of `self._monitor.offer`, which may differ after a price change.
        offer = state.monitor.offer if state.monitor.offer in self._offers else self._monitor.offer
        # Count the price of the cheapest offer whose instances stand in for this one.
        standing = {i.offer for i in s.fleet.instances if state.stands_for.get(i.number) == offer}
        cheapest = min((offer, *standing & self._offers.keys()), key=lambda name: self._offers[name].usd_per_hour)
        room, _ = self._room({} if state.plan is None else state.plan.counts, cheapest)
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
                commands.append(Terminate(_OLD, 0.0, i.offer, i.number))
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

    def _end(self, instance: Instance, reason: str) -> Command:
        # An instance in its first boot cannot be stopped, so it is terminated; a resumed one returns to the warm pool.
        verb = Terminate if instance.phase is Phase.PENDING and not instance.resumed else Drain
        return verb(reason, -self._offers[instance.offer].usd_per_hour, instance.offer, instance.number)

    # -- between ticks -------------------------------------------------------------------------------------------------

    def _answer_notices(self, s: Snapshot, state: ControllerState) -> Decided:
        """Update the beliefs about the market, bridge the loss with standbys, and launch replacements or plan again."""
        notices = state.notices
        if not notices:
            return (), state, ()
        fleet = mark_unhealthy(s.fleet, s.now_s)
        state = self._watch_market(s, state, fleet)
        left = Counter(i.offer for i in fleet.instances if counts_toward_target(i))
        beliefs = dict(state.beliefs)
        for offer, lost in Counter(notice.offer for notice in notices[state.counted_notices :]).items():
            beliefs[offer] = belief(state, offer, s.now_s).interrupted(s.now_s, lost / (lost + left[offer]))
        state = replace(state, beliefs=beliefs, counted_notices=len(notices))
        replans = self.replans(state)
        planned = state.plan.counts if state.plan is not None and not replans else {}
        have = self._have(state, _without_canaries(state, fleet), state.plan) if state.plan is not None else {}
        missing = {offer: count - len(have.get(offer, ())) for offer, count in planned.items()}
        commands = self._handler.on_notices(notices, _of_release(state, fleet), missing, state.stands_for, s.now_s)
        again: tuple[AgendaItem, ...] = ()
        if replans:
            _, state, again = self._ask_again(state, s.last_minute_rps, f"{len(notices)} interrupted")
        return commands, state, (*again, AgendaItem.NOTICES_ANSWERED)

    def _forget_notices(self, s: Snapshot, state: ControllerState) -> Decided:
        return (), replace(state, notices=(), counted_notices=0), ()

    def _check_slo(self, s: Snapshot, state: ControllerState) -> Decided:
        if self._monitor is None:
            return (), state, ()
        launches, monitor = self._monitor.check(s.now_s, s.recent, state.monitor)
        if launches and self._planner.replans:
            launches = tuple(c for one in launches if (c := self._beside_what_is_left(one, s, state)) is not None)
        if launches and self.replans(state):
            (rescue,) = launches
            found = self._to_be_had(rescue, s, state)
            if found is not None:
                under_way = Rescue(state.monitor, rescue.count, rescue.reason)
                return (found,), replace(state, monitor=monitor, rescue=under_way), (AgendaItem.RESCUE_ELSEWHERE,)
            launches, monitor = (), in_vain(state.monitor, s.now_s)
        return launches, state if monitor is state.monitor else replace(state, monitor=monitor), ()

    def _rescue_elsewhere(self, s: Snapshot, state: ControllerState) -> Decided:
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
        other = self._to_be_had(Launch(left.reason, usd_per_hour, own.name, left.lacking), s, state)
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
        pooled = _of_release(state, s.fleet).pooled()
        starts = any(i.offer == rescue.offer and (i.stopped_s or 0.0) <= s.now_s for i in pooled)
        if starts and state.not_resumed.get(rescue.offer, s.now_s) <= s.now_s:
            return rescue
        return self._as_stand_in(rescue, s, state)

    def _as_stand_in(self, rescue: Launch, s: Snapshot, state: ControllerState) -> Launch | None:
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

    def _beside_what_is_left(self, rescue: Launch, s: Snapshot, state: ControllerState) -> Launch | None:
        """Return the rescue less the surplus instances that an earlier rescue left; None if these suffice.

        The surplus instances were to be drained and are now kept. If the rescue did not count them, the next plan would
        end as many of its booting instances.
        """
        plan, rollout = state.plan, state.rollout
        if plan is None or (rollout is not None and rollout.stage is not releases.RolloutStage.DONE):
            return rescue
        have = self._have(state, mark_unhealthy(s.fleet, s.now_s), plan).get(rescue.offer, [])
        left = max(0, len(have) - plan.counts.get(rescue.offer, 0) - state.monitor.extra)
        if left == 0:
            return rescue
        count = rescue.count - left
        each_usd = rescue.usd_per_hour / rescue.count
        return replace(rescue, count=count, usd_per_hour=count * each_usd) if count > 0 else None

    def _watch_surge(self, s: Snapshot, state: ControllerState) -> Decided:
        """Plan again immediately if more arrives than planned; ends of instances can wait for the next tick."""
        believed = state.believed
        if believed is None or not self.corrects or state.plan is None:
            return (), state, ()
        # The plan already accounts for windows that were observed before it was made.
        fresh = min(len(s.windows_rps), round((s.now_s - state.believed_s) / WINDOW_S))
        if _surprise_rps(s, fresh, state.plan.capacity_rps) is None:  # nearly always, and cheaper than the forecast
            return (), state, ()
        mean_rps, peak_rps = float(believed.mean_at(0.5)[0]), float(believed.peak_at(0.5)[0])
        planned_rps = max(mean_rps, state.plan.capacity_rps)
        seen_rps = _surprise_rps(s, fresh, planned_rps, mean_rps=mean_rps, peak_rps=peak_rps)
        if seen_rps is None:
            return (), state, ()
        believed = condition_on_rate(believed, seen_rps)
        state = replace(state, believed=believed, believed_s=s.now_s, surprised_s=s.now_s)
        return self._ask_again(
            state, seen_rps, f"{self._resolved.service.unit.per_s(seen_rps, '.0f')} seen", shrink=False
        )

    def _upkeep(self, s: Snapshot, state: ControllerState) -> Decided:
        """End overdue, spare, doomed and drained instances, and resume standbys that bridge an interruption."""
        late = overdue(s.fleet, s.now_s)
        if late or s.fleet is not state.seen:
            numbers = {i.number for i in late}
            planned_for = _without_canaries(state, s.fleet)  # a new release that fails to boot is not the offer's fault
            boots = failed_boots.seen(state.boots, state.boots_seen_s, planned_for, s.now_s, numbers)
            if boots != state.boots:
                state = replace(state, boots=boots)
        # The time of this look matters only while an instance boots: a boot that ended between looks could be missed.
        trial = state.rollout is not None and bool(state.rollout.booting)
        if trial or any(one.booting or one.given_up for one in state.boots.values()):
            state = replace(state, boots_seen_s=s.now_s)
        commands: list[Command] = [
            Terminate(
                f"not ready {s.now_s - i.launched_s:.0f} s after its start: it never will be",
                -self._offers[i.offer].usd_per_hour,
                i.offer,
                i.number,
            )
            for i in late
        ]
        if s.fleet is state.seen and not state.leaving:
            return commands, state, ()
        fleet = mark_unhealthy(s.fleet, s.now_s)
        spares, state = self._end_spares(s, state, fleet)
        commands += spares
        planned = state.plan.counts if state.plan is not None else {}
        arriving_rps = s.last_minute_rps or 0.0
        leaving = self._handler.leave(fleet, s.now_s, planned, arriving_rps)
        gone = {c.number for c in leaving}
        bridging = [i for i in fleet.instances if i.standby and i.phase is Phase.READY and i.number not in gone]
        commands += [*leaving, *self._beyond_limits(fleet, bridging)]
        commands += self._handler.bridge(self._resumable(s, state, fleet), s.now_s, planned, arriving_rps)
        rollout = state.rollout
        old = [] if rollout is None else [i for i in fleet.instances if rollout.is_old(i)]
        commands += self._pool.drained(fleet, {*state.unfit, *(i.number for i in old)})
        state = replace(
            state,
            unfit=tuple(n for n in state.unfit if n in {i.number for i in s.fleet.instances}),
            gave_up_s=tuple(at_s for at_s in state.gave_up_s if s.now_s - at_s < PAUSE_S),
            # Keep the time at which an answer was first seen, because a round may be late.
            answered_since_s=math.inf if none_answers(s.fleet) else min(state.answered_since_s, s.now_s),
            leaving=any(
                i.phase is Phase.READY and (i.standby or i.interruption_at_s is not None or i.silent_s is not None)
                for i in fleet.instances
            ),
            # After commands, check again in the next round: if one failed, its instance still costs money.
            seen=None if commands else s.fleet,
        )
        return commands, state, (AgendaItem.REPLACE_SILENT,) if self._silent(s, state) else ()

    def _beyond_limits(self, fleet: Fleet, these: Sequence[Instance]) -> list[Command]:
        """Return the ends of instances among `these` that exceed the limits, which may have been lowered."""
        if not these:
            return []
        # Draining instances do not count, because they leave soon.
        gone = {i.number for i in fleet.instances if i.phase is Phase.DRAINING}.union(i.number for i in these)
        running = counted(replace(fleet, instances=tuple(i for i in fleet.instances if i.number not in gone)))
        commands: list[Command] = []
        for i in these:
            room, limit = self._room(running, i.offer)
            if room == 0:
                commands.append(self._end(i, str(limit)))
            else:
                running[i.offer] += 1
        return commands

    def _resumable(self, s: Snapshot, state: ControllerState, fleet: Fleet) -> Fleet:
        """Return the fleet of the release that serves, without standbys that were just refused or exceed a limit.

        An interruption notice leaves only two minutes, so refused standbys are retried sooner than instances of the
        warm pool, which a launch can replace.
        """
        fleet = _of_release(state, fleet)
        kept_back = [
            i
            for i in fleet.standbys()
            if s.now_s < state.not_resumed.get(i.offer, -math.inf) - RESUME.first_s + STANDBY.first_s
            or self._headroom(s.fleet, i.offer)[0] == 0
        ]
        if not kept_back:
            return fleet
        return replace(fleet, instances=tuple(i for i in fleet.instances if i not in kept_back))

    def _end_spares(self, s: Snapshot, state: ControllerState, fleet: Fleet) -> tuple[list[Command], ControllerState]:
        """End the plan's spare instances as soon as the others are ready, without waiting for the next tick."""
        if state.plan is None or not any(target.spare for target in state.plan.targets):
            return [], state
        have = self._have(state, _without_canaries(state, fleet), state.plan)
        ready = {offer: sum(i.phase is Phase.READY for i in instances) for offer, instances in have.items()}
        plan = without_spares(state.plan, ready, self._capacity_rps)
        if plan.counts == state.plan.counts:
            return [], state
        return self._end_excess(s, state, plan, have), replace(state, plan=plan)

    # -- silent instances ----------------------------------------------------------------------------------------------

    def _silent(self, s: Snapshot, state: ControllerState) -> tuple[Instance, ...]:
        return to_give_up(s.fleet, s.now_s, state.gave_up_s, state.answered_since_s)

    def _replace_silent(self, s: Snapshot, state: ControllerState) -> Decided:
        commands: Sequence[Command] = ()
        first: tuple[AgendaItem, ...] = ()
        if state.plan is not None:
            commands, state, first = self._follow(s, state, mark_unhealthy(s.fleet, s.now_s))
        return commands, state, (*first, AgendaItem.GIVE_UP_SILENT)

    def _give_up_silent(self, s: Snapshot, state: ControllerState) -> Decided:
        commands = []
        for i in self._silent(s, state):
            assert i.silent_s is not None
            reason = (
                f"its bouncer has not answered for {s.now_s - i.silent_s:.0f} s, though the cloud says that it runs"
            )
            commands.append(Drain(reason, -self._offers[i.offer].usd_per_hour, i.offer, i.number))
        return commands, state, (AgendaItem.COUNT_GIVEN_UP,)

    def _count_given_up(self, s: Snapshot, state: ControllerState) -> Decided:
        state = unfit(state, *(o.command.number for o in s.outcomes if isinstance(o.command, Drain)))
        drained = sum(outcome.done for outcome in s.outcomes)
        return (), replace(state, gave_up_s=(*state.gave_up_s, *(s.now_s,) * drained)), ()

    # -- releases ------------------------------------------------------------------------------------------------------

    def _roll_out(self, s: Snapshot, state: ControllerState) -> Decided:
        """Try a new release on canaries, then replace the old release by it."""
        settings, slo = self._resolved.service.rollout, self._resolved.slo
        plan = state.plan
        planned = None if plan is None else sum(plan.counts.values())
        known = state.rollout
        if known is not None and known.booting and s.now_s - state.boots_seen_s > failed_boots.LOOKS_S:
            known = replace(known, booting={})  # these may have become ready and been terminated meanwhile
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
        ends: list[Command] = [Terminate(_OLD, 0.0, i.offer, i.number) for i in fleet.pooled() if rollout.is_old(i)]
        old = [i for i in fleet.instances if rollout.is_old(i) and counts_toward_target(i)]
        have = self._have(state, fleet, plan)
        if sum(i.phase is Phase.READY for those in have.values() for i in those) >= sum(plan.counts.values()):
            bridging = [i for i in fleet.instances if i.standby and i.phase is Phase.READY and rollout.is_old(i)]
            ends += [self._end(i, _OLD) for i in bridging]
        if s.now_s < rollout.retry_s or not old:
            state = state if s.now_s < rollout.retry_s else _waiting(state, "")
            return [*ends, *self._end_excess(s, state, plan, have)], state, ()
        if limit := self._surge_limit(s, state, plan, have):
            commands: list[Command] = [*ends, *self._end_excess(s, state, plan, have)]
            if len(commands) == len(ends):
                commands += self._room_of_bad(state, fleet)
            return commands, _waiting(state, limit), ()
        followed, state, first = self._follow(s, _waiting(state, ""), fleet)
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
        return [self._end(i, reason) for i in bad[:count]]

    def _switch(self, s: Snapshot, state: ControllerState) -> Decided:
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
        if over := self._beyond_limits(fleet, there):
            return over, over[0].reason
        offer = self._to_try(s, state, plan)
        # A launch whose answer was lost may be the canary, whatever its offer.
        if there or offer is None or any(s.unsure.values()):
            return [], rollout.waits if rollout.since_s < math.inf else ""
        if s.now_s < rollout.retry_s:
            return [], rollout.waits
        most, limit = self._headroom(s.fleet, offer)
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
        for target, added in self._with_rescued(s, state, plan, have):
            there = have.get(target.offer, [])
            if not any(map(state.rollout.is_old, there)):
                continue
            most, reached = self._headroom(s.fleet, target.offer)
            if most > 0 or self._surge(state, s.fleet, target.offer, target.count + added, there):
                return None
            limit = limit or reached
        return limit

    def _surge(self, state: ControllerState, fleet: Fleet, offer: str, count: int, there: Sequence[Instance]) -> int:
        """Return how many instances beyond `count` the roll-out may have, within the limits."""
        settings = self._resolved.service.rollout
        more = releases.surge(state.rollout, count, there, settings)
        if more == 0:
            return 0
        beyond = max(0, len(there) - count)  # instances that exist already
        return min(more, beyond + self._headroom(fleet, offer)[0])

    def _headroom(self, fleet: Fleet, offer: str) -> tuple[int, Limit]:
        return self._room(counted(fleet), offer)

    def _room(self, running: Mapping[str, int], offer: str) -> tuple[int, Limit]:
        """Return how many more of the offer the limits allow beside the `running` ones, and which limit binds."""
        usd_per_hour = {name: one.usd_per_hour for name, one in self._offers.items()}
        return headroom(limits_of(self._resolved), self._offers[offer], running, usd_per_hour)

    def _let_go(self, s: Snapshot, state: ControllerState) -> Decided:
        """Drain and end leaving instances as soon as all planned instances are ready without them.

        An instance leaves because its offer may not be bought any more, or because the cloud has scheduled an event.
        """
        commands: list[Command] = []
        for i in s.fleet.leaving:
            if i.phase is Phase.DRAINING and i.idle:
                commands.append(Terminate("its queue is empty", 0.0, i.offer, i.number))
            elif i.phase in (Phase.PENDING, Phase.STOPPED):
                commands.append(Terminate(why_due(i, s.now_s) or _UNSOLD, 0.0, i.offer, i.number))
        if state.plan is None:
            return commands, state, ()
        fleet = mark_unhealthy(s.fleet, s.now_s)
        booting = any(i.phase is Phase.PENDING and counts_toward_target(i) for i in fleet.instances)
        have = self._have(state, _without_bad(state, _without_canaries(state, fleet)), state.plan)
        ready = {offer: sum(i.phase is Phase.READY for i in instances) for offer, instances in have.items()}
        counts = state.plan.counts
        serving = [i for i in s.fleet.leaving if i.phase is Phase.READY]
        going = len(serving)
        if not all(ready.get(offer, 0) >= count for offer, count in counts.items()):
            # At a limit, drain the surplus instances to make room, or one at a time without a surplus.
            missing = [offer for offer, count in counts.items() if len(have.get(offer, ())) < count]
            at_limit = any(self._headroom(s.fleet, offer)[0] == 0 for offer in missing)
            under_way = booting or any(i.phase is Phase.DRAINING for i in s.fleet.leaving)
            surplus = len(serving) + sum(ready.values()) - sum(counts.values())
            going = max(1, surplus) if at_limit and not under_way else 0
        serving.sort(key=lambda i: (i.interruption_at_s is None, i.silent_s is None, i.launched_s, i.number))
        commands += [
            Drain(why_due(i, s.now_s) or _UNSOLD, 0.0, i.offer, i.number)
            for place, i in enumerate(serving)
            if place < going or i.interruption_at_s is not None
        ]
        return commands, state, ()


def _surprise_rps(
    s: Snapshot, windows: int, expected_rps: float, *, mean_rps: float = 0.0, peak_rps: float = 0.0
) -> float | None:
    """Return the higher surprising rate, of arrivals or coming calls, in the last `windows`, or None."""
    recent_rps = s.windows_rps[max(0, len(s.windows_rps) - windows) :]
    seen = [surprise_rps(recent_rps, expected_rps, mean_rps=mean_rps, peak_rps=peak_rps)]
    if s.coming is not None:
        seen.append(s.coming.surprise_rps(windows, expected_rps))
    return max((rps for rps in seen if rps is not None), default=None)


def _planned(state: ControllerState) -> ControllerState:
    return state if state.replanning is None else replace(state, replanning=None)


def _waiting(state: ControllerState, waits: str | Limit) -> ControllerState:
    if state.rollout is None or state.rollout.waits == waits:
        return state
    return replace(state, rollout=replace(state.rollout, waits=waits))


def _without_canaries(state: ControllerState, fleet: Fleet) -> Fleet:
    """Return the fleet without canaries, which serve beside the planned instances."""
    rollout = state.rollout
    if rollout is None or rollout.stage is not releases.RolloutStage.CANARY:
        return fleet
    return replace(fleet, instances=tuple(i for i in fleet.instances if not rollout.on_trial(i)))


def _without_bad(state: ControllerState, fleet: Fleet) -> Fleet:
    """Return the fleet without instances of a release that is being rolled back: these replace no leaving ones."""
    rollout = state.rollout
    if rollout is None or not rollout.back:
        return fleet
    return replace(fleet, instances=tuple(i for i in fleet.instances if not rollout.is_old(i)))


def _served_meanwhile(state: ControllerState, fleet: Fleet) -> int:
    """Return how many leaving instances keep serving during a canary trial, and are replaced only after it.

    A replacement during the trial would run the previous release, and be replaced itself right after the trial.
    """
    rollout = state.rollout
    if rollout is None or rollout.stage is not releases.RolloutStage.CANARY:
        return 0
    return releases.serving_on(rollout, fleet)


def _of_release(state: ControllerState, fleet: Fleet) -> Fleet:
    """Return the fleet without stopped instances of other releases than the one that serves."""
    rollout = state.rollout
    if rollout is None:
        return fleet
    left = tuple(i for i in fleet.instances if i.phase is not Phase.STOPPED or i.release == rollout.release)
    return fleet if len(left) == len(fleet.instances) else replace(fleet, instances=left)


def limits_of(resolved: ResolvedService) -> Limits:
    return Limits(resolved.service.max_instances, resolved.service.max_usd_per_hour)


def from_now(forecast: Forecast, now_s: float) -> Forecast:
    """Return the next hour of a forecast on 60 s steps, without the steps before `now_s`.

    If the forecast ends earlier, because it began before `now_s`, its last step is repeated.
    """
    past = max(0, round((now_s - forecast.origin_s) / STEP_S))
    if past == 0 and forecast.steps == HORIZON_STEPS:
        return forecast
    span = np.minimum(past + np.arange(HORIZON_STEPS), forecast.steps - 1)
    return Forecast(
        now_s,
        STEP_S,
        forecast.levels,
        forecast.mean_rps[:, span],
        forecast.peak_rps[:, span],
        forecast.predictor,
        None if forecast.paths_rps is None else forecast.paths_rps[:, span],
    )


def _ending_order(planned: str) -> Callable[[Instance], tuple[float, bool, bool, float, int]]:
    """Return the sort key: fewest credits first (burstables), then booting, then stand-ins, then youngest."""

    def order(i: Instance) -> tuple[float, bool, bool, float, int]:
        credits = math.inf if i.credits is None else i.credits
        return credits, i.phase is not Phase.PENDING, i.offer == planned, -i.launched_s, -i.number

    return order


def _not_less(plan: Plan, last: Plan, live: Mapping[str, int]) -> Plan:
    """Return the plan with at least the last plan's count of each offer, as far as those instances exist."""
    least = {offer: min(count, live.get(offer, 0)) for offer, count in last.counts.items()}
    targets = tuple(replace(t, count=max(t.count, least.get(t.offer, 0))) for t in plan.targets)
    left = tuple(
        replace(t, count=least[t.offer]) for t in last.targets if t.offer not in plan.counts and least.get(t.offer, 0)
    )
    return replace(plan, targets=targets + left)


def _clustering(resolved: ResolvedService) -> float | None:
    """Return how strongly misses cluster on the cheapest lasting type; None if its late shares were not counted."""
    shares = lateness_of(resolved, buyable(resolved)).shares if resolved.offers else None
    return None if shares is None else shares.clustering(1.0 - resolved.slo.attainment)
