"""The commitment that the use of an offer would have justified: a newsvendor on its duration curve.

The k-th instance is used the share u_k of the time, when at least k run. On demand it costs u_k P an hour on average,
committed c, used or not. u_k falls with k, so commitments pay for all k with u_k > c / P.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from mark.domain.arrays import FloatArray


@dataclass(frozen=True, slots=True)
class Advice:
    """The advice to commit to `count` instances of an offer for that term; prices are of one instance."""

    offer: str
    term: str
    usd_per_hour: float
    committed_usd_per_hour: float
    used: tuple[float, ...]  # share of the time in which at least k run, k = 1, 2, ...
    count: int

    @property
    def pays_above(self) -> float:
        """Return the share of the time above which an instance is worth its commitment."""
        return self.committed_usd_per_hour / self.usd_per_hour

    @property
    def saved_usd_per_hour(self) -> float:
        """Return the average saving. Plans may change and save more, because committed instances run at no further
        cost.
        """
        return sum(self.used[: self.count]) * self.usd_per_hour - self.count * self.committed_usd_per_hour


def advise(
    running: Mapping[str, FloatArray], usd_per_hour: Mapping[str, float], discounts: Mapping[str, float]
) -> tuple[Advice, ...]:
    """Return advice for every offer and term, in order of names and of `discounts`.

    `running` are instances by offer at evenly spaced times, (T,); `usd_per_hour` are on-demand prices, and offers
    without one are left out; `discounts` are shares off that price, by term.
    """
    found = []
    for offer in sorted(set(running) & set(usd_per_hour)):
        counts = running[offer]
        used = tuple(float(np.mean(counts >= k)) for k in range(1, int(counts.max(initial=0.0)) + 1))
        price = usd_per_hour[offer]
        for term, discount in discounts.items():
            committed = price * (1.0 - discount)
            count = sum(share * price > committed for share in used)
            found.append(Advice(offer, term, price, committed, used, count))
    return tuple(found)
