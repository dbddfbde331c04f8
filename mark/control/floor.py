"""The floor: the fewest replicas that a service needs by its controller's plan, for another autoscaler to keep.

A floor only raises the number of replicas, because the other autoscaler takes the highest of all numbers. A stale
floor vanishes, so that a controller that hangs or no longer sees the load leaves the other autoscaler alone.
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
    """A request for at least `replicas` of `offer`, which cost `usd_per_hour` together.

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
    """Return one floor for each offer; none if the plan or the last look at the load is older than STALE_S.

    The SLO monitor's instances count, up to `max_instances` in all. `seen_s` is the time of the last look at the load,
    and `per_instance` replicas run on each instance of the plan.
    """
    plan = state.plan
    if plan is None:
        return ()
    ages_s = (now_s - plan.at_s, now_s - seen_s)
    # A plan from the future was made before the clock was set back.
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
