"""How likely a promise can be kept, and which changes of a service would help."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from mark.domain.slo import Slo


class HelpKind(StrEnum):
    """What a user can change."""

    WARM_POOL = "warm-pool"  # keep `instances` stopped, to be resumed
    MORE_INSTANCES = "more-instances"  # always hold `instances` beyond the plan
    LIMITS = "limits"  # allow `instances`
    TYPE = "type"  # buy `instance`
    FUNCTION = "function"  # pass late requests on to `instance`
    RT_MAX = "rt-max"  # promise `rt_max_s`
    ATTAINMENT = "attainment"  # promise `attainment`


@dataclass(frozen=True, slots=True)
class PromiseHelp:
    """One change, the confidence that can be had with it, and dollars an hour of the service with it.

    Without a known load `confidence` is None, and the dollars are of one instance.
    """

    kind: HelpKind
    confidence: float | None
    usd_per_hour: float | None
    instances: int | None = None
    instance: str | None = None
    rt_max_s: float | None = None
    longer_s: float | None = None  # than RT_max, `rt_max_s` is
    attainment: float | None = None

    def as_json(self, own_usd_per_hour: float | None = None) -> dict[str, Any]:
        """With the difference from what the service costs as it is; None where either is not known."""
        known = self.usd_per_hour is not None and own_usd_per_hour is not None
        return {
            "kind": str(self.kind),
            "confidence": self.confidence,
            "usd_per_hour": self.usd_per_hour,
            "difference_usd_per_hour": self.usd_per_hour - own_usd_per_hour if known else None,  # type: ignore[operator]
            "instances": self.instances,
            "instance": self.instance,
            "rt_max_ms": None if self.rt_max_s is None else round(self.rt_max_s * 1e3, 6),
            "longer_ms": None if self.longer_s is None else round(self.longer_s * 1e3, 6),
            "attainment": self.attainment,
        }


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


SAME_CONFIDENCE = 0.03  # as near as the grid of prices comes
