"""Rent instances one at a time for a search among types, and measure each.

`RentedSearch` carries out the decisions of `ProfileSearch` on a cloud behind the port `Cloud`. It launches one instance
at a time (spot first, if allowed), waits until its bouncer is ready, measures, and terminates it. It terminates all its
launches even after errors, and first those that a killed run left over. No answer is awaited beyond the rental's
maximum time, which the budget sets.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from mark.control.ports import Clock, Cloud
from mark.domain.ec2_limits import MINIMUM_BILLED_S
from mark.domain.errors import CapacityError, CloudError, DeniedError, LimitError, MarkError, StoreError, ThrottledError
from mark.domain.fleet import Instance, Phase
from mark.domain.offer import Market, Offer
from mark.profiling.measure import Measured
from mark.profiling.search import ProfileSearch, Rent, SearchDone

_END_TRIES = 5
# A rental stops this long before its maximum time, so that a batch can end and the instance can be terminated.
_TO_END_S = 5.0
# EC2 lists a new launch only after some calls; so many are tried.
_LOOKS_TO_SEE = 15

log = logging.getLogger("mark.profiling")

# Return the seconds left of a rental, above zero. Raises RentalOverdue when the time is over.
LeftS = Callable[[], float]
# Measure the instance with this number for a Rent, in the time that is left.
Measure = Callable[[int, Rent, LeftS], Measured]


class RentalOverdue(MarkError):
    """A rental has lasted as long as the budget allows."""


@dataclass(frozen=True, slots=True)
class RentalBill:
    """A rented instance, from its launch to its end, and its maximum cost.

    EC2 bills a little less, because it bills from `running` on.
    """

    offer: str
    seconds: float
    usd: float


@dataclass(slots=True)
class _Held:
    number: int
    instance: str
    offer: Offer
    launched_s: float


@dataclass(slots=True)
class RentedSearch:
    """See the module. `offers` has each type's offers, in the order in which they are tried.

    `look` waits a moment and refreshes the view of the cloud. `run` distinguishes this run's launches from all others.
    `keep` gets each measurement immediately, so that a paid measurement is kept even if the search fails later.
    """

    search: ProfileSearch
    offers: Mapping[str, Sequence[Offer]]
    cloud: Cloud
    clock: Clock
    measure: Measure
    look: Callable[[], None]
    run: str
    keep: Callable[[Measured], None] = lambda measured: None
    measured: dict[str, Measured] = field(default_factory=dict)
    bills: dict[str, list[RentalBill]] = field(default_factory=dict)
    _held: _Held | None = None
    _launches: int = 0
    _unanswered: bool = False  # a launch without an answer may have succeeded
    _interrupted: set[str] = field(default_factory=set)  # types that were taken back, for which spot is not tried again
    _took_s: dict[str, float] = field(default_factory=dict)  # duration of each type's last measurement

    def execute(self) -> SearchDone:
        """Rent and measure until the search stops. Raises CloudError if the cloud cannot be used at all."""
        try:
            self._end_all()  # instances that an earlier run left over
            while not isinstance(step := self.search.next(), SearchDone):
                if isinstance(step, Rent):
                    self._rent(step)
                else:
                    self._give_back()
            return step
        finally:
            try:
                self._give_back()
            finally:
                self._end_all()

    def _rent(self, step: Rent) -> None:
        name = step.instance
        if self._held is None:
            why = self._launch(name)
            if self._held is None:
                self.search.fail(name, why)
                return
        held = self._held
        until_s = held.launched_s + step.longest_s - _TO_END_S

        def left_s() -> float:
            left = until_s - self.clock.now_s()
            if left <= 0.0:
                raise RentalOverdue(f"not done within {step.longest_s:.0f} s of its launch")
            return left

        try:
            self._wait_until_ready(held, left_s)
            # A slow type takes its minimum of rounds anyway, so less time would only give a worse measurement.
            began_s = self.clock.now_s()
            if (took_s := self._took_s.get(name, 0.0)) > until_s - began_s:
                left = max(0.0, until_s - began_s)
                raise RentalOverdue(f"{left:.0f} s are left, and its shorter measurement took {took_s:.0f} s")
            measured = self.measure(held.number, step, left_s)
            ended_s = self.clock.now_s()
            self.look()
            taken = self._is_taken(held.number)
            if (measured.failed and (held.offer.market is Market.SPOT or taken)) or (taken and ended_s >= until_s):
                why = next(iter(measured.failed.values()), "it was taken back")
                raise MarkError(f"not all could be measured: {why}")
        except CloudError:
            raise
        except MarkError as error:
            spot = held.offer.market is Market.SPOT
            if spot:  # on-demand instances are not taken back, so a look would only cost money
                self.look()
            taken = spot and self._is_taken(held.number)
            self._give_back()
            # An instance with an interruption notice refuses requests two minutes before it is gone.
            if spot and (taken or not isinstance(error, RentalOverdue)):
                self._interrupted.add(name)  # the search asks for it again
                log.warning("%s may have been taken back, and is tried on demand: %s", held.offer.name, error)
            else:
                self.search.fail(name, str(error))
            return
        self.measured[name], self._took_s[name] = measured, ended_s - began_s
        self.search.record(name, measured.profile())
        self.keep(measured)

    def _launch(self, name: str) -> str:
        """Launch the first available offer of the type; return "", or the reason why all failed."""
        why = ""
        for offer in self.offers[name]:
            if offer.market is Market.SPOT and name in self._interrupted:
                continue
            self._launches += 1
            launched_s = self.clock.now_s()
            answered, self._unanswered = self._unanswered, True
            try:
                (number,) = self.cloud.launch(offer.name, 1, f"{self.run}-{self._launches}").numbers
            except (DeniedError, StoreError, ThrottledError):
                raise
            except CloudError as error:  # concerns this type only, so the search continues with others
                if isinstance(error, (CapacityError, LimitError)):
                    self._unanswered = answered
                why = str(error)
                log.warning("%s cannot be had: %s", offer.name, error)
                continue
            self._held = _Held(number, name, offer, launched_s)
            self._unanswered = answered
            return ""
        return why

    def _wait_until_ready(self, held: _Held, left_s: LeftS) -> None:
        while (instance := self._seen(held.number)) is None or instance.phase is not Phase.READY:
            if self._is_taken(held.number):
                raise MarkError("it ended before it was ready")
            left_s()
            self.look()

    def _seen(self, number: int) -> Instance | None:
        return next((one for one in self.cloud.fleet().instances if one.number == number), None)

    def _is_taken(self, number: int) -> bool:
        instance = self._seen(number)
        return instance is None or instance.interruption_at_s is not None

    def _give_back(self) -> None:
        """Terminate the instance in hand, and bill it."""
        held, self._held = self._held, None
        if held is None:
            return
        try:
            self._end(held.number)
        finally:
            seconds = max(MINIMUM_BILLED_S, math.ceil(self.clock.now_s() - held.launched_s))
            bill = RentalBill(held.offer.name, seconds, seconds * held.offer.usd_per_s)
            self.bills.setdefault(held.instance, []).append(bill)
            self.search.paid(held.instance, bill.usd)

    def _end(self, number: int) -> None:
        """Terminate an instance. Raises CloudError after some failed tries."""
        for left in reversed(range(_END_TRIES)):
            try:
                self.cloud.terminate(number)
                return
            except CloudError as error:
                if not left:
                    raise CloudError(f"instance #{number} may still run, and must be ended by hand: {error}") from error
                self.look()

    def _end_all(self) -> None:
        """Terminate all of this service's instances, including a launch whose answer was lost."""
        for _ in range(_LOOKS_TO_SEE if self._unanswered else 0):
            self.look()
        fleet = self.cloud.fleet()
        for instance in (*fleet.instances, *fleet.leaving):
            self._end(instance.number)
