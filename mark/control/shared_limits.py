"""What services that share limits may each have: stages of a pipeline, whose instances and dollars are one budget.

Each keeps what it has; half of the room is for all alike, half in proportion to what they have. The sum never exceeds
the whole, also while what is decided here is not yet in force everywhere: what one is to have more of, another has
given up before.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from mark.config.pipeline_file import PipelineConfig
from mark.control.views import Limits
from mark.domain.arrays import FloatArray
from mark.domain.service import ResolvedService

# Of what a service holds: with less room than that, limits are divided anew.
_TIGHT = 0.25
_ROUNDING = 1.0 + 1e-9


@dataclass(frozen=True, slots=True)
class Holding:
    """What a service has now, and what it may have: limits that are in force."""

    instances: int
    usd_per_hour: float
    limits: Limits


def pipeline_limits(pipeline: PipelineConfig) -> Limits:
    """Of all its stages together."""
    return Limits(pipeline.fleet.max_instances, pipeline.fleet.max_usd_per_hour)


def limited(resolved: ResolvedService, limits: Limits) -> ResolvedService:
    """The same service with these limits."""
    service = replace(resolved.service, max_instances=limits.max_instances, max_usd_per_hour=limits.max_usd_per_hour)
    return replace(resolved, service=service)


def next_limits(whole: Limits, holdings: Sequence[Holding]) -> list[Limits]:
    """What each is to have from now on; what they have, while all have room for a quarter more than they hold.

    Called again once these are in force, it raises what it could not raise before. Limits below what a service holds
    are raised to that where there is room, and lowered only as far.
    """
    if len(holdings) < 2:
        return [whole] * len(holdings)
    now = [one.limits for one in holdings]
    if not any(_tight(one) for one in holdings) and _within(now, whole):
        return now
    counts = _next(
        np.array([max(1, one.instances) for one in holdings], dtype=np.float64),
        np.array([one.limits.max_instances for one in holdings], dtype=np.float64),
        float(max(whole.max_instances, len(holdings))),
        whole_numbers=True,
    )
    usd = _next(
        np.array([one.usd_per_hour for one in holdings]),
        np.array([one.limits.max_usd_per_hour for one in holdings]),
        whole.max_usd_per_hour,
    )
    return [Limits(round(count), float(most)) for count, most in zip(counts, usd, strict=True)]


def fits(whole: Limits, holdings: Sequence[Holding]) -> bool:
    """Is what they hold within the whole? Else it was lowered, or prices rose, and they have to give up some."""
    instances = sum(one.instances for one in holdings)
    usd_per_hour = sum(one.usd_per_hour for one in holdings)
    return instances <= max(whole.max_instances, len(holdings)) and usd_per_hour <= whole.max_usd_per_hour * _ROUNDING


def _next(held: FloatArray, now: FloatArray, whole: float, *, whole_numbers: bool = False) -> FloatArray:
    """Of one quantity: lowered at once, raised by what is in no limit."""
    alike = np.full(len(held), 1.0 / len(held))
    share = held / held.sum() if held.sum() > 0.0 else alike
    room = whole - held.sum()
    # Where they hold more than the whole, which was lowered then, each gives up its part.
    wanted = held + room * (share if room < 0.0 else (share + alike) / 2.0)
    if whole_numbers:
        wanted = np.maximum(1.0, np.floor(wanted + 1e-9))
    raises = np.maximum(0.0, wanted - now)
    free = max(0.0, whole - float(now.sum()))
    if raises.sum() > free:
        raises *= free / raises.sum()
        if whole_numbers:
            raises = np.floor(raises + 1e-9)
            left = round(free - float(raises.sum()))
            raises[np.argsort(-(wanted - now - raises), kind="stable")[:left]] += 1.0
    following: FloatArray = np.minimum(wanted, now) + raises
    return following


def _tight(one: Holding) -> bool:
    limits = one.limits
    return (
        one.instances + max(1.0, _TIGHT * one.instances) > limits.max_instances
        or one.usd_per_hour * (1.0 + _TIGHT) > limits.max_usd_per_hour
    )


def _within(limits: Sequence[Limits], whole: Limits) -> bool:
    return (
        sum(one.max_instances for one in limits) <= whole.max_instances
        and sum(one.max_usd_per_hour for one in limits) <= whole.max_usd_per_hour * _ROUNDING
    )
