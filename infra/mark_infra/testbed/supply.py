"""What the testbed's cloud sells at which time: offers, capacity, spot shares and prices, and the draws of fate.

Times are control seconds since the cloud's beginning. Nothing here reads a clock or has an effect outside.
"""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Mapping, Sequence
from enum import IntEnum
from itertools import pairwise

import numpy as np

from mark.billing.meter import Cost
from mark.domain.errors import BadInput
from mark.domain.offer import Market, Offer


class Steps:
    """A step function of time: pairs (t_s, share), the first at time 0; the last one holds for ever.

    Of spot capacity, shares are of what can be held; of spot prices, of the on-demand price.
    Raises BadInput where times do not begin at 0 and ascend, or a share is no number of zero or more.
    """

    def __init__(self, name: str, steps: Sequence[tuple[float, float]]) -> None:
        times = [t_s for t_s, _ in steps]
        if not times or times[0] != 0.0 or any(not b > a for a, b in pairwise(times)) or not math.isfinite(times[-1]):
            raise BadInput("times must begin at 0 and ascend", name, times[:5])
        if not all(math.isfinite(share) and share >= 0.0 for _, share in steps):
            raise BadInput("a share must be zero or more", name)
        self.times_s = tuple(times)
        self.shares = tuple(share for _, share in steps)
        self._area = [0.0]
        for (a, share), (b, _) in pairwise(steps):
            self._area.append(self._area[-1] + share * (b - a))

    def at(self, t_s: float) -> float:
        """The share that holds at `t_s`."""
        return self.shares[max(0, bisect_right(self.times_s, t_s) - 1)]

    def integral(self, t_s: float) -> float:
        """The share integrated from 0 to `t_s`, in seconds."""
        i = max(0, bisect_right(self.times_s, t_s) - 1)
        return self._area[i] + self.shares[i] * (t_s - self.times_s[i])


class Draw(IntEnum):
    """What a random number is for; part of its key, so that no draw shifts another. As the simulated cloud's."""

    BOOT = 0
    LIFE = 1


class Supply:
    """The offers, and how many of each can be had.

    `capacity`: instances of an offer at a time (not named: any number). `shares` and `prices` by zone: of the spot
    capacity that can be held, and of spot prices. Boots and interruptions of each of `services` are what the simulator
    draws for it by the same seed, or one more for each service before it. Raises BadInput where a price series lacks
    its on-demand price.
    """

    def __init__(
        self,
        offers: Sequence[Offer],
        *,
        seed: int = 0,
        capacity: Mapping[str, int] | None = None,
        shares: Mapping[str, Steps] | None = None,
        prices: Mapping[str, Steps] | None = None,
        services: Sequence[str] = (),
    ) -> None:
        # SageMaker's endpoints are another service.
        self.offers = tuple(offer for offer in offers if offer.market is not Market.SAGEMAKER)
        self.index = {offer.name: i for i, offer in enumerate(self.offers)}
        self._places: dict[tuple[str, bool], dict[str, int]] = {}
        for i, offer in enumerate(self.offers):
            self._places.setdefault((offer.instance, offer.market is Market.SPOT), {})[offer.zone] = i
        self._seed, self._nth_service = seed, {name: i for i, name in enumerate(services)}
        self.capacity: dict[str, int] = {}
        for name, count in (capacity or {}).items():
            self.set_capacity(name, count)
        self.shares = dict(shares or {})
        self._prices = dict(prices or {})
        self._on_demand = {o.instance: o.usd_per_hour for o in self.offers if o.market is not Market.SPOT}
        for offer in self.offers:
            if offer.market is Market.SPOT and offer.zone in self._prices and offer.instance not in self._on_demand:
                raise BadInput("a price series needs the on-demand price of the type", offer.zone, offer.instance)
        # By zone: the most spot instances held and asked for at a time since its share was last 1.
        self._asked: dict[str, int] = {}

    def set_capacity(self, offer: str, count: int) -> None:
        """So many instances of the offer at a time; those that run stay. Raises BadInput."""
        if offer not in self.index:
            raise BadInput("the catalogue has no such offer", "capacity", offer)
        if count < 0:
            raise BadInput("must be zero or more", f"capacity {offer}", count)
        self.capacity[offer] = count

    def sells(self, instance: str) -> bool:
        """Is the type sold at all?"""
        return (instance, False) in self._places or (instance, True) in self._places

    def offer_index(self, instance: str, spot: bool, zone: str) -> int | None:
        """The offer of a type in a zone; an offer without a zone is good for all of them."""
        places = self._places.get((instance, spot), {})
        return places.get(zone, places.get(""))

    def share_at(self, zone: str, t_s: float) -> float:
        """Share of the zone's spot capacity that can be held."""
        steps = self.shares.get(zone)
        return 1.0 if steps is None else steps.at(t_s)

    def room(self, index: int, count: int, *, of_offer: int, spot_in_zone: int, t_s: float) -> int:
        """How many of `count` more can be had, where so many of the offer, and spot ones of its zone, run already."""
        offer = self.offers[index]
        if offer.market is Market.SPOT:
            share = self.share_at(offer.zone, t_s)
            if share < 1.0:
                asked = self._asked[offer.zone] = max(self._asked.get(offer.zone, 0), spot_in_zone + count)
                # Half an instance is lost. 1e-9: binary rounding must not make it one more.
                count = min(count, math.ceil(share * asked - 0.5 - 1e-9) - spot_in_zone)
        if offer.name in self.capacity:
            count = min(count, self.capacity[offer.name] - of_offer)
        return max(0, count)

    def lost(self, zone: str, before: float, after: float, running: int) -> int:
        """How many of the zone's running spot instances a change of its share takes."""
        if after >= before:
            return 0
        if before >= 1.0:
            self._asked[zone] = running
        # Half an instance counts as one, so that a fleet of one can be hit.
        return math.floor(running * (1.0 - after / before) + 0.5)

    def usd_per_hour(self, index: int, t_s: float) -> float:
        """What the offer costs at that time."""
        offer = self.offers[index]
        steps = self._prices.get(offer.zone) if offer.market is Market.SPOT else None
        return offer.usd_per_hour if steps is None else self._on_demand[offer.instance] * steps.at(t_s)

    def price_changes(self, zone: str) -> tuple[float, ...]:
        """When spot prices of the zone change, 0 included."""
        steps = self._prices.get(zone)
        return (0.0,) if steps is None else steps.times_s

    def costs(self) -> list[Cost]:
        """For the meter: dollars that an instance costs up to a time, by offer."""
        return [self._cost(offer) for offer in self.offers]

    def _cost(self, offer: Offer) -> Cost:
        steps = self._prices.get(offer.zone) if offer.market is Market.SPOT else None
        if steps is None:
            usd_per_s = offer.usd_per_s
            return lambda t_s: usd_per_s * t_s
        on_demand_usd_per_s = self._on_demand[offer.instance] / 3600.0
        return lambda t_s: on_demand_usd_per_s * steps.integral(t_s)

    def boot_s(self, index: int, service: str, number: int, start: int) -> float:
        """The boot of the service's `number`-th launch, or (start 1, 2, ...) of its resumes."""
        offer = self.offers[index]
        delay = offer.boot if start == 0 else offer.resume or offer.boot
        return delay.at(float(self._generator(service, number, start, Draw.BOOT).standard_normal()))

    def life_s(self, index: int, service: str, number: int, start: int) -> float:
        """From its start to the notice of its interruption; inf where its zone has a series, or it is no spot."""
        offer = self.offers[index]
        if offer.interruptions_per_hour <= 0.0 or offer.zone in self.shares:
            return math.inf
        drawn = float(self._generator(service, number, start, Draw.LIFE).standard_exponential())
        return drawn / offer.interruptions_per_hour * 3600.0

    def _generator(self, service: str, number: int, start: int, draw: Draw) -> np.random.Generator:
        """What the simulator's cloud draws for the service by this seed, one more for each service before it."""
        seed = (self._seed + self._nth_service.get(service, 0)) % 2**64
        key = np.array([seed, number], dtype=np.uint64)
        return np.random.Generator(np.random.Philox(key=key, counter=[0, 0, start, int(draw)]))
