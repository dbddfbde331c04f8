"""Random draws for an instance: its boot time, its spot interruption, its crash.

Every draw is a function of (seed, instance number, start, purpose), so that draws do not shift each other.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from enum import IntEnum

import numpy as np

from mark.domain.offer import Offer
from mark.domain.time import HOUR_S

_SEEDS_APART = 1_000_003  # so that services of one seed do not repeat the draws of the next seed


def service_seed(seed: int, nth: int) -> int:
    """Return the seed of the `nth` service of a site, or stage of a pipeline: each has its own boots."""
    return (seed + nth * _SEEDS_APART) % 2**63


class _Purpose(IntEnum):
    """Part of the key of a draw."""

    BOOT = 0
    INTERRUPTION = 1
    CRASH = 2


@dataclass(frozen=True, slots=True)
class Start:
    """One start of an instance: its launch (`nth` 0) or its nth resume."""

    seed: int
    number: int
    nth: int

    def boot_s(self, offer: Offer) -> float:
        """Return the time from the start to the first request that the instance can take."""
        delay = offer.boot if self.nth == 0 else offer.resume or offer.boot
        return delay.at(float(self._generator(_Purpose.BOOT).standard_normal()))

    def until_interruption_s(self, offer: Offer) -> float:
        """Return the time from the start to the interruption notice, by the offer's hazard rate; inf at rate zero."""
        if offer.interruptions_per_hour <= 0.0:
            return math.inf
        drawn = float(self._generator(_Purpose.INTERRUPTION).standard_exponential())
        return drawn / offer.interruptions_per_hour * HOUR_S

    def until_crash_s(self, per_hour: float) -> float:
        """Return the time from ready to crash, at this rate."""
        if per_hour <= 0.0:
            return math.inf
        return float(self._generator(_Purpose.CRASH).standard_exponential()) / per_hour * HOUR_S

    def _generator(self, purpose: _Purpose) -> np.random.Generator:
        key = np.array([self.seed % 2**64, self.number], dtype=np.uint64)
        return np.random.Generator(np.random.Philox(key=key, counter=[0, 0, self.nth, int(purpose)]))
