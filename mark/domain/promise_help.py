"""Changes of a service that would help it to keep its promise."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Any


class HelpKind(StrEnum):
    """The kinds of changes."""

    WARM_POOL = "warm-pool"  # keep `instances` stopped, to be resumed
    MORE_INSTANCES = "more-instances"  # always hold `instances` beyond the plan
    LIMITS = "limits"  # allow `instances`
    TYPE = "type"  # buy `instance`
    FUNCTION = "function"  # pass late requests on to `instance`
    RT_MAX = "rt-max"  # promise `rt_max_s`
    ATTAINMENT = "attainment"  # promise `attainment`


@dataclass(frozen=True, slots=True)
class PromiseHelp:
    """One change, with the confidence it makes possible and the service's price in USD/h.

    Without a known load `confidence` is None, and the price is for one instance.
    """

    kind: HelpKind
    confidence: float | None
    usd_per_hour: float | None
    instances: int | None = None
    instance: str | None = None
    rt_max_s: float | None = None
    longer_s: float | None = None  # how much `rt_max_s` is longer than RT_max
    attainment: float | None = None

    def as_json(self, own_usd_per_hour: float | None = None) -> dict[str, Any]:
        """Return the change with the difference from the service's current price; None if either is unknown."""
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
