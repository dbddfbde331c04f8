"""The note of a query, which feedback needs later, and the fact that feedback makes of it, both as JSON.

The note goes with the answer (`mark.models.answer.Provenance.note`); the fact goes to every process that selects. Both
name candidates by keys that change with their models, because two releases exchange facts during a roll-out.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from typing import Any, NamedTuple

import orjson

from mark.selection.labels import Label
from mark.selection.settings import MOST_CANDIDATES

CONTEXT_DIGITS = 16  # a context is "" or a digest of so many hexadecimal digits
# Limits on the messages of a peer.
_MOST_BYTES = 16 * 1024 * 1024  # of the facts or notes of one request
_LONGEST_KEY = 300
_MOST_STAMP = 2**53  # whole numbers beyond it have gaps as floats
_MOST_EVIDENCE = 100.0  # the logarithm of one observation's likelihood ratio
_HEXADECIMAL = frozenset("0123456789abcdef")


def candidate_key(name: str, model: str) -> str:
    """Return the key of a candidate: its stage's name, and a digest of its model's reference."""
    return f"{name}@{hashlib.blake2b(model.encode(), digest_size=4).hexdigest()}"


def context_key(key: str) -> str:
    """Return the context of a `mark-key`: a digest, so that no user's name is stored and all contexts have one size."""
    return hashlib.blake2b(key.encode("utf-8", "surrogatepass"), digest_size=CONTEXT_DIGITS // 2).hexdigest()


class AskedNote(NamedTuple):
    """A candidate that a query asked. `answered` is False if its reply did not come in time."""

    candidate: str
    propensity: float
    answered: bool = False
    label: Label = None
    score: float | None = None


class QueryNote(NamedTuple):
    """How a query was answered.

    `label` and `chosen` (a candidate's key) describe the candidates' answer, even if the client got the default
    (`by_default`). `chosen` is "" for an average. If no candidate answered, `chosen` is "" and `label` is the default.
    `agreement` is the answer's share of the vote, None without a vote. `shares` are the probabilities with which the
    policy drew the first candidate, for the guard.
    """

    context: str
    asked: tuple[AskedNote, ...]
    chosen: str
    label: Label
    agreement: float | None = None
    by_default: bool = False
    shares: dict[str, float] | None = None


def notes_to_json(notes: Sequence[QueryNote]) -> bytes:
    """Return the notes of a request's items as JSON."""
    return orjson.dumps(
        [[one[0], [each if each.answered else each[:2] for each in one.asked], *one[2:]] for one in notes],
        default=tuple,
    )


def notes_from_json(data: bytes) -> list[QueryNote]:
    """Read the notes of `notes_to_json`. Raises ValueError for anything else, and for numbers out of range."""
    return [_note(one) for one in _parsed(data, "notes of queries")]


class Loss(NamedTuple):
    """The feedback about one candidate that was asked.

    A candidate that did not answer (`answered` is False) has the loss 1. Only policies that ask one candidate get such
    losses: otherwise they would go on asking a candidate that is down.
    """

    candidate: str
    loss: float
    propensity: float = 1.0
    score: float | None = None
    answered: bool = True


class SelectionFact(NamedTuple):
    """One query with its feedback. Stamps number it among the facts that its writer knew, of the context and of all.

    `vote` is the answer's agreement and its correctness, each 0 to 1. `evidence` has, by champion and challenger, the
    growth of the log evidence that the challenger is worse (`mark.selection.guard`).
    """

    context: str
    stamp: int
    stamp_all: int
    losses: tuple[Loss, ...]
    vote: tuple[float, float] | None = None
    evidence: dict[str, float] | None = None


def facts_to_json(facts: Sequence[SelectionFact]) -> bytes:
    """Return the facts of one piece of feedback, one for each item of its request, as JSON."""
    return orjson.dumps(facts, default=tuple)


def facts_from_json(data: bytes) -> list[SelectionFact]:
    """Read the facts of `facts_to_json`. Raises ValueError for anything else, and for numbers out of range."""
    return [_fact(one) for one in _parsed(data, "facts of a selection")]


def _parsed(data: bytes, what: str) -> list[Any]:
    if len(data) > _MOST_BYTES:
        raise ValueError(f"{len(data)} bytes are too many for the {what} of one request: {_MOST_BYTES} at most")
    found = orjson.loads(data)
    if not isinstance(found, list):
        raise ValueError(f"no list of {what}")
    return found


def _note(said: Any) -> QueryNote:
    context, asked, chosen, label, agreement, by_default, shares = _list(said, 7)
    _require(type(chosen) is str and len(chosen) <= _LONGEST_KEY, "the key of a candidate", chosen)
    _require(agreement is None or _is_share(agreement), "an agreement of 0 to 1", agreement)
    _require(type(by_default) is bool, "true or false", by_default)
    found = tuple([_asked(one) for one in _candidates(asked)])
    return QueryNote(_context(context), found, chosen, label, agreement, by_default, _by_key(shares, 0.0, 1.0))


def _asked(said: Any) -> AskedNote:
    _require(type(said) is list and len(said) in (2, 5), "two or five values of a candidate", said)
    _require_key(said[0])
    _require(_is_share(said[1]) and said[1] > 0.0, "a propensity above 0 and 1 at most", said[1])
    if len(said) == 2:
        return AskedNote(said[0], said[1])
    _require(type(said[2]) is bool, "true or false", said[2])
    _require(said[4] is None or _is_number(said[4]), "a score", said[4])
    return AskedNote(*said)


def _fact(said: Any) -> SelectionFact:
    context, stamp, stamp_all, losses, vote, evidence = _list(said, 6)
    for one in (stamp, stamp_all):
        _require(type(one) is int and 1 <= one <= _MOST_STAMP, "a stamp", one)
    found = tuple([_loss(one) for one in _candidates(losses)])
    if vote is not None:
        agreement, right = _list(vote, 2)
        _require(_is_share(agreement) and _is_share(right), "an agreement and a correctness of 0 to 1", vote)
        vote = agreement, right
    grown = _by_key(evidence, -_MOST_EVIDENCE, _MOST_EVIDENCE)
    return SelectionFact(_context(context), stamp, stamp_all, found, vote, grown)


def _loss(said: Any) -> Loss:
    key, loss, propensity, score, answered = _list(said, 5)
    _require_key(key)
    _require(_is_share(loss), "a loss of 0 to 1", loss)
    _require(_is_share(propensity) and propensity > 0.0, "a propensity above 0 and 1 at most", propensity)
    _require(score is None or _is_number(score), "a score", score)
    _require(type(answered) is bool, "true or false", answered)
    return Loss(key, loss, propensity, score, answered)


def _candidates(said: Any) -> list[Any]:
    """Check that these are lists that begin with a candidate's key, each key once, and return them."""
    _require(type(said) is list and len(said) <= MOST_CANDIDATES, "a list of candidates", said)
    keys = {one[0] for one in said if type(one) is list and one and type(one[0]) is str}
    _require(len(keys) == len(said), "a list of different candidates", said)
    return list(said)


def _by_key(said: Any, least: float, most: float) -> dict[str, float] | None:
    if said is None:
        return None
    _require(type(said) is dict and len(said) <= MOST_CANDIDATES, "numbers by candidate", said)
    for key, value in said.items():
        _require_key(key)
        _require(_is_number(value) and least <= value <= most, f"a number of {least:g} to {most:g}", value)
    return dict(said)


def _context(said: Any) -> str:
    well = type(said) is str and len(said) in (0, CONTEXT_DIGITS) and _HEXADECIMAL.issuperset(said)
    _require(well, "a context", said)
    return str(said)


def _require_key(said: Any) -> None:
    _require(type(said) is str and 0 < len(said) <= _LONGEST_KEY, "the key of a candidate", said)


def _list(said: Any, length: int) -> list[Any]:
    _require(type(said) is list and len(said) == length, f"a list of {length} values", said)
    return list(said)


def _is_number(said: Any) -> bool:
    return type(said) is float or (type(said) is int and -_MOST_STAMP <= said <= _MOST_STAMP)


def _is_share(said: Any) -> bool:
    return (type(said) is float or type(said) is int) and 0.0 <= said <= 1.0


def _require(holds: bool, what: str, said: Any) -> None:
    if not holds:
        raise ValueError(f"must be {what}, and is {str(said)[:80]!r}")
