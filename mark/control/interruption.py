"""Handle an interruption from its notice to the loss of the instance (MArk, section 4.5)."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping

from mark.domain.command import Command, Drain, Launch, Resume, Warm
from mark.domain.ec2_limits import INTERRUPTION_NOTICE_S
from mark.domain.fleet import Fleet, Instance, Notice, Phase
from mark.domain.offer import Market, Offer
from mark.domain.service import ResolvedService
from mark.planning.market.spot import LEAVE_S

ROUND_S = 5.0  # between two rounds of the controller


class InterruptionHandler:
    """Pure: turns notices, the fleet and the plan's missing instances into commands, which the controller carries out.

    A doomed instance keeps serving and is drained in time to finish its requests. Standbys bridge the gap: they serve
    while the plan or the arrivals exceed the ready capacity. This needs no stored state.
    """

    def __init__(self, resolved: ResolvedService) -> None:
        self._offers = {offer.name: offer for offer in resolved.offers}
        self._capacity_rps = {
            offer.name: candidate.capacity_rps
            for offer, candidate in zip(resolved.offers, resolved.candidates, strict=True)
        }
        self._function = resolved.function
        # ROUND_S is included because the next round would be too late.
        self._leave_s = LEAVE_S + resolved.slo.rt_max_s + ROUND_S

    def on_notices(
        self,
        notices: tuple[Notice, ...],
        fleet: Fleet,
        missing: Mapping[str, int],
        stands_for: Mapping[int, str],
        now_s: float,
    ) -> tuple[Command, ...]:
        """Return the commands, the most urgent first.

        `missing`: planned instances by offer that neither serve nor boot, or are doomed; at most these are replaced.
        `stands_for`: the planned offer of instances bought instead of another one.
        """
        doomed = {notice.number: notice for notice in notices}
        # An instance that was leaving anyway leaves no gap.
        lost = [i for i in fleet.instances if i.number in doomed and i.phase in (Phase.PENDING, Phase.READY)]
        commands: list[Command] = [
            self._drain(i, "interruption notice before it served") for i in lost if i.phase is Phase.PENDING
        ]
        serving = [i for i in lost if i.phase is Phase.READY]
        serving_rps = self._sum_rps(serving)
        # Standbys that an earlier, failed round resumed for these notices bridge them already.
        since_s = min((doomed[i.number].at_s for i in serving), default=now_s)
        made_up_rps = self._sum_rps(i for i in fleet.instances if _stands_in(i) and i.launched_s >= since_s)
        commands += self._resumes(fleet, serving_rps - made_up_rps, len(serving), now_s)
        planned = [stands_for.get(i.number, i.offer) for i in lost]
        for offer in sorted(set(planned)):
            count = min(planned.count(offer), missing.get(offer, 0))
            if count > 0:
                usd_per_hour = count * self._offers[offer].usd_per_hour
                commands.append(Launch(f"replaces {count} interrupted", usd_per_hour, offer, count))
        if self._function is not None and serving_rps > 0.0:
            environments = math.ceil(serving_rps * self._function.warm_s)
            commands.append(Warm(f"{serving_rps:.1f} requests/s were interrupted", 0.0, environments))
        return tuple(commands)

    def leave(self, fleet: Fleet, now_s: float, planned: Mapping[str, int], arriving_rps: float) -> tuple[Drain, ...]:
        """Return drains of doomed instances that must go and of bridging standbys that are not needed any more.

        Standbys are needed while the `planned` capacity (counts by offer) or `arriving_rps` exceeds the capacity of
        ready instances that are neither doomed nor standbys. A standby without credits is useless.
        """
        ready = [i for i in fleet.instances if i.phase is Phase.READY]
        commands = [
            self._drain(i, f"taken back in {i.interruption_at_s - now_s:.0f} s")
            for i in ready
            if i.interruption_at_s is not None and i.interruption_at_s - now_s < self._leave_s
        ]
        bridging = [i for i in ready if i.standby and i.interruption_at_s is None]
        if not bridging:
            return tuple(commands)
        needed_rps = self._needed_rps(fleet, planned, arriving_rps)
        for i in bridging:
            if i.credits is not None and i.credits < 1.0:
                commands.append(self._drain(i, "its credits are spent"))
            elif needed_rps <= 1e-9:
                commands.append(self._drain(i, "the ready instances serve without it"))
            else:
                needed_rps -= self._capacity_rps[i.offer]
        return tuple(commands)

    def bridge(self, fleet: Fleet, now_s: float, planned: Mapping[str, int], arriving_rps: float) -> list[Resume]:
        """Return resumes of standbys that could not start at the notice, because they were still stopping or refused.

        Their capacity is that of the doomed instances, less that of the standbys started since the notices, and at most
        the need that all serving and starting instances leave.
        """
        doomed = [
            i
            for i in fleet.instances
            if i.phase is Phase.READY and i.interruption_at_s is not None and math.isfinite(i.interruption_at_s)
        ]
        if not doomed or not fleet.standbys():
            return []
        noticed_s = min(i.interruption_at_s or 0.0 for i in doomed) - INTERRUPTION_NOTICE_S
        standing = [i for i in fleet.instances if _stands_in(i)]
        lost_rps = self._sum_rps(doomed) - self._sum_rps(i for i in standing if i.launched_s >= noticed_s)
        needed_rps = self._needed_rps(fleet, planned, arriving_rps) - self._sum_rps(standing)
        return self._resumes(fleet, min(lost_rps, needed_rps), len(doomed), now_s)

    def _needed_rps(self, fleet: Fleet, planned: Mapping[str, int], arriving_rps: float) -> float:
        """Return by how much the plan or the arrivals exceed the ready, lasting capacity without standbys."""
        needed_rps = max(arriving_rps, sum(n * self._capacity_rps[offer] for offer, n in planned.items()))
        lasts = (i for i in fleet.instances if i.phase is Phase.READY and i.interruption_at_s is None)
        return needed_rps - self._sum_rps(i for i in lasts if not i.standby)

    def _sum_rps(self, instances: Iterable[Instance]) -> float:
        return sum(self._capacity_rps[i.offer] for i in instances)

    def _drain(self, instance: Instance, reason: str) -> Drain:
        return Drain(reason, -self._offers[instance.offer].usd_per_hour, instance.offer, instance.number)

    def _resumes(self, fleet: Fleet, lost_rps: float, lost: int, now_s: float) -> list[Resume]:
        """Return resumes of startable standbys, cheapest first, until they make up for the lost capacity."""
        commands = []
        for standby in sorted(fleet.standbys(), key=lambda i: (self._offers[i.offer].usd_per_hour, i.number)):
            if lost_rps <= 1e-9:
                break
            if (standby.stopped_s or 0.0) > now_s:
                continue
            reason = f"bridges the loss of {lost} instances, of which {lost_rps:.1f} requests/s are not made up for"
            lost_rps -= self._capacity_rps[standby.offer]
            commands.append(Resume(reason, self._offers[standby.offer].usd_per_hour, standby.offer, standby.number))
        return commands


def _stands_in(i: Instance) -> bool:
    """Return whether the instance is a standby that serves or will; a standby in its first boot will be stopped."""
    starts = i.phase is Phase.PENDING and i.resumed
    return i.standby and i.interruption_at_s is None and (starts or i.phase is Phase.READY)


def instead_of(offer: Offer, resolved: ResolvedService) -> list[Offer]:
    """Return other offers of the same instance type in order of trial: other zones of the market, then on-demand."""
    same = [
        o
        for o in resolved.offers
        if o.instance == offer.instance and o.name != offer.name and o.market in (offer.market, Market.ON_DEMAND)
    ]
    # The name ends the key, because prices are usually equal in several zones.
    return sorted(same, key=lambda o: (o.market is not offer.market, o.usd_per_hour, o.name))
