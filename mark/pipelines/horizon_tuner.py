"""A tuner for replicas that take a minute or three to become active: it plans for what comes by then.

InferLine's tuner (SoCC '20, section 5) asks for what the load of now needs, which is right where a replica serves 5 s
later. An instance of a cloud takes 60 to 180 s. So this one

- knows the load by its envelope, as a level of the planned pipeline (`mark.pipelines.levels`): bursts and rate at once;
- adds what the trend of the last minute or two comes to until a replica that is asked for now serves;
- keeps margin above that, since what no trend shows (a spike) is borne by what stands already. Unforeseen growth is
  taken as a random walk, whose spread grows with the root of time;
- lets a replica go once nothing has needed it for as long as it would take to have it back, a minute at least: by then
  keeping it has cost as much as asking for it again would.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from mark.domain.arrays import FloatArray
from mark.pipelines.envelope import RecentEnvelope
from mark.pipelines.levels import LoadLevels
from mark.pipelines.tuner import Replicas

RECENT_S = 30.0  # the envelope is of windows that ended since then
# The trend is fitted to as long a time as it is continued for, within these bounds, in windows of 5 s.
TREND_S, LONGEST_TREND_S, TREND_WINDOW_S = 60.0, 120.0, 5.0
ERRORS = 2.0  # standard errors of a trend that are taken for chance
HELD_S = 60.0
# Of the load, by the root of a second
MARGIN = 0.05


@dataclass(frozen=True, eq=False, slots=True)
class HorizonState:
    """What the tuner remembers from one step to the next."""

    envelope: RecentEnvelope
    rates: tuple[tuple[float, float], ...]  # when it was wanted (s), and for which rate (queries/s), while it counts


@dataclass(frozen=True, eq=False, slots=True)
class HorizonTuner:
    """Replicas for the load at the activation horizon: see the module."""

    levels: LoadLevels
    activation_s: float
    margin: float = MARGIN

    def begin(self) -> HorizonState:
        return HorizonState(RecentEnvelope(self.levels.windows_s, RECENT_S), ())

    def step(self, state: HorizonState, arrivals_s: FloatArray, now_s: float) -> tuple[Replicas, HorizonState]:
        envelope = state.envelope.advanced(arrivals_s, now_s)
        growth = trend_per_s(arrivals_s, now_s, self.activation_s) * self.activation_s
        rate = (self.levels.rate_of(envelope.counts) + growth) * (1.0 + self.margin * math.sqrt(self.activation_s))
        held_s = max(HELD_S, self.activation_s)
        rates = (*(one for one in state.rates if one[0] > now_s - held_s), (now_s, rate))
        replicas = self.levels.replicas_at(max(rate for _, rate in rates))
        return tuple(int(n) for n in replicas), HorizonState(envelope, rates)


def trend_per_s(arrivals_s: FloatArray, now_s: float, horizon_s: float) -> float:
    """How fast the rate grows (queries/s in a second), by least squares over the last minute or two, for sure.

    A slope that chance makes would be continued for minutes: twice its standard error is taken off, and what is below
    zero is 0.
    """
    windows = math.ceil(min(max(TREND_S, horizon_s), LONGEST_TREND_S) / TREND_WINDOW_S)
    edges_s = now_s - TREND_WINDOW_S * np.arange(windows, -1, -1)
    rates = np.diff(np.searchsorted(arrivals_s, edges_s, side="right")) / TREND_WINDOW_S
    times_s = TREND_WINDOW_S * (np.arange(windows) - (windows - 1) / 2.0)
    spread = float(times_s @ times_s)
    slope = float(times_s @ rates) / spread
    left = rates - rates.mean() - slope * times_s
    error = math.sqrt(float(left @ left) / (windows - 2) / spread)
    return max(0.0, slope - ERRORS * error)
