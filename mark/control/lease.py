"""The lease: which of several controllers acts. Terms that are renewed, and numbers that fence off
the holder of an earlier one.

A term lasts `ttl_s` from the moment it was asked for. Only when it is over another holder may take the next one, with
the next fencing number; so a holder that renews in time, or stops acting a little before, is never one of
two. A holder that sleeps through the end of its term cannot know, and is stopped by the store: what it puts carries the
number of a term that is over.
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
_MARGIN = 1.0 / 15.0  # of a term that a holder gives away: by so much clocks may differ
_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Term:
    """`holder` leads until `until_s` (Unix time), with the number `fence`."""

    holder: str
    fence: int
    until_s: float


class LeaseStore(Protocol):
    """Where terms are kept, by the lease's name. Every method is atomic, and raises StoreError."""

    def claim(self, name: str, holder: str, now_s: float, until_s: float) -> Term:
        """Prolong the holder's own term to `until_s`, or take the next one if none lasts at `now_s`.

        Returns the term that holds now, whose ever it is. Raises LostLease where terms are not kept here any more:
        others may claim them where this one cannot see it.
        """

    def resign(self, name: str, holder: str) -> None:
        """End the holder's term, if it has one. Repeatable."""


class FencedLease:
    """One holder's view of the lease `name`. `fence` is the number of its last term, None before the first.

    Used by one thread; `fence` may be read, and `lasts` asked, by others. Every holder has a name of its own, also
    after a restart.
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
        self.holder = f"{socket.gethostname()}/{uuid.uuid4()}"
        self.fence: int | None = None
        self._terms, self._monotonic_s = terms, monotonic_s
        self._term: Term | None = None
        self._asked_s, self._ask_again_s = math.inf, -math.inf
        self._lasts_until_s = -math.inf  # by the monotonic clock

    def hold(self, now_s: float) -> int | None:
        # A clock that was set back proves nothing: ask.
        if not self._asked_s <= now_s < self._ask_again_s:
            began_s = self._monotonic_s()
            self._ask(now_s)
            now_s += self._monotonic_s() - began_s  # the term may have ended while nothing was answered
        term = self._term
        if term is None or term.holder != self.holder or now_s >= term.until_s - _MARGIN * self.ttl_s:
            return None
        return term.fence

    def lasts(self) -> bool:
        return self._monotonic_s() < self._lasts_until_s

    def release(self) -> None:
        self._term, self._ask_again_s, self._lasts_until_s = None, -math.inf, -math.inf
        try:
            self._terms.resign(self.name, self.holder)
        except CloudError as error:
            _log.warning("lease %s not released, it ends by itself: %s", self.name, error)

    def _ask(self, now_s: float) -> None:
        self._asked_s, began_s = now_s, self._monotonic_s()
        try:
            self._term = term = self._terms.claim(self.name, self.holder, now_s, now_s + self.ttl_s)
        except LostLease as error:
            _log.warning("lease %s lost: %s", self.name, error)
            self._term, self._lasts_until_s = None, -math.inf
            self._ask_again_s = now_s + self.ttl_s / 3.0
            return
        except CloudError as error:
            _log.warning("lease %s not renewed: %s", self.name, error)
            self._ask_again_s = now_s + self.ttl_s / 10.0  # two thirds of the term are left for that
            return
        self._ask_again_s = min(now_s + self.ttl_s / 3.0, term.until_s)
        mine = term.holder == self.holder
        self._lasts_until_s = began_s + (1.0 - _MARGIN) * self.ttl_s if mine else -math.inf
        if mine:
            self.fence = term.fence


class MemoryTerms:
    """Terms in memory, and the fake that ships with the port: while `failing`, nothing is answered."""

    def __init__(self) -> None:
        self.failing = False
        self._terms: dict[str, Term] = {}
        self._lock = Lock()

    def claim(self, name: str, holder: str, now_s: float, until_s: float) -> Term:
        with self._lock:
            self._answer()
            self._terms[name] = term = claimed(self._terms.get(name), holder, now_s, until_s)
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


def claimed(term: Term | None, holder: str, now_s: float, until_s: float) -> Term:
    """The term after `holder` claimed it; the same one while it is another's."""
    if term is None:
        return Term(holder, 1, until_s)
    if term.holder == holder:
        return Term(holder, term.fence, until_s)
    return term if now_s < term.until_s else Term(holder, term.fence + 1, until_s)


def resigned(term: Term) -> Term:
    """A term without a holder that is over; its number is not used again."""
    return Term("", term.fence, 0.0)


_lease: type[Lease] = FencedLease
_terms: type[LeaseStore] = MemoryTerms
