"""The latency objective."""

from __future__ import annotations

from dataclasses import dataclass

from mark.domain.errors import BadInput
from mark.domain.time import DAY_S, HOUR_S

LONGEST_RT_MAX_S = 3600.0
CONFIDENCE = 0.95
_LONGEST_WINDOW_S = 31 * DAY_S


@dataclass(frozen=True, slots=True)
class Slo:
    """At least `attainment` of the requests answered within `rt_max_s` (MArk, section 4.1).

    `confidence` is the wanted probability of keeping that in each window of `window_s`.
    """

    rt_max_s: float
    attainment: float
    confidence: float = CONFIDENCE
    window_s: float = DAY_S

    def __post_init__(self) -> None:
        if not 0.0 < self.rt_max_s < LONGEST_RT_MAX_S:
            raise BadInput("RT_max must lie between 0 and 3,600,000 ms", "slo_ms", self.rt_max_s * 1e3)
        if not 0.0 < self.attainment < 1.0:
            raise BadInput(
                "SL_min must lie between 0 and 1, both excluded (98 % is 0.98)", "slo_attainment", self.attainment
            )
        if not 0.5 <= self.confidence < 1.0:
            raise BadInput("the confidence must lie between 0.5 and 1, 1 excluded", "slo_confidence", self.confidence)
        if not HOUR_S <= self.window_s <= _LONGEST_WINDOW_S or self.window_s % HOUR_S:
            raise BadInput("the window must be whole hours, 1 to 744", "slo_window", self.window_s / HOUR_S)
