"""The simulator's cloud, in virtual time.

It boots, bills, refuses, interrupts, stops and resumes instances, all from one seed. Times are seconds from the start
of the evaluated part. Which instance serves which request is decided behind `DataPlane`.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from mark.cloud.billing.meter import Meter, disks_of
from mark.cloud.ec2.cpu_credits import CREDIT_STEP_S, CreditAccount, LaunchCredits
from mark.cloud.ec2.draws import Start
from mark.cloud.ec2.events import InstanceEvent
from mark.cloud.ec2.prices import cost
from mark.cloud.ec2.spot_interruption import SpotZone
from mark.cloud.ec2.spot_series import SpotSeries
from mark.cloud.machine import InstanceLife, LifeEvents
from mark.control.ports import Clock, Cloud, Launched
from mark.domain.bill import Bill
from mark.domain.ec2_limits import INTERRUPTION_NOTICE_S, STOPPING_S, UNBILLED_PENDING_S
from mark.domain.errors import CapacityError, LimitError, NotFoundError
from mark.domain.fleet import Fleet, Notice, Phase
from mark.domain.offer import Market, Offer

# A balance far from empty need not be settled every 5 s, because it is linear in time and use (except at its cap, where
# a longer step overstates it by at most its earnings). This is the greatest age of balances in fleet().
_LONGEST_CREDIT_STEP_S = 300.0


class DataPlane(Protocol):
    """The instances as servers of requests. Times never go back."""

    def add(self, number: int, offer_index: int, at_s: float) -> None:
        """Let the instance take requests from `at_s` on; a resumed one comes back under its number."""

    def drain(self, number: int, at_s: float) -> None:
        """Send it no new request; its accepted ones are finished."""

    def remove(self, number: int, at_s: float) -> None:
        """Remove an instance that is gone or stopped."""

    def idle_at(self, number: int) -> float:
        """Return when a draining instance has finished everything; inf while that is unknown."""

    def set_speed(self, number: int, factor: float, at_s: float) -> None:
        """Let it serve at `factor` of its full speed."""

    def busy_s(self, number: int) -> float:
        """Return busy worker-seconds since it was first added; current work may count in full."""


class CrashingPlane(Protocol):
    """A data plane whose instances may crash."""

    def doom(self, number: int, crash_s: float) -> None:
        """Let the instance, which was just added, crash at `crash_s`, unless it is removed before."""

    def crash(self, number: int, at_s: float) -> None:
        """Crash the instance, which then answers nothing."""


@dataclass(slots=True, kw_only=True)
class _Record(InstanceLife):
    index: int  # of its offer
    offer: Offer
    warm: bool = False  # of the first fleet, which began before the run: no billed minimum


@dataclass(frozen=True, slots=True)
class SimulatedMarket:
    """The instances that the simulated cloud sells.

    `spot` are availability and price series, of each kind one per zone in order of `zones` (else of the offers' zones);
    fewer series than zones are reused from the first. A price series needs the on-demand price of each spot type:
    `on_demand_usd_per_hour` by instance type, else taken from on-demand offers. `capacity` is the most instances of an
    offer at a time (without an entry: unlimited). `max_instances` is the account's limit on instances that are neither
    stopped nor gone.
    """

    spot: Sequence[SpotSeries] = ()
    zones: Sequence[str] | None = None
    on_demand_usd_per_hour: Mapping[str, float] | None = None
    capacity: Mapping[str, int] = field(default_factory=dict)
    max_instances: int | None = None


@dataclass(frozen=True, slots=True)
class BillingTerms:
    """The rules of the simulated bill besides prices.

    `bills_disks` bills all instances' disks; `bills_pool` only those of the warm pool. `committed[name]` instances of
    an offer are paid whether they run or not, `committed_usd_per_hour` for all.
    """

    spot_first_hour_free: bool = False
    bills_disks: bool = False
    bills_pool: bool = False
    committed: Mapping[str, int] = field(default_factory=dict)
    committed_usd_per_hour: float = 0.0


@dataclass(frozen=True, slots=True)
class Crashes:
    """Each serving instance crashes at the rate `per_hour`; `plane` carries crashes out.

    A crashed instance answers nothing, and is paid until it is ended.
    """

    per_hour: float
    plane: CrashingPlane


@dataclass(frozen=True, slots=True)
class FleetResult:
    """The figures of the fleet in a run."""

    launched: int
    terminated: int
    interrupted: int
    peak_instances: int
    instance_hours: dict[str, float]  # by offer name
    boot_usd: float = 0.0  # paid for instances that were not ready yet


class SimulatedCloud:
    """Implements `mark.control.ports.Cloud` (and `Clock`) in virtual time.

    The data plane knows `offers[i]` by its index i. `workers[i]` is how many batches its instances run at a time.

    The same arguments and calls give the same events: a draw is a function of (seed, instance number, start, purpose).
    """

    def __init__(
        self,
        offers: Sequence[Offer],
        plane: DataPlane,
        *,
        seed: int,
        end_s: float,
        market: SimulatedMarket | None = None,
        terms: BillingTerms | None = None,
        workers: Sequence[int] | None = None,
        crashes: Crashes | None = None,
    ) -> None:
        market, terms = market or SimulatedMarket(), terms or BillingTerms()
        self._offers = tuple(offers)
        self._index = {offer.name: i for i, offer in enumerate(self._offers)}
        self._plane, self._crashing = plane, crashes
        self.crashes = 0
        self._seed = seed
        self._end_s = end_s
        self._bills_disks = terms.bills_disks
        self._capacity, self._max_instances = market.capacity, market.max_instances
        self._workers = tuple(workers) if workers is not None else (1,) * len(self._offers)
        self._now_s = 0.0
        self._next_number = 1
        self._alive: dict[int, _Record] = {}  # every instance that is not gone, ascending by number
        self._active = [0] * len(self._offers)  # by offer: not stopped, not gone
        self._tokens: dict[str, Launched] = {}
        self._events: LifeEvents[_Record] = LifeEvents(end_s)
        self._notices: list[Notice] = []
        self._fleet: Fleet | None = None
        self._launch_credits = LaunchCredits()
        self._launched = self._terminated = self._interrupted = self._peak = 0
        self.notes: tuple[str, ...] = ()

        used = list(dict.fromkeys(o.zone for o in self._offers if o.market is Market.SPOT))
        zones = (market.zones or used) if used else ()
        held = [s for s in market.spot if s.kind == "availability"]
        priced = [s for s in market.spot if s.kind == "price"]
        for kind, series in (("availability", held), ("price", priced)):
            if len(series) > len(zones):
                unused = ", ".join(s.name for s in series[len(zones) :])
                self.notes += (f"{len(zones)} spot zones: {kind} series not used: {unused}",)
        self._zone_of = {zone: k for k, zone in enumerate(zones)}
        self._spot = [SpotZone(held[k % len(held)] if held else None) for k in range(len(zones))]
        for k, zone in enumerate(self._spot):
            self._events.push_share(zone.next_change_s, k)
        self._has_hazard = not held
        prices = market.on_demand_usd_per_hour
        if prices is None:
            prices = {o.instance: o.usd_per_hour for o in self._offers if o.market is Market.ON_DEMAND}
        costs = [
            cost(o, priced[self._zone_of[o.zone] % len(priced)] if priced and o.market is Market.SPOT else None, prices)
            for o in self._offers
        ]
        self._meter = Meter(
            self._offers,
            costs,
            end_s=end_s,
            first_hour_free=terms.spot_first_hour_free,
            bills_disks=terms.bills_disks or terms.bills_pool,
            committed=terms.committed,
            committed_usd_per_hour=terms.committed_usd_per_hour,
        )

    # -- the port Cloud ------------------------------------------------------------------------------------------------

    def now_s(self) -> float:
        """Return the virtual time; the cloud is its own Clock."""
        return self._now_s

    def fleet(self) -> Fleet:
        """Return the fleet, the same object until it changes."""
        if self._fleet is None:
            self._fleet = Fleet(tuple(r.view for r in self._alive.values()))
        return self._fleet

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
        if token in self._tokens:
            return self._tokens[token]
        numbers: list[int] = []
        refusal: CapacityError | LimitError | None = None
        for name in (offer, *alternatives):
            index = self._offer_index(name)
            try:
                allowed = self._room(index, count - len(numbers))
            except (CapacityError, LimitError) as error:
                refusal = refusal or error
                continue
            numbers += [self._launch_one(index, standby, release) for _ in range(allowed)]
            if len(numbers) == count:
                break
        if not numbers and refusal is not None:
            raise refusal
        why = CapacityError(f"no more of {offer}" if refusal is None else str(refusal))
        self._tokens[token] = Launched(tuple(numbers), why if len(numbers) < count else None)
        return self._tokens[token]

    def _launch_one(self, index: int, standby: bool, release: str) -> int:
        record = self._new(index, standby, release)
        self._launched += 1
        self._boot(record)
        return record.number

    def drain(self, number: int) -> None:
        record = self._find(number)
        if record.phase is Phase.DRAINING:
            return
        record.drain()
        self._fleet = None
        if not record.idle:
            self._plane.drain(number, self._now_s)
            self._watch_idle(record)

    def terminate(self, number: int) -> None:
        if number not in self._alive and 0 < number < self._next_number:
            return
        self._end(self._find(number), taken=False)

    def stop(self, number: int) -> None:
        record = self._find(number)
        if record.phase is Phase.STOPPED:
            return
        self._stop(record)

    def resume(self, number: int) -> None:
        record = self._find(number)
        record.check_start(self._now_s)
        self._room(record.index, 1)
        record.resume(self._now_s, self._now_s + (record.offer.resume or record.offer.boot).mean_s)
        self._pool_disk(record, -1)
        record.warm = False
        self._boot(record)

    def notices(self) -> tuple[Notice, ...]:
        if not self._notices:
            return ()
        # An instance that was terminated after its notice needs no handling.
        found = tuple(n for n in self._notices if n.number in self._alive)
        self._notices.clear()
        return found

    # -- the world -----------------------------------------------------------------------------------------------------

    def has_notices(self) -> bool:
        """Return whether a notice is waiting, for which the controller's fast loop should run now."""
        return bool(self._notices)

    def start_ready(self, offer: str, count: int, *, standby: bool = False, pooled: bool = False) -> tuple[int, ...]:
        """Add instances of the first fleet: ready and billed from now, not counted as launched.

        Standbys and pooled instances are stopped instead.
        """
        index = self._offer_index(offer)
        numbers = []
        for _ in range(count):
            record = self._new(index, standby)
            record.warm = True
            if standby or pooled:
                record.stop(-math.inf)
                self._pool_disk(record, 1)
            else:
                self._take_in(record)
                self._run(record)
                self._serve(record)
                self._draw_interruption(record)
            numbers.append(record.number)
        return tuple(numbers)

    def next_event_s(self) -> float:
        """Return the time of the next event; inf without one."""
        return self._events.next_s()

    def advance(self, now_s: float) -> None:
        """Let virtual time pass up to `now_s`, firing every event due, in order of (time, priority, number)."""
        if now_s < self._now_s:
            raise ValueError(f"virtual time never goes back: from {self._now_s} to {now_s}")
        for at_s, event, record, zone in self._events.due(now_s):
            self._now_s = at_s
            if record is None:
                self._change_share(zone)
            else:
                self._fire(event, record)
        self._now_s = now_s

    def spent_usd(self, now_s: float) -> dict[str, float]:
        """Return USD up to `now_s` by market, keyed by the fields of `Bill` (without functions)."""
        return self._meter.spent_usd(now_s)

    def bill(self, end_s: float) -> Bill:
        """Return the bill up to `end_s`; running instances are billed until then."""
        return self._meter.bill(end_s)

    def fleet_result(self, end_s: float) -> FleetResult:
        """Return the run's figures. First fleet + launched = terminated + interrupted + still there."""
        return FleetResult(
            self._launched,
            self._terminated,
            self._interrupted,
            self._peak,
            self._meter.instance_hours(end_s),
            self._meter.boot_usd(),
        )

    # -- events --------------------------------------------------------------------------------------------------------

    def _fire(self, event: InstanceEvent, record: _Record) -> None:
        if event is InstanceEvent.CREDITS:
            self._update_credits(record)
        elif event is InstanceEvent.BOOTED:
            self._booted(record)
        elif event is InstanceEvent.RUNNING:
            self._run(record)
        elif event is InstanceEvent.IDLE:
            self._watch_idle(record)
        elif event is InstanceEvent.NOTICE:
            self._announce(record)
        elif event is InstanceEvent.CRASHED:
            self._crash(record)
        else:
            self._end(record, taken=True)

    # -- phases --------------------------------------------------------------------------------------------------------

    def _new(self, index: int, standby: bool, release: str = "") -> _Record:
        offer = self._offers[index]
        record = _Record(
            self._next_number,
            offer.name,
            self._now_s,
            self._now_s + offer.boot.mean_s,  # not the drawn time, which nobody can know
            standby=standby,
            release=release,
            credits=None if offer.credits is None else CreditAccount(offer),
            index=index,
            offer=offer,
        )
        self._next_number += 1
        self._alive[record.number] = record
        if self._bills_disks:
            self._meter.disks(disks_of(offer), self._now_s)
        return record

    def _take_in(self, record: _Record) -> None:
        self._active[record.index] += 1
        self._peak = max(self._peak, sum(self._active))
        self._fleet = None

    def _boot(self, record: _Record) -> None:
        self._take_in(record)
        delay_s = self._start(record).boot_s(record.offer)
        if record.credits is not None:
            self._launch_credits.grant(record.credits, self._now_s)
        self._events.push(self._now_s + min(UNBILLED_PENDING_S, delay_s), InstanceEvent.RUNNING, record)
        self._events.push(self._now_s + delay_s, InstanceEvent.BOOTED, record)
        self._draw_interruption(record)

    def _booted(self, record: _Record) -> None:
        if record.standby and record.start == 0:
            self._stop(record)
        else:
            self._serve(record)

    def _serve(self, record: _Record) -> None:
        record.serve(self._now_s)
        if record.billed_from_s is not None:
            self._meter.booted(record.index, record.billed_from_s, self._now_s)
        self._plane.add(record.number, record.index, self._now_s)
        self._doom(record)
        self._fleet = None
        if record.credits is not None:
            if record.warm:
                self._launch_credits.grant(record.credits, self._now_s)
            # A boot uses about as many credits as it earns, so the account opens when the instance is ready.
            record.credits_at_s, record.busy_s = self._now_s, self._plane.busy_s(record.number)
            self._update_credits(record)

    def _doom(self, record: _Record) -> None:
        if self._crashing is not None:
            crash_s = self._now_s + self._start(record).until_crash_s(self._crashing.per_hour)
            if crash_s <= self._end_s:
                self._crashing.plane.doom(record.number, crash_s)
                self._events.push(crash_s, InstanceEvent.CRASHED, record)

    def _crash(self, record: _Record) -> None:
        assert self._crashing is not None
        self._crashing.plane.crash(record.number, self._now_s)
        self.crashes += 1
        record.fall_silent(self._now_s)
        self._fleet = None
        if record.draining:
            self._watch_idle(record)

    def _run(self, record: _Record) -> None:
        record.run(self._now_s)
        self._meter.open(record.index, self._now_s)

    def _stop(self, record: _Record) -> None:
        record.check(Phase.STOPPED)
        served = self._leave(record)
        self._close(record, record.stop(self._now_s + STOPPING_S), served=served, taken=False)
        self._pool_disk(record, 1)

    def _end(self, record: _Record, *, taken: bool) -> None:
        stopped = record.phase is Phase.STOPPED
        served = not stopped and self._leave(record)
        self._close(record, record.end(), served=served, taken=taken)
        if self._bills_disks:
            self._meter.disks(-disks_of(record.offer), self._now_s)
        elif stopped:
            self._pool_disk(record, -1)
        del self._alive[record.number]
        if record.interruption_at_s is not None:
            self._interrupted += 1
        else:
            self._terminated += 1

    def _leave(self, record: _Record) -> bool:
        """Take out of service an instance that stops or ends; return whether it served."""
        self._active[record.index] -= 1
        if record.ready_s is None:
            return False
        if record.credits is not None:
            self._settle_credits(record)
        self._plane.remove(record.number, self._now_s)
        return True

    def _close(self, record: _Record, from_s: float | None, *, served: bool, taken: bool) -> None:
        """End the billed time that began at `from_s`, if any."""
        self._fleet = None
        if from_s is not None:
            if not served:
                self._meter.booted(record.index, from_s, self._now_s)
            self._meter.close(record.index, from_s, self._now_s, minimum=not record.warm, taken=taken)

    def _watch_idle(self, record: _Record) -> None:
        idle_s = self._plane.idle_at(record.number)
        if idle_s <= self._now_s:
            record.finish()
            self._fleet = None
        else:
            again_s = idle_s if math.isfinite(idle_s) else self._now_s + CREDIT_STEP_S
            self._events.push(again_s, InstanceEvent.IDLE, record)

    def _pool_disk(self, record: _Record, change: int) -> None:
        if not self._bills_disks and not record.standby:
            self._meter.disks(change * disks_of(record.offer), self._now_s)

    def _find(self, number: int) -> _Record:
        try:
            return self._alive[number]
        except KeyError:
            raise NotFoundError(f"there is no instance #{number}") from None

    def _offer_index(self, offer: str) -> int:
        try:
            return self._index[offer]
        except KeyError:
            raise NotFoundError(f"there is no offer {offer}") from None

    def _room(self, index: int, count: int) -> int:
        """Return how many of `count` instances are available. Raises LimitError or CapacityError for none."""
        offer = self._offers[index]
        if self._max_instances is not None:
            count = min(count, self._max_instances - sum(self._active))
            if count <= 0:
                raise LimitError(f"the account's limit of {self._max_instances} instances is reached")
        if offer.market is Market.SPOT:
            zone = self._zone_of[offer.zone]
            count = self._spot[zone].room(count, len(self._spot_in(zone)))
            if count <= 0:
                raise CapacityError(f"no spot capacity in {offer.zone or 'the zone'}")
        if offer.name in self._capacity:
            count = min(count, self._capacity[offer.name] - self._active[index])
            if count <= 0:
                raise CapacityError(f"out of {offer.name}")
        return count

    def _start(self, record: _Record) -> Start:
        return Start(self._seed, record.number, record.start)

    # -- interruptions -------------------------------------------------------------------------------------------------

    def _draw_interruption(self, record: _Record) -> None:
        if self._has_hazard:
            after_s = self._start(record).until_interruption_s(record.offer)
            self._events.push(self._now_s + after_s, InstanceEvent.NOTICE, record)

    def _change_share(self, zone: int) -> None:
        spot = self._spot[zone]
        for record in spot.change(self._spot_in(zone)):
            self._announce(record)
        self._events.push_share(spot.next_change_s, zone)

    def _spot_in(self, zone: int) -> list[_Record]:
        return [
            r
            for r in self._alive.values()
            if r.offer.market is Market.SPOT and self._zone_of[r.offer.zone] == zone and r.interruption_at_s is None
        ]

    def _announce(self, record: _Record) -> None:
        gone_s = self._now_s + INTERRUPTION_NOTICE_S
        if record.interrupt(gone_s):
            self._fleet = None
            self._notices.append(Notice(record.number, record.offer_name, self._now_s, gone_s))
            self._events.push(gone_s, InstanceEvent.GONE, record)

    # -- CPU credits ---------------------------------------------------------------------------------------------------

    def _settle_credits(self, record: _Record) -> None:
        usd = record.settle(self._now_s, self._plane.busy_s(record.number), self._workers[record.index])
        self._meter.surplus(record.index, usd)
        self._fleet = None

    def _update_credits(self, record: _Record) -> None:
        account = record.credits
        assert account is not None
        before = account.speed
        self._settle_credits(record)
        if account.speed != before:
            self._plane.set_speed(record.number, account.speed, self._now_s)
        wait_s = min(_LONGEST_CREDIT_STEP_S, account.steady_s())
        steps = math.floor((self._now_s + wait_s) / CREDIT_STEP_S)
        steps = max(steps, math.floor(self._now_s / CREDIT_STEP_S) + 1)
        self._events.push(steps * CREDIT_STEP_S, InstanceEvent.CREDITS, record)


_fits: type[Cloud] = SimulatedCloud
_is_clock: type[Clock] = SimulatedCloud
