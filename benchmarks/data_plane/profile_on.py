"""The saving of `mark profile --on`: it finds the same best type as measuring all types, for a share of the dollars.

    python benchmarks/data_plane/profile_on.py [--seeds 20]

The true times of five families of profiles over types and prices of aws-2026 are known: times that shrink in
proportion to the vCPUs, times that do not (Amdahl), a GPU that wins by its batches, a GPU that does not, and types that
are too small for the model. Measured times are noisy, less so in longer measurements; boot times are drawn. Machines
are billed as by EC2, at the price on demand. For each family the benchmark asserts that every seed finds the truly best
type, for at most half of the dollars of measuring all types.
"""

from __future__ import annotations

import argparse
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from random import Random

from mark.domain.catalog.tables import load_catalog
from mark.domain.ec2_limits import MINIMUM_BILLED_S, UNBILLED_PENDING_S
from mark.domain.offer import Market, Offer
from mark.domain.profile import Profile, ProfileRow
from mark.domain.slo import Slo
from mark.profiling.search import End, ProfileSearch, Rent, SearchDone, SearchGoal, longest_s, usd_per_million

CPUS = tuple(f"{family}.{size}" for family in ("c7i", "c8g") for size in ("large", "xlarge", "2xlarge", "4xlarge"))
GPUS = ("g6.xlarge", "g6.2xlarge", "g6.4xlarge")
BUDGET_USD = 2.0
_LOAD_S = 10.0  # a model, once the machine has booted
_AROUND = 1.15  # overhead of measuring: warm-up rounds, and requests on their way
_SIGMA = 0.01  # of the mean of a full measurement: 95 of 100 are within +-2 %, as `--precision` asks
_SHARE = 0.5


@dataclass(frozen=True, slots=True)
class Family:
    """Profiles with a known truth: milliseconds of a batch on a type, None where the model does not run there."""

    name: str
    types: tuple[str, ...]
    rt_max_ms: float
    latency_ms: Callable[[Offer, int], float | None]

    @property
    def wanted(self) -> SearchGoal:
        return SearchGoal(Slo(self.rt_max_ms / 1e3, 0.98))

    def profile(self, offer: Offer, noise: Callable[[], float] = lambda: 1.0) -> Profile | None:
        """Return the measured profile; None if no batch can be measured."""
        rows = []
        for batch in self.wanted.batches:
            ms = self.latency_ms(offer, batch)
            if ms is None:
                return None
            rows.append(ProfileRow(batch, ms * noise()))
        return Profile(self.name, offer.instance, tuple(rows))


def _newer(offer: Offer) -> float:
    return 1.15 if offer.instance.startswith("c8g") else 1.0


def _linear(offer: Offer, batch: int) -> float:
    return 15.0 * (0.2 + 0.8 * batch) / (offer.vcpu / 2.0) ** 0.95 / _newer(offer)


def _amdahl(offer: Offer, batch: int) -> float:
    return 160.0 * batch * (0.35 + 0.65 / (offer.vcpu / 2.0)) / _newer(offer)


def _gpu_wins(offer: Offer, batch: int) -> float:
    return 12.0 + 2.0 * batch if offer.gpus else 4.0 * _linear(offer, batch)


def _gpu_dominated(offer: Offer, batch: int) -> float:
    return 6.0 + 1.2 * batch if offer.gpus else _linear(offer, batch) / 8.0


def _too_small(offer: Offer, batch: int) -> float | None:
    """Return a time that exceeds RT_max on few vCPUs, or None below 6 GiB of memory."""
    if offer.memory_gib < 6.0:
        return None
    return 1300.0 * (0.3 + 0.7 * batch) / (offer.vcpu / 2.0) ** 0.95 / _newer(offer)


FAMILIES = (
    Family("linear", CPUS, 1000.0, _linear),
    Family("saturating", CPUS, 250.0, _amdahl),
    Family("GPU wins", (*CPUS, *GPUS), 400.0, _gpu_wins),
    Family("GPU dominated", (*CPUS, *GPUS), 50.0, _gpu_dominated),
    Family("too small", CPUS, 400.0, _too_small),
)


class World:
    """Rents, measures and bills, in numbers only; the same seed draws the same."""

    def __init__(self, family: Family, offers: Mapping[str, Offer], seed: int) -> None:
        self._family, self._offers, self._random = family, offers, Random(seed)
        self._alive_s = 0.0
        self.rentals = 0
        self.spent_usd = 0.0

    def measure(self, rent: Rent, *, kept: bool) -> Profile | None:
        """Measure on the machine in hand if `kept`, else on a machine that boots."""
        offer, wanted = self._offers[rent.instance], self._family.wanted
        if not kept:
            self.rentals += 1
            longest_boot_s = rent.longest_s - 2.0 * wanted.seconds * len(wanted.batches)
            self._alive_s = min(longest_boot_s, offer.boot.at(self._random.gauss(0.0, 1.0)) + _LOAD_S)
        self._alive_s += _AROUND * rent.seconds * len(rent.batches)
        assert self._alive_s <= rent.longest_s, f"{rent} lived for {self._alive_s:.0f} s"
        sigma = _SIGMA * math.sqrt(wanted.seconds / rent.seconds)
        return self._family.profile(offer, lambda: self._random.lognormvariate(0.0, sigma))

    def end(self, instance: str) -> float:
        """Return the cost of the machine in hand."""
        billed_s = max(MINIMUM_BILLED_S, math.ceil(self._alive_s - UNBILLED_PENDING_S))
        usd = self._offers[instance].usd_per_s * billed_s
        self.spent_usd += usd
        return usd


def search(family: Family, offers: Mapping[str, Offer], world: World, budget_usd: float = BUDGET_USD) -> SearchDone:
    """Search as `mark profile --on` does."""
    found = ProfileSearch(list(offers.values()), family.wanted, budget_usd)
    held = None
    while not isinstance(step := found.next(), SearchDone):
        if isinstance(step, End):
            found.paid(step.instance, world.end(step.instance))
            held = None
        elif (profile := world.measure(step, kept=step.instance == held)) is None:
            found.fail(step.instance, "the model does not fit into its memory")
            found.paid(step.instance, world.end(step.instance))
            held = None
        else:
            found.record(step.instance, profile)
            held = step.instance
    return step


def all_of_them(family: Family, offers: Mapping[str, Offer], world: World) -> None:
    """Rent every type once, and measure it in full."""
    for offer in offers.values():
        wanted = family.wanted
        world.measure(Rent(offer.instance, wanted.batches, wanted.seconds, longest_s(offer, wanted)), kept=False)
        world.end(offer.instance)


def truly_best(family: Family, offers: Mapping[str, Offer]) -> str:
    """Return the best machine by the times without noise."""
    costs: dict[str, float] = {}
    for name, offer in offers.items():
        profile = family.profile(offer)
        cost = "does not run" if profile is None else usd_per_million(offer, profile, family.wanted)
        if not isinstance(cost, str):
            costs[name] = cost
    return min(costs, key=lambda name: (costs[name], name))


def offers_of(family: Family) -> dict[str, Offer]:
    """Return the family's types on demand, by name."""
    catalog = load_catalog("aws-2026")
    sold = {offer.instance: offer for offer in catalog.offers if offer.market is Market.ON_DEMAND}
    return {name: sold[name] for name in family.types}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=20)
    seeds = parser.parse_args().seeds
    print(f"{'family':14} {'types':>5}  {'best':12} {'found':>7} {'rentals':>7} {'dollars':>8} {'all':>7} {'share':>6}")
    for family in FAMILIES:
        offers = offers_of(family)
        best = truly_best(family, offers)
        hits, rentals, usd, all_usd = 0, 0, 0.0, 0.0
        for seed in range(seeds):
            world, every = World(family, offers, seed), World(family, offers, seed)
            hits += search(family, offers, world).best == best
            all_of_them(family, offers, every)
            rentals, usd, all_usd = rentals + world.rentals, usd + world.spent_usd, all_usd + every.spent_usd
        print(
            f"{family.name:14} {len(offers):5}  {best:12} {hits:3} / {seeds:<2} {rentals / seeds:7.1f} "
            f"{usd / seeds:8.4f} {all_usd / seeds:7.4f} {usd / all_usd:6.1%}"
        )
        assert hits == seeds, f"{family.name}: {best} was found with {hits} of {seeds} seeds"
        assert usd <= _SHARE * all_usd, f"{family.name}: {usd / all_usd:.1%} of the dollars"


if __name__ == "__main__":
    main()
