"""The pools that CreateFleet may launch from: types in subnets, each with the launch template that it boots by.

There is a launch template for each platform, and not one whose image and disks are replaced by overrides, which an
instant fleet takes, too. User data cannot differ by override: it would have to find out at boot for which of its
packages it runs. And a version of a template has all that an instance becomes, so a roll-back needs no more than its
number, and what launches a single instance (`mark profile --on`, a builder of images) gets the same one.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from mark.domain.errors import CapacityError, NotFoundError, RefusalScope
from mark.domain.offer import Offer
from mark_infra.aws.platforms import platform_of
from mark_infra.aws.site import SiteService, TemplateVersion

ANY = ""  # instead of a platform: all types boot by this template


def templates_of(
    there: SiteService,
    release: str,
    versions: Mapping[str, str],
    platforms: Mapping[str, Mapping[str, Mapping[str, str]]],
) -> dict[str, TemplateVersion]:
    """By platform, what instances of a release boot by; `release` "" is the newest of each template.

    `versions` of the service's first template and `platforms` are what the store has, by release; what was released
    before there were platforms is only in the first. Raises NotFoundError.
    """
    if not release:
        newest = {name: TemplateVersion(one.launch_template, "$Latest") for name, one in there.platforms.items()}
        return newest or {ANY: TemplateVersion(there.launch_template, "$Latest")}
    if release in platforms:
        return {name: TemplateVersion(**one) for name, one in platforms[release].items()}
    if release in versions:
        return {ANY: TemplateVersion(there.launch_template, versions[release])}
    raise NotFoundError(f"no version of the launch template is known for release {release}")


def launch_configs(
    there: SiteService,
    offers: Sequence[Offer],
    templates: Mapping[str, TemplateVersion],
    site: str,
    zones: Sequence[str] = (),
) -> list[dict[str, Any]]:
    """LaunchTemplateConfigs for these offers, which do equally well: the first is wanted most.

    An offer without a zone may be launched in all `zones` (default: the site's), the first of them wanted most: EC2
    fills the pool of the best priority, and of equal ones always the same. Types for which there is no template, and
    zones without a subnet, are left out. Raises CapacityError where nothing is left, with the reason of the first
    offer.
    """
    pools: dict[TemplateVersion, list[dict[str, Any]]] = {}
    reasons: list[CapacityError] = []
    all_zones = zones or list(there.subnets)
    priority = 0
    for offer in offers:
        platform = platform_of(offer.instance, offer.gpus).name
        template = templates.get(platform) or templates.get(ANY)
        own = [zone for zone in ([offer.zone] if offer.zone else all_zones) if zone in there.subnets]
        if template is None:
            # While a release is rolled out that is the first with such types, say: none has it in any market or zone.
            what = f"site {site} has nothing that {offer.instance} boots from in this release ({platform})"
            reasons.append(CapacityError(what, RefusalScope.TYPE))
        elif not own:
            reasons.append(CapacityError(f"site {site} has no subnet in {offer.zone}"))
        else:
            for zone in own:
                pool = {"InstanceType": offer.instance, "SubnetId": there.subnets[zone], "Priority": float(priority)}
                pools.setdefault(template, []).append(pool)
                priority += 1
    if not pools:
        raise reasons[0]
    return [
        {
            "LaunchTemplateSpecification": {"LaunchTemplateId": one.launch_template, "Version": one.version},
            "Overrides": overrides,
        }
        for one, overrides in pools.items()
    ]
