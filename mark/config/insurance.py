"""`[insurance]` of service and pipeline files: parity models, or second calls, against slow and lost instances."""

from __future__ import annotations

import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from mark.config.fleet import markets_of
from mark.config.section import Section
from mark.domain.errors import BadInput
from mark.domain.service import hedge_after_s
from mark.domain.slo import Slo
from mark.insurance.insurance_settings import ACCEPTS, BEFORE_DEADLINE_S, EXACT, InsuranceSettings, ParitySettings
from mark.insurance.parity_file import load_parity, parity_code

INSURANCE_KEYS = frozenset(("parity", "hedge_after_ms", "after_ms", "accept", "fill_ms", "markets"))
_OF_PARITY = ("after_ms", "accept", "fill_ms", "markets")
_AUTO, _NEVER = "auto", "never"
_FILLS = f'must be "{_AUTO}", "{_NEVER}" or milliseconds, zero or more'


def has_parity(tables: Mapping[str, Any]) -> bool:
    """Return whether this parsed file protects its service by parity models."""
    insurance = tables.get("insurance")
    return isinstance(insurance, dict) and "parity" in insurance


def insurance_of(path: Path, tables: Mapping[str, Any], slo: Slo, routing: str = "") -> InsuranceSettings | None:
    """Return the settings of the section, or None without one. Raises BadInput.

    `routing` is the routing of a single service. It is "" if conductors send second calls, which works behind any
    balancer.
    """
    if "insurance" not in tables:
        return None
    insurance = Section(path, "insurance", tables["insurance"])
    parity, hedged = "parity" in insurance.table, "hedge_after_ms" in insurance.table
    if parity and hedged:
        what = "protects by second calls, and parity by parity models: keep one of them"
        raise BadInput(what, insurance.where("hedge_after_ms"), insurance.table["hedge_after_ms"])
    if hedged:
        for key in _OF_PARITY:
            if key in insurance.table:
                raise BadInput("is for parity models, and there is no parity", insurance.where(key))
        where = insurance.where("hedge_after_ms")
        after_ms = insurance.number("hedge_after_ms", above_zero=True)
        return InsuranceSettings(hedge_after_s=hedge_after_s(after_ms, routing, where))
    if not parity:
        what = 'must say how: parity = "FOLDER" (mark insure train writes it), or hedge_after_ms = MS'
        raise BadInput(what, f"{path} [insurance]")
    return InsuranceSettings(
        parity=_parity(insurance),
        after_s=_after_s(insurance, slo),
        accept=insurance.one_of("accept", (EXACT, *(one for one in ACCEPTS if one != EXACT))),
        fill_s=_fill_s(insurance),
        markets=markets_of(insurance.texts("markets", []), insurance.where("markets"))
        if "markets" in insurance.table
        else (),
    )


def _parity(insurance: Section) -> ParitySettings:
    """Read the folder of `mark insure train`, or a code that is only simulated: `{ code = "sum", k = 2 }`."""
    if isinstance(insurance.table["parity"], dict):
        said = insurance.below("parity")
        said.only(("code", "k", "r"))
        if "k" not in said.table:
            raise BadInput("missing", said.where("k"))
        code = parity_code(
            said.table.get("code", "sum"), said.table["k"], said.table.get("r", 1), f"{said.path} [{said.name}]"
        )
        return ParitySettings(code.name, code.k, code.r)
    if not isinstance(insurance.table["parity"], str):
        what = 'must be the folder of parity models, or { code = "sum", k = 2 } for a simulation'
        raise BadInput(what, insurance.where("parity"), insurance.table["parity"])
    search = insurance.path.parent
    return load_parity(search / insurance.text("parity"), search)


def _after_s(insurance: Section, slo: Slo) -> float:
    if "after_ms" not in insurance.table:
        return max(0.0, slo.rt_max_s - BEFORE_DEADLINE_S)
    after_s = insurance.number("after_ms") / 1e3
    if after_s > slo.rt_max_s:
        what = f"must not be above slo_ms, {slo.rt_max_s * 1e3:g}: a reconstruction would come too late"
        raise BadInput(what, insurance.where("after_ms"), insurance.table["after_ms"])
    return after_s


def _fill_s(insurance: Section) -> float | None:
    said = insurance.table.get("fill_ms", _AUTO)
    if said == _AUTO:
        return None
    if said == _NEVER:
        return math.inf
    if isinstance(said, bool) or not isinstance(said, int | float):
        raise BadInput(_FILLS, insurance.where("fill_ms"), said)
    return insurance.number("fill_ms") / 1e3
