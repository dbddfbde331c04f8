"""Loaders make the function that answers a worker's calls. Loading a model imports its libraries."""

from __future__ import annotations

import os
import time
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from time import perf_counter

import orjson

from mark.models import answering
from mark.models.call import Call, Reply
from mark.models.loading import load as load_model
from mark.models.metadata import metadata
from mark.models.sample import sample_call
from mark.serving.worker.worker_loop import Loaded, Stages

# Unix seconds at which the simulated boot of this machine ends; if unset, it is not delayed.
READY_AT = "MARK_READY_AT"
# `load_measured` answers a call of this protocol with a request of one item, in the form of a reply.
SAMPLE = "sample"


def load(reference: str, search: Path, name: str, version: str) -> Loaded:
    """Load the model for serving under the service's name, with its metadata and the time of one warm-up."""
    model = load_model(reference, search)
    model.name, model.version = name, version
    said = metadata(model)
    if items := answering.warm_up(model):
        began_s = perf_counter()
        answering.warm_up(model)  # the first warm-up includes lazy initialization
        said["warm_up"] = {"items": items, "s": perf_counter() - began_s}
    stages = Stages(
        partial(answering.decode, model),
        partial(answering.predict, model),
        answering.hold,
        partial(answering.encode, model),
    )
    return Loaded(stages, orjson.dumps(said))


def load_paced(reference: str, search: Path, name: str, version: str) -> Loaded:
    """Load as `load`, but delay until `READY_AT`, so that this machine simulates one that boots more slowly."""
    loaded = load(reference, search, name, version)
    time.sleep(max(0.0, float(os.environ.get(READY_AT, "0")) - time.time()))
    return loaded


def load_measured(reference: str, search: Path, name: str, version: str) -> Loaded:
    """Load the model for measurements: one step answers all calls.

    A call of `SAMPLE` gets 404 if the model declares no input.
    """
    model = load_model(reference, search)
    model.name, model.version = name, version
    answering.warm_up(model)

    def answered(calls: Sequence[Call]) -> list[Reply]:
        if calls[0].protocol != SAMPLE:
            return answering.answer(model, calls)
        call = sample_call(model)
        if call is None:
            return [answering.refusal(404, "declares neither inputs nor warmup")]
        return [Reply(200, call.content_type, call.body, call.json_bytes)]

    return Loaded(answered)
