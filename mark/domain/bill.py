"""The bill, by market."""

from __future__ import annotations

from dataclasses import asdict, dataclass, fields


@dataclass(frozen=True, slots=True)
class Bill:
    """USD by market; the total is always the sum of the parts."""

    on_demand: float = 0.0
    spot: float = 0.0
    burstable: float = 0.0
    functions: float = 0.0
    sagemaker: float = 0.0
    other: float = 0.0

    @property
    def total(self) -> float:
        return float(sum(getattr(self, f.name) for f in fields(self)))

    def as_json(self) -> dict[str, float]:
        return {**asdict(self), "total": self.total}
