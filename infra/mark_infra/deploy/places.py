"""Where services are on a site's load balancers, and which of them answers requests that name none.

What was given once is kept, whatever comes and goes beside it: a rule that moves refuses requests meanwhile, and two
that change places are refused by AWS. Terraform's state remembers it, as outputs.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Collection, Mapping
from typing import TypedDict

# AWS takes 100 rules and 100 target groups on a balancer. A service has two rules, the default service one more.
MOST_SERVICES = 49
_PRIORITIES = 24_999  # a service at p has the rules 2p and 2p + 1; 50,000 is the default service's


class Place(TypedDict):
    """As Terraform's variable has it."""

    balancer: int
    priority: int


def placed(names: Collection[str], before: Mapping[str, Place]) -> dict[str, Place]:
    """The places of `names`. A service that had one `before` keeps it; others get the first balancer with room.

    There a priority follows from the name. Where another service has it already, or is new as well and comes first in
    the alphabet, it is the next free one.
    """
    places = {name: before[name] for name in names if name in before}
    services = Counter(place["balancer"] for place in places.values())
    taken = {(place["balancer"], place["priority"]) for place in places.values()}
    for name in sorted(set(names) - places.keys()):
        balancer = next(k for k in range(len(names)) if services[k] < MOST_SERVICES)
        priority = priority_of(name)
        while (balancer, priority) in taken:
            priority = priority % _PRIORITIES + 1
        places[name] = Place(balancer=balancer, priority=priority)
        services[balancer] += 1
        taken.add((balancer, priority))
    return places


def priority_of(name: str) -> int:
    """The one that terraform/examples/complete gives, too, to a service whose priority is not said."""
    return int(hashlib.sha256(name.encode()).hexdigest()[:8], 16) % _PRIORITIES + 1


def default_service(names: Collection[str], before: str | None) -> str | None:
    """A site's only service is its default, and stays so when others come. When it goes, there is none."""
    if before in names:
        return before
    return next(iter(names)) if len(names) == 1 else None
