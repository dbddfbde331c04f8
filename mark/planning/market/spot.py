"""Spot: the belief about its market, its expected cost, how it is spread, and the standbys for it.

Everything here is pure. The controller keeps a `Belief` per offer and hands all of them to the planner, which buys at

    price + interruptions per hour x cost of one,                                                     (`SpotTerms`)

and only offers that it believes to have capacity, spread over equally good ones. Interrupted instances are replaced
with spares, because boot times vary, and bridged by standbys.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from statistics import NormalDist

import numpy as np

from mark.domain.arrays import BoolArray, FloatArray, IntArray
from mark.domain.backoff import OFFER
from mark.domain.ec2_limits import INTERRUPTION_NOTICE_S, LAUNCH_CREDIT_STARTS_PER_DAY, UNBILLED_PENDING_S
from mark.domain.fleet import Fleet, Phase
from mark.domain.offer import Delay, Market, Offer
from mark.domain.plan import Plan, Target

_NORMAL = NormalDist()
_QUANTILES = (np.arange(128) + 0.5) / 128.0

LEAVE_S = 5.0  # before the loss, beside RT_max, a doomed instance takes no more requests and finishes its own
# Hours of watching that the catalogue's rate counts for. Few, because it is the mean of a month and a region, and
# interruptions come in clusters.
PRIOR_H = 2.0
HALF_LIFE_H = 6.0  # hours after which an observation counts half
# Price of a stopped standby's disk, where the catalogue bills disks: 8 GiB gp3, us-east-1, EBS list price since
# 2020-12.
DISK_USD_PER_HOUR = 8.0 * 0.08 / 730.0
USUAL_LOSS = 4  # instances that are lost together, if the number is not known
NEAR = 0.05  # offers whose price and capacity differ by less count as equal
STANDBY_PAYS_H = 24.0  # hours within which a standby must pay for being set up


@dataclass(frozen=True, slots=True)
class Belief:
    """Observations of one offer.

    `held_h` are hours in which some instance of it was held, `losses` interruptions as a share of the instances held
    then: a wave that takes three of four counts 0.75. Instances of one offer fall together, so ten of them count as
    one. Both fade (`HALF_LIFE_H`) up to `at_s`. `refusals` came in a row; before `until_s` the offer has no capacity.
    `lost_s` is the time of the last interruption.
    """

    at_s: float = 0.0
    held_h: float = 0.0
    losses: float = 0.0
    refusals: int = 0
    until_s: float = -math.inf
    lost_s: float = -math.inf

    def rate_per_hour(self, prior_per_hour: float) -> float:
        """Return the interruptions per hour: a gamma prior worth `PRIOR_H` of watching, Poisson observations."""
        return (PRIOR_H * prior_per_hour + self.losses) / (PRIOR_H + self.held_h)

    def watched(self, now_s: float, held: bool) -> Belief:
        """Return the belief at `now_s`; `held`: whether some instance was there since `at_s`."""
        passed_h = max(0.0, now_s - self.at_s) / 3600.0
        fading = 0.5 ** (passed_h / HALF_LIFE_H)
        held_h = self.held_h * fading + (passed_h if held else 0.0)
        return replace(self, at_s=max(now_s, self.at_s), held_h=held_h, losses=self.losses * fading)

    def interrupted(self, now_s: float, share: float) -> Belief:
        """Count notices for a `share` of the held instances; the market has just taken them, so it sells none for a
        while.
        """
        return replace(self, losses=self.losses + share, until_s=max(self.until_s, now_s + OFFER.first_s), lost_s=now_s)

    def refused(self, now_s: float) -> Belief:
        """Count a launch that got less than it asked for."""
        refusals = min(self.refusals + 1, 32)
        return replace(self, refusals=refusals, until_s=now_s + OFFER.pause_s(refusals))

    def not_ahead(self, now_s: float) -> Belief:
        """Return the belief without times after `now_s`, which another process with a fast clock may have stored.

        Otherwise the offer would be put off for as much longer.
        """
        until_s = OFFER.not_ahead(self.until_s, now_s)
        return replace(self, at_s=min(self.at_s, now_s), until_s=until_s, lost_s=min(self.lost_s, now_s))

    def sold(self) -> Belief:
        """Count a launch that got all that it asked for."""
        return replace(self, refusals=0, until_s=-math.inf)


UNKNOWN = Belief()


def _mean(beliefs: Sequence[Belief]) -> Belief:
    """Return the average observations of the offers that were held."""
    held = [b for b in beliefs if b.held_h > 0.0]
    if not held:
        return UNKNOWN
    return Belief(held_h=sum(b.held_h for b in held) / len(held), losses=sum(b.losses for b in held) / len(held))


def beyond_s(delay: Delay, free_s: float) -> float:
    """Return E[(delay - free)+], seconds by which a lognormal delay is expected to exceed `free_s` (Black-Scholes)."""
    if free_s <= 0.0 or delay.sigma == 0.0:
        return max(0.0, delay.mean_s - free_s)
    above = math.log(delay.mean_s / free_s) / delay.sigma + delay.sigma / 2.0
    return delay.mean_s * _NORMAL.cdf(above) - free_s * _NORMAL.cdf(above - delay.sigma)


def boot_usd(offer: Offer) -> float:
    """Return the dollars paid for an instance before it serves."""
    return offer.usd_per_s * max(0.0, offer.boot.mean_s - UNBILLED_PENDING_S)


@lru_cache(maxsize=1024)
def replacing(need: int, boot: Delay, usd_per_s: float, missing_usd_per_s: float) -> tuple[int, float]:
    """Return how many instances to launch beyond the `need` interrupted ones, and the dollars of replacing these.

    Boot times vary, and the first `need` to be ready count: the others are terminated then. Every second by which one
    of these comes later than the doomed one leaves costs `missing_usd_per_s`; `usd_per_s` is an instance's price. Two
    more for each are enough, whatever a miss costs.
    """
    ready_s = np.array([boot.at(_NORMAL.inv_cdf(u)) for u in _QUANTILES])
    missing_s = np.maximum(0.0, ready_s - INTERRUPTION_NOTICE_S + LEAVE_S)
    best, best_usd = 0, math.inf
    for spares in range(0, 2 * need + 1, max(1, need // 8)):
        count = need + spares
        order = _order_statistics(need, count)
        counted = order.sum(axis=0)
        paid_s = float(counted @ ready_s + spares * (order[-1] @ ready_s)) - count * UNBILLED_PENDING_S
        usd = usd_per_s * max(0.0, paid_s) + missing_usd_per_s * float(counted @ missing_s)
        if usd >= best_usd:
            break
        best, best_usd = spares, usd
    return best, best_usd


def _order_statistics(first: int, count: int) -> FloatArray:
    """Return the chance of each quantile for the first to the `first`-th of `count` draws: (first, quantiles).

    The i-th of n uniform draws has the density n x (chance of i - 1 successes in n - 1 trials).
    """
    successes = np.arange(first, dtype=np.float64)[:, None]
    ways = np.concatenate([[0.0], np.cumsum(np.log((count - successes[1:, 0]) / successes[1:, 0]))])[:, None]
    chance = np.exp(ways + successes * np.log(_QUANTILES) + (count - 1.0 - successes) * np.log1p(-_QUANTILES))
    return np.asarray(count * chance / len(_QUANTILES), dtype=np.float64)


@dataclass(frozen=True, slots=True)
class SpotTerms:
    """Believed prices and availability of offers; arrays are (offers,), then (pools,)."""

    offer_usd_per_hour: FloatArray  # including the chance of interruptions
    interruptions_per_hour: FloatArray
    can_be_had: BoolArray
    usd_per_hour: FloatArray  # of the member that would be bought next
    buyable: BoolArray


class Pools:
    """Offers by pool: spot offers that count as equal (zones, and types that differ by less than `NEAR`) form one pool.

    `usable_rps[i]` and `names[i]` belong to `offers[i]`; `pool_of` has the pool of each name. A pool is planned as its
    first member, the cheapest; `spread` decides which members are bought.
    """

    def __init__(self, offers: Sequence[Offer], usable_rps: Sequence[float]) -> None:
        self.offers = tuple(offers)
        self.names = [offer.name for offer in self.offers]
        self.members = _pools(self.offers, usable_rps)
        self.pool_of = {self.names[i]: k for k, members in enumerate(self.members) for i in members}
        self.first = tuple(members[0] for members in self.members)
        self._usable_rps = np.array(usable_rps, dtype=np.float64)
        self._usd_per_hour = np.array([o.usd_per_hour for o in self.offers])
        self._is_spot = np.array([o.market is Market.SPOT for o in self.offers], dtype=np.bool_)
        on_demand = {o.instance: o for o in self.offers if o.market is Market.ON_DEMAND}
        same = [on_demand.get(o.instance) if o.market is Market.SPOT else None for o in self.offers]
        self._most_usd_per_hour = np.array([math.inf if o is None else o.usd_per_hour for o in same])
        self._instead = tuple(other or o for other, o in zip(same, self.offers, strict=True))

    def count(self, live: Mapping[str, int]) -> IntArray:
        """Return instances by pool, from instances by offer name."""
        return np.array([sum(live.get(self.names[i], 0) for i in m) for m in self.members], dtype=np.int64)

    def terms(
        self,
        beliefs: Mapping[str, Belief],
        now_s: float,
        usd_per_overflow: float,
        more_usd_per_hour: FloatArray | None = None,
    ) -> SpotTerms:
        """Price each offer with its interruptions and `more_usd_per_hour` (offers,), and decide which are available.

        An interruption costs its share of replacing the instances lost together, and the boot of the instance bought
        when spot returns. Spot that is expected to be dearer than the same type on demand counts as unavailable. In a
        zone where two spot types are put off no other is requested, because the zone is short of capacity.
        """
        known = [beliefs.get(name, UNKNOWN) for name in self.names]
        # Waves pass over types and zones, so the average over all offers is the prior of each.
        market = _mean([b for b, is_spot in zip(known, self._is_spot, strict=True) if is_spot])
        priors = [market.rate_per_hour(o.interruptions_per_hour) for o in self.offers]
        rate = np.array([b.rate_per_hour(prior) for b, prior in zip(known, priors, strict=True)])
        rate = np.where(self._is_spot, rate, 0.0)
        usd = self._usd_per_hour.copy() if more_usd_per_hour is None else self._usd_per_hour + more_usd_per_hour
        for i in np.flatnonzero(rate):
            usd[i] += rate[i] * self._interruption_usd(int(i), usd_per_overflow)
        put_off = np.array([now_s < b.until_s for b in known], dtype=np.bool_)
        types = Counter(self.offers[i].zone for i in np.flatnonzero(put_off & self._is_spot))
        empty = np.array([o.zone != "" and types[o.zone] >= 2 for o in self.offers], dtype=np.bool_)
        there = ~put_off & ~(empty & self._is_spot) & (usd < self._most_usd_per_hour)
        best = [min(members, key=lambda i: (not there[i], usd[i], i)) for members in self.members]
        return SpotTerms(usd, rate, there, usd[best], there[best])

    def spares(self, need: IntArray, usd_per_overflow: float) -> IntArray:
        """Return how many more than `need` to launch by pool, if that capacity is missing until they are ready."""
        spares = np.zeros_like(need)
        for k in np.flatnonzero(need):
            i = self.first[k]
            missing_usd_per_s = float(self._usable_rps[i]) * usd_per_overflow
            spares[k], _ = replacing(int(need[k]), self.offers[i].boot, self.offers[i].usd_per_s, missing_usd_per_s)
        return spares

    def _interruption_usd(self, i: int, usd_per_overflow: float) -> float:
        instead = self._instead[i]
        missing_usd_per_s = float(self._usable_rps[i]) * usd_per_overflow
        _, usd = replacing(USUAL_LOSS, instead.boot, instead.usd_per_s, missing_usd_per_s)
        return usd / USUAL_LOSS + boot_usd(self.offers[i])

    def spread(self, counts: IntArray, fleet: Fleet, terms: SpotTerms) -> dict[str, int]:
        """Return counts by offer name for counts by pool, spread so that a wave takes as little as possible.

        Running instances stay. New ones go, one by one, to the member with the fewest, among the available members that
        are as cheap as the cheapest; surplus ones are taken from the member with the most. Ties end booting instances,
        and are otherwise broken by name.
        """
        usd, live = terms.offer_usd_per_hour, fleet.live()
        boots = Counter(i.offer for i in fleet.instances if i.phase is Phase.PENDING and i.interruption_at_s is None)
        result: dict[str, int] = {}
        for wanted, members in zip(counts, self.members, strict=True):
            have = {i: int(live.get(self.names[i], 0)) for i in members}
            there = [i for i in members if terms.can_be_had[i]] or list(members)
            least_usd = min(usd[i] for i in there)
            equal = [i for i in there if usd[i] <= least_usd * (1.0 + NEAR)]
            for _ in range(int(wanted) - sum(have.values())):
                have[min(equal, key=lambda i: (have[i], self.names[i]))] += 1
            for _ in range(sum(have.values()) - int(wanted)):
                one = max(members, key=lambda i: (have[i], boots[self.names[i]] > 0, self.names[i]))
                have[one] -= 1
                boots[self.names[one]] -= 1
            result.update((self.names[i], n) for i, n in have.items() if n > 0)
        return result


def without_spares(plan: Plan, ready: Mapping[str, int], capacity_rps: Mapping[str, float]) -> Plan:
    """Return the plan without surplus spares, now that `ready` instances are ready, by offer.

    Spares of an offer that still has wanted instances booting stay, because they may be ready first; other spares stay
    as far as they replace capacity that is not ready elsewhere.
    """
    coming = {t.offer: max(0, t.count - t.spare - ready.get(t.offer, 0)) for t in plan.targets}
    coming_rps = sum(count * capacity_rps[offer] for offer, count in coming.items())
    targets = []
    for t in plan.targets:
        spare = t.spare
        if coming[t.offer] == 0:
            spare = min(spare, math.ceil(max(0.0, coming_rps) / capacity_rps[t.offer] - 1e-9))
            coming_rps -= spare * capacity_rps[t.offer]
        targets.append(replace(t, count=t.count - t.spare + spare, spare=spare))
    return replace(plan, targets=tuple(targets))


def within(wanted: IntArray, live: IntArray, usd_per_hour: FloatArray, room: int, room_usd_per_hour: float) -> IntArray:
    """Return `wanted` with launches, in the order of pools, cut to the room that the limits leave beside live
    instances.
    """
    counts = np.minimum(wanted, live)
    for i in np.flatnonzero(wanted > live):
        # 1e-9, because a budget of exactly ten instances must hold ten.
        by_price = math.floor(max(0.0, min(1e9, room_usd_per_hour / float(usd_per_hour[i]))) + 1e-9)
        launches = max(0, min(int(wanted[i] - live[i]), room, by_price))
        counts[i] += launches
        room -= launches
        room_usd_per_hour -= launches * float(usd_per_hour[i])
    return counts


def planned_standbys(
    burstables: Sequence[tuple[Offer, float]],
    boot: Delay,
    at_risk: Sequence[tuple[float, float]],
    usd_per_overflow: float,
    disk_usd_per_hour: float,
    there: Mapping[str, int],
    *,
    first: bool,
) -> tuple[Target, ...]:
    """Return the stopped burstables that pay for waiting.

    `burstables`: offer and capacity; `boot`: of the instances that replace spot; `at_risk`: by spot offer, the capacity
    of all its instances and its interruptions per hour. A standby is resumed at the notice and serves while the
    replacement still boots. So in each wave a standby saves

        capacity x (boot beyond notice and resume) x (price of an overflow) - price x (boot - 20 s)

    and costs its boot once and its disk by the hour. Standbys cover all capacity that is at risk often enough for them
    to pay: as the series show, a wave may take all zones together. But AWS grants launch credits to a limited number of
    starts a day, whatever their size, and setting up is one of these: so the type that saves most is taken, and no more
    are set up than a day's waves leave credits for. Standbys that are `there`, by offer, stay as long as an hour on the
    disk costs no more than setting them up again, because spot that was taken away may come back. Those of the `first`
    fleet are set up free of charge, like all of it.
    """

    def saved_usd(burstable: tuple[Offer, float]) -> float:
        offer, capacity_rps = burstable
        bridged_s = beyond_s(boot, max(INTERRUPTION_NOTICE_S - LEAVE_S, (offer.resume or offer.boot).mean_s))
        return capacity_rps * bridged_s * usd_per_overflow - boot_usd(replace(offer, boot=boot))

    if not burstables:
        return ()
    best = max(burstables, key=lambda b: (saved_usd(b), -b[0].usd_per_hour, b[0].name))
    offer, capacity_rps = best
    least_usd_per_hour = disk_usd_per_hour + (0.0 if first else boot_usd(offer) / STANDBY_PAYS_H)
    worth_it = [(rps, rate) for rps, rate in at_risk if rate * saved_usd(best) > least_usd_per_hour]
    covered_rps = sum(rps for rps, _ in worth_it)
    count = math.ceil(covered_rps / capacity_rps - 1e-9)
    rate = max((rate for _, rate in worth_it), default=0.0)
    count = min(count, math.floor(LAUNCH_CREDIT_STARTS_PER_DAY / (1.0 + 24.0 * rate)))
    if disk_usd_per_hour <= boot_usd(offer):
        count = max(count, there.get(offer.name, 0))
    if count == 0:
        return ()
    reason = (
        f"stands by, stopped, for {covered_rps:.0f} requests/s of spot, taken {rate:.2g} times an hour; "
        f"{capacity_rps:.1f} requests/s each when resumed"
    )
    return (Target(offer.name, count, reason),)


def _pools(offers: Sequence[Offer], usable_rps: Sequence[float]) -> tuple[tuple[int, ...], ...]:
    """Return indices by pool, each cheapest first, pools in the order of their first member by name."""
    left = sorted(range(len(offers)), key=lambda i: (offers[i].usd_per_hour, offers[i].name))
    found = []
    while left:
        first, *rest = left
        alike = [first]
        if offers[first].market is Market.SPOT:
            alike += [
                i
                for i in rest
                if offers[i].market is Market.SPOT
                and offers[i].usd_per_hour <= offers[first].usd_per_hour * (1.0 + NEAR)
                and abs(usable_rps[i] / usable_rps[first] - 1.0) <= NEAR
            ]
        found.append(tuple(alike))
        left = [i for i in rest if i not in alike]
    return tuple(sorted(found, key=lambda members: offers[members[0]].name))
