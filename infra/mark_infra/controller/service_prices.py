"""The moving prices of one service: the port `LivePrices`."""

from __future__ import annotations

from dataclasses import replace

from mark.cloud.billing.moving_prices import LivePrices, Repriced
from mark.domain.service import ResolvedService
from mark_infra.aws.live_prices import PriceKeeper
from mark_infra.aws.price_list_api import Refreshed
from mark_infra.telemetry.clock import WallClock


class ServicePrices:
    """The port `LivePrices` for one service. Used by one thread."""

    def __init__(self, keeper: PriceKeeper, resolved: ResolvedService, clock: WallClock) -> None:
        self._keeper, self._resolved, self._clock = keeper, resolved, clock
        self._of: Refreshed | None = None
        self._repriced: Repriced | None = None

    def repriced(self) -> Repriced | None:
        latest = self._keeper.latest
        if latest is not self._of:
            at_s, prices = self._clock.at_s, latest.prices
            offers = tuple(
                replace(o, usd_per_hour=prices[o.name].usd_per_hour) if o.name in prices else o
                for o in self._resolved.offers
            )
            since_s = {o.name: at_s(prices[o.name].since_unix_s) for o in offers if o.name in prices}
            self._repriced = Repriced(replace(self._resolved, catalog=latest.catalog, offers=offers), since_s)
            self._of = latest
        return self._repriced

    def trouble(self) -> str:
        return self._keeper.trouble()


_: type[LivePrices] = ServicePrices
