"""What is done in the two minutes between an interruption notice and the loss of the instance (MArk, section 4.5)."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

from mark.domain.command import Command, Drain, Launch, Resume, Warm
from mark.domain.fleet import Fleet, Instance, Notice, Phase
from mark.domain.offer import Market, Offer
from mark.domain.service import Deployment


@dataclass(frozen=True, slots=True)
class Bridge:
    """A standby that serves until the planned number of `offer` is ready again."""

    standby: int
    offer: str


class InterruptionHandler:
    """Pure: notices, fleet and what the plan lacks in, commands out. The controller carries them out."""

    def __init__(self, deployment: Deployment) -> None:
        self._offers = {offer.name: offer for offer in deployment.offers}
        self._capacity_rps = {
            offer.name: candidate.capacity_rps
            for offer, candidate in zip(deployment.offers, deployment.candidates, strict=True)
        }
        self._function = deployment.function

    def on_notices(
        self, notices: tuple[Notice, ...], fleet: Fleet, missing: Mapping[str, int], stands_for: Mapping[int, str]
    ) -> tuple[tuple[Command, ...], tuple[Bridge, ...]]:
        """Commands in order of urgency, and which standby bridges for which offer if its resume succeeds.

        `missing`: planned instances by offer that neither serve nor boot, the doomed ones not counted; no more than
        these are replaced. `stands_for`: the planned offer of instances bought instead of another one.
        """
        doomed = {notice.number: notice for notice in notices}
        # What was on its way out anyway leaves no gap.
        lost = [i for i in fleet.instances if i.number in doomed and i.phase in (Phase.PENDING, Phase.READY)]
        commands: list[Command] = []
        for i in lost:
            left_s = doomed[i.number].gone_s - doomed[i.number].at_s
            reason = f"interruption notice, gone {left_s:.0f} s after it"
            commands.append(Drain(reason, -self._offers[i.offer].usd_per_hour, i.offer, i.number))
        planned = [stands_for.get(i.number, i.offer) for i in lost]
        bridges = []
        for standby, i, offer in zip(self._cheapest_first(fleet), lost, planned, strict=False):
            reason = f"bridges the loss of #{i.number} {i.offer} ({self._capacity_rps[i.offer]:.1f} requests/s)"
            commands.append(Resume(reason, self._offers[standby.offer].usd_per_hour, standby.offer, standby.number))
            bridges.append(Bridge(standby.number, offer))
        for offer in sorted(set(planned)):
            count = min(planned.count(offer), missing.get(offer, 0))
            if count > 0:
                usd_per_hour = count * self._offers[offer].usd_per_hour
                commands.append(Launch(f"replaces {count} interrupted", usd_per_hour, offer, count))
        serving_rps = sum(self._capacity_rps[i.offer] for i in lost if i.phase is Phase.READY)
        if self._function is not None and serving_rps > 0.0:
            environments = math.ceil(serving_rps * self._function.warm_s)
            commands.append(Warm(f"{serving_rps:.1f} requests/s were interrupted", 0.0, environments))
        return tuple(commands), tuple(bridges)

    def release(
        self, bridges: tuple[Bridge, ...], fleet: Fleet, ready: Mapping[str, int], planned: Mapping[str, int]
    ) -> tuple[tuple[Command, ...], tuple[Bridge, ...]]:
        """Drain the standbys whose gap is closed; returns the bridges that stay.

        `ready` and `planned` count by planned offer, standbys not included.
        """
        standing = {i.number: i for i in fleet.instances if i.standby and i.phase in (Phase.PENDING, Phase.READY)}
        commands: list[Command] = []
        stay = []
        for bridge in bridges:
            standby = standing.get(bridge.standby)
            if standby is None:
                continue
            if ready.get(bridge.offer, 0) < planned.get(bridge.offer, 0):
                stay.append(bridge)
                continue
            usd_per_hour = -self._offers[standby.offer].usd_per_hour
            reason = f"the planned {bridge.offer} are ready again"
            commands.append(Drain(reason, usd_per_hour, standby.offer, standby.number))
        return tuple(commands), tuple(stay)

    def _cheapest_first(self, fleet: Fleet) -> list[Instance]:
        return sorted(fleet.standbys(), key=lambda i: (self._offers[i.offer].usd_per_hour, i.number))


def instead_of(offer: Offer, deployment: Deployment) -> list[Offer]:
    """Where else the same instance type can be bought, in order of trial: other zones of the market, then on-demand."""
    same = [
        o
        for o in deployment.offers
        if o.instance == offer.instance and o.name != offer.name and o.market in (offer.market, Market.ON_DEMAND)
    ]
    # The name ends the key: equal prices in several zones are the rule.
    return sorted(same, key=lambda o: (o.market is not offer.market, o.usd_per_hour, o.name))
