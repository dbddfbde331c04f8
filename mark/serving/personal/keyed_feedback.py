"""Feedback without an answer: `{"id": "c-1", "key": "u42", "item": "s7", "reward": 4.5}`, or with `input`.

The server makes an answer for such a piece, and for the deletion of a key. From then on they are handled like feedback
on any answer: log, facts, peers. An id counts once.
"""

from __future__ import annotations

import asyncio
import secrets
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol

from mark.models.answer import NOBODY, Provenance
from mark.models.compression import Refused
from mark.personal.settings import LOGISTIC, LONGEST_NAME
from mark.serving.feedback.joining import FeedbackJoin
from mark.serving.feedback.port import APPLIED, UNLEARNED, Feedback, RecordedBody, ServedAnswer
from mark.serving.frontend.feedback_door import TakesFeedback, TellsReasons, check_shares, check_spelling
from mark.serving.personal.features import Features, NoVector
from mark.serving.personal.heads import PersonalHeads
from mark.serving.personal.notes import MOST_KEY_BYTES, HeadNote, Scored, id_name, key_name, notes_in

_MOST_BYTES = 16 << 20  # of feedback whose input is in the features stage


class RemembersAnswers(Protocol):
    """The memory of answers that feedback is joined with (`mark.serving.feedback.collector`)."""

    model: str
    join: FeedbackJoin


def check_personal(feedback: Sequence[Feedback], loss: str, join: FeedbackJoin | None = None) -> None:
    """Raise Refused for a piece with an impossible key, item or reward.

    A piece on an answer with several items (`/top`) must name one of them; only answers that `join` remembers are
    checked for that.
    """
    if loss == LOGISTIC:
        check_shares(feedback)
    for number, one in enumerate(feedback, 1):
        said = one.said
        check_spelling(said, ("key", "item", "input"), f"feedback {number}")
        key, item = said.get("key"), said.get("item")
        if "key" in said and not (isinstance(key, str) and 0 < len(key.encode("utf-8", "replace")) <= MOST_KEY_BYTES):
            raise Refused(400, f"feedback {number}: key must be a text of 1 to {MOST_KEY_BYTES} bytes")
        if "item" in said and not (isinstance(item, str) and 0 < len(item) <= LONGEST_NAME):
            raise Refused(400, f"feedback {number}: item must be a text of 1 to {LONGEST_NAME} characters")
        if "forget" in said:
            raise Refused(400, f"feedback {number}: a key is deleted by DELETE .../keys/KEY")
        if "item" not in said and join is not None and (several := _items_of(join.answer(one.id))) > 1:
            raise Refused(400, f"feedback {number}: must name its item, because the answer has {several} items")


def _items_of(answer: ServedAnswer | None) -> int:
    """Return the number of named items that an answer scored."""
    if answer is None or answer.provenance is None or not answer.provenance.note:
        return 0
    return sum(scored.item is not None for one in notes_in(answer.provenance.note) for scored in one.scored)


class PersonalFeedback:
    """Takes feedback as `behind` does, and makes answers for pieces without one. Runs on the event loop.

    `now` is Unix time. `features` is None if the vectors come from a table.
    """

    def __init__(
        self,
        behind: TakesFeedback,
        remembered: RemembersAnswers,
        heads: PersonalHeads,
        features: Features | None,
        loop: asyncio.AbstractEventLoop,
        writer: str,
        now: Callable[[], float] = time.time,
    ) -> None:
        self._behind, self._remembered, self._heads, self._features = behind, remembered, heads, features
        self._loop, self._writer, self._now = loop, writer, now
        self._bytes = 0
        self._tasks: set[asyncio.Task[None]] = set()

    def post(self, feedback: Sequence[Feedback], size: int, told: TellsReasons) -> bool:
        """Take feedback of `size` bytes; `told` is called once, later. Return False if too much is waiting."""
        own = [at for at, one in enumerate(feedback) if self._stands_alone(one)]
        if not own:
            return self._behind.post(feedback, size, told)
        to_ask = [at for at in own if "input" in feedback[at].said] if self._features is not None else []
        if not to_ask:
            return self._post(feedback, size, told, {at: self._note(feedback[at], None) for at in own})
        if self._bytes + size > _MOST_BYTES:
            return False
        self._bytes += size
        task = self._loop.create_task(self._ask(feedback, size, told, own, to_ask))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return True

    def forget(self, key: str, told: Callable[[bool], None]) -> bool:
        """Delete a key by its name in the state; `told` is called once, with True when the deletion is durable."""
        # Random, because feedback with a guessed id would take the deletion's place.
        identity = f"{self._writer}-{secrets.token_hex(8)}"
        self._remember(identity, HeadNote("", self._heads.version, ()).to_json())

        def done(results: Sequence[str] | None, _: object = None) -> None:
            told(results is not None and results[0] == APPLIED)

        said = {"forget": key, "newest_s": self._heads.newest_s(key)}
        return self._behind.post([Feedback(identity, said)], len(key), done)

    async def close(self) -> None:
        """Wait for feedback whose input is in the features stage."""
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def _stands_alone(self, one: Feedback) -> bool:
        join = self._remembered.join
        if "key" not in one.said or not ("item" in one.said or "input" in one.said) or join.knows(one.id):
            return False
        if self._heads.has_seen(one.id):
            join.applied(one.id, self._now())  # so that it is a duplicate here too
            return False
        return True

    async def _ask(
        self, feedback: Sequence[Feedback], size: int, told: TellsReasons, own: Sequence[int], to_ask: Sequence[int]
    ) -> None:
        assert self._features is not None, "only then there is something to ask"
        inputs = [feedback[at].said["input"] for at in to_ask]
        found = await self._features.vectors_apart(inputs, feedback[to_ask[0]].id)
        self._bytes -= size
        by_place = dict(zip(to_ask, found, strict=True))
        if any(isinstance(one, NoVector) and not one.is_of_item for one in found):
            told(None)
            return
        notes = {at: self._note(feedback[at], by_place.get(at)) for at in own}
        reasons = {at: one.said() for at, one in by_place.items() if isinstance(one, NoVector)}
        if not self._post(feedback, size, told, notes, reasons):
            told(None)

    def _note(self, one: Feedback, vector: Any) -> bytes:
        scored = Scored(one.said.get("item"), None if vector is None or isinstance(vector, NoVector) else vector)
        return HeadNote(key_name(one.said["key"]), self._heads.version, [scored], id_name(one.id)).to_json()

    def _post(
        self,
        feedback: Sequence[Feedback],
        size: int,
        told: TellsReasons,
        notes: Mapping[int, bytes],
        reasons: Mapping[int, str] = {},
    ) -> bool:
        now_s = self._now()
        unlearned = {at for at, note in notes.items() if self._heads.learnable(note, feedback[at].said, now_s) is None}
        for at, note in notes.items():
            if not self._remembered.join.knows(feedback[at].id):
                self._remember(feedback[at].id, note, feedback[at].version or "")

        def with_unlearned(results: Sequence[str] | None, _: object = None) -> None:
            if results is None:
                told(None)
                return
            found = [UNLEARNED if at in unlearned and one == APPLIED else one for at, one in enumerate(results)]
            told(found, {at: why for at, why in reasons.items() if found[at] == UNLEARNED})

        return self._behind.post(feedback, size, with_unlearned)

    def _remember(self, identity: str, note: bytes, version: str = "") -> None:
        """Remember an answer that feedback of this id refers to."""
        nothing = RecordedBody("application/json", 0, b"")
        self._remembered.join.answered(
            ServedAnswer(
                identity,
                self._remembered.model,
                version,
                self._now(),
                NOBODY,
                nothing,
                nothing,
                Provenance(note=note),
            )
        )


_: type[TakesFeedback] = PersonalFeedback
