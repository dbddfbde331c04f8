"""The places of services on a site's load balancers, and the service of requests that name none.

A place is kept once given, whatever services come and go. A rule that moves would refuse requests in between, and AWS
refuses to swap two rules. Terraform's state remembers the places, as outputs.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Collection, Mapping
from typing import NotRequired, TypedDict

# AWS allows 100 rules and 100 target groups on a balancer. A service has two rules, the default service one more; and a
# target group for each class of capacity, and one for its function. gRPC adds a rule and as many groups again.
MOST_SERVICES, MOST_GROUPS = 49, 100
MOST_GRPC_SERVICES = 33
_PRIORITIES = 24_999  # a service at p has the rules 2p and 2p + 1; 50,000 is the default service's


class Place(TypedDict):
    """A service's place, as in Terraform's variable."""

    balancer: int
    priority: int
    target_groups: NotRequired[int]  # missing for sites that were deployed with one


def placed(
    names: Collection[str],
    before: Mapping[str, Place],
    classes: Mapping[str, int] | None = None,
    *,
    grpc: bool = False,
) -> dict[str, Place]:
    """Return the places of `names`. A service keeps its place in `before`; others get the first balancer with room.

    There the priority follows from the name, or is the next free one if another service has it already or, among new
    services, precedes it in the alphabet. A service has as many target groups as `classes` of capacity (default one).
    It keeps the groups that it has, and gets fewer if its balancer has no room.
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
    """Return the default priority, the same as in terraform/examples/complete."""
    return int(hashlib.sha256(name.encode()).hexdigest()[:8], 16) % _PRIORITIES + 1


def default_service(names: Collection[str], before: str | None) -> str | None:
    """Return the default service: a site's only service at first, for as long as it is deployed."""
    if before in names:
        return before
    return next(iter(names)) if len(names) == 1 else None
