"""The promise that service times alone allow: the share in time of requests that never wait, and changes that
raise it.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace
from statistics import NormalDist

from mark.domain.profile import Candidate, Profile
from mark.domain.promise_help import HelpKind, PromiseHelp
from mark.domain.service import FunctionUse, ServiceConfig
from mark.domain.slo import LONGEST_RT_MAX_S, Slo
from mark.profiling.policy import candidate, late_alone

# Service times alone may use this share of the allowed late requests: the rest is for waiting.
ROOM = 0.75
_TYPES = 2  # number of types that are named
_TOLD = 1e-4  # shares are given to a hundredth of a per cent

Sold = Mapping[str, tuple[float, Profile]]  # by instance type: dollars an hour, and the model on it


def share_alone(profile: Profile, slo: Slo, batching: str) -> float | None:
    """Return the share in time of requests that never wait; None if the mean alone is too long."""
    found = candidate(profile, slo, batching)
    return 1.0 - late_alone(found, slo.rt_max_s) if isinstance(found, Candidate) else None


def fewest_requests(slo: Slo, share_late: float) -> float:
    """Return the fewest requests in a window for which chance breaks the promise no more often than its confidence
    allows.

    `share_late` of them are late, independently; infinite if that uses up the allowed share.
    """
    spare = 1.0 - slo.attainment - share_late
    if spare <= 0.0:
        return math.inf
    return NormalDist().inv_cdf(slo.confidence) ** 2 * share_late * (1.0 - share_late) / spare**2


def tail_helps(
    service: ServiceConfig, own: Sold, others: Sold, function: FunctionUse | None
) -> tuple[PromiseHelp, ...]:
    """Return changes with which some type can keep a promise that no type keeps now; dollars are of one instance.

    `own` may be bought, `others` may not, and `function` would answer in time.
    """
    slo, batching = service.slo, service.batching
    allowed = 1.0 - slo.attainment
    helps = []
    least = min(((_least_s(one, slo, batching), usd, name) for name, (usd, one) in own.items()), default=None)
    if least is not None and math.isfinite(least[0]):
        least_s, usd, name = least
        longer_s = least_s - slo.rt_max_s
        helps.append(PromiseHelp(HelpKind.RT_MAX, None, usd, instance=name, rt_max_s=least_s, longer_s=longer_s))
    able = []
    for name, (usd, one) in others.items():
        share = share_alone(one, slo, batching)
        if share is not None and 1.0 - share <= ROOM * allowed:
            able.append((usd, name))
    helps += [PromiseHelp(HelpKind.TYPE, None, usd, instance=name) for usd, name in sorted(able)[:_TYPES]]
    if function is not None and function.warm_s <= slo.rt_max_s:
        helps.append(PromiseHelp(HelpKind.FUNCTION, None, None, instance=function.offer.name))
    shares = [(share, -usd, name) for name, (usd, one) in own.items() if (share := share_alone(one, slo, batching))]
    if shares:
        share, usd, name = max(shares)
        kept = round(math.floor((1.0 - (1.0 - share) / ROOM) / _TOLD) * _TOLD, 4)
        if kept > 0.0:
            helps.append(PromiseHelp(HelpKind.ATTAINMENT, None, -usd, instance=name, attainment=kept))
    return tuple(helps)


def _least_s(profile: Profile, slo: Slo, batching: str) -> float:
    """Return the least RT_max, in whole milliseconds, at which requests that never wait leave room; else infinite."""
    late = ROOM * (1.0 - slo.attainment)
    deviations = NormalDist().inv_cdf(1.0 - late)
    sigma, least_s = 0.0, slo.rt_max_s
    for _ in range(len(profile.rows) + 2):  # a longer RT_max allows larger batches, whose times may scatter more
        room_s = profile.latency_s(1) * max(1.0, math.exp(deviations * sigma - 0.5 * sigma * sigma))
        least_s = max(least_s, math.ceil((profile.overhead_s + room_s) * 1e3 - 1e-6) / 1e3)
        if least_s >= LONGEST_RT_MAX_S:
            break
        found = candidate(profile, replace(slo, rt_max_s=least_s), batching)
        if isinstance(found, Candidate):
            if late_alone(found, least_s) <= late:
                return least_s
            sigma = found.sigma
    return math.inf
