"""The options of a stage: whole instances on demand, or workers on instances that it shares with other stages."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from mark.domain.offer import Delay, Market, Offer
from mark.domain.profile import Basis, Profile, weakest
from mark.domain.service import ResolvedService
from mark.planning.graphs.estimate import Floats, StageOption
from mark.planning.graphs.packing import placed_usd_per_hour, placement_of
from mark.planning.resolve import profile_of
from mark.profiling.policy import sigma_of


@dataclass(frozen=True, slots=True)
class InstanceOption:
    """An offer as an option of a stage, and the profile with its times."""

    offer: Offer
    profile: Profile
    option: StageOption

    @property
    def basis(self) -> Basis:
        """The weakest basis of the profile's rows."""
        return weakest(row.basis for row in self.profile.rows)


def instance_options(resolved: ResolvedService) -> list[InstanceOption]:
    """Return the options of a stage resolved as a service: its on-demand types, each in its cheapest zone, by name.

    Batches are those of the profile, up to the largest that takes no longer than RT_max. A batch's mean time includes a
    request's `overhead_ms` once more, during which the worker takes no other batch: more than it costs a machine that
    does both at the same time. Its spread is the widest of `p99_ms` over the sizes in use.
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


def shared_options(
    offered: Sequence[Sequence[InstanceOption]], without_gpu: Sequence[bool]
) -> list[list[InstanceOption]]:
    """Return the options of each stage by the worker instead of whole instances, which may have other stages' workers.

    If `workers` of a stage keep an instance busy, each takes its share of the vCPUs; on an instance with GPUs, unless
    the stage is `without_gpu`, its share of the GPUs, and at most one vCPU. `placement_of` has the details. Types whose
    vCPUs the catalogue does not say are left as they are.
    """
    processors = [
        one.offer.usd_per_hour / one.offer.vcpu
        for of_stage in offered
        for one in of_stage
        if one.offer.vcpu and not one.offer.gpus
    ]
    usd_per_vcpu_hour = min(processors, default=0.0)
    return [
        [_shared(one, on_processor, usd_per_vcpu_hour) if one.offer.vcpu else one for one in of_stage]
        for of_stage, on_processor in zip(offered, without_gpu, strict=True)
    ]


def shared_stages(stages: Sequence[ResolvedService], without_gpu: Sequence[bool]) -> tuple[ResolvedService, ...]:
    """Return the stages with offers priced by the share of an instance that their `workers` take, for a lower bound.

    Stages that share an instance together pay no more for its hours than its price, so that a bound of the sum of their
    bills is a bound of the bill. Boots cost nothing here, because a worker of one stage may follow that of another on a
    running instance; and burstables are always at full speed, because stages share their credits as well.
    """
    offers = [offer for stage in stages for offer in stage.offers]
    usd_per_vcpu_hour = min((o.usd_per_hour / o.vcpu for o in offers if o.vcpu and not o.gpus), default=0.0)

    def priced(offer: Offer, profile: Profile, on_processor: bool) -> Offer:
        if offer.market is Market.BURSTABLE:
            offer = replace(offer, market=Market.ON_DEMAND, credits=None)
        offer = replace(offer, boot=Delay(0.0, 0.0))
        if not offer.vcpu:
            return offer
        placement = placement_of(offer, profile, on_processor)
        usd_per_hour = profile.workers * placed_usd_per_hour(placement, usd_per_vcpu_hour)
        # If memory has room for fewer than all workers, an instance with all of them still costs no more than its
        # price.
        return replace(offer, usd_per_hour=min(usd_per_hour, offer.usd_per_hour))

    return tuple(
        replace(
            stage,
            offers=tuple(
                priced(offer, candidate.profile, on_processor)
                for offer, candidate in zip(stage.offers, stage.candidates, strict=True)
            ),
        )
        for stage, on_processor in zip(stages, without_gpu, strict=True)
    )


def _shared(one: InstanceOption, without_gpu: bool, usd_per_vcpu_hour: float) -> InstanceOption:
    placement = placement_of(one.offer, one.profile, without_gpu)
    usd_per_hour = placed_usd_per_hour(placement, usd_per_vcpu_hour)
    return replace(one, option=replace(one.option, usd_per_hour=usd_per_hour, workers=1, placement=placement))


def _option(offer: Offer, profile: Profile, rt_max_s: float) -> StageOption:
    service_s = np.interp(
        np.arange(profile.rows[-1].batch + 1),
        [row.batch for row in profile.rows],
        [row.latency_ms / 1e3 for row in profile.rows],
    )
    service_s += profile.overhead_s
    times_s = _within(service_s, rt_max_s)
    sigma = max(sigma_of(row) for row in profile.rows if row.batch < max(len(times_s), profile.rows[0].batch + 1))
    return StageOption(offer.instance, offer.usd_per_hour, times_s, profile.workers, sigma)


def _within(service_s: Floats, rt_max_s: float) -> Floats:
    slow = np.flatnonzero(service_s[2:] > rt_max_s)
    return service_s[: 2 + int(slow[0])] if len(slow) else service_s
