"""Catalogues: read a CSV price table into a `Catalog`; `aws-2019` and `aws-2026` ship with mark.

The columns are those of docs/what-it-costs.md. A blank cell means "not applicable". Every mistake is reported with
file, line, column and value.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterable, Sequence
from fnmatch import fnmatchcase
from functools import cache, lru_cache
from pathlib import Path

from mark.domain.cells import Row, is_file, not_a_file, read_rows
from mark.domain.errors import BadInput, did_you_mean
from mark.domain.function_offer import FunctionOffer, size_and_processor
from mark.domain.offer import BurstCredits, Catalog, Delay, Market, Offer

_DATA = Path(__file__).parent / "data"
CATALOG_NAMES = ("aws-2019", "aws-2026")
# Today's bill includes extras (balancer, disks, addresses, data transfer); the paper's does not.
_BILLS_EXTRAS = frozenset({"aws-2026"})

_REQUIRED = (
    "instance", "market", "zone", "usd_per_hour", "vcpu", "memory_gib", "gpus", "boot_mean_s", "boot_p95_s",
    "interruptions_per_hour", "retired",
)  # fmt: skip
_RESUME = ("resume_mean_s", "resume_p95_s")
_CREDITS = ("baseline", "credits_per_hour", "max_credits", "launch_credits", "surplus_usd_per_vcpu_hour")
_FUNCTION = (
    "usd_per_gb_second", "usd_per_million_requests", "billing_step_ms", "concurrency", "ramp_per_10s", "keep_alive_s",
    "burst", "bills_init",
)  # fmt: skip
_OPTIONAL = (*_RESUME, *_CREDITS, *_FUNCTION, "source", "source_date")

# Factors by which prices in another unit differ from dollars an hour.
_PRICED_BY = {
    "the price of a month": 730.0,
    "the price of a year": 8760.0,
    "in cents": 100.0,
    "the cents of a month": 73_000.0,
    "the price of a minute": 1.0 / 60.0,
    "the price of a second": 1.0 / 3600.0,
}
_MOST_ABOVE, _MOST_BELOW = 50.0, 20.0  # times the usual price: regions, years and spot markets differ by less
_USD_PER_VCPU = 0.05  # an hour, for a type without a shipped price
_MOST_GIB_PER_VCPU = 128.0  # the largest of AWS has 55
_LEAST_USD_PER_GB_SECOND, _MOST_USD_PER_GB_SECOND = 1e-6, 0.01  # 1.7e-5 on AWS, and 1.7e-8 a millisecond
# A thousand times an account's limit. Limited because the simulator reserves memory for each environment.
_MOST_CONCURRENCY = 1_000_000


def load_catalog(name_or_path: str) -> Catalog:
    """Return the shipped catalogue of that name, or the CSV file at that path.

    Raises BadInput for an unknown name, a file that cannot be read, an unknown or missing column, and a row that
    contradicts itself.
    """
    return _shipped(name_or_path) if name_or_path in CATALOG_NAMES else _read(name_or_path)


def _read(name_or_path: str) -> Catalog:
    path = catalog_path(name_or_path)
    offers: list[Offer] = []
    functions: list[FunctionOffer] = []
    any_size: dict[str, FunctionOffer] = {}
    seen: set[str] = set()
    days: list[str] = []
    for row in read_rows(path, _REQUIRED, _OPTIONAL):
        if _market(row) is not Market.FUNCTION:
            offer = _offer(row)
            offers.append(offer)
            name = offer.name
            if offer.market is Market.ON_DEMAND and row.has("source_date"):
                days.append(row.text("source_date"))
        else:
            function = _function(row)
            if row.text("instance") in ("lambda", "lambda-arm64"):
                any_size[row.text("instance")] = function
            else:
                functions.append(function)
            name = row.text("instance")
        if name in seen:
            raise BadInput("the same instance, market and zone twice", row.where, name)
        seen.add(name)
    if not seen:
        raise BadInput("the catalogue has no row", str(path))
    if name_or_path not in CATALOG_NAMES:
        for market in Market:
            _refuse_other_unit([offer for offer in offers if offer.market is market], path)
    return Catalog(
        name_or_path,
        tuple(offers),
        tuple(functions),
        name_or_path in _BILLS_EXTRAS,
        any_size.get("lambda"),
        region=next((offer.zone.rstrip("abcdefgh") for offer in offers if offer.zone), ""),
        priced_on=min(days, default=""),
        any_arm64_function=any_size.get("lambda-arm64"),
    )


_shipped = lru_cache(_read)  # a study looks up its service for every run


def catalog_path(name_or_path: str) -> Path:
    """Return the path of the shipped catalogue with that name, or of the file. Raises BadInput if it does not exist."""
    if name_or_path in CATALOG_NAMES:
        return _DATA / f"{name_or_path}.csv"
    path = Path(name_or_path)
    if not is_file(path):
        what = f"{not_a_file(path)}, and the shipped catalogues are {', '.join(CATALOG_NAMES)}"
        raise BadInput(what + did_you_mean(name_or_path, CATALOG_NAMES), name_or_path)
    return path


def _refuse_other_unit(offers: Sequence[Offer], path: Path) -> None:
    """Raise BadInput if prices are so far from the usual ones that they must be in another unit.

    One price is enough if mark ships the type; of other types most must be far.
    """
    ratios = {offer.name: offer.usd_per_hour / usd for offer in offers if (usd := _usual_usd(offer)) > 0.0}
    if not ratios:
        return
    ratio = statistics.median(ratios.values())
    first = min(offers, key=lambda offer: abs(math.log(ratios.get(offer.name, math.inf) / ratio)))
    if _is_usual(ratio):
        known = [one for one in offers if (one.instance, one.market) in _shipped_usd()]
        odd = next((one for one in known if not _is_usual(ratios[one.name])), None)
        if odd is None:
            return
        first, ratio = odd, ratios[odd.name]
    said = min(_PRICED_BY, key=lambda name: abs(math.log(ratio / _PRICED_BY[name])))
    times = f"{ratio:,.3g} times" if ratio > 1.0 else f"1/{1.0 / ratio:,.3g}"
    what = f"{first.instance} costs {times} the usual price: is it {said}? Write the dollars of an hour"
    raise BadInput(what, f"{path} usd_per_hour", f"{first.usd_per_hour:g}")


def _is_usual(ratio: float) -> bool:
    return 1.0 / _MOST_BELOW <= ratio <= _MOST_ABOVE


def _usual_usd(offer: Offer) -> float:
    """Return the shipped price of the type in its market, else an estimate by vCPUs and GPUs; 0 if it has neither."""
    return _shipped_usd().get((offer.instance, offer.market), _USD_PER_VCPU * offer.vcpu + offer.gpus)


@cache
def _shipped_usd() -> dict[tuple[str, Market], float]:
    return {
        (offer.instance, offer.market): offer.usd_per_hour
        for name in CATALOG_NAMES
        for offer in load_catalog(name).offers
    }


def _market(row: Row) -> Market:
    market = row.text("market")
    if market not in set(Market):
        raise BadInput(f"must be one of {', '.join(Market)}", f"{row.where} market", market)
    return Market(market)


def _offer(row: Row) -> Offer:
    instance, market = row.text("instance"), _market(row)
    _refuse(row, _FUNCTION, f"does not apply to {market} rows")
    if market is not Market.BURSTABLE:
        _refuse(row, _CREDITS, f"does not apply to {market} rows")
    if (market is Market.SAGEMAKER) != instance.startswith("ml."):
        raise BadInput("ml.* types, and only these, belong to the market sagemaker", f"{row.where} instance", instance)
    interruptions_per_hour = row.number_or("interruptions_per_hour", 0.0)
    if interruptions_per_hour > 0.0 and market is not Market.SPOT:
        raise BadInput("only spot is interrupted", f"{row.where} interruptions_per_hour", interruptions_per_hour)
    credits = None
    if market is Market.BURSTABLE:
        credits = BurstCredits(
            baseline=row.number("baseline", least=1e-6, most=1.0),
            credits_per_hour=row.number("credits_per_hour"),
            max_credits=row.number("max_credits"),
            launch_credits=row.number("launch_credits"),
            surplus_usd_per_vcpu_hour=(
                row.number("surplus_usd_per_vcpu_hour") if row.has("surplus_usd_per_vcpu_hour") else None
            ),
        )
    vcpu, memory_gib = row.number_or("vcpu", 0.0), row.number_or("memory_gib", 0.0)
    if memory_gib > _MOST_GIB_PER_VCPU * max(vcpu, 1.0):
        what = f"no type has more than {_MOST_GIB_PER_VCPU:g} GiB a vCPU: is it in MiB? Write GiB"
        raise BadInput(what, f"{row.where} memory_gib", f"{memory_gib:g}")
    usd_per_hour = row.number("usd_per_hour")
    if usd_per_hour == 0.0:
        raise BadInput("a price must be above zero", f"{row.where} usd_per_hour", row.text("usd_per_hour"))
    return Offer(
        instance=instance,
        market=market,
        usd_per_hour=usd_per_hour,
        boot=_delay(row, "boot"),
        zone=row.cells["zone"],
        vcpu=vcpu,
        memory_gib=memory_gib,
        gpus=row.whole("gpus", 0),
        resume=_delay(row, "resume") if any(row.has(column) for column in _RESUME) else None,
        interruptions_per_hour=interruptions_per_hour,
        retired=row.flag("retired"),
        credits=credits,
    )


def _delay(row: Row, kind: str) -> Delay:
    mean_s, p95_s = row.number(f"{kind}_mean_s"), row.number(f"{kind}_p95_s")
    try:
        return Delay(mean_s, p95_s)
    except BadInput as error:
        raise BadInput(error.what, f"{row.where} {kind}_p95_s", f"{p95_s:g} (mean {mean_s:g})") from None


def _function(row: Row) -> FunctionOffer:
    instance = row.text("instance")
    _refuse(
        row,
        (c for c in (*_REQUIRED[2:], *_RESUME, *_CREDITS) if c not in ("memory_gib", "retired")),
        "does not apply to functions",
    )
    sized = size_and_processor(instance)
    if instance in ("lambda", "lambda-arm64"):
        # Sold in any memory size up to memory_gib.
        memory_mb = round(row.number("memory_gib", least=0.125) * 1024.0)
    elif sized is not None:
        memory_mb = sized[0]
    else:
        what = "a function is named lambda:MEMORY_MB, lambda-arm64:MEMORY_MB, lambda or lambda-arm64"
        raise BadInput(what, f"{row.where} instance", instance)
    concurrency = row.whole("concurrency", least=1)
    if concurrency > _MOST_CONCURRENCY:
        raise BadInput(f"must be at most {_MOST_CONCURRENCY:,}", f"{row.where} concurrency", concurrency)
    return FunctionOffer(
        memory_mb=memory_mb,
        usd_per_gb_second=row.number("usd_per_gb_second", least=_LEAST_USD_PER_GB_SECOND, most=_MOST_USD_PER_GB_SECOND),
        usd_per_million_requests=row.number("usd_per_million_requests"),
        billing_step_ms=row.number("billing_step_ms", least=1e-3),
        concurrency=concurrency,
        ramp_per_10s=row.number("ramp_per_10s", least=1e-3),
        keep_alive_s=row.number("keep_alive_s"),
        burst=row.number_or("burst", 0.0),
        bills_init=row.flag("bills_init"),
        arm64=instance.startswith("lambda-arm64"),
    )


def _refuse(row: Row, columns: Iterable[str], why: str) -> None:
    """Raise BadInput if a column that does not apply to the row is filled in, which happens when cells are shifted."""
    for column in columns:
        if row.has(column):
            raise BadInput(why, f"{row.where} {column}", row.cells[column])


def check_types(patterns: Sequence[str], catalog: Catalog, where: str) -> None:
    """Raise BadInput for a pattern that matches no instance type of the catalogue."""
    types = sorted({offer.instance for offer in catalog.offers})
    for pattern in patterns:
        if not any(fnmatchcase(instance, pattern) for instance in types):
            # For a pattern, suggest families too.
            families = {f"{instance.split('.')[0]}.*" for instance in types} if pattern.endswith(".*") else set()
            raise BadInput(f"{catalog.name} has no such type", where, pattern, known=[*types, *families])
