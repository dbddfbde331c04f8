"""The join of feedback with its answer: a state machine without I/O or a clock, in bounded memory.

    on an answer        answered(answer)
    on feedback         judge(feedback, now): the result of each piece, with its answer if it is to be applied
    once it is stored   applied(id, now): the answer takes no more

`judge` changes nothing except that it forgets old entries, so feedback that could not be stored may come again. The
rules:

- An answer takes feedback once, until the horizon has passed; then only its id is remembered, for the same time again.
- An id with feedback is also remembered for the horizon. So feedback on one id is applied at most once in that time,
  even if the id is answered again because its client asks again. The id then stands for the newest answer, which takes
  no feedback if an earlier one had some.
- If memory is short the oldest answers are forgotten first. Ids without an answer use at most half of it.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Sequence

from mark.serving.feedback.port import APPLIED, DUPLICATE, EXPIRED, UNKNOWN, Feedback, ServedAnswer

# Memory of a remembered answer beside its bodies, and of an id without one: measured, and rounded up.
ANSWER_BYTES, ID_BYTES = 600, 350


class FeedbackJoin:
    """The answers and ids that are remembered; see the module. Times are Unix time in seconds.

    `memory_bytes` limits the memory of all of them.
    """

    def __init__(self, horizon_s: float, memory_bytes: int) -> None:
        self._horizon_s, self._memory_bytes = horizon_s, memory_bytes
        # Not dict: to find its first key, a dictionary examines every place whose key was removed.
        self._answers: OrderedDict[str, ServedAnswer] = OrderedDict()  # oldest first
        self._ids: OrderedDict[str, tuple[str, float]] = OrderedDict()  # the result of feedback on it, and since when
        self._answer_bytes = 0

    @property
    def waiting(self) -> int:
        """Return the number of answers that may still take feedback."""
        return len(self._answers)

    @property
    def bytes(self) -> int:
        """Return the memory of all remembered answers and ids."""
        return self._answer_bytes + ID_BYTES * len(self._ids)

    def knows(self, identity: str) -> bool:
        """Return whether feedback on this id would have another result than unknown."""
        return identity in self._answers or identity in self._ids

    def answer(self, identity: str) -> ServedAnswer | None:
        """Return the answer with this id; None if it has feedback already, or is not remembered."""
        return self._answers.get(identity)

    def answered(self, answer: ServedAnswer) -> None:
        """Remember an answer, which is the newest."""
        identity = answer.id
        if self._ids and identity in self._ids:
            self.forget(answer.served_at_s)  # feedback of more than a horizon ago must not hold back a new answer
            if self._ids.get(identity, ("",))[0] == DUPLICATE:
                return
            self._ids.pop(identity, None)
        self._drop(identity)
        self._answers[identity] = answer
        self._answer_bytes += size_of(answer)
        self.forget(answer.served_at_s)

    def judge(self, feedback: Sequence[Feedback], now_s: float) -> list[tuple[str, ServedAnswer | None]]:
        """Return the result of each piece: `APPLIED` with its answer, or the reason why not
        (`mark.serving.feedback.port`).
        """
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
        """Note that feedback on this id has been stored."""
        self._drop(identity)
        self._ids[identity] = DUPLICATE, now_s
        self.forget(now_s)

    def forget(self, now_s: float) -> None:
        """Forget answers and ids that are too old, and the oldest ones if memory is short."""
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
        """Forget the answers for which `is_about` is true. Later feedback on them is unknown."""
        for identity in [identity for identity, answer in self._answers.items() if is_about(answer)]:
            self._drop(identity)

    def _drop(self, identity: str) -> None:
        answer = self._answers.pop(identity, None)
        if answer is not None:
            self._answer_bytes -= size_of(answer)


def size_of(answer: ServedAnswer) -> int:
    """Return the memory of a remembered answer in bytes."""
    size = ANSWER_BYTES + sum(len(one.data) for one in (answer.input, answer.output) if one.data is not None)
    return size if answer.provenance is None else size + answer.provenance.memory_bytes()
