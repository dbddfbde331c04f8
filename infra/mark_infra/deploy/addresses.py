"""Address ranges of a site's VPC and of its zones, chosen once when they are created."""

from __future__ import annotations

import ipaddress
from collections.abc import Mapping
from typing import Any

from mark.domain.errors import BadInput

DEFAULT = "10.42.0.0/16"  # the Terraform module's default, too
_PREFIX = 16  # divided into subnets for six zones


def addresses(wanted: str | None, outputs: Mapping[str, Any]) -> str:
    """Return the range of the VPC; `outputs` are the site's, empty before its first deployment.

    Raises BadInput for a range that no site can have, and for a range other than the existing site's, because AWS would
    replace the VPC and everything in it.
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
    there = str(outputs.get("cidr") or DEFAULT)  # the default of sites that were deployed without a choice
    if wanted not in (None, there):
        raise BadInput(f"the site has {there}: only another site, by another --name, can have others", "cidr", wanted)
    return there


def zone_numbers(outputs: Mapping[str, Any]) -> dict[str, int]:
    """Return the part of the VPC of each present or former zone of the site; `outputs` are the site's.

    Sites older than this output use the order of their zones.
    """
    there = outputs.get("zone_numbers") or {zone: n for n, zone in enumerate(outputs.get("zones", ()))}
    return {zone: int(number) for zone, number in there.items()}
