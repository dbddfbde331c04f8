"""Tracing from a pipeline file and a file of queries: load driver and models, and trace."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import chdir
from dataclasses import replace
from pathlib import Path
from typing import Any

from mark.config.pipeline_config import PipelineConfig
from mark.domain.errors import BadInput
from mark.domain.pipeline import Pipeline
from mark.models.driver import PipelineDriver, load_driver
from mark.models.loading import home, in_one_line, load
from mark.models.model import Model, predicted
from mark.models.registry_place import located
from mark.models.tensors import BadCall, fitted_item
from mark.planning.graphs.driver_trace import Answer, PipelineTrace, trace
from mark.planning.graphs.queries import read_queries


def trace_file(
    config: PipelineConfig, queries: str, progress: Callable[[float], None] | None = None, *, most_items: int = 0
) -> PipelineTrace:
    """Run the pipeline's driver with its own models on the queries of a file (JSON Lines).

    `most_items` items of each stage are kept. Models are loaded here, each reference once, and get one item at a time.
    Raises BadInput for a pipeline without a driver, for code that cannot be loaded, and as `trace` does.
    """
    sample = read_queries(queries)
    driver = open_driver(config)
    answers = _answers(config)
    found = trace(driver, answers, sample, queries, progress, most_items=most_items)
    models = {stage.name: stage.model for stage in config.stages}
    stages = tuple(replace(stage, model=models[stage.name]) for stage in found.pipeline.stages)
    return replace(found, pipeline=Pipeline(stages))


def open_driver(config: PipelineConfig) -> PipelineDriver:
    """Load the driver that the file names. Raises BadInput, also if its promise is not the file's."""
    if config.driver is None:
        raise BadInput("has no driver to trace: its sections [stage.NAME] say the graph", config.source)
    where = f"{config.source} [service]"
    try:
        driver = load_driver(config.driver, Path(config.source).parent)
    except BadInput as error:
        raise BadInput(error.what, f"{where} pipeline", error.where) from error.__cause__
    if driver.slo_s is not None and abs(driver.slo_s - config.slo.rt_max_s) > 1e-9:
        what = f"the driver {config.driver} promises {driver.slo_s * 1e3:g} ms: say one of them, or the same"
        raise BadInput(what, f"{where} slo_ms", f"{config.slo.rt_max_s * 1e3:g}")
    return driver


def _answers(config: PipelineConfig) -> dict[str, Answer]:
    loaded: dict[str, Model] = {}
    for stage in config.stages:
        if stage.model in loaded:
            continue
        where = f"{config.source} [stage.{stage.name}] model"
        try:
            search = Path(config.source).resolve().parent
            reference = located(stage.model, beside=search)
            with chdir(home(reference, search)):
                loaded[stage.model] = load(reference, search)
        except BadInput as error:
            raise BadInput(f"{error.where}: {error.what}", where, error.value) from error.__cause__
        except Exception as error:
            raise BadInput(f"does not load ({in_one_line(error)})", where, stage.model) from error
    return {stage.name: _answer(loaded[stage.model]) for stage in config.stages}


def _answer(model: Model) -> Answer:
    def answer(item: Any) -> Any:
        try:
            fitting = fitted_item(item, model.inputs)
        except BadCall as bad:
            raise ValueError(bad.text) from None
        return predicted(model, [fitting])[0]

    return answer
