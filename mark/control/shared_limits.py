"""Divide limits among services that share them: stages of a pipeline, whose instances and dollars are one budget.

Each service keeps its instances. Half of the free room is divided equally, half in proportion to the services'
instances and dollars. The sum never exceeds the whole, even while new limits are not in force everywhere, because a
service gets more only after another one has given it up.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from mark.config.pipeline_config import PipelineConfig
from mark.control.views import Limits
from mark.domain.arrays import FloatArray
from mark.domain.service import ResolvedService

# Limits are divided again if a service's room is less than this share of its present instances or dollars.
_TIGHT = 0.25
_ROUNDING = 1.0 + 1e-9


@dataclass(frozen=True, slots=True)
class Holding:
    """The instances and dollars of a service now, and its limits in force."""

    instances: int
    usd_per_hour: float
    limits: Limits


def pipeline_limits(pipeline: PipelineConfig) -> Limits:
    """Return the limits of all stages of the pipeline together."""
    return Limits(pipeline.fleet.max_instances, pipeline.fleet.max_usd_per_hour)


def limited(resolved: ResolvedService, limits: Limits) -> ResolvedService:
    """Return the service with these limits."""
    service = replace(resolved.service, max_instances=limits.max_instances, max_usd_per_hour=limits.max_usd_per_hour)
    return replace(resolved, service=service)


def next_limits(whole: Limits, holdings: Sequence[Holding]) -> list[Limits]:
    """Return the next limits of each service; the present ones while all have room for a quarter more.

    Call this again after the limits are in force, because it then raises those that it could not raise before. If there
    is room for all, no service's limits are lowered below its present instances and dollars.
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
    """Return whether the services fit in the whole. If it was lowered or prices rose, they may not."""
    instances = sum(one.instances for one in holdings)
    usd_per_hour = sum(one.usd_per_hour for one in holdings)
    return instances <= max(whole.max_instances, len(holdings)) and usd_per_hour <= whole.max_usd_per_hour * _ROUNDING


def _next(held: FloatArray, now: FloatArray, whole: float, *, whole_numbers: bool = False) -> FloatArray:
    """Return the next limits of one quantity: lowered immediately, but raised only by the free part of the whole."""
    alike = np.full(len(held), 1.0 / len(held))
    share = held / held.sum() if held.sum() > 0.0 else alike
    room = whole - held.sum()
    # If the services hold more than the whole, because it was lowered, each gives up its part.
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
