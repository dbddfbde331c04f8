"""The likelihood of keeping a promise, and changes of the service that would help."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from mark.domain.promise_help import PromiseHelp
from mark.domain.slo import Slo

SAME_CONFIDENCE = 0.03  # confidences that differ by less are equal, because the grid of prices is coarse


@dataclass(frozen=True, slots=True)
class PromiseOutlook:
    """The highest confidence with which each window of a promise can be kept, and its price in USD/h.

    If the confidence that `slo` wants is possible, the price is for that one, and `helps` is empty. Otherwise `helps`
    has the sufficient changes, cheapest first, then the others by confidence. The estimate rests on `seen_s` of the
    past, or on a forecast alone if that is 0. The price is for instances of `offer`, which AWS does not take back.
    """

    slo: Slo
    confidence: float
    usd_per_hour: float
    seen_s: float
    helps: tuple[PromiseHelp, ...] = ()
    offer: str = ""

    @property
    def can_be_had(self) -> bool:
        return self.enough(self.confidence)

    def enough(self, confidence: float) -> bool:
        """Return whether the confidence is as high as wanted."""
        return confidence >= self.slo.confidence - SAME_CONFIDENCE

    def as_json(self) -> dict[str, Any]:
        return {
            "asked_confidence": self.slo.confidence,
            "window_s": self.slo.window_s,
            "can_be_had": self.can_be_had,
            "confidence": self.confidence,
            "usd_per_hour": self.usd_per_hour,
            "seen_s": self.seen_s,
            "offer": self.offer,
            "helps": [one.as_json(self.usd_per_hour) for one in self.helps],
        }
