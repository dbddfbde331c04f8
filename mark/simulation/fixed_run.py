"""A whole run of a fleet that never changes: the time of each answer, and the bill."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np

from mark.domain.arrays import FloatArray
from mark.planning.policies.fixed import fixed_fleet
from mark.simulation.inputs import Inputs
from mark.simulation.parts import bill_of, cloud_of, stage_of


@dataclass(frozen=True, eq=False, slots=True)
class FixedRun:
    answer_s: FloatArray  # in the order of the arrivals
    usd: float  # the whole bill
    instances_usd: float  # the part of it for instances with their disks
    busy_share: float  # share of the workers' time


def fixed_run(
    inputs: Inputs,
    offer: str,
    count: int,
    arrivals_s: FloatArray,
    limits_s: FloatArray | None = None,
    *,
    hedge_after_s: float = math.inf,
) -> FixedRun:
    """Serve these arrivals on `count` instances of the offer, ready at second 0, without functions.

    No request is refused, as in `best_fixed`. With `limits_s`, arrivals may come after the part's end.
    """
    resolved = replace(inputs.resolved, service=replace(inputs.resolved.service, hedge_after_s=hedge_after_s))
    policy = fixed_fleet(f"fixed:{offer}={count}", {offer: count}, resolved, "given")
    stage = stage_of(inputs, policy, keep=True)
    cloud = cloud_of(inputs, policy, stage)
    cloud.start_ready(offer, count)
    at, now_s, step_s = 0, 0.0, inputs.evaluated.step_s
    answer_s = np.full(len(arrivals_s), np.inf)

    def take() -> None:
        """Take over the answers of each step, because keeping all departures of a long part would fill the memory."""
        departed = stage.departures()
        answer_s[departed.request] = departed.answer_s

    while now_s < inputs.duration_s:
        now_s = min(now_s + step_s, inputs.duration_s)
        while (event_s := cloud.next_event_s()) < now_s:
            at = stage.advance(arrivals_s, at, event_s, limits_s)
            stage.reach(event_s)
            cloud.advance(event_s)
        at = stage.advance(arrivals_s, at, now_s, limits_s)
        stage.reach(now_s)
        cloud.advance(now_s)
        take()
    stage.advance(arrivals_s, at, math.inf, limits_s)
    stage.finish()
    take()
    bill = bill_of(inputs, policy, stage, cloud)
    busy_share = stage.all_busy_s() / (count * policy.resolved.candidates[0].workers * inputs.duration_s)
    return FixedRun(answer_s, bill.total, cloud.bill(inputs.duration_s).total, busy_share)
