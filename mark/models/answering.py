"""Answer undecoded calls with a model: decode each, predict once, encode each."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from types import ModuleType
from typing import Any

import numpy as np
import orjson

from mark.models import oip, results, sagemaker
from mark.models.call import RESULTS, Call, Reply
from mark.models.model import Model, TensorSpec, predicted
from mark.models.tensors import DTYPES, BadCall

_log = logging.getLogger(__name__)
_MOST_TEXT = 300
_PLAIN = frozenset((bool, int, float, str, bytes))
_PROTOCOLS: dict[str, ModuleType] = {"oip": oip, "sagemaker": sagemaker, results.PROTOCOL: results}


class Opened:
    """A decoded batch and the model's results."""

    __slots__ = ("batch", "replies", "results", "taken")

    def __init__(self, count: int) -> None:
        self.replies: list[Any] = [None] * count  # of calls that have been answered
        self.batch: list[Any] = []
        # The other calls: index, encoder, requested form of the results, and number of items.
        self.taken: list[tuple[int, ModuleType, Any, int]] = []
        self.results: Any = None


def answer(model: Model, calls: Sequence[Call]) -> list[Reply]:
    """Return one reply for each call, in order. Errors of a client or a model raise nothing.

    A bad call gets a 400 and does not affect the others. If predict raises or returns the wrong number of results, the
    whole batch gets a 500, which is logged (a replica then tries the calls one by one). Results that cannot be encoded
    are a 500 for their call. A call that accepts `RESULTS` is answered with decoded results.

    The steps are `decode`, `predict` and `encode`; only the second runs the model's own code. To encode during the
    model's next batch, `hold` the results.
    """
    opened = decode(model, calls)
    predict(model, opened)
    return encode(model, opened)


def decode(model: Model, calls: Sequence[Call]) -> Opened:
    """Read the items of all calls into one batch, and answer bad calls with a refusal."""
    opened = Opened(len(calls))
    for index, call in enumerate(calls):
        try:
            protocol = _PROTOCOLS[call.protocol]
            items, asked = protocol.decode(call, model)
        except BadCall as bad:
            opened.replies[index] = refusal(bad.status, bad.text)
        except Exception:
            _log.exception("a call could not be decoded")
            opened.replies[index] = refusal(500, "the request could not be decoded")
        else:
            encoder = results if call.accept == RESULTS else protocol
            opened.taken.append((index, encoder, asked, len(items)))
            opened.batch += items
    return opened


def predict(model: Model, opened: Opened) -> None:
    """Call the model once with the batch of `decode`. If it fails, answer every call with a 500."""
    if not opened.taken:
        return
    try:
        opened.results = predicted(model, opened.batch)
    except Exception as error:
        _log.exception("model %s failed on a batch of %d", model.name, len(opened.batch))
        failed = refusal(500, f"the model failed: {type(error).__name__}")
        for index, *_ in opened.taken:
            opened.replies[index] = failed
        opened.taken = []


def hold(opened: Opened) -> bool:
    """Copy the results of `predict` out of memory that the model's next batch may overwrite, such as an output buffer.

    Returns False for results of unknown types, which must be encoded before the next batch.
    """
    try:
        opened.results = _held(opened.results)
    except TypeError:
        return False
    return True


def _held(value: Any) -> Any:
    if value is None or type(value) in _PLAIN:
        return value
    if isinstance(value, np.ndarray):
        if value.dtype.hasobject:
            raise TypeError
        return value.copy()
    if isinstance(value, np.generic):
        return value
    if type(value) is list or type(value) is tuple:
        return [_held(each) for each in value]
    if type(value) is dict:
        return {name: _held(each) for name, each in value.items()}
    if isinstance(value, bytearray | memoryview):
        return bytes(value)
    raise TypeError


def encode(model: Model, opened: Opened) -> list[Reply]:
    """Return one reply for each call, in order, from the results of `predict` in `opened`."""
    replies, made = opened.replies, opened.results
    start = 0
    for index, encoder, asked, count in opened.taken:
        stop = start + count
        try:
            replies[index] = encoder.encode(model, asked, made[start:stop])
        except BadCall as bad:
            replies[index] = refusal(bad.status, bad.text)
        except Exception as error:
            _log.exception("model %s gave results that cannot be encoded", model.name)
            why = " ".join(f"{type(error).__name__}: {error}".split())[:_MOST_TEXT]
            replies[index] = refusal(500, f"the model's results cannot be encoded: {why}")
        start = stop
    return replies


def warm_up(model: Model) -> int:
    """Predict once before the first request: `warmup`, or else one item of zeros if `inputs` are declared.

    Returns the number of items. Raises the model's errors, because a model that fails here is not ready.
    """
    batch = list(model.warmup)
    if not batch and model.inputs:
        zeros = {spec.name: _zero(spec) for spec in model.inputs}
        batch = [zeros if len(zeros) > 1 else zeros.popitem()[1]]
    if batch:
        predicted(model, batch)
    return len(batch)


def refusal(status: int, text: str) -> Reply:
    """Return an error in the form that both protocols use."""
    sayable = text.encode(errors="replace").decode()  # header values may contain characters that UTF-8 cannot encode
    return Reply(status, "application/json", orjson.dumps({"error": sayable}))


def _zero(spec: TensorSpec) -> Any:
    shape = [max(length, 1) for length in spec.shape]
    if spec.datatype == "BYTES":
        return np.full(shape, b"", dtype=object)[()]
    return np.zeros(shape, dtype=DTYPES[spec.datatype])[()]
