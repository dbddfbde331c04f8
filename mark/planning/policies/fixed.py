"""`fixed:c5.xlarge=10,p2.xlarge=2`: a user's present fleet, with neither bouncers nor functions."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import replace

import numpy as np

from mark.domain.errors import BadInput
from mark.domain.function_offer import is_function
from mark.domain.load import Load
from mark.domain.offer import Market, Offer
from mark.domain.plan import Target
from mark.domain.profile import Candidate
from mark.domain.service import ResolvedService
from mark.planning.planner import Policy
from mark.planning.policies.static import Static, cheapest_fleet
from mark.planning.policies.target_tracking import NO_LIMIT_USD_PER_HOUR
from mark.planning.resolve import profile_of
from mark.profiling.policy import candidate, unbatched

MOST = 10_000  # instances; more is a typing error
_MARKETS = (Market.ON_DEMAND, Market.BURSTABLE, Market.SPOT, Market.SAGEMAKER)


def fixed(name: str, resolved: ResolvedService) -> Policy:
    """Return the policy `fixed:...`. An instance type is bought in the service's markets.

    Raises BadInput for a fleet that cannot be read, bought or profiled.
    """
    counts: dict[str, int] = {}
    for instance, count in counted(name.removeprefix("fixed:"), f"policy {name}").items():
        found = offer_named(instance, resolved, resolved.service.markets)[0].name
        if found in counts:
            raise BadInput("the same instances twice", f"policy {name}", instance)
        counts[found] = count
    return fixed_fleet(name, counts, resolved, "fixed by the user")


def fixed_fleet(
    name: str, counts: Mapping[str, int], resolved: ResolvedService, reason: str, notes: tuple[str, ...] = ()
) -> Policy:
    """Return a policy that holds `counts` (by offer or instance type), whatever limits and markets the service names.

    Raises BadInput for offers that the catalogue or the profiles lack.
    """
    pairs = [offer_named(offer, resolved) for offer in counts]
    targets = tuple(
        Target(offer, count, f"{reason}, {count * sold.usd_per_hour:.2f} $/h")
        for (offer, count), (sold, _) in zip(counts.items(), pairs, strict=True)
    )
    capacity_rps = sum(n * able.capacity_rps for n, (_, able) in zip(counts.values(), pairs, strict=True))
    return Policy(Static(name, targets, capacity_rps, notes), without_functions(resolved, pairs), bouncers=False)


def fixed_for_peak(name: str, resolved: ResolvedService, evaluated: Load, notes: tuple[str, ...] = ()) -> Policy:
    """Return the fixed fleet of one type with the smallest bill that has the capacity of the highest minute.

    This is `best-fixed` before any simulation. Raises Infeasible without an instance to buy.
    """
    peak_rps = float(np.nan_to_num(evaluated.mean_rps).max(initial=0.0))
    offer, count = cheapest_fleet(resolved, peak_rps)
    reason = f"for the highest minute, {resolved.service.unit.per_s(peak_rps, '.1f')}"
    return fixed_fleet(name, {offer.name: count}, resolved, reason, notes)


def counted(fleet: str, where: str) -> dict[str, int]:
    """Parse `INSTANCE=COUNT[,INSTANCE=COUNT...]` to counts by name; raises BadInput."""
    counts: dict[str, int] = {}
    for part in fleet.split(","):
        instance, equals, count = (text.strip() for text in part.partition("="))
        if not instance or not equals:
            raise BadInput("write INSTANCE=COUNT[,INSTANCE=COUNT...]", where, fleet)
        if not (count.isascii() and count.isdigit() and 1 <= int(count[:9]) <= MOST):
            raise BadInput(f"a count is a whole number from 1 to {MOST:,}", where, count)
        if instance in counts:
            raise BadInput("the same instances twice", where, instance)
        counts[instance] = int(count)
    return counts


def offer_named(
    wanted: str, resolved: ResolvedService, markets: Collection[Market] = tuple(Market), where: str = "policy"
) -> tuple[Offer, Candidate]:
    """Return an offer of the catalogue by its name or instance type, and the model on it, even if it misses the SLO.

    An instance type means on-demand if that is sold in `markets`. Burstable types count as on-demand, and SageMaker's
    names allow no other market. Raises BadInput, which says that `where` names the offer.
    """
    named = [o for o in resolved.catalog.offers if wanted in (o.instance, o.name)]
    if not named:
        names = sorted({name for o in resolved.catalog.offers for name in (o.instance, o.name)})
        raise BadInput(f"{resolved.catalog.name} has no such instance", where, wanted, known=names)
    allowed = {Market.SAGEMAKER, *markets, *((Market.BURSTABLE,) if Market.ON_DEMAND in markets else ())}
    sold = [o for o in named if wanted == o.name or o.market in allowed]
    if not sold:
        others = " or ".join(sorted({str(o.market) for o in named}))
        raise BadInput(
            f"is sold as {others}, not as {' or '.join(map(str, markets))}; {named[0].name} names that offer",
            where,
            wanted,
        )
    offer = min(sold, key=lambda o: (_MARKETS.index(o.market), o.name))
    if offer.retired:
        raise BadInput("retired: it can no longer be bought", where, wanted)
    profile = profile_of(resolved.profiles, offer.instance)
    if profile is None:
        known = ", ".join(sorted(i for i in resolved.profiles if not is_function(i)))
        raise BadInput(f"{resolved.service.model} has no profile on it (there is one on {known})", where, wanted)
    able = candidate(profile, resolved.slo, resolved.service.batching)
    return offer, unbatched(profile, resolved.slo) if isinstance(able, str) else able


def without_functions(resolved: ResolvedService, pairs: list[tuple[Offer, Candidate]]) -> ResolvedService:
    """Return the resolved service with just these offers, with no functions and no limits of ours."""
    return replace(
        resolved,
        service=replace(
            resolved.service,
            markets=tuple(sorted({offer.market for offer, _ in pairs})),
            instances=tuple(sorted({offer.instance for offer, _ in pairs})),
            functions=(),
            max_instances=MOST * len(pairs),
            max_usd_per_hour=NO_LIMIT_USD_PER_HOUR,
        ),
        offers=tuple(offer for offer, _ in pairs),
        candidates=tuple(able for _, able in pairs),
        function=None,
        skipped=(),
    )
