"""Rows of a log of answers: the right label of a query, and each candidate's answer. Pure: no file is read here.

A flat row has `label`, for each candidate `NAME.answer`, optionally `NAME.score` and `NAME.usd`, and optionally `key`;
in JSON the fields of a candidate may also stand in an object of its name. An observation of the feedback log has the
label in `feedback` and the answers in the note of its `provenance` (`mark.selection.outcome`).
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
import orjson

from mark.domain.errors import BadInput, did_you_mean
from mark.selection.labels import Label, NoAnswer, label_of, score_of
from mark.selection.outcome import notes_from_json
from mark.selection.policy import CandidateReply
from mark.selection.replay import LoggedQuery
from mark.selection.settings import ZERO_ONE

LABEL, KEY = "label", "key"
ANSWER, SCORE, USD = FIELDS = ("answer", "score", "usd")
# Kinds of observations that no replay can use; they are counted.
NO_NOTE = "without an answer of a selection"
NO_LABEL = "with a reward and no label"
OTHER_ITEMS = "with another number of labels than of items"

# Numbers as programs write them. "007" and "1_000" are texts, and so are identifiers of more digits than a float has.
_NUMBER = re.compile(r"[+-]?(?:0|[1-9]\d{0,14})(?:\.\d*)?(?:[eE][+-]?\d{1,3})?|[+-]?\.\d+(?:[eE][+-]?\d{1,3})?")


@dataclass(frozen=True, slots=True)
class AnswerRow:
    """A query of the log; `where` is its place, for messages. Candidates have the log's names.

    `replies` has the candidates that answered, `usd` the candidates whose price the log has.
    """

    where: str
    label: Label
    replies: dict[str, CandidateReply]
    usd: dict[str, float]
    key: str = ""


def cell_value(column: str, cell: str) -> Any:
    """Return the value of a CSV cell: a number if the text is one, so that label "7" equals answer 7; None for a blank.

    Keys stay texts.
    """
    cell = cell.strip()
    if not cell:
        return None
    if column == KEY or _NUMBER.fullmatch(cell) is None:
        return cell
    value = float(cell)
    return value if math.isfinite(value) else cell


@lru_cache(maxsize=4096)
def place_of(column: str) -> tuple[str, str] | None:
    """Return candidate and field of a column such as `small.answer`, ("", NAME) for label and key, None for any other.

    Raises ValueError for a column that looks misspelt.
    """
    if column in (LABEL, KEY):
        return "", column
    candidate, dot, field = column.rpartition(".")
    if dot and candidate and field in FIELDS:
        return candidate, field
    known = FIELDS if dot else (LABEL, KEY)
    hint = did_you_mean(field.lower(), known)
    if hint:
        raise ValueError(f"unknown column{hint.replace('mean ', f'mean {candidate}{dot}')}")
    return None


def row_of(where: str, fields: Mapping[str, Any]) -> AnswerRow:
    """Read a flat row; None counts as a missing field. Raises BadInput, which names the column and the value."""
    said: dict[str, dict[str, Any]] = {}
    for column, value in fields.items():
        if value is None:
            continue
        if isinstance(value, dict) and column != LABEL and any(field in value for field in FIELDS):
            found = {f"{column}.{field}": each for field, each in value.items()}
        else:
            found = {column: value}
        for name, each in found.items():
            try:
                place = place_of(name)
            except ValueError as error:
                raise BadInput(str(error), where, name) from None
            if place is not None and each is not None:
                said.setdefault(place[0], {})[place[1]] = each
    own = said.pop("", {})
    if LABEL not in own:
        raise BadInput("must not be blank: the replay compares answers with it", f"{where} {LABEL}")
    replies, usd = {}, {}
    for name, values in said.items():
        if ANSWER in values:
            label = _read(label_of, values[ANSWER], f"{where} {name}.{ANSWER}")
            score = _read(score_of, values[SCORE], f"{where} {name}.{SCORE}") if SCORE in values else None
            replies[name] = CandidateReply(label, label, score)
        if USD in values:
            usd[name] = price = _read(score_of, values[USD], f"{where} {name}.{USD}")
            if price < 0.0:
                raise BadInput("a price must be zero or more", f"{where} {name}.{USD}", price)
    return AnswerRow(where, _read(label_of, own[LABEL], f"{where} {LABEL}"), replies, usd, str(own.get(KEY, "")))


def _read(reader: Any, value: Any, where: str) -> Any:
    try:
        return reader(value)
    except NoAnswer:
        wanted = "must be a finite number" if reader is score_of else "cannot be an answer"
        raise BadInput(wanted, where, value) from None


def is_observation(record: Mapping[str, Any]) -> bool:
    """Return whether a JSON object is an observation of the feedback log, not a flat row."""
    return isinstance(record.get("feedback"), dict) and LABEL not in record


def rows_of_observation(where: str, record: Mapping[str, Any], left_out: Counter[str]) -> Iterator[AnswerRow]:
    """Yield a row for each item of an observation's request; count an unusable observation in `left_out`.

    Candidates are named by their keys (`mark.selection.outcome.candidate_key`). Raises BadInput for a damaged note.
    """
    said, how = record["feedback"], record.get("provenance") or {}
    note = how.get("note") if isinstance(how, dict) else None
    if note is None:
        left_out[NO_NOTE] += 1
        return
    if said.get(LABEL) is None:
        left_out[NO_LABEL] += 1
        return
    try:
        notes = notes_from_json(orjson.dumps(note))
        prices = {str(one["model"]): float(one["usd"]) for one in how.get("asked", ())}
    except (ValueError, TypeError, KeyError) as error:
        raise BadInput(f"provenance is none of a selection ({error})", where) from None
    labels: Sequence[Any] = [said[LABEL]] if len(notes) == 1 else said[LABEL]
    if not isinstance(labels, list) or len(labels) != len(notes):
        left_out[OTHER_ITEMS] += 1
        return
    for one, right in zip(notes, labels, strict=True):
        replies, usd = {}, {}
        for each in one.asked:
            if each.answered:
                label = _read(label_of, each.label, f"{where} {each.candidate}.{ANSWER}")
                replies[each.candidate] = CandidateReply(label, label, each.score)
            name = each.candidate.partition("@")[0]
            if name in prices:
                usd[each.candidate] = prices[name]
        yield AnswerRow(where, _read(label_of, right, f"{where} {LABEL}"), replies, usd, one.context)


def query_of(row: AnswerRow, places: Mapping[str, int], usd: Sequence[float], loss: str = ZERO_ONE) -> LoggedQuery:
    """Return the row as a query of a replay. `places` gives each candidate's position by its name in the log.

    `usd` has the prices for candidates that the log does not price. With a numeric `loss`, lists of numbers become
    arrays, so that Exp4 averages them. Answers of unknown candidates are left out.
    """
    replies: list[CandidateReply | None] = [None] * len(usd)
    prices = list(usd)
    for name, reply in row.replies.items():
        if (at := places.get(name)) is not None:
            replies[at] = reply if loss == ZERO_ONE else _as_array(reply)
    for name, price in row.usd.items():
        if (at := places.get(name)) is not None:
            prices[at] = price
    return LoggedQuery(row.label, replies, prices, row.key)


def _as_array(reply: CandidateReply) -> CandidateReply:
    values = reply.label
    if isinstance(values, list) and all(isinstance(one, int | float) and not isinstance(one, bool) for one in values):
        return CandidateReply(np.array(values, dtype=float), reply.label, reply.score)
    return reply
