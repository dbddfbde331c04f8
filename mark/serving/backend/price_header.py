"""Prices that the controller tells a bouncer, in a header of the request that reads the bouncer's metrics.

    mark-prices: usd_per_request=1.17e-06;usd_per_miss=1.978e-05
    mark-prices: large.usd_per_request=0;large.usd_per_planned_request=4.2e-06

The second example tells a conductor the prices of its stages. A header replaces all earlier prices; a price missing in
it is unknown. A reader of metrics without the header, or without the controller's key, changes nothing. Prices expire
after `LASTS_S`, so that none remain when the controller is gone.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict, fields

from mark.domain.price_list import PriceList

HEADER = "mark-prices"
LASTS_S = 60.0  # twelve intervals of the controller's requests

_NAMES = tuple(field.name for field in fields(PriceList))
_UNKNOWN = PriceList()


def headers_of(prices: PriceList, of_stages: Mapping[str, PriceList] | None = None) -> dict[str, str]:
    """Return the headers for a bouncer, or with prices `of_stages` for a conductor; empty if no price is known."""
    known = _said(prices, "")
    for stage, its_own in (of_stages or {}).items():
        known += _said(its_own, f"{stage}.")
    return {HEADER: ";".join(known)} if known else {}


def _said(prices: PriceList, prefix: str) -> list[str]:
    return [f"{prefix}{name}={value:.6g}" for name, value in asdict(prices).items() if value is not None]


class ToldPrices:
    """The last prices that the controller told. Times are of the process's monotonic clock."""

    def __init__(self) -> None:
        self._prices: Mapping[str, PriceList] = {}
        self._told_s = -math.inf

    def hear(self, headers: Mapping[bytes, bytes], now_s: float) -> None:
        """Read the headers of a request for metrics, which have lower-case names. Malformed prices are ignored."""
        said = headers.get(HEADER.encode())
        if said is not None:
            self._prices, self._told_s = _read(said.decode("latin-1")), now_s

    def at(self, now_s: float) -> PriceList:
        """Return the current prices."""
        return self.of_stages(now_s).get("", _UNKNOWN)

    def of_stages(self, now_s: float) -> Mapping[str, PriceList]:
        """Return the current prices of each stage, and of the whole service under ""."""
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
