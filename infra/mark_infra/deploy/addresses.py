"""Addresses of a site's VPC, and of its zones in it: chosen once, when they are made."""

from __future__ import annotations

import ipaddress
from collections.abc import Mapping
from typing import Any

from mark.domain.errors import BadInput

DEFAULT = "10.42.0.0/16"  # the Terraform module's, too
_PREFIX = 16  # subnets of six zones are cut out of it


def addresses(wanted: str | None, outputs: Mapping[str, Any]) -> str:
    """The range of the VPC; `outputs` are those of the site, empty before it is made.

    Raises BadInput for a range that cannot be a site's, and for another one than a site has: AWS would make the VPC
    anew, with all that is in it.
    """
    if wanted is not None:
        try:
            network = ipaddress.IPv4Network(wanted)
        except ValueError as error:
            raise BadInput(f"must be like {DEFAULT}: {error}", "cidr", wanted) from None
        if network.prefixlen != _PREFIX or not network.is_private:
            raise BadInput(f"must be a /{_PREFIX} of private addresses, like {DEFAULT}", "cidr", wanted)
        wanted = str(network)
    if not outputs:
        return wanted or DEFAULT
    there = str(outputs.get("cidr") or DEFAULT)  # sites that were made without a choice
    if wanted not in (None, there):
        raise BadInput(f"the site has {there}: only another site, by another --name, can have others", "cidr", wanted)
    return there


def zone_numbers(outputs: Mapping[str, Any]) -> dict[str, int]:
    """Which part of the VPC each zone has that the site has or had; `outputs` are those of the site.

    Sites that were deployed before these were kept have them in the order of their zones.
    """
    there = outputs.get("zone_numbers") or {zone: n for n, zone in enumerate(outputs.get("zones", ()))}
    return {zone: int(number) for zone, number in there.items()}
