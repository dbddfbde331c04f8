"""The port of feedback: what was answered, what came back about it, both joined, and what takes them.

The log is what ships (`mark.serving.feedback.log`). What learns from feedback is one more sink with the log behind it:
it passes on what it is told, and learns from the observations that the log has kept.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from mark.models.answer import Provenance
from mark.serving.feedback.rewriting import Change

# What became of one piece of feedback.
APPLIED = "applied"  # joined with its answer, and kept
DUPLICATE = "duplicate"  # there was feedback for this answer already
UNKNOWN = "unknown"  # no such answer is remembered here; kept, to be joined with the logs of other bouncers
EXPIRED = "expired"  # its answer is older than the horizon; not kept
UNLEARNED = "unlearned"  # it stands for itself, and was kept; nothing could be learned from it
RESULTS = (APPLIED, DUPLICATE, UNKNOWN, EXPIRED, UNLEARNED)


@dataclass(slots=True)
class RecordedBody:
    """The body of a request or an answer: its `data`, or where it is longer than what is kept its SHA-256, in hex.

    `json_bytes` is how much of it is JSON, before binary tensors; None: there is no such part.
    """

    content_type: str
    size_bytes: int
    data: bytes | None
    sha256: str = ""
    json_bytes: int | None = None


@dataclass(slots=True)
class ServedAnswer:
    """An answer of the model. `id` is the request's, `served_at_s` Unix time.

    Treat it as frozen; it is not declared so because that triples what making one costs, for every answer.
    """

    id: str
    model: str
    version: str
    served_at_s: float
    answered_by: str
    input: RecordedBody
    output: RecordedBody
    provenance: Provenance | None = None  # where a layer chose or combined models


@dataclass(frozen=True, slots=True)
class Feedback:
    """What a client says of the answer to request `id`: `said` has `label` or `reward`, and whatever it adds.

    `version` is the one that it must be of, None: any.
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
    """Takes what was answered and observed. A thread of its own calls it, so that it may block."""

    def answered(self, answers: Sequence[ServedAnswer]) -> None:
        """Take answers, as they come, for feedback that reaches another bouncer. Raises where they are lost."""
        ...

    def received(self, observed: Sequence[Observation], unknown: Sequence[Feedback], received_at_s: float) -> None:
        """Take observations, and feedback on answers that are not remembered here, durably when this returns.

        Only then a client is told, and an answer takes no more feedback. Raises where it fails: then none of them
        counts, and all come again when their clients repeat them. TypeError or ValueError: nothing was kept, because
        one of them cannot be; the others may be tried apart from it.
        """
        ...

    def rewrite(self, change: Change) -> None:
        """Change the lines that were kept, as where a user is deleted. Raises OSError; it may be repeated."""
        ...

    def close(self) -> None:
        """Nothing follows."""
        ...
