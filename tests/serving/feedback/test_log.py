"""The log of feedback: lines that any tool reads, in files that take no more than they may."""

from __future__ import annotations

import base64
import json
import resource
import shutil
import signal
from pathlib import Path
from typing import Any

import pytest

from mark.domain.errors import BadInput
from mark.models.answer import AskedModel, Provenance
from mark.serving.feedback.log import FeedbackLog
from mark.serving.feedback.port import Observation, RecordedBody, ServedAnswer
from tests.serving.feedback.made import answer, feedback

MB = 1_000_000


def lines(folder: Path, kind: str) -> list[dict[str, Any]]:
    files = sorted(folder.rglob(f"{kind}-*.jsonl"))
    return [json.loads(line) for file in files for line in file.read_text().splitlines()]


def test_each_kind_has_its_lines(tmp_path: Path) -> None:
    log = FeedbackLog(tmp_path / "log", 16 * MB)
    log.answered([answer("a", 1.5), answer("b", 1.75)])
    log.received([Observation(answer("a", 1.5), feedback("a", label="ü"), 2.0)], [feedback("x", "2", reward=-1)], 2.0)
    log.close()
    text = {"content_type": "application/json", "bytes": 2, "text": "{}"}
    served = {"id": "a", "model": "echo", "version": "1", "served_at_s": 1.5, "answered_by": "instance"}
    served |= {"input": text, "output": text}
    assert lines(tmp_path, "answers") == [served, served | {"id": "b", "served_at_s": 1.75}]
    assert lines(tmp_path, "observations") == [served | {"received_at_s": 2.0, "feedback": {"label": "ü"}}]
    assert lines(tmp_path, "feedback") == [
        {"id": "x", "received_at_s": 2.0, "feedback": {"reward": -1}, "version": "2"}
    ]
    assert {file.stat().st_mode & 0o777 for file in (tmp_path / "log" / "1").iterdir()} == {0o600}


def test_bodies_come_back_to_the_byte(tmp_path: Path) -> None:
    """Text stays text, with its lines in one line; bytes become base64; a body that is too long leaves its digest."""
    log = FeedbackLog(tmp_path, 16 * MB)
    binary = b'{"inputs": []}\n\xff\x00'
    bodies = RecordedBody("x", len(binary), binary, "", 14), RecordedBody("x", 9000, None, "ab" * 32)
    log.answered([ServedAnswer("a", "m", "1", 0.0, "function", *bodies), answer("b", data=b'{\n"x": 1}')])
    log.close()
    first, second = lines(tmp_path, "answers")
    assert base64.b64decode(first["input"]["base64"]) == binary
    assert first["input"]["json_bytes"] == 14
    assert first["output"] == {"content_type": "x", "bytes": 9000, "sha256": "ab" * 32}
    assert second["input"]["text"] == '{\n"x": 1}'


def test_provenance_is_in_the_log(tmp_path: Path) -> None:
    log = FeedbackLog(tmp_path, 16 * MB)
    how = Provenance((AskedModel("a", 0.25, 1e-6),), "exp4;a", 0.5, "", b'{"labels": [1, 2]}')
    bad = answer("bad", provenance=Provenance(note=b"{"))
    log.answered([answer("a", provenance=how), answer("b", provenance=Provenance())])
    with pytest.raises(ValueError, match="unexpected end of data"):
        log.received([Observation(bad, feedback("bad"), 2.0)], [], 2.0)
    log.close()
    first, second = (line["provenance"] for line in lines(tmp_path, "answers"))
    nothing: dict[str, Any] = {"asked": [], "selected": "", "confidence": None, "degraded": ""}
    assert second == nothing
    assert first == {
        "asked": [{"model": "a", "propensity": 0.25, "usd": 1e-6}],
        "selected": "exp4;a",
        "confidence": 0.5,
        "degraded": "",
        "note": {"labels": [1, 2]},
    }
    assert lines(tmp_path, "observations") == []


def test_the_oldest_files_go_beyond_the_size(tmp_path: Path) -> None:
    """Only files of the same kind are deleted, and no line is torn between two files."""
    log = FeedbackLog(tmp_path, MB // 10)
    log.received([Observation(answer("kept"), feedback("kept"), 1.0)], [], 1.0)
    for first in range(0, 300, 50):
        log.answered([answer(str(number), data=b"x" * 200) for number in range(first, first + 50)])
        assert sum(file.stat().st_size for file in tmp_path.rglob("answers-*")) <= MB // 10
    log.close()
    kept = [int(line["id"]) for line in lines(tmp_path, "answers")]
    assert kept == list(range(kept[0], 300))
    assert len(kept) > 100  # of 700 bytes each
    assert [line["id"] for line in lines(tmp_path, "observations")] == ["kept"]


def test_a_process_begins_new_files_and_counts_the_old_ones(tmp_path: Path) -> None:
    """A line that a crash cut off then ends its file; two processes do not share a folder."""
    for _ in range(3):
        log = FeedbackLog(tmp_path, MB // 10)
        log.answered([answer(str(number), data=b"x" * 200) for number in range(100)])
        beside = FeedbackLog(tmp_path, MB)
        assert (log.folder.name, beside.folder.name) == ("1", "2")
        log.close()
        beside.close()
    assert sum(file.stat().st_size for file in tmp_path.rglob("answers-*")) <= MB // 10


def test_a_failed_write_is_said_and_the_log_goes_on(tmp_path: Path) -> None:
    log = FeedbackLog(tmp_path, MB)
    shutil.rmtree(log.folder)
    for _ in range(2):
        with pytest.raises(OSError, match="No such file"):
            log.received([], [feedback("a")], 1.0)
    log.folder.mkdir()
    log.received([], [feedback("b")], 2.0)
    assert [line["id"] for line in lines(tmp_path, "feedback")] == ["b"]
    log.close()


def nested(depth: int) -> list[Any]:
    found: list[Any] = []
    for _ in range(depth):
        found = [found]
    return found


def test_what_cannot_be_written_leaves_no_line(tmp_path: Path) -> None:
    """This holds for all lines of the call: its client is told that nothing was stored, and sends it again."""
    log = FeedbackLog(tmp_path, MB)
    good = Observation(answer("a"), feedback("a"), 1.0)
    for unknown, observed in (([feedback("x", label=nested(300))], []), ([], [feedback("b", label=nested(300))])):
        with pytest.raises(TypeError):
            log.received([good, *(Observation(answer("b"), one, 1.0) for one in observed)], unknown, 1.0)
    assert lines(tmp_path, "observations") == lines(tmp_path, "feedback") == []
    log.received([good], [feedback("x")], 2.0)
    assert len(lines(tmp_path, "observations")) == len(lines(tmp_path, "feedback")) == 1
    log.close()


def test_a_write_that_fails_in_the_middle_leaves_no_line(tmp_path: Path) -> None:
    """A limit on the file size, which is one for all files of the process, makes the disk full."""
    log = FeedbackLog(tmp_path, 16 * MB)
    log.received([Observation(answer("a"), feedback("a"), 1.0)], [], 1.0)
    size = next(tmp_path.rglob("observations-*")).stat().st_size
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    before = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size + size // 2, hard))
    try:
        with pytest.raises(OSError, match="File too large"):
            log.received([Observation(answer(each), feedback(each), 1.0) for each in "bc"], [], 1.0)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
        signal.signal(signal.SIGXFSZ, before)
    assert [line["id"] for line in lines(tmp_path, "observations")] == ["a"]
    log.received([Observation(answer("b"), feedback("b"), 2.0)], [], 2.0)
    assert [line["id"] for line in lines(tmp_path, "observations")] == ["a", "b"]
    log.close()


def test_a_folder_that_cannot_be_is_bad_input(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(BadInput, match=r"\[feedback\] log: cannot be written \(.*\): .*file$"):
        FeedbackLog(tmp_path / "file", MB)
