"""A pipeline as its author writes it: an async function that calls models for one query."""

from __future__ import annotations

import inspect
import math
from collections.abc import Awaitable, Callable, Coroutine
from pathlib import Path
from typing import Any, Protocol, TypeAlias, overload

from mark.domain.errors import BadInput
from mark.models.call import Reply
from mark.models.loading import imported

StageCall: TypeAlias = Callable[[Any], Awaitable[Any]]


class StageFailed(Exception):
    """A call of a stage has no result; `reply` has the reason and the server's status (`mark.models.call.Reply`)."""

    def __init__(self, stage: str, reply: Reply) -> None:
        super().__init__(f"stage {stage}: status {reply.status}")
        self.stage, self.reply = stage, reply


class StageModels(Protocol):
    """The models of a pipeline's stages, by their names in the pipeline file; a driver's second argument."""

    def __getattr__(self, name: str) -> StageCall:
        """Return a function that calls the stage NAME.

        `models.NAME(item)` begins the call, and awaiting it gives the result. Calls are futures: several may run at a
        time, and be gathered and awaited in any order. Raises BadInput for an unknown name. Awaiting raises the model's
        error, or StageFailed if the model runs in another process.
        """


Respond: TypeAlias = Callable[[Any, StageModels], Coroutine[Any, Any, Any]]


class PipelineDriver:
    """An async function of a query and its models, with its promised response time in seconds (None: no promise).

    Calling it calls the function.
    """

    def __init__(self, respond: Respond, slo_s: float | None = None) -> None:
        where = f"mark.pipeline on {getattr(respond, '__name__', respond)}"
        if not inspect.iscoroutinefunction(respond):
            raise BadInput("must be an async function", where)
        try:
            inspect.signature(respond).bind(None, None)
        except TypeError:
            raise BadInput("must take a query and the models: async def respond(query, models)", where) from None
        if slo_s is not None and not 0.0 < slo_s < math.inf:
            raise BadInput("must be above zero", f"{where} slo_ms", slo_s * 1e3)
        self._respond, self.slo_s = respond, slo_s
        self.name = respond.__name__
        self.__doc__ = respond.__doc__
        self.__module__ = respond.__module__

    def __call__(self, query: Any, models: StageModels) -> Coroutine[Any, Any, Any]:
        return self._respond(query, models)


@overload
def pipeline(respond: Respond, /) -> PipelineDriver: ...
@overload
def pipeline(*, slo_ms: float | None = None) -> Callable[[Respond], PipelineDriver]: ...
def pipeline(
    respond: Respond | None = None, /, *, slo_ms: float | None = None
) -> PipelineDriver | Callable[[Respond], PipelineDriver]:
    """Make a pipeline of `async def respond(query, models)`; its code runs between calls of models.

    `models.NAME(item)` begins a call of stage NAME, and awaiting it gives the result. The function must not keep state
    between queries: the models that it calls depend only on the query and their answers. `slo_ms` is the promised
    response time in milliseconds. Raises BadInput if the function cannot be called like this.
    """
    slo_s = None if slo_ms is None else slo_ms / 1e3
    if respond is None:
        return lambda later: PipelineDriver(later, slo_s)
    return PipelineDriver(respond, slo_s)


def load_driver(reference: str, search: Path) -> PipelineDriver:
    """Return the driver `module:function`. Its module is looked up in `search` first. Raises BadInput."""
    module, _, attribute = reference.partition(":")
    found = imported(module, attribute, search, reference)
    if not isinstance(found, PipelineDriver):
        raise BadInput(f"{attribute} is no pipeline: decorate it with @mark.pipeline", reference)
    return found
