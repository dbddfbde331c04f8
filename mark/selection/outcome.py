"""A query as feedback finds it again, and the fact that feedback makes of it. Both are JSON, read by other processes.

The note goes with the answer (`mark.models.answer.Provenance.note`); the fact goes to every process that selects.
Candidates stand in both under their keys, which change with their models, because processes of two releases exchange
facts during a roll-out.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import orjson

from mark.selection.labels import Label

MOST_CANDIDATES = 16


def candidate_key(name: str, model: str) -> str:
    """The key of a candidate: its stage's name, and a digest of its model's reference."""
    return f"{name}@{hashlib.blake2b(model.encode(), digest_size=4).hexdigest()}"


@dataclass(frozen=True, slots=True)
class AskedNote:
    """A candidate that a query asked. `answered` is False where its reply did not come in time."""

    candidate: str
    propensity: float
    answered: bool = False
    label: Label = None
    score: float | None = None


@dataclass(frozen=True, slots=True)
class QueryNote:
    """How a query was answered: by whom, with which label, and how many of the vote agreed (None: no vote)."""

    context: str
    asked: tuple[AskedNote, ...]
    chosen: str  # the candidate's key; "": an average, or the default
    label: Label
    agreement: float | None = None


def notes_to_json(notes: Sequence[QueryNote]) -> bytes:
    """The notes of a request's items."""
    return orjson.dumps(
        [
            [
                one.context,
                [
                    [each.candidate, each.propensity, each.answered, each.label, each.score]
                    if each.answered
                    else [each.candidate, each.propensity]
                    for each in one.asked
                ],
                one.chosen,
                one.label,
                one.agreement,
            ]
            for one in notes
        ]
    )


def notes_from_json(data: bytes) -> list[QueryNote]:
    """The notes of `notes_to_json`. Raises ValueError."""
    try:
        return [
            QueryNote(context, tuple(AskedNote(*each) for each in asked), chosen, label, agreement)
            for context, asked, chosen, label, agreement in orjson.loads(data)
        ]
    except (TypeError, KeyError) as error:
        raise ValueError(f"no notes of queries: {error!r}") from None


@dataclass(frozen=True, slots=True)
class Loss:
    """What feedback says of one candidate that was asked."""

    candidate: str
    loss: float
    propensity: float = 1.0
    score: float | None = None


@dataclass(frozen=True, slots=True)
class Fact:
    """One query with its feedback. Stamps are how many facts its writer knew before: of the context, and in all.

    `vote` is the agreement with the answer and whether the answer was correct. `evidence` is by how much it is more
    likely now that a challenger is worse than the champion (`mark.selection.guard`), by the challenger's key.
    """

    context: str
    stamp: int
    stamp_all: int
    losses: tuple[Loss, ...]
    vote: tuple[float, float] | None = None
    evidence: dict[str, float] = field(default_factory=dict)

    def as_list(self) -> list[Any]:
        """The fact as a JSON list."""
        losses = [[one.candidate, one.loss, one.propensity, one.score] for one in self.losses]
        return [self.context, self.stamp, self.stamp_all, losses, self.vote, self.evidence]


def facts_to_json(facts: Sequence[Fact]) -> bytes:
    """The facts of one piece of feedback, one for each item of its request."""
    return orjson.dumps([one.as_list() for one in facts])


def facts_from_json(data: bytes) -> list[Fact]:
    """The facts of `facts_to_json`. Raises ValueError for anything else, also where a number is out of range."""
    try:
        return [_fact(*one) for one in orjson.loads(data)]
    except (TypeError, KeyError, AttributeError) as error:
        raise ValueError(f"no facts of a selection: {error!r}") from None


def _fact(context: str, stamp: int, stamp_all: int, losses: Any, vote: Any, evidence: Any) -> Fact:
    found = tuple(
        Loss(str(key), float(loss), float(propensity), None if score is None else float(score))
        for key, loss, propensity, score in losses
    )
    if not all(0.0 <= one.loss <= 1.0 and 0.0 < one.propensity <= 1.0 for one in found):
        raise ValueError("a loss is 0 to 1, a propensity above 0 and 1 at most")
    agreed = None if vote is None else (float(vote[0]), float(vote[1]))
    grown = {str(key): float(value) for key, value in evidence.items()}
    return Fact(str(context), int(stamp), int(stamp_all), found, agreed, grown)
