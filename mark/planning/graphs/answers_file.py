"""Answers files: CSV with one row per query: the correctness and the score of each candidate's answer to that query.

One row holds all answers to a query, because candidates mostly fail on the same queries.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from mark.domain.arrays import FloatArray
from mark.domain.cells import Row, read_rows
from mark.domain.errors import BadInput
from mark.selection.settings import CASCADE, EXP4, EXP4_THESIS, SelectionSettings

# More rows add nothing to a simulation, but a cascade's answers to all of them are computed for each price of calls.
MOST_ROWS = 100_000


@dataclass(frozen=True, eq=False, slots=True)
class Answers:
    """Answers of all candidates to sample queries; both arrays have the shape (queries, candidates).

    `correct` is 0 to 1. `scores` are any numbers, or NaN where the file gives no score.
    """

    candidates: tuple[str, ...]
    correct: FloatArray
    scores: FloatArray

    def __len__(self) -> int:
        return len(self.correct)


def load_answers(file: str, candidates: Sequence[str], settings: SelectionSettings) -> Answers:
    """Read `NAME.correct` and, where the file has it, `NAME.score` of each candidate.

    A cascade needs the scores of all candidates but the last, and a vote needs answers that are right or wrong. Raises
    BadInput for an unknown or missing column, a value out of range, and a file without rows.
    """
    correct = [f"{name}.correct" for name in candidates]
    scores = [f"{name}.score" for name in candidates]
    scored = scores[:-1] if settings.policy == CASCADE else []
    votes = settings.policy in (EXP4, EXP4_THESIS)
    found: list[list[float]] = []
    found_scores: list[list[float]] = []
    for row in read_rows(Path(file), [*correct, *scored], [one for one in scores if one not in scored]):
        if len(found) == MOST_ROWS:
            raise BadInput(f"at most {MOST_ROWS:,} queries are drawn from: leave some out", row.where)
        found.append([_correct(row, column, whole=votes) for column in correct])
        found_scores.append(
            [
                row.number(column, least=-math.inf) if column in scored or row.has(column) else math.nan
                for column in scores
            ]
        )
    if not found:
        raise BadInput("has no row", file)
    return Answers(tuple(candidates), np.array(found), np.array(found_scores))


def _correct(row: Row, column: str, *, whole: bool) -> float:
    value = row.number(column, most=1.0)
    if whole and value not in (0.0, 1.0):
        raise BadInput("must be 0 or 1, because the candidates vote", f"{row.where} {column}", row.cells[column])
    return value
