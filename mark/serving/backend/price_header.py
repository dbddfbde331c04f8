"""What the controller tells a bouncer of prices: a header of the request by which it reads the bouncer's metrics.

    mark-prices: usd_per_request=1.17e-06;usd_per_miss=1.978e-05
    mark-prices: large.usd_per_request=0;large.usd_per_planned_request=4.2e-06

The second one tells a conductor the prices of its stages. A header replaces all that was told before; a price that is
not in it is not known. A reader of metrics that sends none, or has not the controller's key, changes nothing. What was
told is forgotten after `LASTS_S`: a controller that is gone prices nothing.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict, fields

from mark.domain.price_list import PriceList

HEADER = "mark-prices"
LASTS_S = 60.0  # twelve times as long as it takes until the controller asks again

_NAMES = tuple(field.name for field in fields(PriceList))
_UNKNOWN = PriceList()


def headers_of(prices: PriceList, of_stages: Mapping[str, PriceList] | None = None) -> dict[str, str]:
    """What to send a bouncer, or with prices `of_stages` a conductor; nothing where no price is known."""
    known = _said(prices, "")
    for stage, its_own in (of_stages or {}).items():
        known += _said(its_own, f"{stage}.")
    return {HEADER: ";".join(known)} if known else {}


def _said(prices: PriceList, prefix: str) -> list[str]:
    return [f"{prefix}{name}={value:.6g}" for name, value in asdict(prices).items() if value is not None]


class ToldPrices:
    """The last prices that were told. Times are of the process's monotonic clock."""

    def __init__(self) -> None:
        self._prices: Mapping[str, PriceList] = {}
        self._told_s = -math.inf

    def hear(self, headers: Mapping[bytes, bytes], now_s: float) -> None:
        """Take in the headers of a request for metrics, with lower-case names. What is malformed is left out."""
        said = headers.get(HEADER.encode())
        if said is not None:
            self._prices, self._told_s = _read(said.decode("latin-1")), now_s

    def at(self, now_s: float) -> PriceList:
        """What is known now."""
        return self.of_stages(now_s).get("", _UNKNOWN)

    def of_stages(self, now_s: float) -> Mapping[str, PriceList]:
        """What is known now of each stage, and of the whole under ""."""
        return self._prices if now_s - self._told_s <= LASTS_S else {}


def _read(said: str) -> dict[str, PriceList]:
    found: dict[str, dict[str, float]] = {}
    for part in said.split(";"):
        place, _, text = part.strip().partition("=")
        stage, _, name = place.rpartition(".")
        try:
            value = float(text)
        except ValueError:
            continue
        if name in _NAMES and 0.0 <= value < math.inf:
            found.setdefault(stage, {})[name] = value
    return {stage: PriceList(**prices) for stage, prices in found.items()}
