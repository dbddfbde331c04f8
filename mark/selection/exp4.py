"""Exp4: ask all candidates, and let them vote with weights that fall exponentially with their losses.

Clipper's ensemble policy (section 5.2; Auer et al. 2002 with one expert for each model). By default the losses are
discounted, so that a model which was broken comes back; `exp4:thesis` is the rule as printed, which never forgets.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from mark.selection.labels import label_key, label_of
from mark.selection.one_asked import exponential_weights
from mark.selection.policy import Choice, Query, SelectionPolicy, answer_of
from mark.selection.tally import Sums

RATE = 0.3  # eta: measured best with a half-life of 140 feedbacks, on MNIST and digits
_PRIOR_COUNT = 10.0  # the mean of all candidates counts as so many observations of each
_ROUNDING = 1e-9  # of sums of weights


class Exp4:
    """The policy of the module: average arrays of numbers by weight, and let candidates vote on other answers.

    The agreement of an answer is its share of the weight of all candidates that were asked and have not failed. A
    candidate that has not replied does not agree, as in Clipper (section 5.2.2).
    """

    def ask(self, query: Query) -> Sequence[tuple[int, float]]:
        return () if query.asked else [(one, 1.0) for one in sorted(query.open)]

    def combine(self, query: Query) -> Choice:
        weights, answered = _weights(query), sorted(query.replies)
        whole = sum([weights[one] for one in query.asked])
        if not any(weights[one] for one in answered):  # all underflow beside a candidate without a reply
            weights = _weights_among(answered, query)
            whole = math.inf if whole else 1.0
        results = [query.replies[one].result for one in answered]
        if all(isinstance(one, np.ndarray) and one.ndim and one.dtype.kind == "f" for one in results):
            same_shape = len({one.shape for one in results}) == 1
            if same_shape:
                mean = np.average(results, axis=0, weights=[weights[one] for one in answered])
                mean = mean.astype(results[0].dtype)
                return Choice(mean, label_of(mean), None)
        share, best = _votes(query, weights)[0]
        return answer_of(query, best, min(1.0, share / whole))

    def settled(self, query: Query) -> bool:
        """Return whether the lead exceeds the weight of all awaited candidates. Averages need every reply."""
        weights, replies = _weights(query), query.replies
        replied = sum([weights[one] for one in replies])
        awaited = sum([weights[one] for one in query.asked if one not in replies]) + _ROUNDING
        if replied <= awaited or any(isinstance(one.result, np.ndarray) for one in replies.values()):
            return False
        votes = _votes(query, weights)
        return votes[0][0] - (votes[1][0] if len(votes) > 1 else 0.0) > awaited


def full_losses(sums: Sums) -> Sequence[float]:
    """Return the sum of each candidate's losses as if all candidates had been observed equally often.

    Otherwise a candidate that is new or often late would have the smallest sum and the largest weight. Each missing
    loss is assumed to be the candidate's mean, shrunk towards the mean of all candidates.
    """
    counts = sums.counts
    most = max(counts)
    if min(counts) == most:
        return sums.losses
    shared = sum(sums.losses) / sum(counts)
    return [
        loss + (most - count) * (loss + _PRIOR_COUNT * shared) / (count + _PRIOR_COUNT)
        for count, loss in zip(counts, sums.losses, strict=True)
    ]


def _weights(query: Query) -> Sequence[float]:
    if not query.weights:
        query.weights = exponential_weights(full_losses(query.sums), RATE)
    return query.weights


def _weights_among(candidates: Sequence[int], query: Query) -> Sequence[float]:
    """Return weights that add up to 1 over these candidates, and are 0 for all others."""
    losses, found = full_losses(query.sums), [0.0] * len(query.sums.losses)
    for one, weight in zip(candidates, exponential_weights([losses[one] for one in candidates], RATE), strict=True):
        found[one] = weight
    return found


def _votes(query: Query, weights: Sequence[float]) -> list[tuple[float, int]]:
    """Return for each label the weight of the candidates that gave it and the best of them, heaviest label first.

    Among equally heavy labels, the label of the best candidate comes first.
    """
    replies = query.replies
    found: dict[object, tuple[float, int]] = {}
    for candidate in sorted(replies, key=lambda one: (-weights[one], one)):
        key = label_key(replies[candidate].label)
        share, best = found.get(key, (0.0, candidate))
        found[key] = share + weights[candidate], best
    return sorted(found.values(), key=lambda one: -one[0])


_: type[SelectionPolicy] = Exp4
