"""Two releases compared while both serve: does the new one do worse by more than chance explains?

Like is compared with like. Requests are put into strata: those that one type of instance had, and in the same seconds,
so that neither a mix of types nor a load that changes makes a release look bad. Were both releases alike, each event of
a stratum (an error, a miss) would be the new one's with the chance that a request is. Over all strata their rates are
compared by Mantel and Haenszel's ratio (1959), and the number of the new one's events by Chernoff's bound on the
binomial tail (Hoeffding 1963, theorems 1 and 4).
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace

from mark.control.ports import ReleaseCounts
from mark.domain.slo import Slo

# As unlikely must be what was seen if both releases were alike: they are compared every few seconds, for many minutes.
_CHANCE = 1e-6
_FEWEST = 5  # errors or misses; and requests to either release in a stratum
_TIMES = 1.3  # what is less is not worth a roll-back: events come in bursts, and are not independent
_ERROR_SHARE = 0.001  # fewer are no reason
_OVERFLOW_SHARE = 0.05
_BUSY_REQUESTS = 1000  # to either release, before what they cost is compared
# An instance that should have had this many requests by its share has some, unless none can reach it: fewer than
# _FEWEST have a chance of less than one to a million.
_DUE = 30.0

Counts = Mapping[str, ReleaseCounts]  # by instance type


@dataclass(frozen=True, slots=True)
class Stratum:
    """Totals of both releases at `since_s`: what is counted since then is compared next.

    `own`: `theirs` are those of the other release with the same type. Otherwise it has had none of that type, and they
    are of all that it has.
    """

    mine: ReleaseCounts
    theirs: ReleaseCounts
    own: bool
    since_s: float


@dataclass(frozen=True, slots=True)
class Contrast:
    """Of events, or of seconds: how many there were with the new release and with the other, in how many requests.

    `above` and `below` are the terms of Mantel and Haenszel's ratio.
    """

    mine: float = 0.0
    requests: int = 0
    theirs: float = 0.0
    of_theirs: int = 0
    above: float = 0.0
    below: float = 0.0

    def plus(self, mine: float, requests: int, theirs: float, of_theirs: int) -> Contrast:
        """With those of one more stratum."""
        if min(requests, of_theirs) <= 0:
            return self
        both = requests + of_theirs
        return Contrast(
            self.mine + mine,
            self.requests + requests,
            self.theirs + theirs,
            self.of_theirs + of_theirs,
            self.above + mine * of_theirs / both,
            self.below + theirs * requests / both,
        )

    @property
    def times(self) -> float:
        """How many times as often as with the other release."""
        if self.below > 0.0:
            return self.above / self.below
        return math.inf if self.above > 0.0 else 1.0

    def is_more(self, floor: float) -> bool:
        """Beyond chance: more than the share `floor` of the requests, and more than with the other release?"""
        events = self.mine + self.theirs
        if events <= 0.0 or self.times <= _TIMES:
            return False
        expected = self.mine - self.above + self.below
        return _more(self.mine, self.requests, floor) and _more(self.mine, events, expected / events)


@dataclass(frozen=True, slots=True)
class Comparison:
    """What was seen of a new release and of the other one while both served; `strata` by instance type."""

    strata: dict[str, Stratum] = field(default_factory=dict)
    errors: Contrast = Contrast()
    misses: Contrast = Contrast()
    overflow: Contrast = Contrast()  # requests that functions answered
    busy: Contrast = Contrast()  # worker-seconds, of what instances answered themselves

    def looked(
        self,
        mine: Counts,
        theirs: Counts,
        types: Collection[str],
        now_s: float,
        beside: Collection[str] | None = None,
    ) -> Comparison:
        """After a look at the totals of both; `types` are those of which the new release has instances that serve.

        `beside` are those of which the other has some, while the new one is on trial: a type of which it has none is
        compared with all that it has. None: the other release is being replaced.
        """
        found, strata = self, dict(self.strata)
        for name in sorted({*types, *strata}):
            known = strata.get(name)
            # Once the same type is compared with, another never is: when that is replaced the comparison is over.
            own = name in beside if beside is not None else name in theirs or (known is not None and known.own)
            now = Stratum(mine.get(name, ReleaseCounts()), _theirs(name, theirs, own=own), own, now_s)
            if known is None or known.own is not now.own or _fell(now, known):
                strata[name] = now  # counters that fell began anew, those of both releases
                continue
            grown, other = now.mine - known.mine, now.theirs - known.theirs
            if min(grown.requests, other.requests) >= _FEWEST:
                strata[name] = now
                found = found._plus(grown, other, own=now.own)
        return found if strata == self.strata else replace(found, strata=strata)

    def not_ahead(self, now_s: float) -> Comparison:
        """Without what was counted from a time on that is still to come, by a clock that was ahead."""
        strata = {name: one for name, one in self.strata.items() if one.since_s <= now_s}
        return self if len(strata) == len(self.strata) else replace(self, strata=strata)

    def paused(self) -> Comparison:
        """Nothing of the new release serves: what is counted until it does is not compared."""
        return replace(self, strata={}) if self.strata else self

    @property
    def since_s(self) -> float:
        """Since when requests are waited for; minus infinity once some have reached both releases."""
        if self.errors.requests:
            return -math.inf
        return min((one.since_s for one in self.strata.values()), default=math.inf)

    def is_unreached(self, theirs: Counts, shares: Mapping[str, float]) -> bool:
        """Did the new release get no requests, though the other one did?

        `shares`: how many instances the new release has of a type for each that the other has, of the same type or,
        where that has none, of all.
        """
        if self.errors.requests:
            return False
        due = 0.0
        for name, known in self.strata.items():
            now = _theirs(name, theirs, own=known.own)
            due += max(0, (now - known.theirs).requests) * shares.get(name, 0.0)
        return due >= _DUE

    def worse(self, slo: Slo) -> str:
        """In what the new release does worse; "" if in nothing."""
        if self.errors.is_more(_ERROR_SHARE):
            return _said(self.errors, "answers are errors")
        if self.misses.is_more(1.0 - slo.attainment):
            return _said(self.misses, "requests were late or refused")
        if self.overflow.is_more(_OVERFLOW_SHARE):
            return _said(self.overflow, "requests were left to functions, which cost more")
        busy = self.busy
        if min(busy.requests, busy.of_theirs) >= _BUSY_REQUESTS and busy.below > 0.0 and busy.times > _TIMES:
            return f"a request takes {busy.times:.1f} times the worker time, and money, of the release before"
        return ""

    def _plus(self, mine: ReleaseCounts, theirs: ReleaseCounts, *, own: bool) -> Comparison:
        n, m = mine.requests, theirs.requests
        errors, misses = (
            self.errors.plus(mine.errors, n, theirs.errors, m),
            self.misses.plus(mine.misses, n, theirs.misses, m),
        )
        if not own:  # how busy it is, and what it leaves to functions, is a matter of its type
            return replace(self, errors=errors, misses=misses)
        overflow = self.overflow.plus(mine.by_functions, n, theirs.by_functions, m)
        busy = self.busy.plus(mine.busy_s, n - mine.by_functions, theirs.busy_s, m - theirs.by_functions)
        return replace(self, errors=errors, misses=misses, overflow=overflow, busy=busy)


def _theirs(name: str, theirs: Counts, *, own: bool) -> ReleaseCounts:
    return theirs.get(name, ReleaseCounts()) if own else sum(theirs.values(), ReleaseCounts())


def _fell(now: Stratum, known: Stratum) -> bool:
    grown = (now.mine - known.mine, now.theirs - known.theirs)
    return any(min(g.requests, g.misses, g.errors, g.by_functions) < 0 or g.busy_s < 0.0 for g in grown)


def _said(tally: Contrast, what: str) -> str:
    return (
        f"{tally.mine:.0f} of its {tally.requests} {what}, "
        f"{tally.theirs:.0f} of {tally.of_theirs} of the release before"
    )


def _more(count: float, of: float, usual: float) -> bool:
    """Is it more than chance explains, where each of `of` counts with the chance `usual`?"""
    share = count / of
    if count < _FEWEST or share <= usual:
        return False
    if usual <= 0.0:
        return True
    # P(X >= count) <= exp(-n KL(share || usual))
    divergence = share * math.log(share / usual)
    if share < 1.0:
        divergence += (1.0 - share) * math.log((1.0 - share) / (1.0 - usual))
    return of * divergence > -math.log(_CHANCE)
