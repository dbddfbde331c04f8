"""A tuner for replicas that take a minute or three to become active: it prepares for the load at that time.

InferLine's tuner (SoCC '20, section 5) asks for the replicas that the present load needs, which is right where a
replica serves 5 s later. An instance of a cloud takes 60 to 180 s. So this tuner

- knows the load by its envelope, as a level of the planned pipeline (`mark.planning.graphs.load_levels`), which covers
  bursts and rate;
- forecasts it at the activation horizon as a random walk: the load stays as it is, and may grow without notice by a
  margin of its mean rate that widens with the root of time. A trend fitted to the last minutes was tried, and only
  bought replicas after a spike had begun: growth without notice is borne by the replicas that are already there;
- removes a replica once it was not needed for as long as a new one would take, a minute at least: by then keeping it
  has cost as much as asking for it again;
- gives a stage with a function the replicas for the mean rate, without a margin: the function answers bursts, and
  growth until a replica is active. Where its calls cost less than one replica would, the function may be alone, without
  a replica.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from mark.domain.arrays import FloatArray
from mark.planning.graphs.envelope import RecentEnvelope
from mark.planning.graphs.load_levels import LoadLevels
from mark.planning.graphs.tuner import Replicas

RECENT_S = 30.0  # the envelope is of windows that ended since then
HELD_S = 60.0
# Growth without notice as a share of the mean rate, per root of a second: 22 % at 5 s and 95 % at 90 s
MARGIN = 0.1


@dataclass(frozen=True, eq=False, slots=True)
class HorizonState:
    """The tuner's memory from one step to the next."""

    envelope: RecentEnvelope
    # The rates that still count: the time they were seen (s), the mean rate, and the rate that may come (queries/s)
    rates: tuple[tuple[float, float, float], ...]


@dataclass(frozen=True, eq=False, slots=True)
class HorizonTuner:
    """A tuner that asks for the replicas for the load at the activation horizon: see the module.

    `bridged` says for each stage whether its function bridges. `alone_below` is the mean rate (queries/s) below which
    its function is alone, without a replica.
    """

    levels: LoadLevels
    activation_s: float
    margin: float = MARGIN
    bridged: tuple[bool, ...] = ()  # empty: none does
    alone_below: tuple[float, ...] = ()  # 0: never; empty: never, for all stages

    def begin(self) -> HorizonState:
        return HorizonState(RecentEnvelope(self.levels.windows_s, RECENT_S), ())

    def step(self, state: HorizonState, arrivals_s: FloatArray, now_s: float) -> tuple[Replicas, HorizonState]:
        envelope = state.envelope.advanced(arrivals_s, now_s)
        # The level contains the bursts. The margin is of the mean rate, because otherwise bursts would count twice.
        mean_rate = (len(arrivals_s) - int(np.searchsorted(arrivals_s, now_s - RECENT_S))) / RECENT_S
        unforeseen = self.margin * math.sqrt(self.activation_s) * mean_rate
        rate = self.levels.rate_of(envelope.counts) + unforeseen
        held_s = max(HELD_S, self.activation_s)
        rates = (*(one for one in state.rates if one[0] > now_s - held_s), (now_s, mean_rate, rate))
        replicas = self.levels.replicas_at(max(rate for _, _, rate in rates))
        if self.bridged:
            by_mean = self.levels.replicas_at(max(mean for _, mean, _ in rates))
            replicas = np.where(self.bridged, by_mean, replicas)
        if self.alone_below:
            replicas = np.where(np.array(self.alone_below) > max(mean for _, mean, _ in rates), 0, replicas)
        return tuple(int(n) for n in replicas), HorizonState(envelope, rates)
