"""Functions of a planned pipeline's stages, and when a call goes to one instead of waiting for a replica."""

from __future__ import annotations

from collections.abc import Sequence

from mark.domain.errors import BadInput
from mark.domain.pipeline import Pipeline, needed_s
from mark.domain.service import FunctionUse
from mark.kernel.pipeline import StageFunction
from mark.pipelines.estimate import Choices


def stage_functions(
    pipeline: Pipeline, choices: Choices, functions: Sequence[FunctionUse | None]
) -> dict[int, StageFunction]:
    """By stage, of those that have one.

    What comes behind a stage takes at least: a single call on a replica where there is no function, and else the
    function's time or a full batch, whichever is longer. So a call that goes to the function at its last moment can
    do the same at all stages behind that have one. Raises BadInput unless there is one choice and one function, or
    None, for each stage.
    """
    if not len(pipeline.stages) == len(choices) == len(functions):
        raise BadInput(f"one for each of {len(pipeline.stages)} stages", "functions", len(functions))
    batch_s = [float(choice.option.service_s[choice.batch]) for choice in choices]
    takes_s = [
        float(choice.option.service_s[1]) if use is None else max(use.warm_s, full_s)
        for choice, use, full_s in zip(choices, functions, batch_s, strict=True)
    ]
    needed = needed_s(takes_s, pipeline.successors, pipeline.awaits_all)
    return {
        stage: StageFunction(use, needed[stage] - takes_s[stage], batch_s[stage])
        for stage, use in enumerate(functions)
        if use is not None
    }
