"""Offers: instances in a market and zone with their prices, and the catalogue of them all."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass, replace
from enum import StrEnum

from mark.domain.errors import BadInput
from mark.domain.function_offer import FunctionOffer, size_and_processor

# Quantile 0.95 of the standard normal distribution.
_Z95 = 1.6448536269514722


class Market(StrEnum):
    """The market of an offer; the price rule depends on it."""

    ON_DEMAND = "on-demand"
    SPOT = "spot"
    BURSTABLE = "burstable"
    FUNCTION = "function"
    SAGEMAKER = "sagemaker"


@dataclass(frozen=True, slots=True)
class Delay:
    """A delay in seconds: lognormal with the given mean and 95th percentile, cut below half the mean.

    p95 = mean is a constant. For p95 > mean the lognormal has two solutions; the smaller sigma is taken. Raises
    BadInput for p95 below the mean or above 3.8 x mean (no lognormal has more than exp(z^2 / 2) = 3.87 x mean).
    """

    mean_s: float
    p95_s: float

    def __post_init__(self) -> None:
        if not (math.isfinite(self.mean_s) and self.mean_s >= 0.0):
            raise BadInput("a delay's mean must be zero or more", "boot_mean_s", self.mean_s)
        if not (math.isfinite(self.p95_s) and self.mean_s <= self.p95_s <= 3.8 * self.mean_s):
            raise BadInput("a delay's p95 must lie between 1 and 3.8 x its mean", "boot_p95_s", self.p95_s)

    @property
    def sigma(self) -> float:
        """Sigma of the logarithm: the smaller root of sigma^2 / 2 - z sigma + ln(p95 / mean) = 0."""
        if self.p95_s == self.mean_s:
            return 0.0
        ratio = math.log(self.p95_s / self.mean_s)
        return _Z95 - math.sqrt(max(0.0, _Z95 * _Z95 - 2.0 * ratio))

    @property
    def shortest_s(self) -> float:
        """The lower limit of all draws."""
        return self.mean_s if self.sigma == 0.0 else 0.5 * self.mean_s

    def at(self, standard_normal: float) -> float:
        """Return the delay of one standard normal draw, in seconds."""
        sigma = self.sigma
        if sigma == 0.0:
            return self.mean_s
        return max(self.shortest_s, math.exp(math.log(self.mean_s) - sigma * sigma / 2.0 + sigma * standard_normal))


@dataclass(frozen=True, slots=True)
class BurstCredits:
    """The CPU credit model of a burstable type. One credit is one vCPU at full speed for one minute."""

    baseline: float  # speed without credits, as a fraction of one vCPU, per vCPU
    credits_per_hour: float
    max_credits: float
    launch_credits: float
    surplus_usd_per_vcpu_hour: float | None = None  # None: standard mode, the speed falls to the baseline

    def __post_init__(self) -> None:
        if not 0.0 < self.baseline <= 1.0:
            raise BadInput("baseline must lie in (0, 1]", "baseline", self.baseline)
        if min(self.credits_per_hour, self.max_credits, self.launch_credits) < 0.0:
            raise BadInput("credits must not be negative", "credits", self)


@dataclass(frozen=True, slots=True)
class Offer:
    """An instance type in a market and a zone, at a price.

    `name` is the key in fleets, plans and reports: `c5.large/on-demand`, or with a zone `c5.large/spot/us-east-1a`.
    """

    instance: str
    market: Market
    usd_per_hour: float
    boot: Delay
    zone: str = ""
    vcpu: float = 0.0
    memory_gib: float = 0.0
    gpus: int = 0
    resume: Delay | None = None
    interruptions_per_hour: float = 0.0
    retired: bool = False
    credits: BurstCredits | None = None

    def __post_init__(self) -> None:
        if not (math.isfinite(self.usd_per_hour) and self.usd_per_hour > 0.0):
            raise BadInput("a price must be above zero", f"{self.instance} usd_per_hour", self.usd_per_hour)
        if self.market is Market.BURSTABLE and self.credits is None:
            raise BadInput("a burstable needs its credit columns", self.instance, "baseline")
        if self.market is Market.FUNCTION:
            raise BadInput("a function is no instance offer", self.instance, str(self.market))
        if not self.interruptions_per_hour >= 0.0:
            where = f"{self.instance} interruptions_per_hour"
            raise BadInput("a rate must not be negative", where, self.interruptions_per_hour)

    @property
    def name(self) -> str:
        return f"{self.instance}/{self.market}" + (f"/{self.zone}" if self.zone else "")

    @property
    def usd_per_s(self) -> float:
        return self.usd_per_hour / 3600.0

    @property
    def unlimited(self) -> bool:
        """Whether it is a burstable that goes on at full speed, at a price, when its CPU credits are spent."""
        return self.credits is not None and self.credits.surplus_usd_per_vcpu_hour is not None

    @property
    def always_full(self) -> bool:
        """Whether it stays at full speed however long it is busy: all but burstables in standard mode."""
        return self.credits is None or self.unlimited

    def usd_per_hour_at(self, busy: float) -> float:
        """Return the $/h, surplus credits included, if its vCPUs are busy for this share of the time."""
        if self.credits is None or self.credits.surplus_usd_per_vcpu_hour is None:
            return self.usd_per_hour
        surplus_vcpus = max(0.0, busy * self.vcpu - self.credits.credits_per_hour / 60.0)
        return self.usd_per_hour + surplus_vcpus * self.credits.surplus_usd_per_vcpu_hour


def instance_of(offer_name: str) -> str:
    """Return the instance type of an offer: `c5.large` for `c5.large/spot/us-east-1a`."""
    return offer_name.partition("/")[0]


@dataclass(frozen=True, slots=True)
class Catalog:
    """All offers and functions that are sold, with name and date."""

    name: str
    offers: tuple[Offer, ...]
    functions: tuple[FunctionOffer, ...]
    bills_extras: bool = False  # balancer, disks, addresses, data transfer: on for aws-2026
    any_function: FunctionOffer | None = None  # the plain `lambda`: sold in every memory size up to its own
    region: str = ""
    priced_on: str = ""  # the day of the oldest on-demand price, as 2026-07-20
    any_arm64_function: FunctionOffer | None = None  # the plain `lambda-arm64`, likewise

    def __post_init__(self) -> None:
        seen: set[str] = set()
        for offer in self.offers:
            if offer.name in seen:
                raise BadInput("the same instance, market and zone twice", self.name, offer.name)
            seen.add(offer.name)

    @property
    def priced(self) -> str:
        """Name, region and day of the prices, as far as the catalogue has them."""
        return ", ".join(filter(None, (self.name, self.region, self.priced_on)))

    @property
    def spot_zones(self) -> tuple[str, ...]:
        """The zones with spot offers, in the catalogue's order, in which they are given spot series."""
        return tuple(dict.fromkeys(o.zone for o in self.offers if o.market is Market.SPOT))

    def in_zones(self, zones: Iterable[str]) -> Catalog:
        """Return the catalogue with all its spot types sold in each of these zones, and in no other.

        A zone that the catalogue does not know gets the type's highest price and highest rate of interruptions, until
        AWS reports its own.
        """
        found: list[Offer] = []
        spot: dict[str, dict[str, Offer]] = {}
        for offer in self.offers:
            if offer.market is Market.SPOT:
                spot.setdefault(offer.instance, {})[offer.zone] = offer
            else:
                found.append(offer)
        for by_zone in spot.values():
            there = by_zone.values()
            unknown = replace(
                next(iter(there)),
                usd_per_hour=max(offer.usd_per_hour for offer in there),
                interruptions_per_hour=max(offer.interruptions_per_hour for offer in there),
                retired=all(offer.retired for offer in there),
            )
            found += [by_zone.get(zone) or replace(unknown, zone=zone) for zone in zones]
        return replace(self, offers=tuple(found))

    def function(self, name: str) -> FunctionOffer:
        """Return the function `lambda:MEMORY_MB` or `lambda-arm64:MEMORY_MB`.

        Raises BadInput if the catalogue lacks it.
        """
        for function in self.functions:
            if function.name == name:
                return function
        if (asked := size_and_processor(name)) is not None:
            memory_mb, arm64 = asked
            sold = self.any_arm64_function if arm64 else self.any_function
            if sold is not None:
                # 128 MB is the smallest function that AWS has sold.
                if 128 <= memory_mb <= sold.memory_mb:
                    return replace(sold, memory_mb=memory_mb)
                raise BadInput(f"functions have 128 to {sold.memory_mb} MB", self.name, name)
        raise BadInput("the catalogue has no such function", self.name, name)
