"""The supply of the testbed's cloud over time: offers, capacity, spot shares and prices, and random draws.

Times are control seconds since the cloud's beginning. Nothing here reads a clock or has an effect outside.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from itertools import pairwise

from mark.cloud.ec2.draws import Start, service_seed
from mark.cloud.ec2.prices import cost
from mark.cloud.ec2.spot_interruption import SpotZone
from mark.cloud.ec2.spot_series import SpotSeries
from mark.domain.errors import BadInput
from mark.domain.offer import Market, Offer

_END_S = 1e15  # so late that the steps never repeat


def once(name: str, steps: Sequence[tuple[float, float]]) -> SpotSeries:
    """Return a series of pairs (t_s, share) that does not repeat: the first is at time 0, the last holds forever.

    Raises BadInput if times do not begin at 0 and ascend, or a share is not a number of zero or more.
    """
    times = [t_s for t_s, _ in steps]
    if not times or times[0] != 0.0 or any(not b > a for a, b in pairwise(times)) or not math.isfinite(times[-1]):
        raise BadInput("times must begin at 0 and ascend", name, times[:5])
    if not all(math.isfinite(share) and share >= 0.0 for _, share in steps):
        raise BadInput("a share must be zero or more", name)
    return SpotSeries(name, "availability", tuple(times), tuple(share for _, share in steps), _END_S)


class Supply:
    """The offers, and the available number of each.

    `capacity`: instances of an offer at a time (missing: any number). `shares` of the spot capacity that can be held,
    and `prices` of spot, by zone. Boots and interruptions of each of `services` are the same as the simulator draws for
    its `service_seed`. Raises BadInput if a price series lacks its on-demand price.
    """

    def __init__(
        self,
        offers: Sequence[Offer],
        *,
        seed: int = 0,
        capacity: Mapping[str, int] | None = None,
        shares: Mapping[str, SpotSeries] | None = None,
        prices: Mapping[str, SpotSeries] | None = None,
        services: Sequence[str] = (),
    ) -> None:
        # SageMaker's endpoints belong to another service.
        self.offers = tuple(offer for offer in offers if offer.market is not Market.SAGEMAKER)
        self.index = {offer.name: i for i, offer in enumerate(self.offers)}
        self._places: dict[tuple[str, bool], dict[str, int]] = {}
        for i, offer in enumerate(self.offers):
            self._places.setdefault((offer.instance, offer.market is Market.SPOT), {})[offer.zone] = i
        self._seed, self._nth_service = seed, {name: i for i, name in enumerate(services)}
        # Reasons why instances of an offer end before they run: code and message of EC2's StateReason.
        self.ends_at_launch: dict[str, tuple[str, str]] = {}
        self.capacity: dict[str, int] = {}
        for name, count in (capacity or {}).items():
            self.set_capacity(name, count)
        shares = shares or {}
        self.zones = {o.zone: SpotZone(shares.get(o.zone)) for o in self.offers if o.market is Market.SPOT}
        self._has_series = frozenset(shares)
        self._prices = dict(prices or {})
        self._on_demand = {o.instance: o.usd_per_hour for o in self.offers if o.market is not Market.SPOT}
        # For the meter: an instance's cost in dollars up to a time, by offer.
        self.costs = [cost(offer, self._price_of(offer), self._on_demand) for offer in self.offers]

    def _price_of(self, offer: Offer) -> SpotSeries | None:
        return self._prices.get(offer.zone) if offer.market is Market.SPOT else None

    def set_capacity(self, offer: str, count: int) -> None:
        """Limit the offer to `count` instances at a time; running ones stay. Raises BadInput."""
        if offer not in self.index:
            raise BadInput("the catalogue has no such offer", "capacity", offer)
        if count < 0:
            raise BadInput("must be zero or more", f"capacity {offer}", count)
        self.capacity[offer] = count

    def sells(self, instance: str) -> bool:
        """Return whether the type is sold in any zone."""
        return (instance, False) in self._places or (instance, True) in self._places

    def offer_index(self, instance: str, spot: bool, zone: str) -> int | None:
        """Return the offer of a type in a zone; an offer without a zone fits all zones."""
        places = self._places.get((instance, spot), {})
        return places.get(zone, places.get(""))

    def room(self, index: int, count: int, *, of_offer: int, spot_in_zone: int) -> int:
        """Return how many of `count` more instances are available.

        `of_offer` of the offer run already, and `spot_in_zone` in the zone.
        """
        offer = self.offers[index]
        if offer.market is Market.SPOT:
            count = self.zones[offer.zone].room(count, spot_in_zone)
        if offer.name in self.capacity:
            count = min(count, self.capacity[offer.name] - of_offer)
        return max(0, count)

    def usd_per_hour(self, index: int, t_s: float) -> float:
        """Return the offer's price at that time."""
        offer = self.offers[index]
        series = self._price_of(offer)
        return offer.usd_per_hour if series is None else self._on_demand[offer.instance] * series.share_at(t_s)

    def price_changes(self, zone: str) -> tuple[float, ...]:
        """Return the times at which the zone's spot prices change, including 0."""
        series = self._prices.get(zone)
        return (0.0,) if series is None else series.times_s

    def start(self, service: str, number: int, nth: int) -> Start:
        """Return the random draws for the service's `number`-th launch (nth 0), or its nth resume."""
        return Start(service_seed(self._seed, self._nth_service.get(service, 0)), number, nth)

    def until_interruption_s(self, index: int, start: Start) -> float:
        """Return the seconds from the start to the notice of its interruption.

        inf if a series decides for its zone, or if the offer is not spot.
        """
        offer = self.offers[index]
        return math.inf if offer.zone in self._has_series else start.until_interruption_s(offer)
