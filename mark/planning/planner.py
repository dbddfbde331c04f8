"""The port every policy implements: snapshot and memory in, plan and new memory out."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np

from mark.domain.arrays import FloatArray
from mark.domain.fleet import Fleet
from mark.domain.load import Forecast
from mark.domain.plan import Plan
from mark.domain.service import ResolvedService
from mark.domain.time import STEP_S
from mark.planning.demand.slo_budget import Answered
from mark.planning.market.spot import Belief


@dataclass(frozen=True, slots=True)
class PlanningContext:
    """The input of a policy. Rates in requests/s; offers by name.

    `first` is true for the plan of the first fleet (warm start): no instance runs yet, and all planned instances are
    ready immediately, so lead times do not count. `last_minute_rps` is None before the first observation (or in a gap),
    `windows_rps` are the rates of that minute's 5 s windows, the newest last, NaN where nothing was observed.
    `in_flight` requests wait or are served now; None: not known.

    `utilization` is the busy share of the ready instances of an offer over the last minute. `beliefs` are the
    observations of an offer's market; an offer without one was never refused nor interrupted. `answered` counts the
    answers in the SLO's window so far.
    """

    now_s: float
    resolved: ResolvedService
    fleet: Fleet
    forecast: Forecast | None = None  # on 60 s steps, the first of which begins at now_s
    last_minute_rps: float | None = None
    utilization: Mapping[str, float] = field(default_factory=dict)
    first: bool = False
    beliefs: Mapping[str, Belief] = field(default_factory=dict)
    answered: Answered = field(default_factory=Answered)
    windows_rps: FloatArray = field(default_factory=lambda: np.empty(0))
    in_flight: int | None = None


class Planner(Protocol):
    """The port of a policy. Pure: equal arguments, equal results; the memory belongs to the caller and is never
    mutated.
    """

    name: str
    needs_forecast: bool
    monitors_slo: bool  # whether the controller's SLO monitor acts beside it
    # Whether it may plan again between ticks, if more load arrives than believed, an instance is interrupted or the
    # market refuses a launch. If not, the controller buys the nearest offer itself.
    replans: bool

    def begin(self) -> Any:
        """Return the memory of a policy that has not planned yet."""

    def plan(self, context: PlanningContext, memory: Any) -> tuple[Plan, Any]:
        """Return a plan and the new memory. Raises Infeasible only if no offer of the resolved service can keep the
        SLO.
        """


@dataclass(frozen=True, slots=True)
class Policy:
    """A planner with the resolved service it plans for.

    `resolved` may differ from the service's own: SageMaker policies buy ml.* types, unbatched, without functions.
    `bouncers`: whether there is admission control; otherwise every request waits in an unbounded queue. `every_s`: how
    often a simulation asks the planner, a whole part of a minute; forecasts are made once a minute.
    """

    planner: Planner
    resolved: ResolvedService
    bouncers: bool
    every_s: float = STEP_S
