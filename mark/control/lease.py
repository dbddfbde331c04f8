"""The lease, which decides which of several controllers acts: renewed terms, with numbers that fence off old holders.

A term lasts `ttl_s` from the moment it was requested, by its holder's monotonic clock. Another holder may take the next
term, with the next fencing number, after it has seen the term unrenewed for `ttl_s` by its own monotonic clock. So
two holders never act at once, regardless of wall clocks, if each stops acting a little before the end of its term. Only
the rates of the monotonic clocks must agree, to a fifteenth (as in the leader election of Kubernetes: client-go,
`leaderelection.go`).

A holder that sleeps through the end of its term cannot know that. The store stops it, because its writes carry the
number of a term that is over. A holder whose wall clock was set lets its term end and takes no other one for `ttl_s`,
because control time continues from the wall clock at which a holder begins to lead.
"""

from __future__ import annotations

import logging
import math
import socket
import time
import uuid
from collections.abc import Callable
from dataclasses import dataclass
from threading import Lock
from typing import Protocol

from mark.control.ports import Lease
from mark.domain.errors import CloudError, LostLease, StoreError

TTL_S = 15.0
_MARGIN = 1.0 / 15.0  # share of a term at its end in which a holder does not act, because clock rates may differ by it
_SET = 2.0 / 3.0  # of a term: a wall clock that differs by more from the monotonic clock was set
_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Term:
    """A term in which `holder` leads with the number `fence`; renewed last to `until_s`, Unix time by its own clock.

    While one holder leads, `until_s` only rises, so two equal terms mean that the term was not renewed in between.
    """

    holder: str
    fence: int
    until_s: float


class LeaseStore(Protocol):
    """The store of terms, by the lease's name. Every method is atomic, and raises StoreError."""

    def claim(self, name: str, holder: str, until_s: float, over: Term | None = None) -> Term:
        """Prolong the holder's own term to `until_s`, or take the next one if the present term is missing or `over`.

        `over` is another holder's term that the claimant knows to have ended. Returns the present term, of any holder.
        Raises LostLease if the terms were moved to another store, because others may claim them there unseen.
        """

    def resign(self, name: str, holder: str) -> None:
        """End the term if this holder has it. Repeatable."""


class FencedLease:
    """One holder's view of the lease `name`. `fence` is the number of its last term, None before the first.

    Used by one thread; others may read `fence` and call `lasts`. Every holder has its own name, and gets a new one
    after a restart and after its clock was set. The terms before and after then differ in number, so that work begun by
    the old clock ends.
    """

    def __init__(
        self,
        terms: LeaseStore,
        name: str,
        *,
        ttl_s: float = TTL_S,
        monotonic_s: Callable[[], float] = time.monotonic,
    ) -> None:
        self.name, self.ttl_s = name, ttl_s
        self.holder = _new_name()
        self.fence: int | None = None
        self._terms, self._monotonic_s = terms, monotonic_s
        self._term: Term | None = None  # the store's last answer
        self._asked_unix_s, self._wait_s = math.inf, 0.0  # the last call to the store, and the wait until the next
        # By the monotonic clock: the last call, when the term was first seen in its present form, and when ours ends.
        self._asked_s, self._seen_s, self._lasts_until_s = -math.inf, -math.inf, -math.inf
        self._aside_until_s = -math.inf  # until then the lease is left to others

    def hold(self, now_s: float) -> int | None:
        began_s = self._monotonic_s()
        wall_s, passed_s = now_s - self._asked_unix_s, began_s - self._asked_s
        # Check this even if the term has ended and is still free, because work begun by the old clock must end.
        ours = self._term is not None and self._term.holder == self.holder
        if ours and abs(wall_s - passed_s) > _SET * self.ttl_s:
            _log.warning("lease %s let go of: the wall clock was set by %.0f s", self.name, wall_s - passed_s)
            self._term, self._lasts_until_s, self._aside_until_s = None, -math.inf, began_s + self.ttl_s
            self.holder = _new_name()  # so that it waits for the end of its old term, like others
        if began_s < self._aside_until_s:
            return None
        # Require both clocks to agree, because either may have been changed.
        if not (0.0 <= wall_s < self._wait_s and passed_s < self._wait_s):
            self._ask(now_s)
            now_s += self._monotonic_s() - began_s  # the term may have ended while the store was slow
        term = self._term
        if term is None or term.holder != self.holder or now_s >= term.until_s - _MARGIN * self.ttl_s:
            return None
        return term.fence if self.lasts() else None

    def lasts(self) -> bool:
        return self._monotonic_s() < self._lasts_until_s

    def lasts_as(self, fence: int) -> bool:
        """Return whether the term with this number lasts; `lasts` is also true in a later term of the same holder."""
        return self.fence == fence and self.lasts()

    def release(self) -> None:
        self._term, self._wait_s, self._lasts_until_s = None, 0.0, -math.inf
        try:
            self._terms.resign(self.name, self.holder)
        except CloudError as error:
            _log.warning("lease %s not released, it ends by itself: %s", self.name, error)

    def _ask(self, now_s: float) -> None:
        """Claim or renew the term in the store, and set the wait until the next call."""
        self._asked_unix_s, self._asked_s, before = now_s, self._monotonic_s(), self._term
        stood = before is not None and before.holder != self.holder and self._asked_s >= self._seen_s + self.ttl_s
        try:
            term = self._terms.claim(self.name, self.holder, now_s + self.ttl_s, before if stood else None)
        except LostLease as error:
            _log.warning("lease %s lost: %s", self.name, error)
            self._term, self._lasts_until_s, self._wait_s = None, -math.inf, self.ttl_s / 3.0
            return
        except CloudError as error:
            _log.warning("lease %s not renewed: %s", self.name, error)
            self._wait_s = self.ttl_s / 10.0  # two thirds of the term are left for retries
            return
        if term != before:
            self._term, self._seen_s = term, self._monotonic_s()  # later than its holder's renewal, so safe
        self._wait_s = self.ttl_s / 3.0
        if term.holder == self.holder:
            self._lasts_until_s, self.fence = self._asked_s + (1.0 - _MARGIN) * self.ttl_s, term.fence
        else:
            self._lasts_until_s = -math.inf
            self._wait_s = min(self._wait_s, self._seen_s + self.ttl_s - self._asked_s)


def _new_name() -> str:
    return f"{socket.gethostname()}/{uuid.uuid4()}"


class MemoryTerms:
    """Terms in memory, and the fake that ships with the port: while `failing`, every call raises StoreError."""

    def __init__(self) -> None:
        self.failing = False
        self._terms: dict[str, Term] = {}
        self._lock = Lock()

    def claim(self, name: str, holder: str, until_s: float, over: Term | None = None) -> Term:
        with self._lock:
            self._answer()
            self._terms[name] = term = claimed(self._terms.get(name), holder, until_s, over)
            return term

    def resign(self, name: str, holder: str) -> None:
        with self._lock:
            self._answer()
            term = self._terms.get(name)
            if term is not None and term.holder == holder:
                self._terms[name] = resigned(term)

    def _answer(self) -> None:
        if self.failing:
            raise StoreError("the lease's store does not answer")


def claimed(term: Term | None, holder: str, until_s: float, over: Term | None) -> Term:
    """Return the term after `holder` claimed it, unchanged while another holder has it. See `LeaseStore.claim`."""
    if term is None:
        return Term(holder, 1, until_s)
    if term.holder == holder:
        # Raise the time even if the clock stands or was set back, because others see the renewal by it.
        return Term(holder, term.fence, max(until_s, math.nextafter(term.until_s, math.inf)))
    return Term(holder, term.fence + 1, until_s) if not term.holder or term == over else term


def resigned(term: Term) -> Term:
    """Return the ended term without a holder; its number is not used again."""
    return Term("", term.fence, 0.0)


_lease: type[Lease] = FencedLease
_terms: type[LeaseStore] = MemoryTerms
