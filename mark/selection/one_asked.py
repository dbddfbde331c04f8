"""Policies that ask one candidate: fixed shares, Exp3, and Thompson sampling.

If the candidate fails, the policy draws the next one among the others.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from mark.selection.policy import Choice, Query, SelectionPolicy, answer_of, draw_one

EXP3_RATE = 0.05  # eta: measured best of 0.02 to 0.1 with discounted sums, on MNIST and digits
_EXP3_MIX = 0.05  # gamma of Auer et al. 2002: this share is asked at random
_POSTERIOR_DRAWS = 32  # one of them chooses the candidate, all of them estimate the propensity


class _OneAsked:
    """Asks one candidate at a time until one replies, whose answer counts."""

    def ask(self, query: Query) -> Sequence[tuple[int, float]]:
        return () if query.waits or query.replies or not query.open else (self.drawn(query),)

    def drawn(self, query: Query) -> tuple[int, float]:
        """Return the candidate to ask, and the probability of asking it."""
        raise NotImplementedError

    def combine(self, query: Query) -> Choice:
        return the_only_answer(query)

    def settled(self, query: Query) -> bool:
        return bool(query.replies)


class FixedSplit(_OneAsked):
    """Split queries by the file's shares (a KServe or Seldon traffic split) without learning."""

    def __init__(self, weights: Sequence[float]) -> None:
        self._weights = weights

    def drawn(self, query: Query) -> tuple[int, float]:
        return draw_one(query, self._weights)


class Exp3(_OneAsked):
    """Exponential weights on importance-weighted losses (Auer, Cesa-Bianchi, Freund, Schapire 2002)."""

    def drawn(self, query: Query) -> tuple[int, float]:
        weights = exponential_weights(query.sums.weighted, EXP3_RATE)
        even = _EXP3_MIX / len(weights)
        return draw_one(query, [(1.0 - _EXP3_MIX) * one + even for one in weights])


class Thompson(_OneAsked):
    """Ask each candidate with the probability that it is the best one, by Beta posteriors of their losses.

    Fractional losses count as that share of an error (Agrawal and Goyal 2012). The recorded propensity is the share of
    32 draws that chose the candidate.
    """

    def __init__(self, generator: np.random.Generator) -> None:
        self._generator = generator

    def drawn(self, query: Query) -> tuple[int, float]:
        among, sums, explore = sorted(query.open), query.sums, query.explore
        losses = [sums.losses[one] for one in among]
        counts = [sums.counts[one] for one in among]
        right = [1.0 + max(0.0, count - loss) for count, loss in zip(counts, losses, strict=True)]
        wrong = [1.0 + loss for loss in losses]
        draws = self._generator.beta(right, wrong, (_POSTERIOR_DRAWS, len(among)))
        best = draws.argmax(axis=1).tolist()
        at = best[0]
        if explore and query.draw() < explore:
            at = int(query.draw() * len(among))
        # Any of the 32 draws could have been the one that chooses, so their frequencies are its probabilities.
        query.shares = shares = [0.0] * len(sums.counts)
        for place, one in enumerate(among):
            drawn = best.count(place) / _POSTERIOR_DRAWS
            shares[one] = min(1.0, (1.0 - explore) * drawn + explore / len(among))
        return among[at], shares[among[at]]


def exponential_weights(losses: Sequence[float], rate: float) -> list[float]:
    """Return weights proportional to exp(-rate x loss), with the sum 1."""
    least = min(losses)
    raw = [math.exp(-rate * (loss - least)) for loss in losses]
    total = sum(raw)
    return [one / total for one in raw]


def the_only_answer(query: Query) -> Choice:
    """Return the answer of the one candidate that has replied."""
    (candidate,) = query.replies
    return answer_of(query, candidate)


_: tuple[type[SelectionPolicy], ...] = (FixedSplit, Exp3, Thompson)
