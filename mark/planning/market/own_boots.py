"""The service's own boot times, measured against the catalogue.

The catalogue's boot times are those of some model on some day. The ratio of the service's own boot times to the
catalogue's mean says more. The mean ratio, in which the catalogue counts as `PRIOR` boots of ratio 1, scales the law of
boots.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from mark.domain.fleet import Instance, Phase
from mark.domain.offer import Delay

PRIOR = 20.0
MOST = 100.0  # boots that count: older ones fade, so that the law follows a new image or model
LEAST_RATIO, MOST_RATIO = 0.2, 5.0  # limits, because an instance that its cloud rebooted shows no boot time


@dataclass(frozen=True, slots=True)
class OwnBoots:
    """`count` boots whose ratios sum up to `ratios`; all that were ready by `ready_s` are counted."""

    ready_s: float = -math.inf
    count: float = 0.0
    ratios: float = 0.0

    @property
    def scale(self) -> float:
        """Return the factor on the catalogue's boot times."""
        return (PRIOR + self.ratios) / (PRIOR + self.count)

    def seen(self, instances: Iterable[Instance], boots: Mapping[str, Delay], resumed: bool) -> OwnBoots:
        """Return the memory with the boots that ended since, or with the resumes if `resumed`.

        `boots` are the catalogue's, by offer. Boots without spread are not measured, and instances of the first fleet,
        which were ready immediately, have no boot time.
        """
        ready_s, count, ratios = self.ready_s, self.count, self.ratios
        for i in instances:
            if i.phase is not Phase.READY or i.ready_s is None or i.ready_s <= self.ready_s or i.resumed is not resumed:
                continue
            boot = boots.get(i.offer)
            if boot is None or boot.sigma == 0.0 or i.ready_s <= i.launched_s:
                continue
            ratio = (i.ready_s - i.launched_s) / boot.mean_s
            fading = min(1.0, MOST / (count + 1.0))
            count = (count + 1.0) * fading
            ratios = (ratios + min(max(ratio, LEAST_RATIO), MOST_RATIO)) * fading
            ready_s = max(ready_s, i.ready_s)
        return OwnBoots(ready_s, count, ratios)
