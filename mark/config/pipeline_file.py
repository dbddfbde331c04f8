"""Pipeline files: service files with several models, `[stage.NAME]`, behind one promise; read into a `PipelineConfig`.

The file states the graph, by `after` and `join` of each stage, or leaves it to a driver (`[service] pipeline`), from
which `mark.planning.graphs` traces it. This module looks nothing up: a missing driver, model or catalogue shows when it
is used.
"""

from __future__ import annotations

import keyword
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from mark.config.cache import CACHE_KEYS, cache_of
from mark.config.faults_section import FAULT_KEYS, faults_of
from mark.config.feedback import FEEDBACK_KEYS, feedback_of
from mark.config.fleet import FLEET_KEYS, FleetConfig, check_name, fleet_of, functions_of, slo_of
from mark.config.insurance import INSURANCE_KEYS, has_parity, insurance_of
from mark.config.layers import layers_of
from mark.config.personal import PERSONAL_KEYS, personal_of
from mark.config.pipeline_config import (
    CHOOSES,
    LEAST_CONDUCTORS,
    MOST_CONDUCTORS,
    NO_CONDUCTORS,
    PipelineConfig,
    StageConfig,
)
from mark.config.section import Section, tables_of
from mark.config.selection import SELECTION_KEYS, check_alone, selection_of, usd_per_call_of
from mark.config.service_file import is_pipeline, service_of
from mark.domain.cells import is_file, not_a_file
from mark.domain.errors import BadInput
from mark.domain.pipeline import ALL, FIRST, MOST_STAGES, Join, Pipeline, PipelineStage, needed_s
from mark.domain.slo import Slo
from mark.insurance.insurance_settings import PARITY_ATTAINMENT
from mark.selection.settings import CASCADE

PACKS = ("auto", "separate")
MOST_CHOSEN = 6  # stages among which a simulation chooses the ones to buy together
# The column of a lineage file that counts queries, beside one column for each stage.
QUERIES = "queries"

_KEYS = {
    "service": {
        *("name", "slo_ms", "slo_attainment", "slo_confidence", "slo_window", "pipeline", "profile", "lineage", "files")
    },
    "fleet": FLEET_KEYS,
    "overflow": {"function", "max_usd_per_hour"},
    "packs": {"allow", "together"},
    "conductors": {"count"},
    "feedback": FEEDBACK_KEYS,
    "selection": SELECTION_KEYS,
    "cache": CACHE_KEYS,
    "personal": PERSONAL_KEYS,
    "faults": FAULT_KEYS,
    "insurance": INSURANCE_KEYS,
}
# Stages of a service with parity models: the service's own model, then one parity model or several.
MODEL, PARITY = "model", "parity"
_GRAPH_KEYS = ("after", "join", "share")  # a driver determines these itself
_STAGE_KEYS = ("model", "function", "instances", "gpus", "workers", "slo_ms", "usd_per_call", *_GRAPH_KEYS)
_DRIVER = re.compile(r"[^\W\d]\w*(\.[^\W\d]\w*)*:[^\W\d]\w*")
_STAGE_NAME = re.compile(r"[A-Za-z][A-Za-z0-9_]{0,62}")


def names_pipeline(file: str) -> bool:
    """Return whether this file is a pipeline's; False also for invalid TOML, which the reader of services reports."""
    path = Path(file)
    try:
        return is_file(path) and is_pipeline(tables_of(path))
    except BadInput:
        return False


def load_pipeline(file: str, *, heads_alone: bool = False) -> PipelineConfig:
    """Return the pipeline in a TOML file.

    Required are `name`, `slo_ms` and `slo_attainment`, and `model` of each stage; docs/settings.md has the other keys.
    With `heads_alone` a file may have only `[personal]` with a table and no stage; no instance can be planned for it.
    Raises BadInput.
    """
    path = Path(file)
    if not is_file(path):
        raise BadInput(not_a_file(path), file)
    tables = tables_of(path)
    if not is_pipeline(tables):
        raise BadInput("is no pipeline: it has neither a section [stage.NAME] nor [service] pipeline", file)
    if has_parity(tables):
        return _insured(path, tables)
    written = tables.pop("stage", {})
    said = tables.get("service")
    if isinstance(said, dict) and "model" in said:
        raise BadInput("a pipeline's models stand in [stage.NAME]", f"{path} [service] model", said["model"])
    layers = layers_of(path, tables, _KEYS)
    service, fleet, overflow, packs = (
        Section(path, name, tables.get(name, {})) for name in ("service", "fleet", "overflow", "packs")
    )
    name, profile, lineage = service.text("name"), service.text("profile", ""), service.text("lineage", "")
    check_name(name, service.where("name"))
    slo, driver = slo_of(service), _driver(service)
    insurance = insurance_of(path, tables, slo)
    sections = _sections(path, written)
    bought = fleet_of(fleet, overflow, others=any("function" in section.table for section in sections.values()))
    if heads_alone and not sections and driver is None and "table" in tables.get("personal", {}):
        pass
    elif not sections and "personal" in tables:
        what = "missing: without a stage nothing says how large an instance must be (`mark serve` takes such a file)"
        raise BadInput(what, f"{path} [stage.NAME]")
    elif not 1 <= len(sections) <= MOST_STAGES:
        raise BadInput(f"a pipeline has 1 to {MOST_STAGES} stages", f"{path} [stage.NAME]", len(sections))
    stages = {section.name: _stage(stage, section, bought, driver) for stage, section in sections.items()}
    feedback, selection = feedback_of(path, tables), None
    for section in sections.values():
        if "usd_per_call" in section.table and "selection" not in tables:
            what = "is the price of a candidate of [selection], and there is no such section"
            raise BadInput(what, section.where("usd_per_call"), section.table["usd_per_call"])
    if "selection" in tables:
        check_alone(Section(path, "selection", tables["selection"]), sections)
        selection = selection_of(
            Section(path, "selection", tables["selection"]),
            tuple(stage.name for stage in stages.values()),
            slo,
            driver=driver,
            feedback=feedback is not None,
        )
    pipeline = (
        None
        if driver or not sections
        else _graph(path, sections, chain=selection is not None and selection.policy == CASCADE)
    )
    order = pipeline.names if pipeline else tuple(sections)
    for section in sections.values():
        part_s = stages[section.name].rt_max_s
        if part_s is not None and part_s > slo.rt_max_s:
            what = f"is more than the whole pipeline's {slo.rt_max_s * 1e3:g}"
            raise BadInput(what, section.where("slo_ms"), section.table["slo_ms"])
    if pipeline:
        _check_parts(path, pipeline, [stages[f"stage.{name}"] for name in order], slo)
    return PipelineConfig(
        name=name,
        slo=slo,
        stages=tuple(stages[f"stage.{stage}"] for stage in order),
        driver=driver,
        pipeline=pipeline,
        fleet=bought,
        packs=packs.one_of("allow", PACKS),
        together=_together(packs, {name: stages[f"stage.{name}"] for name in order}),
        chooses_together=packs.table.get("together") == CHOOSES,
        profile_file=str(path.parent / profile) if profile else None,
        lineage_file=str(path.parent / lineage) if lineage else None,
        source=file,
        files=tuple(service.texts("files", [])) if "files" in service.table else (),
        feedback=feedback,
        selection=selection,
        cache=cache_of(path, tables),
        personal=personal_of(path, tables, order, feedback),
        faults=faults_of(Section(path, "faults", tables.get("faults", {}))),
        layers=layers,
        conductors=_conductors(
            Section(path, "conductors", tables.get("conductors", {})),
            alone=selection is not None or "personal" in tables,
        ),
        insurance=insurance,
    )


def _insured(path: Path, tables: dict[str, dict[str, Any]]) -> PipelineConfig:
    """Return a service with parity models; its stages lack edges, and each is called separately. Raises BadInput."""
    service = tables.get("service")
    for key, there in (
        ("[stage.NAME]", "stage" in tables),
        ("[service] pipeline", isinstance(service, dict) and "pipeline" in service),
    ):
        if there:
            what = f"protects a service of one model, [service] model, and this file has {key}"
            raise BadInput(what, f"{path} [insurance] parity")
    one = service_of(path, tables, {"conductors": _KEYS["conductors"]})
    if one.versions:
        what = "parity models belong to one model, so its service has no versions"
        raise BadInput(what, f"{path} [service.versions]", ", ".join(version.name for version in one.versions))
    if "late" in tables.get("overflow", {}) and one.late != "refuse":
        what = 'must be "refuse" beside parity models, which answer what would be late'
        raise BadInput(what, f"{path} [overflow] late", one.late)
    conductors = _conductors(Section(path, "conductors", tables.get("conductors", {})), alone=False)
    if conductors == NO_CONDUCTORS:
        what = "parity models protect against slow instances only on instances of their own"
        raise BadInput(what, f"{path} [conductors] count", conductors)
    insurance = insurance_of(path, tables, one.slo)
    assert insurance is not None
    assert insurance.parity is not None
    parity = insurance.parity
    names = [PARITY] if parity.r == 1 else [f"{PARITY}_{number}" for number in range(1, parity.r + 1)]
    rt_max_s = one.slo.rt_max_s
    model = StageConfig(
        MODEL, one.model, one.instances, one.functions, rt_max_s=rt_max_s, attainment=one.slo.attainment
    )
    stages = [
        StageConfig(
            name,
            one.model,
            one.instances,
            (),
            rt_max_s=rt_max_s,
            code=parity.models[number] if parity.models else "",
            markets=insurance.markets,
            attainment=PARITY_ATTAINMENT,
        )
        for number, name in enumerate(names)
    ]
    return PipelineConfig(
        name=one.name,
        slo=one.slo,
        stages=(model, *stages),
        driver=None,
        pipeline=Pipeline.ordered([PipelineStage(stage.name, stage.reference) for stage in (model, *stages)]),
        fleet=fleet_of(
            Section(path, "fleet", tables.get("fleet", {})), Section(path, "overflow", tables.get("overflow", {}))
        ),
        packs="separate",
        together=(),
        profile_file=one.profile_file,
        lineage_file=None,
        source=str(path),
        feedback=one.feedback,
        cache=one.cache,
        layers=one.layers,
        files=one.files,
        conductors=conductors,
        insurance=insurance,
        insured=one,
        faults=one.faults,
    )


def _check_parts(path: Path, pipeline: Pipeline, stages: Sequence[StageConfig], slo: Slo) -> None:
    """Raise BadInput if parts of RT_max exceed it in sum on a path that is awaited."""
    parts_s = [stage.rt_max_s or 0.0 for stage in stages]
    longest_s = max(needed_s(parts_s, pipeline.successors, pipeline.awaits_all))
    if longest_s > slo.rt_max_s * (1.0 + 1e-9):
        what = f"those of the stages on one path sum to more than the pipeline's {slo.rt_max_s * 1e3:g}"
        raise BadInput(what, f"{path} [stage.*] slo_ms", f"{longest_s * 1e3:g}")


def _together(packs: Section, stages: Mapping[str, StageConfig]) -> tuple[tuple[str, ...], ...]:
    """Return the lists of stages bought together, in the pipeline's order; empty for "auto". Raises BadInput."""
    if "together" not in packs.table:
        return ()
    said, where = packs.table["together"], packs.where("together")
    if said == CHOOSES:
        if len(stages) > MOST_CHOSEN:
            raise BadInput(f"chooses among {MOST_CHOSEN} stages at most: say lists of stages", where, said)
        said = []
        if packs.table.get("allow") == "separate":
            raise BadInput('lets stages share instances, and allow = "separate" does not', where, CHOOSES)
    if not isinstance(said, list) or not all(
        isinstance(group, list) and len(group) > 1 and all(isinstance(name, str) for name in group) for group in said
    ):
        raise BadInput('must be "auto", or lists of two stages or more, [["a", "b"]]', where, said)
    named = [name for group in said for name in group]
    for name in named:
        if name not in stages:
            raise BadInput("is no stage", where, name, known=stages)
        if named.count(name) > 1:
            raise BadInput("names a stage twice", where, name)
        if stages[name].functions:
            what = 'is bought together with others, which have no functions yet: say function = "none" of it'
            raise BadInput(what, f"{packs.path} [stage.{name}] function", ", ".join(stages[name].functions))
    if said and packs.table.get("allow") == "separate":
        raise BadInput('says that stages share instances, and allow = "separate" that none does', where, said)
    return tuple(tuple(name for name in stages if name in group) for group in said)


def _conductors(section: Section, *, alone: bool) -> int:
    """Return the number of conductors. `alone`: the stages usually fit one instance, so conductors would only cost."""
    count = section.whole("count", NO_CONDUCTORS if alone else LEAST_CONDUCTORS, least=NO_CONDUCTORS)
    if count != NO_CONDUCTORS and not LEAST_CONDUCTORS <= count <= MOST_CONDUCTORS:
        what = (
            f"must be {LEAST_CONDUCTORS} to {MOST_CONDUCTORS}, or {NO_CONDUCTORS}: every instance serves the whole file"
        )
        raise BadInput(what, section.where("count"), count)
    return count


def _driver(service: Section) -> str | None:
    if "pipeline" not in service.table:
        return None
    driver = service.text("pipeline")
    if not _DRIVER.fullmatch(driver):
        raise BadInput("must be module:function", service.where("pipeline"), driver)
    return driver


def _sections(path: Path, written: object) -> dict[str, Section]:
    """Return the sections by stage, in the file's order."""
    if not isinstance(written, dict):
        raise BadInput("must be a section", f"{path} stage", written)
    found = {}
    for name, table in written.items():
        where = f"{path} [stage.{name}]"
        if not _STAGE_NAME.fullmatch(name) or keyword.iskeyword(name):
            what = "must be a name of Python (1 to 63 letters, digits, underscores): drivers call models.NAME"
            raise BadInput(what, f"{path} [stage.NAME]", name)
        if name == QUERIES:
            raise BadInput("is the name of the count column in a lineage file: choose another name", where)
        if not isinstance(table, dict):
            raise BadInput("must be a section", where, table)
        found[name] = Section(path, f"stage.{name}", table)
        found[name].only(_STAGE_KEYS)
    return found


def _stage(name: str, section: Section, fleet: FleetConfig, driver: str | None) -> StageConfig:
    if driver:
        for key in _GRAPH_KEYS:
            if key in section.table:
                what = f"is decided by the driver {driver}: leave it out"
                raise BadInput(what, section.where(key), section.table[key])
    share = section.number("share", 1.0, above_zero=True)
    if share > 1.0:
        raise BadInput("a share of the queries is above 0 and 1 at most", section.where("share"), share)
    return StageConfig(
        name=name,
        model=section.text("model"),
        instances=tuple(section.texts("instances", list(fleet.instances))),
        functions=functions_of(section) if "function" in section.table else fleet.functions,
        share=share,
        without_gpu=_without_gpu(section),
        workers=section.whole("workers") if "workers" in section.table else None,
        rt_max_s=section.number("slo_ms", above_zero=True) / 1e3 if "slo_ms" in section.table else None,
        usd_per_call=usd_per_call_of(section),
    )


def _without_gpu(section: Section) -> bool:
    if "gpus" not in section.table:
        return False
    if section.whole("gpus", 0, least=0) != 0:
        what = "may be 0 only, for a model that runs on the processor: others take the GPUs that their instance has"
        raise BadInput(what, section.where("gpus"), section.table["gpus"])
    return True


def _graph(path: Path, sections: Mapping[str, Section], *, chain: bool = False) -> Pipeline:
    """Return the graph of the sections; as a `chain` each stage comes after the one before it in the file."""
    stages: list[PipelineStage] = []
    for name, section in sections.items():
        after = () if section.table.get("after", []) == [] else tuple(section.texts("after", []))
        if chain and stages:
            after = (stages[-1].name,)
        stages.append(PipelineStage(name, section.text("model"), after, _join(section, len(after))))
    try:
        return Pipeline.ordered(stages)
    except BadInput as error:
        stage, dot, key = error.where.partition(".")
        where = f"{path} [stage.{stage}] {key}" if dot else f"{path} [stage.*]"
        raise BadInput(error.what, where, error.value) from None


def _join(section: Section, predecessors: int) -> Join:
    """Read `"all"`, `"first"` or `{ deadline_ms = 40, least = 1 }`."""
    if "join" not in section.table:
        return ALL
    said: Any = section.table["join"]
    where = section.where("join")
    if predecessors < 2:
        raise BadInput("joins the answers of several stages: name two in `after`", where, said)
    if not isinstance(said, dict):
        if said not in ("all", "first"):
            raise BadInput('must be "all", "first" or { deadline_ms = MS, least = N }', where, said)
        return ALL if said == "all" else FIRST
    join = section.below("join")
    join.only(("deadline_ms", "least"))
    least = join.whole("least", 1)
    if least > predecessors:
        raise BadInput(f"waits for more stages than `after` names ({predecessors})", join.where("least"), least)
    return Join(least, join.number("deadline_ms") / 1e3)
