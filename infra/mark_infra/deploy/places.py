"""Where services are on a site's load balancers, and which of them answers requests that name none.

What was given once is kept, whatever comes and goes beside it: a rule that moves refuses requests meanwhile, and two
that change places are refused by AWS. Terraform's state remembers it, as outputs.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Collection, Mapping
from typing import NotRequired, TypedDict

# AWS takes 100 rules and 100 target groups on a balancer. A service has two rules, the default service one more; and a
# target group for each class of capacity, and one for its function. By gRPC it has a rule and as many groups more.
MOST_SERVICES, MOST_GROUPS = 49, 100
MOST_GRPC_SERVICES = 33
_PRIORITIES = 24_999  # a service at p has the rules 2p and 2p + 1; 50,000 is the default service's


class Place(TypedDict):
    """As Terraform's variable has it."""

    balancer: int
    priority: int
    target_groups: NotRequired[int]  # of sites that were deployed with one: left out


def placed(
    names: Collection[str],
    before: Mapping[str, Place],
    classes: Mapping[str, int] | None = None,
    *,
    grpc: bool = False,
) -> dict[str, Place]:
    """The places of `names`. A service that had one `before` keeps it; others get the first balancer with room.

    There a priority follows from the name. Where another service has it already, or is new as well and comes first in
    the alphabet, it is the next free one. A service has as many target groups as it has `classes` of capacity (one
    unless said): more if it had more, as none is ever taken away, and fewer where its balancer has no room for them.
    """
    wanted, each, most = classes or {}, 2 if grpc else 1, MOST_GRPC_SERVICES if grpc else MOST_SERVICES
    places = {
        name: Place(
            balancer=before[name]["balancer"],
            priority=before[name]["priority"],
            target_groups=before[name].get("target_groups", 1),
        )
        for name in names
        if name in before
    }
    services: Counter[int] = Counter()
    groups: Counter[int] = Counter()
    for place in places.values():
        services[place["balancer"]] += 1
        groups[place["balancer"]] += each * place["target_groups"] + 1
    for name in sorted(places):
        place = places[name]
        room = (MOST_GROUPS - groups[place["balancer"]]) // each
        more = max(0, min(wanted.get(name, 1) - place["target_groups"], room))
        place["target_groups"] += more
        groups[place["balancer"]] += each * more
    taken = {(place["balancer"], place["priority"]) for place in places.values()}
    for name in sorted(set(names) - places.keys()):
        count = wanted.get(name, 1)
        balancer = next(
            k for k in range(len(names) + 1) if services[k] < most and groups[k] + each * count + 1 <= MOST_GROUPS
        )
        priority = priority_of(name)
        while (balancer, priority) in taken:
            priority = priority % _PRIORITIES + 1
        places[name] = Place(balancer=balancer, priority=priority, target_groups=count)
        services[balancer] += 1
        groups[balancer] += each * count + 1
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
