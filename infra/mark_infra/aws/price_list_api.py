"""Today's prices of a catalogue's offers: on-demand from the price list, spot by zone from its history.

The shipped (or given) catalogue defines types, zones, boot delays and interruption rates. A price that is missing or
implausible keeps its last good value, from the cache's file or else from the catalogue, with a note. SageMaker and
functions keep the catalogue's prices.
"""

from __future__ import annotations

import csv
import io
import json
import math
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from mark.domain.catalog.tables import catalog_path
from mark.domain.errors import CloudError
from mark.domain.offer import Catalog, Market, Offer
from mark_infra.aws.gate import Gate
from mark_infra.aws.site import Site

# The price list for all regions is served from three regions; this one is in the partition of most.
PRICING_REGION = "us-east-1"
_ON_DEMAND = frozenset((Market.ON_DEMAND, Market.BURSTABLE))
# AWS has changed list prices by a few per cent over years; regions differ by up to a factor of two.
_ON_DEMAND_RANGE = (0.3, 3.0)  # times the catalogue's price
# Spot never costs more than on-demand unless requested, and less than a hundredth was never seen.
_SPOT_RANGE = (0.01, 1.0)  # times the on-demand price
_MOST_PAGES = 100
_TYPES_PER_CALL = 50


@dataclass(frozen=True, slots=True)
class Price:
    """The price of one offer, when AWS reported it, and since when it is known to hold, in Unix seconds."""

    usd_per_hour: float
    at_unix_s: float
    since_unix_s: float = field(default=0.0, compare=False)


@dataclass(frozen=True, slots=True)
class Refreshed:
    """A catalogue with the best known prices. `prices` has those, by offer name, that differ in origin from it."""

    catalog: Catalog
    prices: Mapping[str, Price]
    notes: tuple[str, ...]  # sentences about prices that were not refreshed, and about their age
    failed_on_demand: str = ""  # reason why AWS did not answer; "" if it answered or was not asked
    failed_spot: str = ""
    unsold: frozenset[str] = frozenset()  # spot offers missing in EC2's price history, which are not sold

    @property
    def sold(self) -> Catalog:
        """The catalogue, without spot offers that EC2 does not sell."""
        return replace(self.catalog, offers=tuple(o for o in self.catalog.offers if o.name not in self.unsold))


class Prices:
    """Refreshes `catalog`, whose prices are for `region`; good prices are kept in the file `cache`, if given.

    `session` and `options` are passed to `Gate`; EC2 is asked through `ec2_gate` if given. A refresh takes seconds, so
    no tick may wait for it.
    """

    def __init__(
        self,
        catalog: Catalog,
        region: str,
        cache: Path | None = None,
        *,
        session: Any = None,
        options: Mapping[str, Any] | None = None,
        ec2_gate: Gate | None = None,
        now_unix_s: Callable[[], float] = time.time,
    ) -> None:
        self._catalog, self._region, self._cache, self._now_unix_s = catalog, region, cache, now_unix_s
        made, self.pricing_gate = (
            Gate(Site(name="", region=where, store=""), session=session, options=options)
            for where in (region, PRICING_REGION)
        )
        self.ec2_gate = ec2_gate or made
        self._unsold: frozenset[str] = frozenset()
        self._good = _read(cache, region)
        self._notes: list[str] = []

    def refresh(self, *, spot_only: bool = False) -> Refreshed:
        """Ask AWS. Errors of AWS and of the cache's file are not raised; the last good prices stay, with a note."""
        self._notes = []
        offers = [offer for offer in self._catalog.offers if not offer.retired]
        failed_on_demand = ""
        if not spot_only:
            listed = (o for o in offers if o.market in _ON_DEMAND)
            failed_on_demand, _ = self._take("on-demand prices", listed, self._on_demand)
        failed_spot, missing = self._take("spot prices", (o for o in offers if o.market is Market.SPOT), self._spot)
        # A list without any price does not show which offers are sold.
        if not failed_spot and len(missing) < sum(o.market is Market.SPOT for o in offers):
            self._unsold = missing
        if self._cache is not None and self._good:
            try:
                _write(self._cache, self._region, self._good)
            except OSError as error:
                self._notes.append(f"prices cannot be kept for later: {error}")
        return replace(self.last(), failed_on_demand=failed_on_demand, failed_spot=failed_spot)

    def last(self) -> Refreshed:
        """Return the last known prices without asking AWS."""
        good = {o.name: self._good[o.name] for o in self._catalog.offers if o.name in self._good}
        offers = tuple(
            replace(o, usd_per_hour=good[o.name].usd_per_hour) if o.name in good else o for o in self._catalog.offers
        )
        catalog = replace(self._catalog, offers=offers)
        return Refreshed(catalog, good, (*self._notes, *self._ages(good)), unsold=self._unsold)

    def _take(
        self, what: str, offers: Iterable[Offer], ask: Callable[[list[Offer]], Iterable[tuple[str, float, float]]]
    ) -> tuple[str, frozenset[str]]:
        """Take over the plausible prices; return why AWS did not answer, or "", and the offers without an answer."""
        wanted = {offer.name: offer for offer in offers}
        if not wanted:
            return "", frozenset()
        now_unix_s = self._now_unix_s()
        found: set[str] = set()
        absurd: dict[str, float] = {}
        try:
            for name, usd, since_unix_s in ask(list(wanted.values())):
                if name not in wanted:
                    continue
                low, high = self._range(wanted[name])
                if low <= usd <= high:
                    self._good[name] = Price(usd, now_unix_s, since_unix_s)
                    found.add(name)
                    absurd.pop(name, None)
                elif name not in found:
                    absurd[name] = usd
        except CloudError as error:
            failed = f"{what} cannot be refreshed: {error}"
            self._notes.append(failed)
            return failed, frozenset()
        for name, usd in sorted(absurd.items())[:3]:
            low, high = self._range(wanted[name])
            self._notes.append(f"{name} for {usd:g} $/h cannot be true ({low:.3g} to {high:.3g} were expected)")
        if len(absurd) > 3:
            self._notes.append(f"{len(absurd) - 3} more {what} cannot be true")
        if missing := wanted.keys() - found - absurd.keys():
            self._notes.append(f"no {what} for {len(missing)} of {len(wanted)} offers, {min(missing)} among them")
        return "", frozenset(missing)

    def _range(self, offer: Offer) -> tuple[float, float]:
        """Return the plausible prices in $/h, from the given catalogue, so that small steps cannot drift away."""
        if offer.market is not Market.SPOT:
            return tuple(share * offer.usd_per_hour for share in _ON_DEMAND_RANGE)  # type: ignore[return-value]
        # For a type that the catalogue offers only as spot, the spot price gives the scale.
        full = next(
            (
                self._good[o.name].usd_per_hour if o.name in self._good else o.usd_per_hour
                for o in self._catalog.offers
                if o.instance == offer.instance and o.market in _ON_DEMAND
            ),
            10.0 * offer.usd_per_hour,
        )
        return _SPOT_RANGE[0] * full, _SPOT_RANGE[1] * full

    def _on_demand(self, offers: list[Offer]) -> Iterator[tuple[str, float, float]]:
        names = {offer.instance: offer.name for offer in offers}
        pricing = self.pricing_gate.client("pricing")
        wanted = {
            "regionCode": self._region,
            "operatingSystem": "Linux",
            "preInstalledSw": "NA",
            "tenancy": "Shared",
            "capacitystatus": "Used",
        }
        filters = [{"Type": "TERM_MATCH", "Field": field, "Value": value} for field, value in wanted.items()]
        pages = self.pricing_gate.pages(
            pricing.get_products, ServiceCode="AmazonEC2", Filters=filters, FormatVersion="aws_v1", MaxResults=100
        )
        for _, page in zip(range(_MOST_PAGES), pages, strict=False):
            for text in page["PriceList"]:
                instance, usd = product(text)
                if instance in names and usd is not None:
                    yield names[instance], usd, self._now_unix_s()

    def _spot(self, offers: list[Offer]) -> Iterator[tuple[str, float, float]]:
        names = {(offer.instance, offer.zone): offer.name for offer in offers}
        types = sorted({offer.instance for offer in offers})
        ec2 = self.ec2_gate.client("ec2")
        now = datetime.fromtimestamp(self._now_unix_s(), UTC)
        for first in range(0, len(types), _TYPES_PER_CALL):
            latest: dict[str, tuple[datetime, float]] = {}
            pages = self.ec2_gate.pages(
                ec2.describe_spot_price_history,
                InstanceTypes=types[first : first + _TYPES_PER_CALL],
                ProductDescriptions=["Linux/UNIX"],
                StartTime=now,  # for the current price of each type and zone
                EndTime=now,
            )
            for _, page in zip(range(_MOST_PAGES), pages, strict=False):
                for entry in page["SpotPriceHistory"]:
                    name = names.get((entry["InstanceType"], entry["AvailabilityZone"]))
                    if name is not None and (name not in latest or latest[name][0] < entry["Timestamp"]):
                        latest[name] = entry["Timestamp"], _number(entry["SpotPrice"])
            yield from ((name, usd, since.timestamp()) for name, (since, usd) in latest.items())

    def _ages(self, good: Mapping[str, Price]) -> Iterator[str]:
        for what, markets in (("on-demand", _ON_DEMAND), ("spot", {Market.SPOT})):
            names = [o.name for o in self._catalog.offers if o.market in markets and not o.retired]
            ages = [self._now_unix_s() - good[name].at_unix_s for name in names if name in good]
            if ages:
                yield f"{len(ages)} of {len(names)} {what} prices are of AWS, up to {_age(max(ages))} old"


def rezoned(catalog: Catalog, zones: Sequence[str]) -> str:
    """Return a sentence about spot offers in zones that the catalogue does not name, or ""."""
    new, types = set(zones) - set(catalog.spot_zones), {o.instance for o in catalog.offers if o.market is Market.SPOT}
    if not new or not types:
        return ""
    return f"{len(types)} types of spot are offered in {', '.join(sorted(new))}, which {catalog.name} does not name"


def product(text: str) -> tuple[str, float | None]:
    """Return instance type and $/h of a product of the price list, given as JSON; None without an hourly price."""
    try:
        told = json.loads(text)
        instance = str(told["product"]["attributes"]["instanceType"])
        for term in told["terms"]["OnDemand"].values():
            for dimension in term["priceDimensions"].values():
                if dimension["unit"] == "Hrs" and "USD" in dimension["pricePerUnit"]:
                    return instance, _number(dimension["pricePerUnit"]["USD"])
    except (KeyError, TypeError, AttributeError, ValueError, RecursionError):
        return "", None  # one malformed product must not hide all others
    return instance, None


def repriced(name_or_path: str, prices: Mapping[str, Price]) -> str:
    """Return the CSV of a catalogue with these prices by offer name; other cells stay as they are."""
    with catalog_path(name_or_path).open(newline="", encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    columns = list(rows[0])
    for more in ("source", "source_date"):
        if more not in columns:
            columns.append(more)
    for row in rows:
        name = "/".join(cell for cell in (row["instance"], row["market"], row["zone"]) if cell)
        if name in prices:
            price = prices[name]
            row["usd_per_hour"] = f"{price.usd_per_hour:.10g}"
            row["source"] = "EC2 spot price history" if row["market"] == Market.SPOT else "AWS price list"
            row["source_date"] = datetime.fromtimestamp(price.at_unix_s, UTC).date().isoformat()
    out = io.StringIO()
    writer = csv.DictWriter(out, columns, restval="", lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    return out.getvalue()


def _number(text: str) -> float:
    """Return the number, or NaN for any other text, because NaN lies within no bounds."""
    try:
        return float(text)
    except ValueError:
        return math.nan


def _age(seconds: float) -> str:
    for unit, length_s in (("d", 86400.0), ("h", 3600.0), ("min", 60.0)):
        if seconds >= length_s:
            return f"{seconds / length_s:.0f} {unit}"
    return f"{seconds:.0f} s"


def _read(cache: Path | None, region: str) -> dict[str, Price]:
    """Return the good prices of an earlier run; an unusable file counts as missing."""
    if cache is None:
        return {}
    try:
        told = json.loads(cache.read_text(encoding="utf-8"))
        if told["region"] != region:
            return {}
        prices = {str(name): Price(float(usd), float(at)) for name, (usd, at) in told["prices"].items()}
    except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError):
        return {}
    return {name: price for name, price in prices.items() if math.isfinite(price.usd_per_hour + price.at_unix_s)}


def _write(cache: Path, region: str, prices: Mapping[str, Price]) -> None:
    told = {"region": region, "prices": {name: [p.usd_per_hour, p.at_unix_s] for name, p in sorted(prices.items())}}
    cache.parent.mkdir(parents=True, exist_ok=True)
    new = cache.with_name(cache.name + ".new")
    new.write_text(json.dumps(told), encoding="utf-8")
    new.replace(cache)  # atomic, so that readers never see half a file
