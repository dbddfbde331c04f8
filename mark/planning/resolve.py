"""A service after all look-ups: which offers can keep its SLO, and with which batch policy."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace
from fnmatch import fnmatchcase

from mark.domain.catalog.commitment import DISCOUNTS
from mark.domain.errors import BadInput, Infeasible
from mark.domain.function_offer import EVERY_ARM64_FUNCTION, EVERY_FUNCTION, FunctionOffer, sizes_among
from mark.domain.offer import Catalog, Market, Offer
from mark.domain.percent import exact_percent, percent
from mark.domain.profile import Candidate, Profile
from mark.domain.promise_help import PromiseHelp
from mark.domain.service import FunctionUse, ResolvedService, ServiceConfig
from mark.planning.demand.tails import tail_helps
from mark.profiling.policy import candidate, late_alone

_EVERY = (EVERY_FUNCTION, EVERY_ARM64_FUNCTION)


def resolve(service: ServiceConfig, catalog: Catalog, profiles: Mapping[str, Mapping[str, Profile]]) -> ResolvedService:
    """Return the offers that the service wants, that the model has a profile for, and that can keep the SLO, by name.

    `skipped` has all others, by instance type, with the reason, and also the functions that are not chosen. A function
    that is slower than RT_max stays if none answers in time, because a late answer is better than a refusal. If no
    offer is left but the function keeps RT_max, functions alone serve.

    Raises BadInput for a model without a profile, a function or a committed type that the catalogue lacks, or a type of
    the SLO monitor that is not among the offers; Infeasible if nothing can keep the SLO.
    """
    of_model = profiles.get(service.model)
    if of_model is None:
        where = f"{service.source or service.name} [service] model"
        what = f"no profile of this model (known: {', '.join(sorted(profiles))})"
        if service.model.startswith("registry:"):
            what += "; register the version with --profile"
        raise BadInput(what, where, service.model)
    # One answer per type, because its zones and markets differ in price and not in speed.
    function, passed_over = choose_function(service, catalog, of_model)
    by_type: dict[str, Candidate | str] = {}
    wanted_offers: list[Offer] = []
    skipped: dict[str, str] = {}
    for offer in sorted(catalog.offers, key=lambda offer: offer.name):
        if offer.retired and service.wants(replace(offer, retired=False)):
            skipped[offer.instance] = f"retired in {catalog.name}"
        if not service.wants(offer):
            continue
        if offer.instance not in by_type:
            by_type[offer.instance] = _candidate(service, of_model, offer.instance)
        found = by_type[offer.instance]
        if isinstance(found, str):
            skipped[offer.instance] = found
        else:
            wanted_offers.append(offer)
    able = {name: found for name, found in by_type.items() if isinstance(found, Candidate)}
    able = _counted(able, service, function)
    offers = [(offer, able[offer.instance]) for offer in wanted_offers]
    for pattern in service.instances:
        if not any(fnmatchcase(offer.instance, pattern) for offer in catalog.offers):
            skipped[pattern] = f"matches nothing in {catalog.name}"
    skipped |= passed_over
    committed, committed_usd_per_hour = committed_of(service, catalog)
    known = {offer.name for offer, _ in offers}
    for commitment, name in zip(service.committed, committed, strict=True):
        if name not in known:
            reason = skipped.get(commitment.instance, "the service may not buy it on demand")
            skipped[commitment.instance] = f"{reason}; {commitment.count} committed, paid for nothing"
    wanted = service.slo_monitor.instance
    if wanted is not None and wanted not in {offer.instance for offer, _ in offers}:
        reason = skipped.get(wanted, "the service may not buy it")
        raise BadInput(reason, f"{service.source or service.name} [slo_monitor] instance", wanted)
    resolved = ResolvedService(
        service=service,
        catalog=catalog,
        offers=tuple(offer for offer, _ in offers),
        candidates=tuple(found for _, found in offers),
        function=function,
        skipped=tuple(sorted(skipped.items())),
        profiles=dict(of_model),
        committed=committed,
        committed_usd_per_hour=committed_usd_per_hour,
    )
    if not offers and not resolved.functions_in_time:
        sizes = [*passed_over, *([function.offer.name] if function is not None else [])]
        raise Infeasible(_closest(service, of_model, [*by_type, *sizes]), tail_advice(service, catalog, of_model))
    return resolved


def with_batching(resolved: ResolvedService, batching: str) -> ResolvedService:
    """Return the same offers with batches closed another way; the offers that can keep the SLO stay the same."""
    service = replace(resolved.service, batching=batching)
    found = {each.profile.instance: candidate(each.profile, service.slo, batching) for each in resolved.candidates}
    able = _counted({k: one for k, one in found.items() if isinstance(one, Candidate)}, service, resolved.function)
    kept = tuple(able[each.profile.instance] for each in resolved.candidates if each.profile.instance in able)
    return replace(resolved, service=service, candidates=kept)


def affordable(resolved: ResolvedService) -> ResolvedService:
    """Return the service. Raises BadInput if its budget cannot pay for the least fleet or for the whole warm pool.

    Without a function in time the least fleet has one instance. A running controller does not ask this, because prices
    may rise.
    """
    service = resolved.service
    least, why, advice = service.min_instances, f"min_instances = {service.min_instances}", " or lower min_instances"
    if least == 0 and not resolved.functions_in_time:
        least, why, advice = 1, "one instance, and no function answers in time", ""
    pool, whole = service.warm_pool, f"warm_pool = {service.warm_pool}"
    kept = [offer for offer in resolved.offers if offer.market is Market.ON_DEMAND]
    for offers, count, fleet, otherwise in (
        (resolved.offers, least, why, advice),
        (kept, pool, whole, " or lower warm_pool"),
    ):
        cheapest = min(offers, key=lambda offer: offer.usd_per_hour, default=None)
        # 1e-9: a budget of exactly three instances must hold three.
        if cheapest is None or service.max_usd_per_hour / cheapest.usd_per_hour + 1e-9 >= count:
            continue
        enough = math.ceil(count * cheapest.usd_per_hour * 1e4 - 1e-5) / 1e4
        what = f"pays for less than {fleet} ({cheapest.name}, the cheapest, costs {cheapest.usd_per_hour:g} $/h)"
        where = f"{service.source or service.name} [fleet] max_usd_per_hour"
        raise BadInput(f"{what}: raise it to {enough:.10g}{otherwise}", where, service.max_usd_per_hour)
    return resolved


def buyable(resolved: ResolvedService) -> tuple[int, ...]:
    """Return the offers that carry the load, in name order.

    Burstables in standard mode, otherwise standbys, are among them only if there are no others.
    """
    order = sorted(range(len(resolved.offers)), key=lambda i: resolved.offers[i].name)
    steady = tuple(i for i in order if resolved.offers[i].always_full)
    return steady or tuple(order)


def committed_of(service: ServiceConfig, catalog: Catalog) -> tuple[dict[str, int], float]:
    """Return committed instances by the offer that they cover (the first by name), and their total $/h.

    That is an offer on demand or, of a burstable type, one in unlimited mode.
    """
    counts: dict[str, int] = {}
    usd_per_hour = 0.0
    for one in service.committed:
        of_type = [o for o in catalog.offers if o.instance == one.instance]
        sold = [o for o in of_type if o.market is Market.ON_DEMAND or o.unlimited]
        if not sold:
            where = f"{service.source or service.name} [fleet.committed]"
            raise BadInput(f"{catalog.name} sells no such type on demand", where, one.instance)
        offer = min(sold, key=lambda o: o.name)
        counts[offer.name] = one.count
        listed = offer.usd_per_hour * (1.0 - DISCOUNTS["1-year"])
        usd_per_hour += one.count * (listed if one.usd_per_hour is None else one.usd_per_hour)
    return counts, usd_per_hour


def profile_of(profiles: Mapping[str, Profile], instance: str) -> Profile | None:
    """Return the profile of an instance type; an `ml.*` type without its own has that of the EC2 type of the same
    name.
    """
    return profiles.get(instance) or profiles.get(instance.removeprefix("ml."))


def _candidate(service: ServiceConfig, of_model: Mapping[str, Profile], instance: str) -> Candidate | str:
    """Return the model on a type, its late shares not counted yet; or why it cannot keep the promise."""
    profile = profile_of(of_model, instance)
    if profile is None:
        return f"no profile of {service.model}"
    # A burstable is planned at full speed. In standard mode planners drain it before its credits end.
    found = candidate(profile, service.slo, service.batching)
    if isinstance(found, str):
        return found
    allowed, alone = 1.0 - service.slo.attainment, late_alone(found, service.slo.rt_max_s)
    if alone > allowed:
        late = f"{percent(alone, 2)} of the requests take longer than RT_max even where none waits"
        return f"{late}, {exact_percent(allowed, 2)} may"
    return found


def _counted(
    found: Mapping[str, Candidate], service: ServiceConfig, function: FunctionUse | None
) -> dict[str, Candidate]:
    """Return the candidates by type, each with its late shares if its service times scatter."""
    if all(one.sigma <= 0.0 for one in found.values()):
        return dict(found)
    from mark.planning.demand.late_counting import counted_types  # here, because a bouncer has no compiler

    return counted_types(found, service, function)


def choose_function(
    service: ServiceConfig, catalog: Catalog, of_model: Mapping[str, Profile]
) -> tuple[FunctionUse | None, dict[str, str]]:
    """Return the service's function, and why each other size that it may have is passed over.

    It has the cheapest request among the functions that answer within RT_max, or among all if none does. A request
    overflows when it arrives, with all of RT_max before it, so one size is the cheapest for every request. At most as
    many of its environments may work at a time as `[overflow] max_usd_per_hour` pays for. Raises BadInput for a size
    that the catalogue lacks.
    """
    offers = {name: catalog.function(name) for name in service.functions if name not in _EVERY}
    passed_over: dict[str, str] = {}
    for every in (name for name in service.functions if name in _EVERY):
        profiled = sizes_among(every, of_model)
        if not profiled:
            passed_over[every] = f"no profile of {service.model}"
        for name in profiled:
            try:
                offers[name] = catalog.function(name)
            except BadInput as error:
                passed_over[name] = error.what
    passed_over |= {name: f"no profile of {service.model}" for name in offers if name not in of_model}
    uses = [_use(offer, of_model[name]) for name, offer in offers.items() if name in of_model]
    if not uses:
        return None, passed_over
    in_time = [use for use in uses if use.warm_s <= service.slo.rt_max_s]
    chosen = min(in_time or uses, key=lambda use: (use.usd_per_request, use.warm_s))
    for use in uses:
        if use is not chosen:
            slow = in_time and use not in in_time
            passed_over[use.offer.name] = "too slow" if slow else f"dearer than {chosen.offer.name}"
    most = chosen.environments_for(service.max_function_usd_per_hour)
    if most < chosen.offer.concurrency:
        chosen = replace(chosen, offer=replace(chosen.offer, concurrency=int(most)))
    return chosen, passed_over


def function_size(service: ServiceConfig, catalog: Catalog, of_model: Mapping[str, Profile]) -> str | None:
    """Return the name of the function to run: the chosen one, or the first named if no size has a profile."""
    chosen, _ = choose_function(service, catalog, of_model)
    if chosen is not None:
        return chosen.offer.name
    return next((name for name in service.functions if name not in _EVERY), None)


def _use(offer: FunctionOffer, profile: Profile) -> FunctionUse:
    first = profile.rows[0]
    return FunctionUse(
        offer=offer,
        warm_s=profile.latency_s(1) + profile.overhead_s,
        cold_s=(first.cold_ms or 0.0) / 1e3,
        basis=first.basis,
    )


def tail_advice(service: ServiceConfig, catalog: Catalog, of_model: Mapping[str, Profile]) -> tuple[PromiseHelp, ...]:
    """Return changes with which service times alone leave room for the promise; dollars are of one instance."""
    own: dict[str, tuple[float, Profile]] = {}
    others: dict[str, tuple[float, Profile]] = {}
    for offer in sorted(catalog.offers, key=lambda offer: -offer.usd_per_hour):  # the cheapest of a type last
        profile = profile_of(of_model, offer.instance)
        if profile is None or offer.retired:
            continue
        if service.wants(offer):
            own[offer.instance] = offer.usd_per_hour, profile
        elif offer.market is Market.ON_DEMAND:
            others[offer.instance] = offer.usd_per_hour, profile
    others = {name: one for name, one in others.items() if name not in own}
    function, _ = choose_function(replace(service, functions=(EVERY_FUNCTION,)), catalog, of_model)
    return tail_helps(service, own, others, function)


def _closest(service: ServiceConfig, of_model: Mapping[str, Profile], types: list[str]) -> str:
    found = [(name, profile) for name in types if (profile := profile_of(of_model, name)) is not None]
    times = [(profile.latency_s(1) + profile.overhead_s, name) for name, profile in found]
    what = f"no offer meets the SLO of {service.name} (RT_max {service.slo.rt_max_s * 1e3:g} ms)"
    if not times:
        return f"{what}: no type it may buy has a profile of {service.model}"
    found_in_time = [
        (1.0 - late_alone(one, service.slo.rt_max_s), name)
        for name, profile in found
        if isinstance(one := candidate(profile, service.slo, service.batching), Candidate)
    ]
    if found_in_time:
        share, name = max(found_in_time)
        return (
            f"no offer meets the SLO of {service.name} ({exact_percent(service.slo.attainment, 2)} within "
            f"{service.slo.rt_max_s * 1e3:g} ms): closest is {name}, where at most {percent(share, 2)} take less "
            f"than RT_max, however many instances there are"
        )
    least_s, name = min(times)
    return f"{what}: closest is {name} with {least_s * 1e3:.1f} ms for one {service.model} request"
