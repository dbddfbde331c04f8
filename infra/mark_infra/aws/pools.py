"""The pools from which CreateFleet may launch: instance types in subnets, each with its launch template.

Each platform has its own launch template. Overrides could replace image and disks in a single one, but not the user
data, which would then have to find out its platform at boot. A template version also defines an instance completely, so
a roll-back needs only its number, and programs that launch single instances (`mark profile --on`, the image builder)
use the same version.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from mark.domain.errors import CapacityError, NotFoundError, RefusalScope
from mark.domain.offer import Offer
from mark_infra.aws.platforms import platform_of
from mark_infra.aws.site import SiteService, TemplateVersion

ANY = ""  # instead of a platform: the template of all types


def templates_of(
    there: SiteService,
    release: str,
    versions: Mapping[str, str],
    platforms: Mapping[str, Mapping[str, Mapping[str, str]]],
) -> dict[str, TemplateVersion]:
    """Return the template version of a release for each platform; for `release` "" the newest of each template.

    `versions` (of the service's first template) and `platforms` are kept in the store, by release; releases from before
    there were platforms are only in `versions`. Raises NotFoundError.
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
    """Return the LaunchTemplateConfigs for these equivalent offers, in order of preference.

    An offer without a zone may be launched in all `zones` (default: the site's), in order of preference, because EC2
    always fills the same pool among pools of equal priority. Types without a template and zones without a subnet are
    left out. Raises CapacityError with the reason of the first offer if no pool is left.
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
            # A release that is the first one with this platform may be rolling out. The refusal holds in all markets
            # and zones.
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
