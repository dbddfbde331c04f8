"""The unit in which a service's load is counted: requests, or the tokens, pages or seconds that requests bring.

Decisions and simulations count requests. A load in another unit is divided by the mean size of a request. A request's
service time is its size over its worker's rate, so service times scatter as sizes do; a service states this scatter as
`tail`.
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass

from mark.domain.arrays import FloatArray
from mark.domain.errors import BadInput

_NAME = re.compile(r"[A-Za-z][A-Za-z0-9_-]{0,30}")
_LARGEST = 1e12
_Z99 = 2.3263478740408408  # quantile 0.99 of the standard normal distribution


@dataclass(frozen=True, slots=True)
class LoadUnit:
    """A unit by its plural name; a request has `size` of them on average."""

    name: str = "requests"
    size: float = 1.0

    @property
    def is_requests(self) -> bool:
        return self.name == "requests"

    @property
    def named(self) -> str:
        """The name for a heading; empty for requests."""
        return "" if self.is_requests else self.name

    def per_s(self, rps: float, form: str) -> str:
        """Return a rate of requests in this unit, as `24,000 tokens/s`."""
        return f"{rps * self.size:{form}} {self.name}/s"


REQUESTS = LoadUnit()


@dataclass(frozen=True, eq=False, slots=True)
class UnitSizes:
    """The sizes of requests, in their order."""

    values: FloatArray

    @property
    def mean(self) -> float:
        return float(self.values.mean())

    @property
    def cv(self) -> float:
        """The standard deviation over the mean."""
        return float(self.values.std()) / self.mean

    @property
    def tail(self) -> float:
        """The p99 over the mean of a lognormal with this variation."""
        sigma = min(math.sqrt(math.log1p(self.cv**2)), _Z99)
        return math.exp(_Z99 * sigma - sigma * sigma / 2.0)


def checked_unit(name: str, size: float, where: str) -> LoadUnit:
    """Return the unit of a service. Raises BadInput at `where`."""
    if not _NAME.fullmatch(name):
        raise BadInput("must be a word of at most 31 letters, digits, - and _", f"{where}unit", name)
    if not 0.0 < size <= _LARGEST:
        raise BadInput(f"must be above zero and at most {_LARGEST:g}", f"{where}unit_size", size)
    return LoadUnit(name, size)
