"""The port of feedback: answers, the feedback on them, both joined, and the sink that takes them.

The log is the sink that ships (`mark.serving.feedback.log`). A learner of feedback is another sink in front of the log:
it passes on its calls, and learns from the observations that the log has stored.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from mark.models.answer import Provenance
from mark.serving.feedback.rewriting import Change

# The result of one piece of feedback.
APPLIED = "applied"  # joined with its answer, and stored
DUPLICATE = "duplicate"  # this answer has feedback already
UNKNOWN = "unknown"  # no such answer is remembered here; stored, to be joined with the logs of other bouncers
EXPIRED = "expired"  # its answer is older than the horizon; not stored
UNLEARNED = "unlearned"  # it refers to no answer and was stored; nothing could be learned from it
RESULTS = (APPLIED, DUPLICATE, UNKNOWN, EXPIRED, UNLEARNED)


@dataclass(slots=True)
class RecordedBody:
    """The body of a request or an answer: its `data`, or the SHA-256 in hex of a body that is too long to store.

    `json_bytes` is the length of its JSON before binary tensors; None: it is not split in this way.
    """

    content_type: str
    size_bytes: int
    data: bytes | None
    sha256: str = ""
    json_bytes: int | None = None


@dataclass(slots=True)
class ServedAnswer:
    """An answer of the model. `id` is the request's, `served_at_s` Unix time.

    Treat it as frozen; it is not declared so because that triples the cost of creating one for every answer.
    """

    id: str
    model: str
    version: str
    served_at_s: float
    answered_by: str
    input: RecordedBody
    output: RecordedBody
    provenance: Provenance | None = None  # if a layer chose or combined models


@dataclass(frozen=True, slots=True)
class Feedback:
    """A client's feedback on the answer to request `id`: `said` has `label` or `reward`, and optional further entries.

    `version` is the version that the answer must be from; None: any.
    """

    id: str
    said: dict[str, Any]
    version: str | None = None


@dataclass(frozen=True, slots=True)
class Observation:
    """An answer and the feedback on it, `received_at_s` in Unix time."""

    answer: ServedAnswer
    feedback: Feedback
    received_at_s: float


class FeedbackSink(Protocol):
    """Takes answers and observations. Its own thread calls it, so that it may block."""

    def answered(self, answers: Sequence[ServedAnswer]) -> None:
        """Take answers as they come, for feedback that reaches another bouncer. Raises if they are lost."""
        ...

    def received(self, observed: Sequence[Observation], unknown: Sequence[Feedback], received_at_s: float) -> None:
        """Take observations, and feedback on answers not remembered here; both are stored durably when this returns.

        Only then a client is told, and an answer takes no further feedback. If it raises, no piece counts, and clients
        are asked to repeat all pieces. TypeError or ValueError means that nothing was stored because one piece cannot
        be; the others may be tried without it.
        """
        ...

    def rewrite(self, change: Change) -> None:
        """Change the stored lines, for example when a user is deleted. Raises OSError; it may be repeated."""
        ...

    def close(self) -> None:
        """Close the sink; nothing follows."""
        ...
