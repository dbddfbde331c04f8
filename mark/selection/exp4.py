"""Exp4: ask all candidates, and let them vote with weights that fall exponentially with their losses.

Clipper's ensemble policy (section 5.2; Auer et al. 2002 with one expert for each model). By default the losses are
discounted, so that a model which was broken comes back; `exp4:thesis` is the rule as printed, which never forgets.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from mark.selection.labels import label_of
from mark.selection.one_asked import exponential_weights
from mark.selection.policy import Choice, Policy, Query, answer_of

RATE = 0.3  # eta: measured best with a half-life of 140 feedbacks, on MNIST and digits


class Exp4:
    """See the module. Arrays of numbers are averaged by weight, all other answers are voted for."""

    def ask(self, query: Query) -> Sequence[tuple[int, float]]:
        return () if query.asked else [(one, 1.0) for one in sorted(query.open)]

    def combine(self, query: Query) -> Choice:
        weights = _weights(query)
        answered = sorted(query.replies)
        results = [query.replies[one].result for one in answered]
        if all(isinstance(one, np.ndarray) and one.ndim and one.dtype.kind == "f" for one in results):
            same_shape = len({one.shape for one in results}) == 1
            if same_shape:
                mean = np.average(results, axis=0, weights=[weights[one] for one in answered])
                mean = mean.astype(results[0].dtype)
                return Choice(mean, label_of(mean), None)
        votes = _votes(query, weights)
        key = max(votes, key=lambda one: votes[one][0])  # the first of equal ones, which the best candidate gave
        share, candidate = votes[key]
        whole = sum(weights[one] for one in answered)
        # The best candidate that gave the answer: its own result is passed on.
        return answer_of(query, candidate, share / whole if whole > 0.0 else 1.0 / len(answered))

    def settled(self, query: Query) -> bool:
        """Is the lead larger than the weight of all that are awaited? Means need every reply."""
        if not query.replies or any(isinstance(one.result, np.ndarray) for one in query.replies.values()):
            return False
        weights = _weights(query)
        shares = sorted((share for share, _ in _votes(query, weights).values()), reverse=True)
        awaited = sum(weights[one] for one in query.asked if one not in query.replies)
        return shares[0] - (shares[1] if len(shares) > 1 else 0.0) > awaited


def _weights(query: Query) -> Sequence[float]:
    if not query.weights:
        query.weights = exponential_weights(query.sums.losses, RATE)
    return query.weights


def _votes(query: Query, weights: Sequence[float]) -> dict[Any, tuple[float, int]]:
    """By label (in a form that can be a key) the weight of the candidates that gave it, and the best of them."""
    found: dict[Any, tuple[float, int]] = {}
    for candidate in sorted(query.replies, key=lambda one: (-weights[one], one)):
        key = label_key(query.replies[candidate].label)
        share, best = found.get(key, (0.0, candidate))
        found[key] = share + weights[candidate], best
    return found


def label_key(label: Any) -> Any:
    """The label as a dictionary's key. Labels that are equal have equal keys."""
    if isinstance(label, list):
        return tuple(label_key(one) for one in label)
    if isinstance(label, dict):
        return tuple(sorted((name, label_key(one)) for name, one in label.items()))
    return label


_: type[Policy] = Exp4
