"""The head of a pipeline as a stage: it gets an item's vector or name, and answers with the reward expected of a key.

It runs in the process that takes queries through the stages, and answers within the call.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import numpy as np

from mark.models import results
from mark.models.answer import INSTANCE, Answer, Provenance
from mark.models.model import Model
from mark.models.tensors import BadCall
from mark.serving.backend.metrics import ModelMetrics
from mark.serving.backend.port import StageBackend
from mark.serving.backend.refusals import error_reply
from mark.serving.backend.request import Request
from mark.serving.personal.heads import PersonalHeads
from mark.serving.personal.notes import HeadNote, Scored, key_name, key_of_header

_MODEL = Model()
_LOG = logging.getLogger("mark.serving")


class PersonalStage:
    """Scores one item for the key of its request. `now` is the clock of requests.

    With `first` no stage is before it, so an item that cannot be scored is the client's fault and not a stage's.

    It is ready from the start, because the process loads the state first. Its owner may delay that.
    """

    def __init__(
        self, heads: PersonalHeads, metrics: ModelMetrics, now: Callable[[], float], *, first: bool = False
    ) -> None:
        self.metrics, self._heads, self._now = metrics, heads, now
        self._bad_item = 400 if first else 500
        self.ready = True

    @property
    def least_s(self) -> float:
        """Return the least time of a call."""
        return 0.0

    def retry_after_s(self) -> float:
        """Return 0, because no call is refused."""
        return 0.0

    async def drain(self, until_s: float) -> None:
        """Do nothing, because every call is answered immediately."""

    def offer(self, request: Request) -> None:
        """Answer the call."""
        answer = self._answered(request)
        now_s = self._now()
        self.metrics.answered(
            answer.made_by, answer.reply.status, now_s - request.arrived_s, request.deadline_s - request.arrived_s
        )
        try:
            request.answer(request, answer)
        except Exception:  # the answer could not be written
            _LOG.exception("an answer failed", extra={"request_id": request.id})
            with suppress(Exception):  # most likely the request has its answer
                request.answer(request, Answer(error_reply(500, "internal error"), INSTANCE))

    def _answered(self, request: Request) -> Answer:
        try:
            (item,), _ = results.decode(request.call, _MODEL)
            scored = scored_in(item)
            if scored.item is not None and scored.vector is None and not self._heads.has_item(scored.item):
                return Answer(error_reply(400, f"no item of the table: {scored.item[:100]!r}"), INSTANCE)
            key = key_name(key_of_header(request.key)) if request.key else ""
            found = self._heads.score(key, scored)
        except BadCall as error:
            return Answer(error_reply(error.status, error.text), INSTANCE)
        except (ValueError, TypeError) as error:
            return Answer(error_reply(self._bad_item, str(error)), INSTANCE)
        note = HeadNote(key, self._heads.version, [scored]).to_json()
        reply = results.encode(_MODEL, None, [float(found.values[0])])
        return Answer(reply, INSTANCE, provenance=Provenance(note=note))


def scored_in(item: Any) -> Scored:
    """Return the item of a call: a vector, a name, or both as `{"vector": ..., "item": ...}`.

    Raises ValueError or TypeError, which are faults of the stage or the driver that made the call.
    """
    if isinstance(item, dict) and (len(item) != 1 or item.keys() & {"vector", "item"}):
        unknown = item.keys() - {"vector", "item"}
        if unknown or not item:
            raise ValueError(f"a call of the head has vector or item, and not {', '.join(sorted(map(str, item)))}")
        name = None if item.get("item") is None else _name(item["item"])
        return Scored(name, None if item.get("vector") is None else vector_in(item["vector"]))
    name = _name_or_none(item)
    return Scored(name) if name is not None else Scored(None, vector_in(item))


def vector_in(value: Any) -> np.ndarray[Any, np.dtype[np.float32]]:
    """Return the vector in a features stage's answer. Raises ValueError or TypeError."""
    if isinstance(value, dict) and len(value) == 1:  # a model with a single named output
        (value,) = value.values()
    try:
        with np.errstate(over="ignore"):  # a number too large for a float32 becomes infinite, and is refused
            vector = np.asarray(value, dtype=np.float32)
    except (ValueError, TypeError):
        raise ValueError(f"a vector must be a list of numbers, and not {type(value).__name__}") from None
    if vector.ndim != 1 or not vector.size:
        raise ValueError(f"a vector has one axis, and not the shape {vector.shape}")
    if not np.isfinite(vector).all():
        raise ValueError("a vector has a number that is not finite")
    return vector


def _name_or_none(item: Any) -> str | None:
    if isinstance(item, np.ndarray) and item.dtype.kind in "OSU" and item.size == 1:
        item = item.reshape(-1)[0]
    return _name(item) if isinstance(item, str | bytes) else None


def _name(item: Any) -> str:
    if isinstance(item, bytes):
        return item.decode("utf-8", "replace")
    if not isinstance(item, str):
        raise TypeError(f"an item has a name, and not a {type(item).__name__}")
    return item


_: type[StageBackend] = PersonalStage
