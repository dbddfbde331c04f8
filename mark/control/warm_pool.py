"""The warm pool: instances that served, were drained and are kept stopped, to start again in a fraction of a boot.

A stopped instance costs its disk. What is launched while some of its offer are stopped is resumed instead; what is
drained is stopped while there is room, and else takes the place of another offer's that was not needed for longest. So
the pool fills by itself with what the service uses. Of instances on demand only: EC2 does not stop spot that an instant
fleet launched, and what a burstable has left of its credits ends with its stop.
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
    """Pure: commands in, commands out, for a pool of at most `most` instances of these offers."""

    def __init__(self, resolved: ResolvedService) -> None:
        self._offers = {offer.name: offer for offer in resolved.offers}
        self._capacity_rps = {
            offer.name: candidate.capacity_rps
            for offer, candidate in zip(resolved.offers, resolved.candidates, strict=True)
        }
        self._most = resolved.service.warm_pool

    def begun(self, plan: Plan, otherwise: Offer | None) -> Target | None:
        """What a pool holds that has been filled before: of the offer with most of the plan's capacity on demand."""
        on_demand = [t for t in plan.targets if t.count > 0 and is_kept(self._offers[t.offer])]
        largest = max(on_demand, key=lambda t: (t.count * self._capacity_rps[t.offer], t.offer), default=None)
        name = largest.offer if largest is not None else "" if otherwise is None else otherwise.name
        if self._most == 0 or name not in self._offers or not is_kept(self._offers[name]):
            return None
        return Target(name, self._most, "stopped, in the warm pool")

    def resumed_first(
        self, commands: Sequence[Command], fleet: Fleet, put_off_s: Mapping[str, float], now_s: float
    ) -> tuple[Command, ...]:
        """The commands with launches of what is in the pool as resumes, of the last stopped first: others grow old.

        Launches of a certain release, or to count for another offer, stay launches.
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
                result.append(Resume(command.reason, each_usd, i.offer, i.number))
                left -= 1
            if left > 0:
                result.append(replace(command, count=left, usd_per_hour=left * each_usd))
        return tuple(result)

    def drained(self, fleet: Fleet, unfit: Collection[int]) -> list[Command]:
        """Stops or ends of what is drained, and the ends of what it displaces. Their price was given back before.

        `unfit` are numbers of what is not to be stopped: it was sick, or the cloud would not.
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
    """The longest stopped first."""
    return i.stopped_s or 0.0, i.number


def is_kept(offer: Offer) -> bool:
    """May an instance of it be stopped to be resumed?"""
    return offer.market is Market.ON_DEMAND
