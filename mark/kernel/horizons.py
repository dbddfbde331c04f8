"""The time limits of many calls in a stage of a pipeline."""

from __future__ import annotations

import numpy as np

from mark.domain.rules.stage_horizon import stage_horizon_s
from mark.kernel.arrays import Floats
from mark.kernel.compiled import compiled

_stage_horizon_s = compiled(stage_horizon_s)


def horizons_s(left_s: Floats, own_s: float, behind_s: float, least_behind_s: float) -> Floats:
    """Return `mark.domain.rules.stage_horizon` of each call.

    `left_s` (N,) are the times until their queries' deadlines.
    """
    found = np.empty_like(left_s)
    _fill(found, left_s, own_s, behind_s, least_behind_s)
    return found


@compiled
def _fill(found: Floats, left_s: Floats, own_s: float, behind_s: float, least_behind_s: float) -> None:
    for i in range(left_s.shape[0]):
        found[i] = _stage_horizon_s(left_s[i], own_s, behind_s, least_behind_s)
