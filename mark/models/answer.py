"""The answer to a request: the reply, its maker, and how it came about where a layer chose or combined models.

Listeners render it, observers read it, and feedback keeps it beside the bodies.
"""

from __future__ import annotations

from dataclasses import dataclass

from mark.models.call import Reply

# Makers of an answer, the values of `mark-answered-by`. Replicas use the first two, layers before them the others.
INSTANCE, FUNCTION, CACHE, RECONSTRUCTION, DEFAULT = "instance", "function", "cache", "reconstruction", "default"
# The maker of a refusal, which has no such header.
NOBODY = "nobody"

# Memory beside texts and note, measured and rounded up: of a provenance, and of each model that was asked.
_PROVENANCE_BYTES, _ASKED_BYTES = 400, 250


@dataclass(slots=True)
class AskedModel:
    """A model that a layer asked: a version or a stage, the probability of asking it, and the price of the call."""

    model: str
    propensity: float = 1.0
    usd: float = 0.0


@dataclass(slots=True)
class Provenance:
    """How an answer came about. A layer fills the fields that it knows; clients see those with a header.

    `note` is JSON that the layer wants to read again when feedback on the answer comes.
    """

    asked: tuple[AskedModel, ...] = ()
    selected: str = ""  # mark-selected: policy and model
    confidence: float | None = None  # mark-confidence
    degraded: str = ""  # mark-degraded: why the answer may differ from the model's own
    note: bytes = b""
    agreement: bool = False  # the confidence is the share of a vote, and no probability of being correct
    late_bytes: int = 0  # by so much the note may grow, where replies are awaited after the answer
    _note_bytes: int = 0

    def __post_init__(self) -> None:
        self._note_bytes = len(self.note) + self.late_bytes

    def memory_bytes(self) -> int:
        """The memory that it takes: the same at any time, though the note may grow."""
        return _PROVENANCE_BYTES + _ASKED_BYTES * len(self.asked) + self._note_bytes


class Answer:
    """The reply to one request. `version` is the model's, "" where no version had the request.

    `stages` are the outcomes of a pipeline's stages. Treat it as frozen. It is no dataclass, because the constructor of
    a dataclass stays interpreted in compiled form, and every request makes an answer.
    """

    __slots__ = ("made_by", "provenance", "reply", "stages", "version")

    def __init__(
        self, reply: Reply, made_by: str, version: str = "", stages: str = "", provenance: Provenance | None = None
    ) -> None:
        self.reply, self.made_by, self.version = reply, made_by, version
        self.stages, self.provenance = stages, provenance

    def said(self) -> list[tuple[str, str]]:
        """Names and values of the headers that tell a client how the answer came about."""
        found = [("mark-stages", self.stages)] if self.stages else []
        if (how := self.provenance) is not None:
            if how.selected:
                found.append(("mark-selected", _ascii(how.selected)))
            if how.confidence is not None:
                found.append(("mark-confidence", f"{how.confidence:.4g}{';agreement' if how.agreement else ''}"))
            if how.degraded:
                found.append(("mark-degraded", _ascii(how.degraded)))
        return found


def _ascii(text: str) -> str:
    """The text without characters that would end a header, or that gRPC refuses in one."""
    return "".join(letter if letter.isascii() and letter.isprintable() else "?" for letter in text)
