"""Answers files keep all their rows, and errors say where they are wrong."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from mark.domain.errors import BadInput
from mark.planning.graphs import answers_file
from mark.planning.graphs.answers_file import Answers, load_answers
from mark.selection.settings import SelectionSettings

SPLIT, VOTE = SelectionSettings("split"), SelectionSettings("exp4")
CASCADE = SelectionSettings("cascade", threshold=0.5)


def loaded(folder: Path, text: str, settings: SelectionSettings) -> Answers:
    (folder / "a.csv").write_text(text)
    return load_answers(str(folder / "a.csv"), ("small", "large"), settings)


def test_answers_keep_rows_together_whatever_the_order_of_columns(tmp_path: Path) -> None:
    text = "large.correct,small.score,small.correct\n1,-0.5,0.25\n0,2,1\n"
    found = loaded(tmp_path, text, CASCADE)
    assert found.correct.tolist() == [[0.25, 1.0], [1.0, 0.0]]
    assert found.scores[:, 0].tolist() == [-0.5, 2.0]
    assert np.isnan(found.scores[:, 1]).all()
    assert len(found) == 2


def test_scores_may_be_blank_where_no_policy_reads_them(tmp_path: Path) -> None:
    found = loaded(tmp_path, "small.correct,large.correct,large.score\n1,1,\n0,1,0.5\n", SPLIT)
    assert np.isnan(found.scores).tolist() == [[True, True], [True, False]]


@pytest.mark.parametrize(
    ("text", "settings", "said"),
    [
        ("", SPLIT, "a.csv: is empty"),
        ("small.correct,large.correct\n", SPLIT, "a.csv: has no row"),
        ("small.correct\n1\n", SPLIT, "a.csv:1: missing column: large.correct"),
        ("small.correct,large.correct,huge.correct\n1,1,1\n", SPLIT, "a.csv:1: unknown column: huge.correct"),
        ("small.correct,large.correct\n1,1\n", CASCADE, "a.csv:1: missing column: small.score"),
        ("small.correct,large.correct\n1,1.5\n", SPLIT, "a.csv:2 large.correct: must be between 0 and 1: 1.5"),
        ("small.correct,large.correct\n1,1\n-1,1\n", SPLIT, "a.csv:3 small.correct: must be between 0 and 1: -1"),
        ("small.correct,large.correct\n1,yes\n", SPLIT, "a.csv:2 large.correct: must be a finite number: yes"),
        ("small.correct,large.correct\n1,\n", SPLIT, "a.csv:2 large.correct: must not be blank"),
        (
            "small.correct,large.correct\n1,0.5\n",
            VOTE,
            "large.correct: must be 0 or 1, because the candidates vote: 0.5",
        ),
        ("small.correct,large.correct,small.score\n1,1,nan\n", CASCADE, "small.score: must be a finite number: nan"),
        ("small.correct,large.correct,small.score\n1,1,\n", CASCADE, "a.csv:2 small.score: must not be blank"),
    ],
)
def test_unusable_answers_are_one_line(tmp_path: Path, text: str, settings: SelectionSettings, said: str) -> None:
    with pytest.raises(BadInput) as caught:
        loaded(tmp_path, text, settings)
    assert said in str(caught.value)


@pytest.mark.untraced
def test_rows_beyond_the_limit_are_refused(tmp_path: Path) -> None:
    text = "small.correct,large.correct\n" + "1,1\n" * (answers_file.MOST_ROWS + 1)
    with pytest.raises(BadInput, match="at most 100,000 queries are drawn from"):
        loaded(tmp_path, text, SPLIT)
