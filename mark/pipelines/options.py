"""What a stage may run on: whole instances on demand, each by itself, with the profile of the stage's model."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from mark.domain.offer import Market, Offer
from mark.domain.profile import Basis, Profile
from mark.domain.service import ResolvedService
from mark.pipelines.estimate import Floats, StageOption
from mark.planning.resolve import profile_of


@dataclass(frozen=True, slots=True)
class InstanceOption:
    """An offer as an option of a stage, and the profile that its times are from."""

    offer: Offer
    profile: Profile
    option: StageOption

    @property
    def basis(self) -> Basis:
        """The weakest of the rows that its times are from."""
        found = {row.basis for row in self.profile.rows}
        return next(basis for basis in (Basis.ASSUMED, Basis.DERIVED, Basis.MEASURED) if basis in found)


def instance_options(resolved: ResolvedService) -> list[InstanceOption]:
    """Of a stage resolved as a service: its instance types on demand, the cheapest zone of each; in order of names.

    Batches are those of the profile, up to the largest that takes no longer than RT_max. A batch takes its mean time,
    and what a request takes beside the model (`overhead_ms`) once more, during which the worker takes no other: more
    than it really costs a machine that does both at once.
    """
    cheapest: dict[str, Offer] = {}
    for offer in sorted(resolved.offers, key=lambda offer: (offer.usd_per_hour, offer.name)):
        if offer.market is Market.ON_DEMAND:
            cheapest.setdefault(offer.instance, offer)
    found = []
    for name, offer in sorted(cheapest.items()):
        profile = profile_of(resolved.profiles, name)
        assert profile is not None, f"{name} is an offer without a profile"
        found.append(InstanceOption(offer, profile, _option(offer, profile, resolved.service.slo.rt_max_s)))
    return found


def _option(offer: Offer, profile: Profile, rt_max_s: float) -> StageOption:
    service_s = np.interp(
        np.arange(profile.rows[-1].batch + 1),
        [row.batch for row in profile.rows],
        [row.latency_ms / 1e3 for row in profile.rows],
    )
    service_s += profile.overhead_s
    return StageOption(offer.instance, offer.usd_per_hour, _within(service_s, rt_max_s), profile.workers)


def _within(service_s: Floats, rt_max_s: float) -> Floats:
    slow = np.flatnonzero(service_s[2:] > rt_max_s)
    return service_s[: 2 + int(slow[0])] if len(slow) else service_s


def varies(one: InstanceOption) -> bool:
    """Does its profile say that batches take different times (`p99_ms`)?"""
    return any(row.p99_ms is not None for row in one.profile.rows)
