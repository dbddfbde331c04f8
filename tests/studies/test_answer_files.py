"""Logs of answers on disk: tables, JSON Lines and feedback logs, read as often as there are policies."""

from __future__ import annotations

import gzip
from pathlib import Path

import pytest

from mark.domain.errors import BadInput
from mark.models.answer import AskedModel, Provenance
from mark.selection.outcome import AskedNote, QueryNote, notes_to_json
from mark.serving.feedback.log import FeedbackLog
from mark.serving.feedback.port import Observation
from mark.studies.answer_files import CUT_OFF, AnswerLog
from tests.serving.feedback.made import answer, feedback

HORIZON_S = 100.0


def opened(folder: Path, text: str | bytes, name: str = "log.csv") -> AnswerLog:
    file = folder / name
    file.write_bytes(text if isinstance(text, bytes) else text.encode())
    return AnswerLog(str(file), HORIZON_S)


def test_table_is_read_with_its_candidates_in_the_order_of_the_columns(tmp_path: Path) -> None:
    log = opened(tmp_path, '\r\nb.answer,label,a.answer,key,id\r\n,3,3,u1,x\r\n\r\n"4",4,,u2,y\r\n')
    assert log.candidates == ("b", "a")
    for _ in range(2):
        first, second = log.rows()
        assert (first.where, first.label, list(first.replies), first.key) == (f"{log.name}:3", 3, ["a"], "u1")
        assert (second.where, second.label, list(second.replies)) == (f"{log.name}:5", 4, ["b"])


def test_log_may_be_compressed(tmp_path: Path) -> None:
    log = opened(tmp_path, gzip.compress(b"label,a.answer\n1,1\n"), "log.csv.gz")
    assert [row.label for row in log.rows()] == [1]


def test_json_lines_are_read_and_a_last_line_that_was_cut_off_is_counted(tmp_path: Path) -> None:
    log = opened(tmp_path, '{"label": "x", "a.answer": "x"}\n\n{"label": 1, "a": {"answer": 2}}\n{"label": 1, "a.an')
    for _ in range(2):
        assert [(row.where.rpartition(":")[2], row.label) for row in log.rows()] == [("1", "x"), ("3", 1)]
        assert log.left_out == {CUT_OFF: 1}


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "is empty"),
        ('[{"label": 1}]', "is a JSON array: write JSON Lines"),
        ("a.answer\n1\n", ":1: missing column: label"),
        ("label,a.answer,a.answer\n1,1,1\n", ":1: the same column twice: a.answer"),
        ("label,a.scoer\n1,1\n", ":1: unknown column, did you mean a.score?: a.scoer"),
        ("label;a.answer\n1;1\n", ":1: has no commas between its columns: label;a.answer"),
        ('{"label": 1, "a.answer": 1}\n{bad}\n', ":2: is no JSON: {bad}"),
        ("label,a.answer\n1\n", ":2: 1 cells under a header of 2"),
        ('label,a.answer\n1,"x\n', "is no CSV"),
        (b"label,a.answer\n1,\xff\n", ":2: is no UTF-8 text"),
        (b"label,a.answer\n1,\0\n", "binary data, not text"),
        ("label,a.answer\n,1\n", ":2 label: must not be blank"),
        ('{"label": 1}\n{"label": 1, \n{"label": 2}\n', ':2: is no JSON: {"label": 1,'),
        ('{"label": 1}\n[1]\n{"label": 2}\n', ":2: must be a JSON object: [1]"),
    ],
)
def test_log_that_cannot_be_read_is_one_line(tmp_path: Path, text: str | bytes, message: str) -> None:
    with pytest.raises(BadInput) as refused:
        list(opened(tmp_path, text).rows())
    assert message in str(refused.value)
    assert str(refused.value).startswith(str(tmp_path / "log.csv"))


def test_missing_file_is_one_line(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match="cannot be opened"):
        AnswerLog(str(tmp_path / "none.csv"), HORIZON_S)


def served(identity: str, at_s: float, label: int) -> Observation:
    note = notes_to_json([QueryNote("", (AskedNote("a@1", 1.0, True, label),), "a@1", label)])
    how = Provenance(asked=(AskedModel("a", 1.0, 0.25),), note=note)
    return Observation(answer(identity, at_s, provenance=how), feedback(identity, label=label), at_s + 1.0)


def test_feedback_log_is_read_in_the_order_in_which_queries_were_answered(tmp_path: Path) -> None:
    folders = [tmp_path / "one", tmp_path / "other"]
    for folder, served_s in zip(folders, [(3.0, 1.0), (4.0, 2.0)], strict=True):
        log = FeedbackLog(folder, 16_000_000)
        log.received([served(f"r-{at_s:g}", at_s, int(at_s)) for at_s in served_s], [], 5.0)
        log.close()
    # Feedback that reached the other process, a feedback without an answer, and a line that a crash has cut off.
    one, other = (FeedbackLog(folder, 16_000_000) for folder in folders)
    one.answered([served("r-late", 2.5, 9).answer])
    other.received([], [feedback("r-late", label=8), feedback("r-none", label=8)], 6.0)
    one.close()
    other.close()
    (tmp_path / "one" / "1" / "observations-00000009.jsonl").write_text('{"id": "r-9", "ser')
    found = AnswerLog(str(tmp_path), HORIZON_S)
    for _ in range(2):
        rows = list(found.rows())
        assert [row.label for row in rows] == [1, 2, 8, 3, 4]
        assert [row.replies["a@1"].label for row in rows] == [1, 2, 9, 3, 4]
        assert rows[0].usd == {"a@1": 0.25}
        assert found.left_out == {CUT_OFF: 1}
