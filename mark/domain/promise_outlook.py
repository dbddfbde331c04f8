"""How likely a promise can be kept, and which changes of a service would help."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from mark.domain.promise_help import PromiseHelp
from mark.domain.slo import Slo

SAME_CONFIDENCE = 0.03  # as near as the grid of prices comes


@dataclass(frozen=True, slots=True)
class PromiseOutlook:
    """The highest confidence with which windows of a promise can be kept, and the dollars an hour that it takes.

    Where the confidence that `slo` asks for can be had, the dollars are those of that, and there are no `helps`; else
    these come with the cheapest that is enough first, then by confidence. `seen_s` of the past tell it; 0: a forecast.
    """

    slo: Slo
    confidence: float
    usd_per_hour: float
    seen_s: float
    helps: tuple[PromiseHelp, ...] = ()

    @property
    def can_be_had(self) -> bool:
        return self.enough(self.confidence)

    def enough(self, confidence: float) -> bool:
        """Is it as much as is asked for?"""
        return confidence >= self.slo.confidence - SAME_CONFIDENCE

    def as_json(self) -> dict[str, Any]:
        return {
            "asked_confidence": self.slo.confidence,
            "window_s": self.slo.window_s,
            "can_be_had": self.can_be_had,
            "confidence": self.confidence,
            "usd_per_hour": self.usd_per_hour,
            "seen_s": self.seen_s,
            "helps": [one.as_json(self.usd_per_hour) for one in self.helps],
        }
