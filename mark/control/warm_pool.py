"""The warm pool: instances that served, were drained and are kept stopped, to start again in a fraction of a boot.

A stopped instance costs only its disk. A launch of an offer with stopped instances becomes a resume. A drained instance
is stopped while the pool has room; otherwise it replaces the instance of another offer that has been stopped longest.
So the pool fills with the offers that the service uses. It holds on-demand instances only, because EC2 cannot stop spot
instances of an instant fleet, and a burstable loses its credits when it is stopped.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace

from mark.domain.command import Command, Launch, Resume, Stop, Terminate
from mark.domain.fleet import Fleet, Instance, Phase
from mark.domain.offer import Market, Offer
from mark.domain.plan import Plan, Target
from mark.domain.service import ResolvedService


class WarmPool:
    """Pure: turns commands into commands, for a pool of at most `resolved.service.warm_pool` instances."""

    def __init__(self, resolved: ResolvedService) -> None:
        self._offers = {offer.name: offer for offer in resolved.offers}
        self._capacity_rps = {
            offer.name: candidate.capacity_rps
            for offer, candidate in zip(resolved.offers, resolved.candidates, strict=True)
        }
        self._most = resolved.service.warm_pool

    def begun(self, plan: Plan, otherwise: Offer | None) -> Target | None:
        """Return the content of a full pool: instances of the offer with most of the plan's on-demand capacity.

        For a plan without on-demand instances use the offer `otherwise`. None for a pool of size zero.
        """
        on_demand = [t for t in plan.targets if t.count > 0 and is_kept(self._offers[t.offer])]
        largest = max(on_demand, key=lambda t: (t.count * self._capacity_rps[t.offer], t.offer), default=None)
        name = largest.offer if largest is not None else "" if otherwise is None else otherwise.name
        if self._most == 0 or name not in self._offers or not is_kept(self._offers[name]):
            return None
        return Target(name, self._most, "stopped, in the warm pool")

    def resumed_first(
        self, commands: Sequence[Command], fleet: Fleet, put_off_s: Mapping[str, float], now_s: float
    ) -> tuple[Command, ...]:
        """Return the commands with launches replaced by resumes from the pool, the last stopped instance first.

        Launches of a named release, or that count for another offer, stay launches.
        """
        launched = {c.offer for c in commands if isinstance(c, Launch) and not (c.standby or c.release or c.planned)}
        stopped: dict[str, list[Instance]] = defaultdict(list)
        for i in sorted(fleet.pooled() if launched else (), key=_age):
            can_start = (i.stopped_s or 0.0) <= now_s and put_off_s.get(i.offer, now_s) <= now_s
            if i.offer in launched and can_start:
                stopped[i.offer].append(i)
        if not stopped:
            return tuple(commands)
        result: list[Command] = []
        for command in commands:
            if not isinstance(command, Launch) or command.standby or command.release or command.planned:
                result.append(command)
                continue
            each_usd = command.usd_per_hour / command.count
            left = command.count
            while left > 0 and stopped[command.offer]:
                i = stopped[command.offer].pop()
                result.append(Resume(command.reason, each_usd, i.offer, i.number, rescue=command.rescue))
                left -= 1
            if left > 0:
                result.append(replace(command, count=left, usd_per_hour=left * each_usd))
        return tuple(result)

    def drained(self, fleet: Fleet, unfit: Collection[int]) -> list[Command]:
        """Return stops or ends of drained instances, and ends of the instances that they displace in the pool.

        The commands save no money, because the drain has counted the saving. `unfit` are numbers of instances that must
        not be stopped, because they were unhealthy or the cloud refused.
        """
        leaving = [i for i in fleet.instances if i.phase is Phase.DRAINING and i.idle]
        pool = sorted(fleet.pooled(), key=_age)
        ended = [
            Terminate("the pool is smaller now", 0.0, i.offer, i.number) for i in pool[: max(0, len(pool) - self._most)]
        ]
        pool = pool[len(ended) :]
        commands: list[Command] = [*ended]
        holds = Counter(i.offer for i in pool)
        for i in leaving:
            if i.interruption_at_s is None and i.standby and i.number not in unfit:
                commands.append(Stop("its queue is empty", 0.0, i.offer, i.number))
                continue
            keep = self._most > 0 and i.interruption_at_s is None and is_kept(self._offers[i.offer])
            keep = keep and i.number not in unfit
            if keep and holds.total() >= self._most:
                other = next((one for one in pool if one.offer != i.offer), None)
                if other is None:
                    keep = False
                else:
                    pool.remove(other)
                    holds[other.offer] -= 1
                    reason = f"{i.offer} takes its place in the warm pool"
                    commands.append(Terminate(reason, 0.0, other.offer, other.number))
            if keep:
                holds[i.offer] += 1
                commands.append(Stop("its queue is empty: into the warm pool", 0.0, i.offer, i.number))
            else:
                commands.append(Terminate("its queue is empty", 0.0, i.offer, i.number))
        return commands


def _age(i: Instance) -> tuple[float, int]:
    """Return the sort key that puts the longest stopped instance first."""
    return i.stopped_s or 0.0, i.number


def is_kept(offer: Offer) -> bool:
    """Return whether an instance of the offer may be stopped and resumed."""
    return offer.market is Market.ON_DEMAND
