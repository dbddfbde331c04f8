"""Decide: take a snapshot and the state, return commands and the new state. No port, clock, store or randomness."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Mapping, Sequence

import numpy as np

from mark.control import boots as failed_boots
from mark.control import held_releases
from mark.control import rollout as releases
from mark.control.agenda import AgendaItem
from mark.control.coming_calls import higher_windows_rps
from mark.control.health import PAUSE_S, mark_unhealthy, none_answers, overdue, to_give_up
from mark.control.interruption import InterruptionHandler
from mark.control.monitor import default_offer
from mark.control.plan_follower import Decided, PlanFollower, of_release, without_canaries
from mark.control.ports import WINDOW_S
from mark.control.rescue_steps import RescueSteps
from mark.control.rollout_steps import RolloutSteps
from mark.control.scheduled_events import why_due
from mark.control.snapshot import Snapshot
from mark.control.state import ControllerState, Replanning, belief, counts_toward_target, unfit
from mark.control.traffic_envelope import surprise_rps, with_usual_peaks
from mark.control.warm_pool import WarmPool
from mark.domain.backoff import RESUME, STANDBY
from mark.domain.command import Command, Drain, Launch, Terminate
from mark.domain.copying import replace
from mark.domain.fleet import Fleet, Instance, Phase
from mark.domain.load import Forecast
from mark.domain.offer import Market
from mark.domain.plan import Plan, Target
from mark.domain.time import STEP_S
from mark.planning.demand.slo_budget import Window
from mark.planning.market.near_equal import near_equal
from mark.planning.market.spot import Belief
from mark.planning.planner import PlanningContext, Policy
from mark.traffic.forecast.conditioning import condition_on_rate

HORIZON_STEPS = 60  # one minute each
LATEST = 4  # windows that show the present load
_UNSOLD = "the service may not buy it any more, and its replacement is ready"


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
        self._handler = InterruptionHandler(policy.resolved)
        self._pool = WarmPool(policy.resolved)
        self._follower = PlanFollower(policy)
        self.replans = self._follower.replans
        self._rescues = RescueSteps(policy, self._follower)
        self._rollouts = RolloutSteps(policy.resolved, self._follower)
        self._stages: dict[AgendaItem, Callable[[Snapshot, ControllerState], Decided]] = {
            AgendaItem.PLAN_FIRST: self._plan_first,
            AgendaItem.PLAN: self._plan_minute,
            AgendaItem.REPLAN: self._replan,
            AgendaItem.SETTLE: self._settle,
            AgendaItem.NOTICES: self._answer_notices,
            AgendaItem.NOTICES_ANSWERED: self._forget_notices,
            AgendaItem.MONITOR: self._rescues.check,
            AgendaItem.RESCUE_ELSEWHERE: self._rescues.elsewhere,
            AgendaItem.SURGE: self._watch_surge,
            AgendaItem.UPKEEP: self._upkeep,
            AgendaItem.REPLACE_SILENT: self._replace_silent,
            AgendaItem.GIVE_UP_SILENT: self._give_up_silent,
            AgendaItem.COUNT_GIVEN_UP: self._count_given_up,
            AgendaItem.ROLL_OUT: self._rollouts.roll_out,
            AgendaItem.SWITCH: self._rollouts.switch,
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
        fleet = of_release(state, s.fleet)
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

    # -- plan ----------------------------------------------------------------------------------------------------------

    def _plan_first(self, s: Snapshot, state: ControllerState) -> Decided:
        """Plan the first fleet within the limits; the simulator makes all of it ready at once."""
        state = replace(state, believed=s.forecast, believed_s=s.now_s)
        plan, state = self._plan(s, state, s.fleet, s.forecast, s.last_minute_rps, first=True)
        targets, notes = [], plan.notes
        counts: Counter[str] = Counter()
        for target in plan.targets:
            most, limit = self._follower.room(counts, target.offer)
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
        return self._follower.follow(s, state, fleet)

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
        return self._follower.follow(s, replace(state, plan=plan), fleet)

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
        fleet = without_canaries(state, fleet)
        hidden: set[int] = set()
        for offer, instances in self._follower.by_planned_offer(state, fleet, state.plan).items():
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

        Some planners do not count them, and others cannot buy them at present.
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
        return self._raised(s.forecast, seen_rps), replace(state, surprised_s=s.now_s)

    def _raised(self, forecast: Forecast, rate_rps: float) -> Forecast:
        """Return the forecast given the present rate."""
        raised = condition_on_rate(forecast, rate_rps)
        # All peaks have risen by the factor of the median, so those of quantiles that foresaw the surge are too high.
        # This matters where requests beyond the capacity are late, because their price buys instances for any peak.
        return raised if self._resolved.functions_in_time else with_usual_peaks(raised, forecast)

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
        have = (
            self._follower.by_planned_offer(state, without_canaries(state, fleet), state.plan)
            if state.plan is not None
            else {}
        )
        missing = {offer: count - len(have.get(offer, ())) for offer, count in planned.items()}
        commands = self._handler.on_notices(notices, of_release(state, fleet), missing, state.stands_for, s.now_s)
        again: tuple[AgendaItem, ...] = ()
        if replans:
            _, state, again = self._ask_again(state, s.last_minute_rps, f"{len(notices)} interrupted")
        return commands, state, (*again, AgendaItem.NOTICES_ANSWERED)

    def _forget_notices(self, s: Snapshot, state: ControllerState) -> Decided:
        return (), replace(state, notices=(), counted_notices=0), ()

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
        believed = self._raised(believed, seen_rps)
        state = replace(state, believed=believed, believed_s=s.now_s, surprised_s=s.now_s)
        return self._ask_again(
            state, seen_rps, f"{self._resolved.service.unit.per_s(seen_rps, '.0f')}, above the forecast", shrink=False
        )

    def _upkeep(self, s: Snapshot, state: ControllerState) -> Decided:
        """End overdue, spare, doomed and drained instances, and resume standbys that bridge an interruption."""
        late = overdue(s.fleet, s.now_s)
        if late or s.fleet is not state.seen:
            numbers = {i.number for i in late}
            planned_for = without_canaries(state, s.fleet)  # a new release that fails to boot is not the offer's fault
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
        spares, state = self._follower.end_spares(s, state, fleet)
        commands += spares
        planned = state.plan.counts if state.plan is not None else {}
        arriving_rps = s.last_minute_rps or 0.0
        leaving = self._handler.leave(fleet, s.now_s, planned, arriving_rps)
        gone = {c.number for c in leaving}
        bridging = [i for i in fleet.instances if i.standby and i.phase is Phase.READY and i.number not in gone]
        commands += [*leaving, *self._follower.beyond_limits(fleet, bridging)]
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

    def _resumable(self, s: Snapshot, state: ControllerState, fleet: Fleet) -> Fleet:
        """Return the fleet of the release that serves, without standbys that were just refused or exceed a limit.

        An interruption notice leaves only two minutes, so refused standbys are retried sooner than instances of the
        warm pool, which a launch can replace.
        """
        fleet = of_release(state, fleet)
        kept_back = [
            i
            for i in fleet.standbys()
            if s.now_s < state.not_resumed.get(i.offer, -math.inf) - RESUME.first_s + STANDBY.first_s
            or self._follower.headroom(s.fleet, i.offer)[0] == 0
        ]
        if not kept_back:
            return fleet
        return replace(fleet, instances=tuple(i for i in fleet.instances if i not in kept_back))

    # -- silent instances ----------------------------------------------------------------------------------------------

    def _silent(self, s: Snapshot, state: ControllerState) -> tuple[Instance, ...]:
        return to_give_up(s.fleet, s.now_s, state.gave_up_s, state.answered_since_s)

    def _replace_silent(self, s: Snapshot, state: ControllerState) -> Decided:
        commands: Sequence[Command] = ()
        first: tuple[AgendaItem, ...] = ()
        if state.plan is not None:
            commands, state, first = self._follower.follow(s, state, mark_unhealthy(s.fleet, s.now_s))
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
        have = self._follower.by_planned_offer(state, _without_bad(state, without_canaries(state, fleet)), state.plan)
        ready = {offer: sum(i.phase is Phase.READY for i in instances) for offer, instances in have.items()}
        counts = state.plan.counts
        serving = [i for i in s.fleet.leaving if i.phase is Phase.READY]
        going = len(serving)
        if not all(ready.get(offer, 0) >= count for offer, count in counts.items()):
            # At a limit, drain the surplus instances to make room, or one at a time without a surplus.
            missing = [offer for offer, count in counts.items() if len(have.get(offer, ())) < count]
            at_limit = any(self._follower.headroom(s.fleet, offer)[0] == 0 for offer in missing)
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


def _without_bad(state: ControllerState, fleet: Fleet) -> Fleet:
    """Return the fleet without instances of a release that is being rolled back: these replace no leaving ones."""
    rollout = state.rollout
    if rollout is None or not rollout.back:
        return fleet
    return replace(fleet, instances=tuple(i for i in fleet.instances if not rollout.is_old(i)))


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


def _not_less(plan: Plan, last: Plan, live: Mapping[str, int]) -> Plan:
    """Return the plan with at least the last plan's count of each offer, as far as those instances exist."""
    least = {offer: min(count, live.get(offer, 0)) for offer, count in last.counts.items()}
    targets = tuple(replace(t, count=max(t.count, least.get(t.offer, 0))) for t in plan.targets)
    left = tuple(
        replace(t, count=least[t.offer]) for t in last.targets if t.offer not in plan.counts and least.get(t.offer, 0)
    )
    return replace(plan, targets=targets + left)
