"""The measurements that a pipeline needs: the model of each stage, on the items that the stage really gets."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from mark.config.pipeline_config import PipelineConfig
from mark.domain.errors import BadInput
from mark.models.call import Call
from mark.models.registry_place import located
from mark.models.results import call_with
from mark.planning.graphs.trace_file import trace_file
from mark.profiling.measure_server import Profiling

# Items of each stage: batches take them in turn. A thousand would say little more, and cost memory.
MOST_ITEMS = 256


@dataclass(frozen=True, slots=True)
class StageProfiling:
    """The measurement of one model, which several stages may share."""

    stages: tuple[str, ...]
    what: Profiling


def stage_profilings(
    config: PipelineConfig, queries: str | None, progress: Callable[[float], None] | None = None
) -> list[StageProfiling]:
    """Return one measurement for each model, in the order of the file's stages.

    A driver is traced on the file `queries`, and a model is measured on the items of its stages' calls. Without a
    driver, and for stages that no query visits, the model's own `warmup` or `inputs` have to do. Raises BadInput for a
    driver without queries, queries without a driver, a model that is not code, and an item that cannot be sent to a
    worker.
    """
    if config.driver is None and queries is not None:
        raise BadInput(
            "there is no driver to run on queries: each model is measured on its own sample", "queries", queries
        )
    if config.driver is not None and queries is None:
        what = "say on which queries its stages are measured: `queries` FILE, as `mark pipeline trace` takes it"
        raise BadInput(what, f"{config.source} [service] pipeline", config.driver)
    for stage in config.stages:
        if ":" not in stage.model:
            what = "is no code that could be measured: neither module:Class nor a file"
            raise BadInput(what, f"{config.source} [stage.{stage.name}] model", stage.model)
    items = {} if queries is None else trace_file(config, queries, progress, most_items=MOST_ITEMS).items
    by_model: dict[str, list[str]] = {}
    for stage in config.stages:
        by_model.setdefault(stage.model, []).append(stage.name)
    found = []
    for model, stages in by_model.items():
        calls = tuple(_call(stage, item) for stage in stages for item in items.get(stage, ()))
        search = Path(config.source).resolve().parent
        found.append(
            StageProfiling(tuple(stages), Profiling(located(model, beside=search), search, named=model, calls=calls))
        )
    return found


def _call(stage: str, item: object) -> Call:
    try:
        return call_with(item)
    except TypeError as error:
        raise BadInput(f"is called with a value that cannot be sent to its worker: {error}", f"stage {stage}") from None
