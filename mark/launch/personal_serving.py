"""The head of a pipeline from its file: its place in the graph, and the stage or table that gives its vectors."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from pathlib import Path

from mark.config.pipeline_config import PipelineConfig
from mark.domain.errors import BadInput
from mark.domain.pipeline import Pipeline, PipelineStage
from mark.models.registry_place import located
from mark.models.registry_unpacked import FILES, check
from mark.models.registry_unpacked import PREFIX as UNPACKED
from mark.personal.settings import IN_REGISTRY, STAGE
from mark.serving.personal.served import PersonalServing

TABLE = "table:"  # a registered table's reference is this prefix and the name of its file
_MOST_TABLE_BYTES = 16 << 30


def personal_serving(config: PipelineConfig, models: Mapping[str, str]) -> PersonalServing | None:
    """Return the parts that `[personal]` serves, with the `models` of the stages by name; None without the section.

    Raises BadInput for a table that cannot be used.
    """
    settings = config.personal
    if settings is None:
        return None
    if settings.table:
        from mark.personal.table import item_table  # here, because it imports numpy's files, which only a table needs

        where = f"{config.source} [personal] table"
        data = _content(table_file(config, where), where)
        return PersonalServing(settings, f"table@{_digest(data)}", item_table(data, settings.table))
    graph = features_graph(config, settings.features)
    models_there = "\n".join(f"{name} {_identity(models[name])}" for name in graph.names)
    return PersonalServing(settings, f"{settings.features}@{_digest(models_there.encode())}", features=graph)


def table_file(config: PipelineConfig, where: str) -> Path:
    """Return the file of the table; for a table in a registry, the file of the unpacked version. Raises BadInput."""
    assert config.personal is not None, "only then there is a table"
    table = config.personal.table
    if not table.startswith(IN_REGISTRY):
        return Path(table)
    folder = located(table, beside=Path(config.source).resolve().parent).removeprefix(UNPACKED)
    reference = check(Path(folder)).content.model
    if not reference.startswith(TABLE):
        raise BadInput(
            f"names a model ({reference}), and no table: mark personal retrain registers tables", where, table
        )
    return Path(folder, FILES, reference.removeprefix(TABLE))


def with_head(config: PipelineConfig) -> Pipeline | None:
    """Return the graph with the head after the features stage; None if a driver calls the head.

    The head of a table comes after the last stage, whose answer is an item's name; without stages the head is the whole
    graph. Without `[personal]` the result is the file's graph, if it has one.
    """
    if config.personal is None or config.driver is not None:
        return config.pipeline
    stages = () if config.pipeline is None else config.pipeline.stages
    last = () if config.pipeline is None else tuple(stages[at].name for at in config.pipeline.last)
    after = (config.personal.features,) if config.personal.features else last
    if len(after) > 1:
        what = "needs one last stage, whose answer is the name of an item"
        raise BadInput(what, f"{config.source} [personal] table", ", ".join(after))
    return Pipeline.ordered([*stages, PipelineStage(STAGE, STAGE, after)])


def features_graph(config: PipelineConfig, features: str) -> Pipeline:
    """Return the features stage and the stages before it."""
    if config.pipeline is None:
        return Pipeline((PipelineStage(features, features),))
    needed = {features}
    for stage in reversed(config.pipeline.stages):
        if stage.name in needed:
            needed |= set(stage.after)
    return Pipeline(tuple(stage for stage in config.pipeline.stages if stage.name in needed))


def _identity(model: str) -> str:
    """Return a reference that is the same on every machine: an unpacked version's folder is named by its hash."""
    return f"{IN_REGISTRY}{Path(model).name}" if model.startswith(UNPACKED) else model


def _content(path: Path, where: str) -> bytes:
    try:
        if path.stat().st_size > _MOST_TABLE_BYTES:
            raise BadInput(f"has more than {_MOST_TABLE_BYTES >> 30} GiB", where, str(path))
        return path.read_bytes()
    except OSError as error:
        raise BadInput(f"cannot be read ({error.strerror})", where, str(path)) from None


def _digest(data: bytes) -> str:
    return hashlib.blake2b(data, digest_size=4).hexdigest()
