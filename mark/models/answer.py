"""The answer to a request: the reply, its maker, and its provenance if a layer chose or combined models.

Listeners render it, observers read it, and feedback keeps it beside the bodies.
"""

from __future__ import annotations

from dataclasses import dataclass

from mark.models.call import Reply

# Makers of an answer, the values of `mark-answered-by`. Replicas use the first two, layers before them the others.
INSTANCE, FUNCTION, CACHE, RECONSTRUCTION, DEFAULT = "instance", "function", "cache", "reconstruction", "default"
# The maker of a refusal, whose reply lacks this header.
NOBODY = "nobody"

# Memory of a provenance and of each asked model, besides texts and note; measured and rounded up.
_PROVENANCE_BYTES, _ASKED_BYTES = 400, 250


@dataclass(slots=True)
class AskedModel:
    """A version or stage that a layer asked, with the probability of asking it and the price of the call."""

    model: str
    propensity: float = 1.0
    usd: float = 0.0


@dataclass(slots=True)
class Provenance:
    """How an answer was made. A layer fills the fields that it knows; clients see those with a header.

    `note` is JSON that the layer reads again when feedback on the answer comes.
    """

    asked: tuple[AskedModel, ...] = ()
    selected: str = ""  # the header mark-selected: policy and model
    confidence: float | None = None  # the header mark-confidence
    degraded: str = ""  # the header mark-degraded: why the answer may differ from the model's own
    note: bytes = b""
    agreement: bool = False  # the confidence is the share of a vote, not a probability of being correct
    late_bytes: int = 0  # most growth of the note, if replies are still awaited after the answer
    _note_bytes: int = 0

    def __post_init__(self) -> None:
        self._note_bytes = len(self.note) + self.late_bytes

    def memory_bytes(self) -> int:
        """Return its memory, which does not change when the note grows."""
        return _PROVENANCE_BYTES + _ASKED_BYTES * len(self.asked) + self._note_bytes


class Answer:
    """The reply to one request. `version` is the model's, "" if no version had the request.

    `stages` are the outcomes of a pipeline's stages. Treat it as frozen. It is not a dataclass, because a dataclass's
    constructor stays interpreted when compiled, and every request makes an answer.
    """

    __slots__ = ("made_by", "provenance", "reply", "stages", "version")

    def __init__(
        self, reply: Reply, made_by: str, version: str = "", stages: str = "", provenance: Provenance | None = None
    ) -> None:
        self.reply, self.made_by, self.version = reply, made_by, version
        self.stages, self.provenance = stages, provenance

    def said(self) -> list[tuple[str, str]]:
        """Return names and values of the headers that tell a client how the answer was made."""
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
    """Return the text without characters that would end a header or that gRPC refuses in one."""
    return "".join(letter if letter.isascii() and letter.isprintable() else "?" for letter in text)
