"""The service's types that can be launched in the site's zones today, with a GPU that the image's driver supports."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace

from mark.domain.errors import BadInput, CloudError
from mark.domain.offer import Offer
from mark.domain.service import ResolvedService
from mark.planning.resolve import resolve
from mark_infra.aws.gate import Gate
from mark_infra.aws.price_list_api import Prices, rezoned

_MOST_ZONES = 3  # without named zones; terraform/examples/complete takes the same
_MOST_VALUES = 200  # per filter
# GPUs older than Turing, which the image's open NVIDIA driver does not support, and one AMD GPU.
_UNDRIVEN = frozenset(("p2", "p3", "p3dn", "g2", "g3", "g3s", "g4ad"))
_OLD = "aws-2019"


def site_zones(gate: Gate, named: Sequence[str]) -> tuple[str, ...]:
    """Return the zones in which a site's instances are launched. Raises CloudError."""
    if named:
        return tuple(named)
    filters = [{"Name": "opt-in-status", "Values": ["opt-in-not-required"]}, {"Name": "state", "Values": ["available"]}]
    found = gate.call(gate.client("ec2").describe_availability_zones, Filters=filters)["AvailabilityZones"]
    return tuple(sorted(zone["ZoneName"] for zone in found)[:_MOST_ZONES])


def sold(gate: Gate, types: Collection[str], zones: Sequence[str]) -> frozenset[str]:
    """Return the types that EC2 sells in at least one of the zones. Raises CloudError."""
    found: set[str] = set()
    asked = sorted(types)
    for start in range(0, len(asked), _MOST_VALUES):
        filters = [
            {"Name": "location", "Values": list(zones)},
            {"Name": "instance-type", "Values": asked[start : start + _MOST_VALUES]},
        ]
        ec2 = gate.client("ec2")
        for page in gate.pages(ec2.describe_instance_type_offerings, LocationType="availability-zone", Filters=filters):
            found |= {one["InstanceType"] for one in page["InstanceTypeOfferings"]}
    return frozenset(found & set(types))


def here(
    services: Sequence[ResolvedService], gate: Gate, named: Sequence[str], say: Callable[[str], None]
) -> list[ResolvedService]:
    """Return the services with the available types only, reporting each type that is left out with the reason.

    If EC2 does not tell which types it sells, the types are not checked, which is reported. Raises BadInput for a
    service without any type left.
    """
    types = {offer.instance for of in services for offer in of.offers}
    try:
        zones = site_zones(gate, named)
        there = sold(gate, types, zones) if types else frozenset()
    except CloudError as error:
        say(f"it is not known which types are sold there: {' '.join(str(error).split())}")
        zones, there = (), frozenset(types)
    found = []
    for of in services:
        if of.catalog.name == _OLD:
            say(f"{of.service.name}: types and prices are those of {of.catalog.priced}; aws-2026 has today's")
        absent = {t: f"not sold in {', '.join(zones)}" for t in {o.instance for o in of.offers} - there}
        found.append(without(of, absent | undriven(of.offers), say))
    return found


def offers_there(
    services: Sequence[ResolvedService], gate: Gate, region: str, named: Sequence[str], say: Callable[[str], None]
) -> dict[str, tuple[Offer, ...]]:
    """Return the offers of each service in the site's zones, by the service's name, as its controller will see them.

    A catalogue names the zones of one region. Spot is offered in the site's zones instead, at the prices of EC2's own
    history or, if EC2 does not return them, of the catalogue.
    """
    try:
        zones = site_zones(gate, named)
    except CloudError:  # already reported by `here`
        return {of.service.name: of.offers for of in services}
    refreshed = {
        name: Prices(catalog.in_zones(zones), region, ec2_gate=gate).refresh(spot_only=True)
        for name, catalog in {of.catalog.name: of.catalog for of in services}.items()
    }
    found = {}
    for of in services:
        if text := rezoned(of.catalog, zones):
            say(f"{of.service.name}: {text}")
        there = refreshed[of.catalog.name]
        if there.failed_spot:
            say(f"{of.service.name}: {there.failed_spot}; they are the catalogue's")
        types = {offer.instance for offer in of.offers}
        bought = tuple(o for o in there.sold.offers if of.service.wants(o) and o.instance in types)
        found[of.service.name] = bought or of.offers
    return found


def undriven(offers: Collection[Offer]) -> dict[str, str]:
    """Return the types whose GPUs the machine image cannot use, with the reason."""
    names = {offer.instance for offer in offers if offer.instance.partition(".")[0] in _UNDRIVEN}
    return dict.fromkeys(names, "its GPU is none that the machine image drives")


def without(of: ResolvedService, gone: Mapping[str, str], say: Callable[[str], None]) -> ResolvedService:
    """Return the service with only its other types. Raises BadInput if no type is left."""
    if not gone:
        return of
    reasons: dict[str, list[str]] = {}
    for name, reason in sorted(gone.items()):
        reasons.setdefault(reason, []).append(name)
    said = "; ".join(f"{', '.join(names)} ({reason})" for reason, names in reasons.items())
    left = sorted({offer.instance for offer in of.offers} - gone.keys())
    if not left:
        raise BadInput("none of its types can be had there", f"{of.service.source} [fleet] instances", said)
    say(f"{of.service.name}: left out {said}")
    service = replace(of.service, instances=tuple(left))
    return resolve(service, of.catalog, {service.model: of.profiles})
