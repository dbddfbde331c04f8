"""Policies by name."""

from __future__ import annotations

import numpy as np

from mark.selection.cascade import Cascade
from mark.selection.exp4 import Exp4
from mark.selection.one_asked import Exp3, FixedSplit, Thompson
from mark.selection.policy import SelectionPolicy
from mark.selection.settings import CASCADE, EXP3, EXP4, EXP4_THESIS, SPLIT, THOMPSON, SelectionSettings


def policy_of(settings: SelectionSettings, candidates: int, generator: np.random.Generator) -> SelectionPolicy:
    """Return the policy that the settings name. Raises ValueError for a policy that is not mark's own."""
    name = settings.policy
    if name == SPLIT:
        return FixedSplit(settings.weights or [1.0 / candidates] * candidates)
    if name == EXP3:
        return Exp3()
    if name in (EXP4, EXP4_THESIS):
        return Exp4()
    if name == THOMPSON:
        return Thompson(generator)
    if name == CASCADE:
        return Cascade(threshold=settings.threshold, correct_usd=settings.correct_usd)
    raise ValueError(f"no policy of mark's own: {name}")
