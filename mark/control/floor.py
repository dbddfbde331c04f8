"""The floor: the fewest replicas that a service needs by its controller's plan, for another autoscaler to keep.

A floor only raises: the other autoscaler takes the highest of several wishes. It vanishes when it is stale, so that a
controller that hangs, or that no longer sees the load, leaves the other autoscaler alone.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from mark.control.state import ControllerState
from mark.domain.offer import Offer
from mark.domain.time import STEP_S

STALE_S = 3.0 * STEP_S  # three rounds: a single late answer of Prometheus is normal


@dataclass(frozen=True, slots=True)
class Floor:
    """At least `replicas` of `offer`, which cost `usd_per_hour` together.

    `age_s` is the age of the plan or of the newest observation of the load, whichever is older.
    """

    service: str
    offer: str
    replicas: int
    reason: str
    usd_per_hour: float
    age_s: float


def floors(
    service: str,
    offers: Sequence[Offer],
    state: ControllerState,
    *,
    now_s: float,
    seen_s: float,
    max_instances: int,
    per_instance: int = 1,
) -> tuple[Floor, ...]:
    """One floor for each offer; none where no plan is younger than STALE_S, or the load was seen last before that.

    What the SLO monitor added counts, up to `max_instances` in all. `seen_s` is when the load was seen last, and
    `per_instance` replicas run on each instance of the plan.
    """
    plan = state.plan
    if plan is None:
        return ()
    ages_s = (now_s - plan.at_s, now_s - seen_s)
    # A plan from after now was made by a clock that has been set back meanwhile.
    if not all(-STEP_S <= age_s <= STALE_S for age_s in ages_s):
        return ()
    age_s = max(0.0, *ages_s)
    targets = {target.offer: target for target in plan.targets}
    monitor = state.monitor
    room = max(0, max_instances - sum(plan.counts.values()))
    added = min(monitor.extra_at(now_s), room)
    found = []
    for offer in offers:
        target = targets.get(offer.name)
        planned = 0 if target is None else target.count
        extra = added if offer.name == monitor.offer else 0
        reason = "the plan needs none of it" if target is None else target.reason
        if extra > 0:
            reason = f"{reason}; {extra} more because too many answers are late"
        count = planned + extra
        usd_per_hour = count * offer.usd_per_hour
        found.append(Floor(service, offer.name, count * per_instance, reason, usd_per_hour, age_s))
    return tuple(found)
