"""Feedback and the answer it is about: a state machine without I/O or a clock, in bounded memory.

    on an answer       answered(answer)
    on feedback        judge(feedback, now): for each what becomes of it, with its answer where that is to be applied
    once it is kept    applied(id, now): the answer takes no more

`judge` changes nothing but what has become too old, so that what could not be kept may come again. The rules:

- An answer takes feedback once, until the horizon has passed; then its id alone is remembered, for as long again.
- An id with feedback is remembered for the horizon, too. So feedback on one id is applied at most once in that time,
  also where the id is answered again, as when a client asks again: it then stands for the newest answer, and takes no
  feedback if there was some on the one before.
- Where memory is short the oldest answers are forgotten first. Ids without an answer have half of it at most.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Sequence

from mark.serving.feedback.port import APPLIED, DUPLICATE, EXPIRED, UNKNOWN, Feedback, ServedAnswer

# What a remembered answer takes beside its bodies, and an id without one: measured, and rounded up.
ANSWER_BYTES, ID_BYTES = 600, 350


class FeedbackJoin:
    """See the module. Times are Unix time in seconds; `memory_bytes` bounds what is remembered."""

    def __init__(self, horizon_s: float, memory_bytes: int) -> None:
        self._horizon_s, self._memory_bytes = horizon_s, memory_bytes
        # Not dict: to find its first key, a dictionary looks at every place from which keys have gone.
        self._answers: OrderedDict[str, ServedAnswer] = OrderedDict()  # oldest first
        self._ids: OrderedDict[str, tuple[str, float]] = OrderedDict()  # why there is no answer, since when
        self._answer_bytes = 0

    @property
    def waiting(self) -> int:
        """Answers that may still take feedback."""
        return len(self._answers)

    @property
    def bytes(self) -> int:
        """What is remembered takes so much memory."""
        return self._answer_bytes + ID_BYTES * len(self._ids)

    def knows(self, identity: str) -> bool:
        """Is there anything to say of feedback on this id but that it is unknown?"""
        return identity in self._answers or identity in self._ids

    def answered(self, answer: ServedAnswer) -> None:
        """Remember an answer, which is the newest."""
        identity = answer.id
        if self._ids and identity in self._ids:
            if self._ids[identity][0] == DUPLICATE:
                return
            del self._ids[identity]
        self._drop(identity)
        self._answers[identity] = answer
        self._answer_bytes += size_of(answer)
        self.forget(answer.served_at_s)

    def judge(self, feedback: Sequence[Feedback], now_s: float) -> list[tuple[str, ServedAnswer | None]]:
        """What becomes of each: `APPLIED` with its answer, else why not (`mark.serving.feedback.port`)."""
        self.forget(now_s)
        found: list[tuple[str, ServedAnswer | None]] = []
        taken: set[str] = set()
        for one in feedback:
            answer = self._answers.get(one.id)
            if answer is None:
                found.append((self._ids[one.id][0] if one.id in self._ids else UNKNOWN, None))
            elif one.version not in (None, answer.version):
                found.append((UNKNOWN, None))
            elif one.id in taken:
                found.append((DUPLICATE, None))
            else:
                taken.add(one.id)
                found.append((APPLIED, answer))
        return found

    def applied(self, identity: str, now_s: float) -> None:
        """There is feedback on this id now, and it is kept."""
        self._drop(identity)
        self._ids[identity] = DUPLICATE, now_s
        self.forget(now_s)

    def forget(self, now_s: float) -> None:
        """Forget answers and ids that are too old, and the oldest of what memory cannot hold."""
        answers, ids, horizon_s = self._answers, self._ids, self._horizon_s
        while answers:
            oldest = next(iter(answers.values()))
            if now_s - oldest.served_at_s <= horizon_s:
                break
            self._drop(oldest.id)
            ids[oldest.id] = EXPIRED, now_s
        while ids and (now_s - next(iter(ids.values()))[1] > horizon_s or 2 * ID_BYTES * len(ids) > self._memory_bytes):
            ids.popitem(last=False)
        while answers and self.bytes > self._memory_bytes:
            self._drop(next(iter(answers)))

    def erase(self, is_about: Callable[[ServedAnswer], bool]) -> None:
        """Forget the answers of which this is true. Feedback on them is unknown from now on."""
        for identity in [identity for identity, answer in self._answers.items() if is_about(answer)]:
            self._drop(identity)

    def _drop(self, identity: str) -> None:
        answer = self._answers.pop(identity, None)
        if answer is not None:
            self._answer_bytes -= size_of(answer)


def size_of(answer: ServedAnswer) -> int:
    """Bytes that a remembered answer takes."""
    size = ANSWER_BYTES + sum(len(one.data) for one in (answer.input, answer.output) if one.data is not None)
    return size if answer.provenance is None else size + answer.provenance.memory_bytes()
