"""Compare two releases while both serve: does the new one do worse by more than chance explains?

Requests are compared within strata, each of one instance type and the same seconds, so that neither the mix of types
nor a changing load makes a release look bad. If both releases were equally good, an event of a stratum (an error, a
miss) would belong to the new release with the same probability as a request does. Over all strata the rates are
compared by Mantel and Haenszel's ratio (1959), and the new release's number of events by Chernoff's bound on the
binomial tail (Hoeffding 1963, theorems 1 and 4).
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace

from mark.control.ports import ReleaseCounts
from mark.domain.slo import Slo

# Significance level. It is small because the releases are compared every few seconds, for many minutes.
_CHANCE = 1e-6
_FEWEST = 5  # errors or misses; and requests to either release in a stratum
_TIMES = 1.3  # a smaller ratio does not count, because events come in bursts and are not independent
_ERROR_SHARE = 0.001  # a smaller share does not count
_OVERFLOW_SHARE = 0.05
_BUSY_REQUESTS = 1000  # to either release, before their cost is compared
# Requests cannot reach a release that should have got this many and got fewer than _FEWEST, because the probability of
# that is less than one in a million.
_DUE = 30.0

Counts = Mapping[str, ReleaseCounts]  # by instance type


@dataclass(frozen=True, slots=True)
class Stratum:
    """Totals of both releases at `since_s`, from which the next comparison counts.

    With `own`, `theirs` are the other release's totals on the same type. Otherwise the other release has not run that
    type, and they are its totals on all types.
    """

    mine: ReleaseCounts
    theirs: ReleaseCounts
    own: bool
    since_s: float


@dataclass(frozen=True, slots=True)
class Contrast:
    """Events, or seconds, of the new release (`mine`) and the other one (`theirs`), each with its number of requests.

    `above` and `below` are the terms of Mantel and Haenszel's ratio.
    """

    mine: float = 0.0
    requests: int = 0
    theirs: float = 0.0
    of_theirs: int = 0
    above: float = 0.0
    below: float = 0.0

    def plus(self, mine: float, requests: int, theirs: float, of_theirs: int) -> Contrast:
        """Return the contrast with one more stratum."""
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
        """The ratio of the new release's rate to the other's."""
        if self.below > 0.0:
            return self.above / self.below
        return math.inf if self.above > 0.0 else 1.0

    def is_more(self, floor: float) -> bool:
        """Return whether the events exceed, beyond chance, the share `floor` of the requests and the other's rate."""
        events = self.mine + self.theirs
        if events <= 0.0 or self.times <= _TIMES:
            return False
        expected = self.mine - self.above + self.below
        return _more(self.mine, self.requests, floor) and _more(self.mine, events, expected / events)


@dataclass(frozen=True, slots=True)
class Comparison:
    """The observations of a new release and the other one while both served; `strata` by instance type."""

    strata: dict[str, Stratum] = field(default_factory=dict)
    errors: Contrast = Contrast()
    misses: Contrast = Contrast()
    overflow: Contrast = Contrast()  # requests that functions answered
    busy: Contrast = Contrast()  # worker-seconds of requests that instances answered themselves

    def looked(
        self,
        mine: Counts,
        theirs: Counts,
        types: Collection[str],
        now_s: float,
        beside: Collection[str] | None = None,
    ) -> Comparison:
        """Return the comparison after a look at the totals of both releases.

        `types` are the instance types of the new release. `beside` are those of the other release during a trial: a
        type that is not among them is compared with all of them. None: the other release is being replaced.
        """
        found, strata = self, dict(self.strata)
        for name in sorted({*types, *strata}):
            known = strata.get(name)
            # During the replacement, a type that was compared with itself stays so, even if the totals lose it.
            own = name in beside if beside is not None else name in theirs or (known is not None and known.own)
            now = Stratum(mine.get(name, ReleaseCounts()), _theirs(name, theirs, own=own), own, now_s)
            if known is None or known.own is not now.own or _fell(now, known):
                strata[name] = now  # start over for both releases, because counters that fell have started over
                continue
            grown, other = now.mine - known.mine, now.theirs - known.theirs
            if min(grown.requests, other.requests) >= _FEWEST:
                strata[name] = now
                found = found._plus(grown, other, own=now.own)
        return found if strata == self.strata else replace(found, strata=strata)

    def not_ahead(self, now_s: float) -> Comparison:
        """Return the comparison without strata from the future, which a clock that was ahead has left."""
        strata = {name: one for name, one in self.strata.items() if one.since_s <= now_s}
        return self if len(strata) == len(self.strata) else replace(self, strata=strata)

    def paused(self) -> Comparison:
        """Return the comparison without strata, because no instance of the new release serves."""
        return replace(self, strata={}) if self.strata else self

    @property
    def since_s(self) -> float:
        """The time since when requests are awaited; minus infinity after both releases have got some."""
        if self.errors.requests:
            return -math.inf
        return min((one.since_s for one in self.strata.values()), default=math.inf)

    def is_unreached(self, theirs: Counts, shares: Mapping[str, float]) -> bool:
        """Return whether the new release got no requests although the other one did.

        `shares`: the new release's instances of each type per instance of the other release, of the same type or, if
        the other lacks it, of any type.
        """
        if self.errors.requests:
            return False
        due = 0.0
        for name, known in self.strata.items():
            now = _theirs(name, theirs, own=known.own)
            due += max(0, (now - known.theirs).requests) * shares.get(name, 0.0)
        return due >= _DUE

    def worse(self, slo: Slo) -> str:
        """Return how the new release does worse, or ""."""
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
        if not own:  # worker time and overflow depend on the type, so they are compared only within a type
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
    """Return whether `count` events in `of` trials with the probability `usual` exceed chance."""
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
