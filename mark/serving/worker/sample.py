"""A loader of workers that are to be measured: as the usual one, and the worker is asked for a request to try."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from mark.models.call import Call, Reply
from mark.serving.worker.worker_loop import Loaded

# A call of this protocol is answered with a request of one item, in the shape of a reply.
SAMPLE = "sample"


def load(reference: str, search: Path, name: str, version: str) -> Loaded:
    """`mark.serving.worker.worker.load`, beside which calls of `SAMPLE` are answered; 404 where the model says no
    input."""
    from mark.models.answering import answer, refusal, warm_up
    from mark.models.load import load as load_model
    from mark.models.sample import sample_call

    model = load_model(reference, search)
    model.name, model.version = name, version
    warm_up(model)

    def answered(calls: Sequence[Call]) -> list[Reply]:
        if calls[0].protocol != SAMPLE:
            return answer(model, calls)
        call = sample_call(model)
        if call is None:
            return [refusal(404, "declares neither inputs nor warmup")]
        return [Reply(200, call.content_type, call.body, call.json_bytes)]

    return Loaded(answered)
