"""A dry run: decisions are made and explained, but no instance is launched or ended.

The effects are simulated on top of the real fleet, so that the next decision follows from them: simulated instances
boot in their mean time but never serve, and ended ones disappear.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from mark.control.ports import Clock, Cloud, Launched
from mark.domain.errors import NotFoundError
from mark.domain.fleet import Fleet, Instance, Notice, Phase
from mark.domain.offer import Offer

FIRST = 1_000_000_000  # first number of simulated instances, which no real fleet reaches


@dataclass(slots=True)
class _Played:
    """The simulated phase of an instance."""

    phase: Phase
    at_s: float  # when the phase began


class DryRunCloud:
    """The port Cloud: reads `cloud` and changes nothing. The simulated effects end with the term."""

    def __init__(self, cloud: Cloud, offers: Sequence[Offer], clock: Clock) -> None:
        self._cloud, self._clock = cloud, clock
        self._offers = {offer.name: offer for offer in offers}
        self._launched: dict[int, Instance] = {}
        self._tokens: dict[str, Launched] = {}
        self._played: dict[int, _Played] = {}

    def fleet(self) -> Fleet:
        there = self._cloud.fleet()
        real = {i.number: i for i in (*there.instances, *there.leaving)}
        leaving = {i.number for i in there.leaving}
        shown = (self._shown(i) for i in (*real.values(), *self._launched.values()))
        self._played = {n: p for n, p in self._played.items() if n in real or n in self._launched}
        left = [i for i in shown if i.phase is not Phase.GONE]
        return Fleet(
            tuple(i for i in left if i.number not in leaving),
            tuple(i for i in left if i.number in leaving),
            there.refused,
        )

    def launch(
        self,
        offer: str,
        count: int,
        token: str,
        *,
        standby: bool = False,
        release: str = "",
        alternatives: tuple[str, ...] = (),
    ) -> Launched:
        if token not in self._tokens:
            first = FIRST + sum(len(one.numbers) for one in self._tokens.values())
            numbers = tuple(range(first, first + count))
            self._tokens[token] = Launched(numbers)
            now_s = self._clock.now_s()
            ready_s = now_s + self._offers[offer].boot.mean_s
            for n in numbers:
                self._launched[n] = Instance(n, offer, Phase.PENDING, now_s, ready_s, standby=standby, release=release)
        return self._tokens[token]

    def drain(self, number: int) -> None:
        if self._find(number).phase is not Phase.DRAINING:
            self._play(number, Phase.DRAINING)

    def terminate(self, number: int) -> None:
        if self._launched.pop(number, None) is None:
            self._play(number, Phase.GONE)

    def stop(self, number: int) -> None:
        self._find(number)
        self._play(number, Phase.STOPPED)

    def resume(self, number: int) -> None:
        self._find(number)
        self._play(number, Phase.PENDING)

    def notices(self) -> tuple[Notice, ...]:
        return self._cloud.notices()

    def _play(self, number: int, phase: Phase) -> None:
        self._played[number] = _Played(phase, self._clock.now_s())

    def _shown(self, i: Instance) -> Instance:
        now_s, played = self._clock.now_s(), self._played.get(i.number)
        if played is None:
            if i.number >= FIRST and i.ready_s is not None and now_s >= i.ready_s:
                return replace(i, phase=Phase.STOPPED if i.standby else Phase.READY)
            return i
        if played.phase is Phase.PENDING:
            offer = self._offers[i.offer]
            ready_s = played.at_s + (offer.resume or offer.boot).mean_s
            phase = Phase.READY if now_s >= ready_s else Phase.PENDING
            return replace(i, phase=phase, launched_s=played.at_s, ready_s=ready_s, idle=False, resumed=True)
        return replace(i, phase=played.phase, idle=played.phase is Phase.DRAINING)

    def _find(self, number: int) -> Instance:
        fleet = self.fleet()
        for i in (*fleet.instances, *fleet.leaving):
            if i.number == number:
                return i
        raise NotFoundError(f"there is no instance #{number}")


class DryRunFunctions:
    """The port Functions: counts the environments that would be warm."""

    def __init__(self) -> None:
        self._warm = 0

    def warm(self, environments: int) -> int:
        started = max(0, environments - self._warm)
        self._warm = max(self._warm, environments)
        return started

    def switch(self, release: str) -> bool:
        return True
