"""The controller's state: one frozen value, which `decide` takes and returns and the store keeps.

The pure function `learn` updates it by an outcome, so that a refusal is an input of the next decision.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, fields
from operator import attrgetter, is_
from typing import Any

from mark.control import held_releases
from mark.control import rollout as releases
from mark.control.agenda import AgendaItem
from mark.control.boots import Boots, ended
from mark.control.held_releases import HeldRelease
from mark.control.monitor import MonitorState
from mark.control.refused_launch import Rescue
from mark.control.rollout import Rollout
from mark.control.snapshot import Outcome
from mark.domain.backoff import RESUME, ROLLOUT
from mark.domain.command import Command, Drain, Launch, Resume, Stop, Switch, Terminate
from mark.domain.copying import replace
from mark.domain.fleet import Fleet, Instance, Notice, Phase
from mark.domain.load import Forecast
from mark.domain.plan import Plan
from mark.planning.demand.slo_budget import Window
from mark.planning.market.spot import Belief


@dataclass(frozen=True, slots=True)
class Replanning:
    """A request for a new plan between ticks, at most `left` more times; without `shrink` it ends no instances."""

    reason: str
    rps: float | None
    shrink: bool
    left: int


@dataclass(frozen=True, slots=True)
class ControllerState:
    """The controller's memory between two decisions. Times are control seconds."""

    plan: Plan | None = None
    memory: Any = None  # the planner's
    window: Window | None = None  # answers in the SLO's window
    monitor: MonitorState = field(default_factory=MonitorState)
    beliefs: dict[str, Belief] = field(default_factory=dict)  # about the market, by offer
    # Number of an instance bought instead of a planned offer that was unavailable -> that offer.
    stands_for: dict[int, str] = field(default_factory=dict)
    # Offer of a stopped instance that the cloud did not start -> when to retry one of that offer.
    not_resumed: dict[str, float] = field(default_factory=dict)
    unfit: tuple[int, ...] = ()  # numbers of instances to terminate, not stop, after their drain
    notices: tuple[Notice, ...] = ()  # not answered yet
    counted_notices: int = 0  # how many of the first notices the beliefs include
    surprised_s: float = -math.inf  # when more arrived than the plan was made for
    gave_up_s: tuple[float, ...] = ()  # when silent instances were drained
    answered_since_s: float = -math.inf  # since when any instance answers; infinity while none does
    boots: dict[str, Boots] = field(default_factory=dict)  # by offer
    boots_seen_s: float = -math.inf
    ended_at_launch: tuple[int, ...] = ()  # numbers of instances whose late refusal is known
    held: dict[str, HeldRelease] = field(default_factory=dict)  # by release, "" for one without a name
    rollout: Rollout | None = None  # of the newest release; None for releases without names
    switched: str = ""  # the release that functions use while no instance is ready; "": not known
    switch_at_s: float = -math.inf  # a switch may be requested again from then on
    leaving: bool = False  # whether upkeep may have to drain an instance even if the fleet does not change
    believed: Forecast | None = None  # the forecast of the last plan
    believed_s: float = -math.inf
    seen: Fleet | None = None  # the fleet in which upkeep found nothing to do
    agenda: tuple[AgendaItem, ...] = ()  # the rest of the current round's
    deferred: tuple[Command, ...] = ()  # to carry out after the launches succeeded
    replanning: Replanning | None = None
    rescue: Rescue | None = None


# Not stored, because a new process observes them again and a forecast's paths would fill an item of the store.
_OF_THE_PROCESS = ("believed", "believed_s", "seen", "boots_seen_s", "agenda", "deferred", "replanning", "rescue")
_DURABLE = tuple(f.name for f in fields(ControllerState) if f.name not in _OF_THE_PROCESS)
_durable_of = attrgetter(*_DURABLE)
_FORGOTTEN: dict[str, Any] = {name: getattr(ControllerState(), name) for name in _OF_THE_PROCESS}


def durable(state: ControllerState) -> ControllerState:
    """Return the part of the state that a later process can use."""
    return replace(state, **_FORGOTTEN)


def is_stored(state: ControllerState, stored: ControllerState | None) -> bool:
    """Return whether `stored` holds the durable part of the state.

    Values are compared by identity, because a planner's memory may hold arrays.
    """
    return stored is not None and all(map(is_, _durable_of(state), _durable_of(stored)))


def of_offers(state: ControllerState, offers: Collection[str]) -> ControllerState:
    """Return the state without offers beyond `offers`. A plan that names one is dropped; the next tick plans again."""
    plan = state.plan
    named = () if plan is None else (*plan.targets, *plan.standbys)
    if any(target.offer not in offers for target in named):
        state = replace(state, plan=None)
    if not set(state.stands_for.values()) <= set(offers):
        state = replace(state, stands_for={n: offer for n, offer in state.stands_for.items() if offer in offers})
    return state


def not_ahead(state: ControllerState, now_s: float) -> ControllerState:
    """Return the state of another process without times in the future, which would prolong waits.

    The other process's clock may have been ahead.
    """
    monitor, rollout, answered_s = state.monitor, state.rollout, state.answered_since_s
    if monitor.launched_s is not None:
        monitor = replace(monitor, launched_s=min(monitor.launched_s, now_s))
    found = replace(
        state,
        monitor=monitor,
        beliefs={name: one.not_ahead(now_s) for name, one in state.beliefs.items()},
        not_resumed={name: RESUME.not_ahead(until_s, now_s) for name, until_s in state.not_resumed.items()},
        surprised_s=min(state.surprised_s, now_s),
        gave_up_s=tuple(at_s for at_s in state.gave_up_s if at_s <= now_s),
        answered_since_s=answered_s if answered_s == math.inf else min(answered_s, now_s),
        boots={name: replace(one, failed_s=min(one.failed_s, now_s)) for name, one in state.boots.items()},
        held=held_releases.not_ahead(state.held, now_s),
        rollout=None if rollout is None else releases.not_ahead(rollout, now_s),
        switch_at_s=ROLLOUT.not_ahead(state.switch_at_s, now_s),
    )
    return state if found == state else found


def begin_round(state: ControllerState, notices: tuple[Notice, ...]) -> ControllerState:
    """Return the state at the beginning of a round; the rest of an unfinished round is dropped and decided again."""
    if not notices and not state.agenda and not state.deferred and state.replanning is None:
        return state
    return replace(
        state, agenda=(), notices=state.notices + notices, deferred=(), replanning=None, rescue=None
    )  # fmt: skip


def learn(state: ControllerState, outcome: Outcome, now_s: float) -> ControllerState:
    """Return the state after an outcome: beliefs about the market, stand-ins, releases, and ended instances."""
    if isinstance(outcome.command, Resume):
        return _resumed(state, outcome.command, now_s, refused=outcome.refused)
    if isinstance(outcome.command, Stop) and not outcome.done:
        return unfit(state, outcome.command.number)
    if isinstance(outcome.command, Drain | Terminate):  # even without an answer: one that still boots is seen again
        boots = ended(state.boots, outcome.command.offer, outcome.command.number)
        rollout = releases.ended(state.rollout, outcome.command.number)
        if boots == state.boots and rollout is state.rollout:
            return state
        return replace(state, boots=boots, rollout=rollout)
    if isinstance(outcome.command, Switch):
        return replace(state, switched=outcome.command.release, switch_at_s=-math.inf) if outcome.done else state
    if not isinstance(outcome.command, Launch):
        return state
    if not outcome.started:
        state = replace(state, rollout=releases.unbought(state.rollout, outcome.command.release, outcome.text, now_s))
    if outcome.whole_release:
        held = held_releases.refused(state.held, outcome.command.release, outcome.text, now_s, gone=outcome.gone)
        return replace(state, held=held)
    if outcome.started and outcome.command.release in state.held:
        state = replace(state, held=held_releases.launched(state.held, outcome.command.release))
    offer = outcome.command.offer
    known = belief(state, offer, now_s)
    if outcome.refused:
        # The alternatives were unavailable too.
        put_off = dict.fromkeys((*_put_off(state, outcome, offer, now_s), *outcome.command.alternatives))
        refused = {name: belief(state, name, now_s).refused(now_s) for name in put_off}
        state = replace(state, beliefs={**state.beliefs, **refused})
    elif outcome.started and known.refusals:
        state = replace(state, beliefs={**state.beliefs, offer: known.sold()})
    return stand_in(state, outcome)


def _put_off(state: ControllerState, outcome: Outcome, offer: str, now_s: float) -> tuple[str, ...]:
    """Return the offers that a refusal puts off: its own; all in its scope if another of them was refused recently.

    A first refusal may concern one offer only, because a policy of the account may forbid one type, or a quota may have
    room for a smaller one.
    """
    own, *others = outcome.put_off or (offer,)
    again = any(known.refusals and now_s < known.until_s for name in others if (known := state.beliefs.get(name)))
    return (own, *others) if again else (own,)


def unfit(state: ControllerState, *numbers: int) -> ControllerState:
    """Return the state in which these instances are terminated, not stopped, after their drain."""
    return replace(state, unfit=tuple(sorted({*state.unfit, *numbers})))


def _resumed(state: ControllerState, command: Resume, now_s: float, *, refused: bool) -> ControllerState:
    """Return the state after a resume: the instance counts for its own offer, even if it stood in for another before.

    A refused resume delays other resumes of its offer, so that launches replace them, perhaps in a zone with capacity.
    """
    if command.number in state.stands_for:
        state = replace(state, stands_for={n: offer for n, offer in state.stands_for.items() if n != command.number})
    not_resumed = {offer: until_s for offer, until_s in state.not_resumed.items() if until_s > now_s}
    if refused:
        not_resumed[command.offer] = now_s + RESUME.first_s
    return state if not_resumed == state.not_resumed else replace(state, not_resumed=not_resumed)


def stand_in(state: ControllerState, outcome: Outcome) -> ControllerState:
    """Return the state with the instances that were started for another offer."""
    command = outcome.command
    if not isinstance(command, Launch) or command.standby or not outcome.started:
        return state
    if command.offer == outcome.planned and not command.alternatives:
        return state
    return replace(state, stands_for={**state.stands_for, **dict.fromkeys(outcome.started, outcome.planned)})


def belief(state: ControllerState, offer: str, now_s: float) -> Belief:
    return state.beliefs.get(offer) or Belief(at_s=now_s)


def counts_toward_target(instance: Instance) -> bool:
    """Return whether the instance serves or boots, is not marked as interrupted or unhealthy, and is not a standby."""
    return (
        instance.phase in (Phase.PENDING, Phase.READY) and instance.interruption_at_s is None and not instance.standby
    )


def counted_as(stands_for: Mapping[int, str], fleet: Fleet, planned: Mapping[str, int]) -> dict[int, str]:
    """Return the planned offer that each instance counts for, by number.

    A stand-in counts for the offer it replaces, unless the plan wants more of its own offer than there are.
    """
    counting = [i for i in fleet.instances if counts_toward_target(i)]
    own = Counter(i.offer for i in counting if i.number not in stands_for)
    found = {}
    for i in counting:
        found[i.number] = stands_for.get(i.number, i.offer)
        if i.number in stands_for and own[i.offer] < planned.get(i.offer, 0):
            own[i.offer] += 1
            found[i.number] = i.offer
    return found
