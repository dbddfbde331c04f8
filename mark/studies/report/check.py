"""`mark check`: the kind of a file, and whether it can be used."""

from __future__ import annotations

import math
from pathlib import Path

from mark.config.pipeline_config import PipelineConfig
from mark.config.pipeline_file import load_pipeline, names_pipeline
from mark.config.service_file import SERVICE_NAMES
from mark.domain.catalog.tables import CATALOG_NAMES, load_catalog
from mark.domain.cells import is_file
from mark.domain.errors import Infeasible
from mark.domain.faults import Faults
from mark.domain.service import ResolvedService
from mark.planning.demand.served_load import cheapest_lasting, lateness_of
from mark.planning.demand.tails import ROOM, fewest_requests
from mark.planning.policies.fixed import offer_named
from mark.planning.resolve import affordable, buyable, resolve, tail_advice
from mark.profiling.policy import late_alone
from mark.profiling.table import load_profiles, measured_profiles
from mark.simulation.inputs import open_service
from mark.simulation.request import RunRequest
from mark.studies.report.promise_help_report import tail_words, window
from mark.studies.report.words import count, duration, exact_percent, number, percent, rate, usd
from mark.traffic.traces.reader import open_trace

_FLEETS = (1, 2, 4, 8)  # numbers of instances for which the load that they carry is shown
_FEW = 100.0  # requests a window: nearly every service has more
_SEEN_LATE = 5e-5  # of the requests: fewer are shown as 100.00 % in time


def check_file(name: str) -> str:
    """Return one line that summarises a service, pipeline, catalogue, profile or trace. Raises BadInput, Infeasible.

    Services are recognised by name or `.toml`, catalogues and profiles by their header; every other file is read as a
    trace.
    """
    if name not in SERVICE_NAMES and name.endswith(".toml") and names_pipeline(name):
        return _pipeline(load_pipeline(name))
    if name in SERVICE_NAMES or name.endswith(".toml"):
        return _service(name)
    header = _header(name)
    if name in CATALOG_NAMES or {"instance", "market"} <= header:
        catalog = load_catalog(name)
        retired = sum(offer.retired for offer in catalog.offers)
        return f"ok, a catalogue of {len(catalog.offers)} offers ({retired} retired)"
    if {"model", "instance"} <= header:
        profiles = load_profiles(name)
        return "ok, a profile of " + ", ".join(f"{model} on {', '.join(types)}" for model, types in profiles.items())
    trace = open_trace(name)
    return "; ".join([f"ok, a trace of {trace.summary}", *trace.more_notes])


def _service(name: str) -> str:
    resolved = open_service(RunRequest(trace="", service=name))
    function = resolved.function.offer.name if resolved.function is not None else "no function"
    types = sorted({offer.instance for offer in resolved.offers})
    kinds = types[0] if len(types) == 1 else f"{len(types)} instance types"
    offers = "1 offer" if len(resolved.offers) == 1 else f"{len(resolved.offers)} offers"
    parts = [f"ok, a service that can buy {kinds} ({offers} by market and zone) and {function}"]
    if (own := resolved.service.as_is) is not None and own.kind != "sagemaker":
        offer_named(own.instance, resolved, resolved.service.markets, f"{name} [policy] instance")
    parts += _carried(resolved)
    if committed := resolved.service.committed:
        counts = ", ".join(f"{one.count} {one.instance}" for one in committed)
        parts.append(f"{counts} committed for {usd(resolved.committed_usd_per_hour)}/h, run or not")
    if resolved.tail_note:
        parts.append(resolved.tail_note)
    if faults := _faults(resolved.service.faults):
        parts.append(f"simulator and testbed play {faults}")
    reasons: dict[str, list[str]] = {}
    for kind, reason in resolved.skipped:
        reasons.setdefault(reason, []).append(kind)
    return "; ".join([*parts, *(f"left out {', '.join(kinds)}: {reason}" for reason, kinds in reasons.items())])


def _carried(resolved: ResolvedService) -> list[str]:
    """Return the loads that fleets of the cheapest type carry, and the share in time by service times alone.

    Empty if service times are certain.
    """
    offers = buyable(resolved)
    shares = lateness_of(resolved, offers).shares
    if shares is None:
        return []
    slo, unit = resolved.slo, resolved.service.unit
    allowed = 1.0 - slo.attainment
    carried = " / ".join(rate(shares.carries_rps(n, allowed) * unit.size) for n in _FLEETS)
    name = resolved.offers[cheapest_lasting(resolved, offers)].instance
    parts = [f"{' / '.join(map(str, _FLEETS))} {name} keep the promise up to {carried} {unit.name}/s"]
    late = {o.instance: late_alone(c, slo.rt_max_s) for o, c in zip(resolved.offers, resolved.candidates, strict=True)}
    kept = ", ".join(f"{percent(1.0 - share, 2)} on {instance}" for instance, share in sorted(late.items()))
    if max(late.values()) >= _SEEN_LATE:
        parts.append(f"even if no request waits, the share in time is at most {kept}")
    few = fewest_requests(slo, late[name])
    if _FEW <= few < math.inf:
        parts.append(
            f"a {window(slo)} on {name} needs {count(math.ceil(few))} requests to keep it with "
            f"{exact_percent(slo.confidence, 0)}: of fewer too many are late by chance"
        )
    if min(late.values()) > ROOM * allowed:
        used = f"service times alone use up {percent(min(late.values()) / allowed, 0)} of the requests that may be late"
        helps = tail_advice(resolved.service, resolved.catalog, resolved.profiles)
        parts.append(used + tail_words(helps))
    return parts


def _faults(faults: Faults) -> str:
    """Return the faults of instances in a phrase, "" without faults."""
    parts = []
    if faults.slows:
        added = f" and {number(faults.slow_add_s * 1e3, 0)} ms" if faults.slow_add_s else ""
        if faults.slow_answer_s:
            added += f", answers {number(faults.slow_answer_s * 1e3, 0)} ms later"
        parts.append(f"slow periods ({percent(faults.slow_share)} of the time, x{faults.slow_factor:g}{added})")
    if faults.hangs:
        parts.append(f"hangs ({faults.hangs_per_hour:g}/h, {duration(faults.hang_s)})")
    if faults.crashes:
        parts.append(f"crashes ({faults.crashes_per_hour:g}/h)")
    return ", ".join(parts)


def _pipeline(config: PipelineConfig) -> str:
    """Return the line of a pipeline. Each stage is looked up separately, and may need at most the whole promise."""
    catalog, profiles = load_catalog(config.fleet.catalog), measured_profiles(config.profile_file, config.source)
    stages, names = "1 stage" if len(config.stages) == 1 else f"{len(config.stages)} stages", ", ".join(config.names)
    if config.selection is not None:
        parts = [f"ok, a selection among {len(config.stages)} candidates ({names}) by {config.selection.policy}"]
    elif config.insurance is not None and (parity := config.insurance.parity) is not None:
        models = "a parity model" if parity.r == 1 else f"{parity.r} parity models"
        parts = [f"ok, a service with {models} ({names}) of code {parity.code} over {parity.k} queries"]
    else:
        graph = f"of {config.driver}" if config.driver else "as said"
        parts = [f"ok, a pipeline of {stages} ({names}), its graph {graph}"]
    unknown = []
    for stage in config.stages:
        if stage.model not in profiles:
            unknown.append(stage.name)
            continue
        try:
            resolved = affordable(resolve(config.service(stage), catalog, profiles))
        except Infeasible as error:
            raise Infeasible(f"{config.source} [stage.{stage.name}]: {error}", error.helps) from None
        offers = "1 offer" if len(resolved.offers) == 1 else f"{len(resolved.offers)} offers"
        parts.append(f"{stage.name} can run on {offers}")
    if unknown:
        parts.append(f"no profile yet of {', '.join(unknown)}")
    if faults := _faults(config.faults):
        parts.append(f"simulator and testbed play {faults}")
    return "; ".join(parts)


def _header(name: str) -> frozenset[str]:
    """Return the columns in the first line; none if it is unreadable, because the file's reader reports that."""
    path = Path(name)
    if not is_file(path):
        return frozenset()
    with path.open("rb") as file:
        line = file.readline(4096).decode("utf-8-sig", errors="replace")
    return frozenset(column.strip() for column in line.split(","))
