"""Weights of candidates for people, on a page or in `mark selection show`."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from mark.selection.exp4 import RATE as EXP4_RATE
from mark.selection.exp4 import full_losses
from mark.selection.one_asked import EXP3_RATE, exponential_weights
from mark.selection.settings import EXP3, EXP4, EXP4_THESIS, SPLIT, THOMPSON, SelectionSettings
from mark.selection.tally import Sums

_DRAWS = 2000


def weights_now(settings: SelectionSettings, sums: Sums, off: Sequence[int] = ()) -> list[float] | None:
    """Return each candidate's share of a vote or probability of being asked; None if the policy has neither."""
    n = len(sums.counts)
    if settings.policy == SPLIT:
        found = list(settings.weights) or [1.0 / n] * n
    elif settings.policy in (EXP4, EXP4_THESIS):
        found = exponential_weights(full_losses(sums), EXP4_RATE)
    elif settings.policy == EXP3:
        found = exponential_weights(sums.weighted, EXP3_RATE)
    elif settings.policy == THOMPSON:
        right = [1.0 + max(0.0, count - loss) for count, loss in zip(sums.counts, sums.losses, strict=True)]
        drawn = np.random.default_rng(0).beta(right, [1.0 + loss for loss in sums.losses], (_DRAWS, n))
        found = (np.bincount(drawn.argmax(axis=1), minlength=n) / _DRAWS).tolist()
    else:
        return None
    kept = [0.0 if one in off else weight for one, weight in enumerate(found)]
    total = sum(kept)
    return [weight / total for weight in kept] if total > 0.0 else kept
