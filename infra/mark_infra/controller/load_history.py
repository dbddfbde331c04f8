"""The load that a predictor learns from: the history of the service's files, and the load seen since."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np

from mark.domain.load import Load
from mark.domain.time import DAY_S, STEP_S
from mark_infra.store.dynamo_table import LOAD_DAYS


def last_rps(history: Load) -> float | None:
    """Return the rate of the history's last minute, or None if it is unknown."""
    last = history.mean_rps[-1:]
    return float(last[0]) if np.isfinite(last).all() and len(last) else None


def over(load: Load, now_s: float) -> Load:
    """Return only the steps that have ended by now; the clock may have been set back since they were counted."""
    steps = max(0, min(len(load), math.floor((now_s - load.start_s) / load.step_s)))
    return replace(load, mean_rps=load.mean_rps[:steps], peak_rps=load.peak_rps[:steps])


def joined(before: Load, seen: Load) -> Load:
    """Return the history up to second 0 and the later load seen since, with NaN in between.

    The history is left out if the gap is longer than a predictor looks back.
    """
    if len(seen) == 0:
        return before
    if seen.start_s > LOAD_DAYS * DAY_S:
        return seen
    between = np.full(round(seen.start_s / STEP_S), np.nan)
    return Load(
        before.start_s,
        STEP_S,
        np.concatenate([before.mean_rps, between, seen.mean_rps]),
        np.concatenate([before.peak_rps, between, seen.peak_rps]),
    )
