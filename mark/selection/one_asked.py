"""Policies that ask one candidate: fixed shares, Exp3, and Thompson sampling.

Where the candidate fails or is late the next one is drawn among the others.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from mark.selection.policy import Choice, Policy, Query, answer_of, draw_one
from mark.selection.tally import Sums

EXP3_RATE = 0.05  # eta: measured best of 0.02 to 0.1 with discounted sums, on MNIST and digits
_EXP3_MIX = 0.05  # gamma of Auer et al. 2002: this share is asked at random
_POSTERIOR_DRAWS = 32  # of which one chooses, and all estimate the propensity


class Split:
    """Shares as the file says them (a KServe or Seldon traffic split); nothing is learned."""

    def __init__(self, weights: Sequence[float]) -> None:
        self._weights = weights

    def ask(self, query: Query) -> Sequence[tuple[int, float]]:
        return _ask_one(query, self._weights)

    def combine(self, query: Query) -> Choice:
        return _only(query)

    def settled(self, query: Query) -> bool:
        return bool(query.replies)


class Exp3:
    """Exponential weights on importance-weighted losses (Auer, Cesa-Bianchi, Freund, Schapire 2002)."""

    def ask(self, query: Query) -> Sequence[tuple[int, float]]:
        weights = exponential_weights(query.sums.weighted, EXP3_RATE)
        mixed = [(1.0 - _EXP3_MIX) * one + _EXP3_MIX / len(weights) for one in weights]
        return _ask_one(query, mixed)

    def combine(self, query: Query) -> Choice:
        return _only(query)

    def settled(self, query: Query) -> bool:
        return bool(query.replies)


class Thompson:
    """Ask each candidate with the probability that it is the best one, by Beta posteriors of their losses.

    Fractional losses count as that share of an error (Agrawal and Goyal 2012). The recorded propensity is the share of
    32 draws that chose the candidate.
    """

    def __init__(self, generator: np.random.Generator) -> None:
        self._generator = generator

    def ask(self, query: Query) -> Sequence[tuple[int, float]]:
        if query.asked and (query.waits or query.replies):
            return ()
        if not query.open:
            return ()
        among = sorted(query.open)
        losses = [query.sums.losses[one] for one in among]
        counts = [query.sums.counts[one] for one in among]
        right = [1.0 + max(0.0, count - loss) for count, loss in zip(counts, losses, strict=True)]
        wrong = [1.0 + loss for loss in losses]
        best = self._generator.beta(right, wrong, (_POSTERIOR_DRAWS, len(among))).argmax(axis=1)
        at = int(best[0])
        share = float(np.count_nonzero(best == at)) / _POSTERIOR_DRAWS
        even = 1.0 / len(among)
        if query.explore and query.draw() < query.explore:
            at = int(query.draw() * len(among))
            share = float(np.count_nonzero(best == at)) / _POSTERIOR_DRAWS
        return ((among[at], (1.0 - query.explore) * share + query.explore * even),)

    def combine(self, query: Query) -> Choice:
        return _only(query)

    def settled(self, query: Query) -> bool:
        return bool(query.replies)


def exponential_weights(losses: Sequence[float], rate: float) -> list[float]:
    """Weights proportional to exp(-rate x loss), with the sum 1."""
    least = min(losses)
    raw = [math.exp(-rate * (loss - least)) for loss in losses]
    total = math.fsum(raw)
    return [one / total for one in raw]


def mean_losses(sums: Sums) -> list[float]:
    """Of each candidate the mean loss, one half where nothing is known."""
    return [sums.mean(one) for one in range(len(sums.counts))]


def _ask_one(query: Query, weights: Sequence[float]) -> Sequence[tuple[int, float]]:
    if query.waits or query.replies or not query.open:
        return ()
    return (draw_one(query, weights),)


def _only(query: Query) -> Choice:
    (candidate,) = query.replies
    return answer_of(query, candidate)


_: tuple[type[Policy], ...] = (Split, Exp3, Thompson)
