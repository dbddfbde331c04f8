"""Logs of answers on disk, read row by row: CSV, JSON Lines, or the folder of a feedback log (`mark.selection`).

A file is read again for each policy that is replayed on it, so a long one takes no memory. The observations of a
feedback log are kept as short JSON texts, because its files must be sorted by time.
"""

from __future__ import annotations

import csv
import re
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import orjson

from mark.domain.errors import BadInput
from mark.selection.answer_log import (
    LABEL,
    AnswerRow,
    cell_value,
    is_observation,
    place_of,
    row_of,
    rows_of_observation,
)
from mark.serving.feedback.log_join import LogJoin, join_logs
from mark.studies.csv_rows import csv_rows, decoded, text_lines
from mark.traffic.traces.blocks import beginning, ends_within_line, is_folder

CUT_OFF = "cut off at the end"
_HEAD_BYTES = 1 << 16


class AnswerLog:
    """A log that can be read repeatedly. `left_out` counts, by reason, the lines that the last reading left out.

    `candidates` are the candidates of a table, in the order of its columns; other logs name theirs only in their rows.
    Feedback counts for `horizon_s` after its answer. Raises BadInput if the log cannot be read, also while its rows
    are.
    """

    def __init__(self, name: str, horizon_s: float) -> None:
        self.name, self._path = name, Path(name)
        self.left_out: Counter[str] = Counter()
        self._observations: list[bytes] | None = None
        self._is_json, self.candidates = False, tuple[str, ...]()
        if is_folder(self._path):
            self._observations = _observations(self._path, horizon_s, self.left_out)
            self._unreadable = self.left_out.copy()
            return
        head = beginning(self._path, _HEAD_BYTES).lstrip()
        if not head:
            raise BadInput("is empty", name)
        if head.startswith(b"["):
            raise BadInput("is a JSON array: write JSON Lines, one object a line", name)
        self._is_json = head.startswith(b"{")
        if not self._is_json:
            self.candidates = _candidates(_header(head.partition(b"\n")[0], f"{name}:1"), f"{name}:1")

    def rows(self) -> Iterator[AnswerRow]:
        """Yield the queries in the order of the log; for a feedback log, in the order of their answers."""
        self.left_out.clear()
        if self._observations is not None:
            self.left_out.update(self._unreadable)
            for text in self._observations:
                record = orjson.loads(text)
                yield from rows_of_observation(f"{self.name} {record['id']}", record, self.left_out)
        elif self._is_json:
            yield from self._json_rows()
        else:
            yield from self._table_rows()

    def _json_rows(self) -> Iterator[AnswerRow]:
        cut: tuple[str, bytes] | None = None
        for where, line in text_lines(self.name):
            if not line.strip():
                continue
            if cut is not None:
                raise BadInput("is no JSON", cut[0], cut[1].decode("utf-8", "replace"))
            try:
                record = orjson.loads(line)
            except ValueError:
                cut = where, line  # the last line of a log that is still written may be cut off anywhere
                continue
            if not isinstance(record, dict):
                raise BadInput("must be a JSON object", where, record)
            if is_observation(record):
                yield from rows_of_observation(where, record, self.left_out)
            else:
                yield row_of(where, record)
        if cut is not None and not ends_within_line(self._path):
            raise BadInput("is no JSON", cut[0], cut[1].decode("utf-8", "replace"))
        self.left_out[CUT_OFF] += cut is not None

    def _table_rows(self) -> Iterator[AnswerRow]:
        for where, cells in csv_rows(self.name):
            yield row_of(where, {name: cell_value(name, cell) for name, cell in cells.items()})


def _header(line: bytes, where: str) -> list[str]:
    try:
        return [cell.strip() for cell in next(csv.reader([decoded(where, line)], strict=True), [])]
    except csv.Error as error:
        raise BadInput(f"is no CSV ({error})", where) from None


def _candidates(header: list[str], where: str) -> tuple[str, ...]:
    """Return the candidates in the order of their columns. Raises BadInput for an invalid header."""
    found: list[str] = []
    for column in header:
        try:
            place = place_of(column)
        except ValueError as error:
            raise BadInput(str(error), where, column) from None
        if header.count(column) > 1:
            raise BadInput("the same column twice", where, column)
        if place is not None and place[0]:
            found.append(place[0])
    if LABEL not in header:
        if len(header) == 1 and re.search(rf"\b{LABEL}\b *[;\t|]|[;\t|] *{LABEL}\b", header[0]):
            raise BadInput("has no commas between its columns", where, header[0])
        raise BadInput("missing column", where, LABEL)
    return tuple(dict.fromkeys(found))


def _observations(folder: Path, horizon_s: float, left_out: Counter[str]) -> list[bytes]:
    """Return the parts of each observation that a replay needs, in the order in which the queries were answered."""
    found, texts, served_s = LogJoin(), [], []
    for line in join_logs([folder], horizon_s, found):
        texts.append(orjson.dumps({key: line.get(key) for key in ("id", "feedback", "provenance")}))
        served_s.append(float(line["served_at_s"]))
    if found.unreadable:
        left_out[CUT_OFF] = found.unreadable
    return [texts[at] for at in np.argsort(np.array(served_s), kind="stable")]
