"""The purchasable fleet: the sections of a file that services and pipelines share."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass, fields
from typing import Any

from mark.config.section import Section
from mark.domain.catalog.tables import CATALOG_NAMES
from mark.domain.errors import BadInput
from mark.domain.function_offer import EVERY_ARM64_FUNCTION, EVERY_FUNCTION, size_and_processor
from mark.domain.offer import Market
from mark.domain.service import Commitment
from mark.domain.slo import CONFIDENCE, Slo
from mark.domain.time import DAY_S

FLEET_KEYS = frozenset(
    ("catalog", "markets", "instances", "min_instances", "max_instances", "max_usd_per_hour", "committed", "warm_pool")
)
# Functions belong to [overflow] and do not depend on the chosen markets. SageMaker types are missing because our
# bouncer cannot run on them; the SageMaker policies buy them without a setting.
INSTANCE_MARKETS = (Market.ON_DEMAND, Market.SPOT, Market.BURSTABLE)
# Every cloud accepts these as a tag, a resource name and a part of a path.
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,62}")


@dataclass(frozen=True, slots=True)
class FleetConfig:
    """The instances and functions that may be bought, and their limits, all by name without a look-up."""

    catalog: str
    markets: tuple[Market, ...]
    instances: tuple[str, ...]
    min_instances: int
    max_instances: int
    max_usd_per_hour: float
    warm_pool: int
    committed: tuple[Commitment, ...]
    functions: tuple[str, ...]
    max_function_usd_per_hour: float
    limits_unsaid: tuple[str, ...]  # names of max_instances and both max_usd_per_hour, if they are defaults

    def settings(self) -> dict[str, Any]:
        """Return the fields by name, which a service has too."""
        return {field.name: getattr(self, field.name) for field in fields(self)}


def fleet_of(fleet: Section, overflow: Section, *, others: bool = False) -> FleetConfig:
    """Read `[fleet]`, and the functions and their cost limit from `[overflow]`. Raises BadInput.

    `others`: another section may name functions too.
    """
    catalog = fleet.text("catalog", "aws-2026")
    functions = functions_of(overflow)
    most, least = fleet.whole("max_instances", 500), fleet.whole("min_instances", 1, least=0)
    limits = [(fleet, "max_instances"), (fleet, "max_usd_per_hour")]
    if functions or others:
        limits.append((overflow, "max_usd_per_hour"))
    pool = fleet.whole("warm_pool", 0, least=0)
    for key, count in (("min_instances", least), ("warm_pool", pool)):
        if count > most:
            raise BadInput("must not be above max_instances", fleet.where(key), f"{count} (of {most})")
    return FleetConfig(
        # Files are relative to the service file, so that a folder can be moved as a whole.
        catalog=catalog if catalog in CATALOG_NAMES else str(fleet.path.parent / catalog),
        markets=markets_of(fleet.texts("markets", [Market.ON_DEMAND]), fleet.where("markets")),
        instances=tuple(fleet.texts("instances", ["*"])),
        min_instances=least,
        max_instances=most,
        max_usd_per_hour=fleet.number("max_usd_per_hour", 1000.0, above_zero=True),
        warm_pool=pool,
        committed=_committed(fleet.below("committed")),
        functions=functions,
        max_function_usd_per_hour=(
            overflow.number("max_usd_per_hour", above_zero=True) if "max_usd_per_hour" in overflow.table else math.inf
        ),
        limits_unsaid=tuple(f"[{section.name}] {key}" for section, key in limits if key not in section.table),
    )


def functions_of(section: Section) -> tuple[str, ...]:
    """Read `"lambda:3008"`, `"lambda-arm64:3008"`, a list of such sizes, `"lambda:*"` or `"none"`."""
    listed = isinstance(section.table.get("function"), list)
    names = section.texts("function", []) if listed else [section.text("function", "none")]
    if names == ["none"]:
        return ()
    for name in names:
        if name not in (EVERY_FUNCTION, EVERY_ARM64_FUNCTION) and size_and_processor(name) is None:
            what = 'must be lambda:MEMORY_MB, lambda-arm64:MEMORY_MB, a list of such, "lambda:*" or "none"'
            raise BadInput(what, section.where("function"), name)
    return tuple(dict.fromkeys(names))


def markets_of(names: Sequence[str], where: str) -> tuple[Market, ...]:
    """Return instance markets by name, in the order given. Raises BadInput for none, an unknown or a repeated one."""
    if not names:
        raise BadInput("names no market", where)
    for name in names:
        if name not in INSTANCE_MARKETS:
            raise BadInput(f"must be one of {', '.join(INSTANCE_MARKETS)}", where, name)
    if len(set(names)) < len(names):
        raise BadInput("names a market twice", where, ", ".join(names))
    return tuple(Market(name) for name in names)


def slo_of(service: Section) -> Slo:
    """Read `slo_ms`, `slo_attainment`, `slo_confidence` and `slo_window`. Raises BadInput."""
    slo_ms, attainment = service.number("slo_ms"), service.number("slo_attainment")
    confidence, window_s = service.number("slo_confidence", CONFIDENCE), service.span_s("slo_window", DAY_S)
    try:
        return Slo(slo_ms / 1e3, attainment, confidence, window_s)
    except BadInput as error:
        raise BadInput(error.what, service.where(error.where), service.table[error.where]) from None


def check_name(name: str, where: str) -> None:
    if not _NAME.fullmatch(name):
        raise BadInput("must be 1 to 63 letters, digits, dots, dashes or underscores", where, name)


def _committed(committed: Section) -> tuple[Commitment, ...]:
    """Read `"c5.xlarge" = 4`, or with a price `"c5.xlarge" = { count = 4, usd_per_hour = 0.107 }`; in name order."""
    found = []
    for instance, value in sorted(committed.table.items()):
        if not isinstance(value, dict):
            found.append(Commitment(instance, committed.whole(instance)))
            continue
        one = Section(committed.path, f"{committed.name}.{instance}", value)
        one.only(("count", "usd_per_hour"))
        price = one.number("usd_per_hour") if "usd_per_hour" in value else None
        found.append(Commitment(instance, one.whole("count"), price))
    return tuple(found)
