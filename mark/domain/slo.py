"""The latency objective."""

from __future__ import annotations

from dataclasses import dataclass

from mark.domain.errors import BadInput

LONGEST_RT_MAX_S = 3600.0


@dataclass(frozen=True, slots=True)
class Slo:
    """At least `attainment` of the requests answered within `rt_max_s` (MArk, section 4.1)."""

    rt_max_s: float
    attainment: float

    def __post_init__(self) -> None:
        if not 0.0 < self.rt_max_s < LONGEST_RT_MAX_S:
            raise BadInput("RT_max must lie between 0 and 3,600,000 ms", "slo_ms", self.rt_max_s * 1e3)
        if not 0.0 < self.attainment < 1.0:
            raise BadInput("SL_min must lie between 0 and 1, both excluded", "slo_attainment", self.attainment)
