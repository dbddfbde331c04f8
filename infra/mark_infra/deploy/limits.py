"""The maximum cost of a service, which its file must state before anything is bought."""

from __future__ import annotations

import math

from mark.domain.errors import BadInput
from mark.domain.service import ResolvedService
from mark.studies.report.words import HOURS_PER_MONTH, dollars


def check_said(of: ResolvedService) -> None:
    """Raise BadInput if the service file leaves a limit at its default, which is made for simulations."""
    service = of.service
    unsaid = [limit for limit in service.limits_unsaid if of.function is not None or "[overflow]" not in limit]
    if unsaid:
        most = dollars(most_usd_per_hour(of) * HOURS_PER_MONTH)
        raise BadInput(f"say {' and '.join(unsaid)}: by default it may cost {most} a month", service.source)


def most_usd_per_hour(of: ResolvedService) -> float:
    """Return the cost of instances and functions at their limits."""
    service, function = of.service, of.function
    dearest = max((offer.usd_per_hour for offer in of.offers), default=0.0)
    instances = min(service.max_usd_per_hour, service.max_instances * dearest)
    if function is None:
        return instances
    every = function.offer.concurrency * function.usd_per_request / function.warm_s * 3600.0
    return instances + min(service.max_function_usd_per_hour, every)


def reserved_concurrency(of: ResolvedService) -> int | None:
    """Return the function environments that the cost limit pays for; None without a function or a limit."""
    if of.function is None or math.isinf(of.service.max_function_usd_per_hour):
        return None
    return int(of.function.environments_for(of.service.max_function_usd_per_hour))
