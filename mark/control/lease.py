"""The lease: which of several controllers acts. Terms that are renewed, and numbers that fence off
the holder of an earlier one.

A term lasts `ttl_s` from the moment it was asked for, by its holder's monotonic clock. Another holder may take the next
one, with the next fencing number, when it has seen the term stand unrenewed for `ttl_s` by its own monotonic clock.
So a holder that renews in time, or stops acting a little before, is never one of two, whatever wall clocks show: only
the rates of monotonic clocks must agree, to a fifteenth (as in the leader election of Kubernetes: client-go,
`leaderelection.go`).

A holder that sleeps through the end of its term cannot know, and is stopped by the store: what it puts carries the
number of a term that is over. A holder whose wall clock was set lets its term end, and leaves the next one to others
for a while: control time goes on where the wall clock is when a holder begins to lead.
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
_MARGIN = 1.0 / 15.0  # of a term that a holder gives away: by so much the rates of clocks may differ
_SET = 2.0 / 3.0  # of a term: a wall clock that differs by more from what has passed was set
_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Term:
    """`holder` leads with the number `fence`; renewed last to `until_s`, Unix time by its own clock.

    While one holder leads `until_s` only rises: of two terms that are equal, none was renewed in between.
    """

    holder: str
    fence: int
    until_s: float


class LeaseStore(Protocol):
    """Where terms are kept, by the lease's name. Every method is atomic, and raises StoreError."""

    def claim(self, name: str, holder: str, until_s: float, over: Term | None = None) -> Term:
        """Prolong the holder's own term to `until_s`, or take the next one if there is none, or it is still `over`.

        `over` is another holder's term that the claimant knows to have ended. Returns the term that holds now, whose
        ever it is. Raises LostLease where terms are not kept here any more: others may claim them where this one cannot
        see it.
        """

    def resign(self, name: str, holder: str) -> None:
        """End the holder's term, if it has one. Repeatable."""


class FencedLease:
    """One holder's view of the lease `name`. `fence` is the number of its last term, None before the first.

    Used by one thread; `fence` may be read, and `lasts` asked, by others. Every holder has a name of its own, also
    after a restart, and after its clock was set: a term by another clock has another number, so that what began by the
    old one ends, even where it was under way all the time between the two.
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
        self._term: Term | None = None  # as it was told last
        self._asked_unix_s, self._wait_s = math.inf, 0.0  # of the last question; how long until the next one
        # By the monotonic clock: of the last question; when the term was first seen as it is; until when it is ours.
        self._asked_s, self._seen_s, self._lasts_until_s = -math.inf, -math.inf, -math.inf
        self._aside_until_s = -math.inf  # and until when it is left to others

    def hold(self, now_s: float) -> int | None:
        began_s = self._monotonic_s()
        wall_s, passed_s = now_s - self._asked_unix_s, began_s - self._asked_s
        # Also where the term is over meanwhile, and none took the next one: what began by the old clock must end.
        ours = self._term is not None and self._term.holder == self.holder
        if ours and abs(wall_s - passed_s) > _SET * self.ttl_s:
            _log.warning("lease %s let go of: the wall clock was set by %.0f s", self.name, wall_s - passed_s)
            self._term, self._lasts_until_s, self._aside_until_s = None, -math.inf, began_s + self.ttl_s
            self.holder = _new_name()  # and waits for the end of its own term, like others
        if began_s < self._aside_until_s:
            return None
        # By both clocks: one that was set proves nothing.
        if not (0.0 <= wall_s < self._wait_s and passed_s < self._wait_s):
            self._ask(now_s)
            now_s += self._monotonic_s() - began_s  # the term may have ended while nothing was answered
        term = self._term
        if term is None or term.holder != self.holder or now_s >= term.until_s - _MARGIN * self.ttl_s:
            return None
        return term.fence if self.lasts() else None

    def lasts(self) -> bool:
        return self._monotonic_s() < self._lasts_until_s

    def release(self) -> None:
        self._term, self._wait_s, self._lasts_until_s = None, 0.0, -math.inf
        try:
            self._terms.resign(self.name, self.holder)
        except CloudError as error:
            _log.warning("lease %s not released, it ends by itself: %s", self.name, error)

    def _ask(self, now_s: float) -> None:
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
            self._wait_s = self.ttl_s / 10.0  # two thirds of the term are left for that
            return
        if term != before:
            self._term, self._seen_s = term, self._monotonic_s()  # its holder renewed it before that
        self._wait_s = self.ttl_s / 3.0
        if term.holder == self.holder:
            self._lasts_until_s, self.fence = self._asked_s + (1.0 - _MARGIN) * self.ttl_s, term.fence
        else:
            self._lasts_until_s = -math.inf
            self._wait_s = min(self._wait_s, self._seen_s + self.ttl_s - self._asked_s)


def _new_name() -> str:
    return f"{socket.gethostname()}/{uuid.uuid4()}"


class MemoryTerms:
    """Terms in memory, and the fake that ships with the port: while `failing`, nothing is answered."""

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
    """The term after `holder` claimed it; the same one while it is another's. See `LeaseStore.claim`."""
    if term is None:
        return Term(holder, 1, until_s)
    if term.holder == holder:
        # Also by a clock that stands, or was set back: others tell by it that the term was renewed.
        return Term(holder, term.fence, max(until_s, math.nextafter(term.until_s, math.inf)))
    return Term(holder, term.fence + 1, until_s) if not term.holder or term == over else term


def resigned(term: Term) -> Term:
    """A term without a holder that is over; its number is not used again."""
    return Term("", term.fence, 0.0)


_lease: type[Lease] = FencedLease
_terms: type[LeaseStore] = MemoryTerms
