"""The controller's own bill: a meter fed by the cloud's reports about its instances, and kept in the store.

The cloud reports when an instance began to run and when it stopped (`Ran`); these seconds are billed. Without a report
within GRACE_S the bill follows the fleet: from the launch until the fleet no longer showed the instance running.

Every second costs the price in effect, as far as it is known. An instance that ended between a change of its spot price
and the time when the change was learned stays billed at the old price. (AWS bills each hour of an instance at the price
of the hour's beginning; with prices that move slowly, as they have since 2017, that is the same on average.)
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from mark.cloud.billing.extras import extras_usd
from mark.cloud.billing.meter import Meter, disks_of
from mark.cloud.billing.moving_prices import Tariff
from mark.control.ports import Ran, Store
from mark.domain.bill import Bill
from mark.domain.fleet import Fleet, Phase
from mark.domain.offer import Offer
from mark.domain.service import ResolvedService
from mark.domain.time import DAY_S

_TOLD_S = DAY_S  # the cloud reports no older events
GRACE_S = 90.0  # of wall time, by which the cloud's report may come after the fleet shows the change


@dataclass(slots=True)
class _Span:
    """The times of one start of an instance, as far as they are known."""

    offer: str
    from_s: float | None = None  # since when it is open in the meter
    to_s: float | None = None
    seen_s: float | None = None  # when the fleet first showed it running, without a report
    missed_s: float | None = None  # when the fleet first showed it not running, without a report
    settled_s: float = -math.inf  # end of its last billed start; reports about earlier times are ignored


class Ledger:
    """The bill of one service since its controller first saw it. Used by one thread; reading it is O(offers).

    Instances that run at the first observation are billed from then on. Times are control seconds, `scale` per second
    of wall time. `unsold` are offers that may not be bought any more but still have instances.
    """

    def __init__(
        self, resolved: ResolvedService, store: Store, scale: float = 1.0, *, unsold: Sequence[Offer] = ()
    ) -> None:
        self._grace_s = GRACE_S * scale
        self._store, self._service = store, resolved.service
        self._bills_extras = resolved.catalog.bills_extras
        offers = (*resolved.offers, *unsold)
        self._index = {offer.name: i for i, offer in enumerate(offers)}
        self._disks = {offer.name: disks_of(offer) for offer in offers}
        self._tariffs = [Tariff(offer.usd_per_s) for offer in offers]
        self._meter = Meter(
            offers,
            self._tariffs,
            end_s=math.inf,
            bills_disks=self._bills_extras,
            committed=resolved.committed,
            committed_usd_per_hour=resolved.committed_usd_per_hour,
        )
        kept = store.get("ledger")
        self._began_s: float | None = None if kept is None else kept["began_s"]
        spans = {} if kept is None else {n: _Span(*span) for n, span in kept["spans"].items()}
        self._spans: dict[int, _Span] = {n: span for n, span in spans.items() if span.offer in self._index}
        # When instances were last there, by number: the cloud may report their lives again.
        self._gone: dict[int, float] = {} if kept is None else kept.get("gone", {})
        if kept is not None:
            self._meter.restore(kept["meter"])
            # Count the disks of the present instances again: an offer may have been removed, or its disk size changed.
            had, since_s, _ = kept["meter"]["disks"]
            self._meter.disks(sum(self._disks[span.offer] for span in self._spans.values()) - had, since_s)
            for name, state in kept.get("tariffs", {}).items():
                if name in self._index:
                    self._tariffs[self._index[name]].restore(state)
            # An older state may lack tariffs or have shorter ones, so sum open intervals again at the known prices.
            opened = self._opened()
            for name, index in self._index.items():
                self._meter.repriced(index, opened.get(name, []))
        self._changed = False
        self._looked_s = 0.0
        self._waits_until_s: float | None = None  # None: not computed since the last look

    def reprice(self, resolved: ResolvedService, since_s: Mapping[str, float], now_s: float) -> None:
        """Use the prices of the service's offers, each since its time in `since_s`, or from now on without one."""
        opened = self._opened()
        for offer in resolved.offers:
            index = self._index.get(offer.name)
            if index is not None and self._tariffs[index].change(
                offer.usd_per_s, min(since_s.get(offer.name, now_s), now_s)
            ):
                self._meter.repriced(index, opened.get(offer.name, []))
                self._changed = True

    def observe(self, now_s: float, fleet: Fleet, ran: Sequence[Ran]) -> None:
        """Account for the cloud's reports since the last call and for the fleet."""
        self._looked_s, self._waits_until_s = now_s, None
        first = self._began_s is None
        if self._began_s is None:
            self._began_s, self._changed = now_s, True
        for one in ran:
            self._told(one)
        there = {i.number: i for i in (*fleet.instances, *fleet.leaving) if i.offer in self._index}
        for number, i in there.items():
            span = self._spans.get(number)
            if span is None:
                span = self._add(number, i.offer, now_s if first else i.launched_s)
                if first and i.phase is not Phase.STOPPED:
                    self._open(span, now_s)
            runs = i.phase in (Phase.READY, Phase.DRAINING)
            if runs and span.from_s is None:
                span.seen_s = now_s if span.seen_s is None else span.seen_s
                if now_s - span.seen_s >= self._grace_s:
                    self._open(span, max(self._began_s, i.launched_s))
            elif i.phase is Phase.STOPPED and span.from_s is not None:
                self._miss(span, now_s)
            elif span.from_s is None:
                span.missed_s = None
        for number in [n for n in self._spans if n not in there]:
            span = self._spans[number]
            missed_s = span.missed_s = now_s if span.missed_s is None else span.missed_s
            if now_s - missed_s >= self._grace_s:
                if span.from_s is not None:
                    self._close(span, missed_s)
                del self._spans[number]
                self._gone[number] = missed_s
                self._meter.disks(-self._disks[span.offer], missed_s)
                self._changed = True
        if self._changed:
            self._keep()

    @property
    def waits_until_s(self) -> float:
        """When `observe` will stop waiting for a report of the cloud, even if the fleet does not change."""
        if self._waits_until_s is None:
            looked_s = (span.seen_s if span.missed_s is None else span.missed_s for span in self._spans.values())
            self._waits_until_s = min((at_s + self._grace_s for at_s in looked_s if at_s is not None), default=math.inf)
        return self._waits_until_s

    def bill(self, now_s: float, functions_usd: float, requests: int) -> Bill:
        """Return the bill up to now, with the functions' cost so far, and balancer, addresses and data of `requests`.

        The balancer is billed from second 0 of the service.
        """
        if self._began_s is None:
            return Bill(functions=functions_usd)
        spent, service = self._meter.spent_usd(now_s), self._service
        if self._bills_extras:
            spent["other"] += extras_usd(now_s, requests, service.request_kb, service.response_kb)
        return Bill(**spent, functions=functions_usd)

    def _opened(self) -> dict[str, list[float]]:
        """Return since when instances are open in the meter, by offer."""
        opened: dict[str, list[float]] = {}
        for span in self._spans.values():
            if span.from_s is not None:
                opened.setdefault(span.offer, []).append(span.from_s)
        return opened

    def _told(self, one: Ran) -> None:
        """Account for one report of the cloud. Reports may come in any order."""
        span = self._spans.get(one.number)
        if span is None:
            if one.offer not in self._index or not one.runs or one.number in self._gone:
                return  # the end of an instance that was never seen running, or a settled one
            span = self._add(one.number, one.offer, one.at_s)
        if one.at_s <= span.settled_s:
            return
        if one.runs:
            if span.from_s is None:
                self._open(span, one.at_s)
        elif span.from_s is not None and one.at_s >= span.from_s:
            self._close(span, one.at_s)
        else:
            span.to_s = one.at_s  # the end was reported before the beginning
            return
        if span.from_s is not None and span.to_s is not None and span.to_s >= span.from_s:
            self._close(span, span.to_s)

    def _add(self, number: int, offer: str, at_s: float) -> _Span:
        self._spans[number] = span = _Span(offer)
        self._meter.disks(self._disks[offer], at_s)
        self._changed = True
        return span

    def _open(self, span: _Span, at_s: float) -> None:
        span.from_s, span.seen_s, span.missed_s = at_s, None, None
        self._meter.open(self._index[span.offer], at_s)
        self._changed = True

    def _close(self, span: _Span, at_s: float) -> None:
        assert span.from_s is not None
        self._meter.close(self._index[span.offer], span.from_s, at_s)
        span.from_s = span.to_s = span.seen_s = None
        span.settled_s = at_s
        self._changed = True

    def _miss(self, span: _Span, now_s: float) -> None:
        """End the billed time of a stopped instance without a report, once the grace period is over."""
        span.missed_s = now_s if span.missed_s is None else span.missed_s
        if now_s - span.missed_s >= self._grace_s:
            self._close(span, span.missed_s)

    def _keep(self) -> None:
        spans = {n: (s.offer, s.from_s, s.to_s, s.seen_s, s.missed_s, s.settled_s) for n, s in self._spans.items()}
        # Store the tariffs of all offers, because the next reader may be given other prices. Store them only as far
        # back as an instance is open or may be reported: hundreds of full tariffs would exceed an item of the store.
        opened, told_s = self._opened(), self._looked_s - _TOLD_S
        tariffs = {n: self._tariffs[i].state(min([told_s, *opened.get(n, ())])) for n, i in self._index.items()}
        self._gone = {n: at_s for n, at_s in self._gone.items() if at_s > told_s}
        self._store.put(
            "ledger",
            {
                "began_s": self._began_s,
                "spans": spans,
                "meter": self._meter.state(),
                "tariffs": tariffs,
                "gone": self._gone,
            },
        )
        self._changed = False
