"""The log of feedback: JSON Lines in a folder, three kinds of files, the oldest deleted beyond a size.

    FOLDER/1/observations-00000001.jsonl   answers with the feedback on them
    FOLDER/1/feedback-00000001.jsonl       feedback on answers that were not remembered here
    FOLDER/1/answers-00000001.jsonl        every answer, for feedback that reached another bouncer

Each process has its own folder below FOLDER, the first that no other process has locked, and begins new files.
Observations and feedback are on the disk (fsync) when `received` returns. Answers are only written, and the system puts
them on the disk later.
"""

from __future__ import annotations

import fcntl
import os
from base64 import b64encode
from collections.abc import Iterable, Sequence
from contextlib import suppress
from itertools import count
from pathlib import Path
from typing import Any

import orjson

from mark.domain.errors import BadInput
from mark.models.answer import Provenance
from mark.serving.feedback.port import Feedback, FeedbackSink, Observation, RecordedBody, ServedAnswer
from mark.serving.feedback.rewriting import Change, drop_unfinished, left_folders, rewrite_lines

OBSERVATIONS, FEEDBACK, ANSWERS = "observations", "feedback", "answers"
WHERE = "[feedback] log"
_FILES = 8  # per kind, so that an eighth of it is deleted at a time
_MOST_PROCESSES = 1000


class FeedbackLog:
    """The log in a folder, `most_bytes` of each kind. Raises BadInput if it cannot be written there."""

    def __init__(self, folder: Path, most_bytes: int) -> None:
        try:
            self.folder, self._lock = _own_folder(folder)
            self._kinds = {kind: _Files(self.folder, kind, most_bytes) for kind in (OBSERVATIONS, FEEDBACK, ANSWERS)}
        except OSError as error:
            raise BadInput(f"cannot be written ({error.strerror})", WHERE, str(folder)) from error

    def answered(self, answers: Sequence[ServedAnswer]) -> None:
        self._kinds[ANSWERS].write(map(_line, map(answer_json, answers)))

    def received(self, observed: Sequence[Observation], unknown: Sequence[Feedback], received_at_s: float) -> None:
        # All lines are encoded first, so that a piece that cannot be encoded leaves nothing behind. Observations are
        # last: if they fail, all pieces come again, and a repeated line of unknown feedback is harmless.
        of_unknown = [_line(feedback_json(one, received_at_s)) for one in unknown]
        of_observed = [_line(observation_json(one)) for one in observed]
        for kind, lines in ((FEEDBACK, of_unknown), (OBSERVATIONS, of_observed)):
            if lines:
                self._kinds[kind].write(lines)
                self._kinds[kind].sync()

    def rewrite(self, change: Change) -> None:
        for files in self._kinds.values():
            files.rewrite(change)
        for folder in left_folders(self.folder.parent):
            for kind in self._kinds:
                drop_unfinished(folder, kind)
                for path in sorted(folder.glob(f"{kind}-*.jsonl")):
                    rewrite_lines(path, change)

    def close(self) -> None:
        for files in self._kinds.values():
            files.close()
        os.close(self._lock)


_: type[FeedbackSink] = FeedbackLog


def answer_json(answer: ServedAnswer) -> dict[str, Any]:
    """Return an answer as in the log."""
    found: dict[str, Any] = {
        "id": answer.id,
        "model": answer.model,
        "version": answer.version,
        "served_at_s": answer.served_at_s,
        "answered_by": answer.answered_by,
        "input": _body_json(answer.input),
        "output": _body_json(answer.output),
    }
    return found if answer.provenance is None else found | {"provenance": _provenance_json(answer.provenance)}


def feedback_json(feedback: Feedback, received_at_s: float) -> dict[str, Any]:
    """Return feedback as in the log."""
    found = {"id": feedback.id, "received_at_s": received_at_s, "feedback": feedback.said}
    return found if feedback.version is None else found | {"version": feedback.version}


def observation_json(observation: Observation) -> dict[str, Any]:
    """Return an answer and the feedback on it as in the log."""
    return answer_json(observation.answer) | {
        "received_at_s": observation.received_at_s,
        "feedback": observation.feedback.said,
    }


def _provenance_json(how: Provenance) -> dict[str, Any]:
    # Field by field, because orjson crashes on a compiled dataclass.
    asked = [{"model": one.model, "propensity": one.propensity, "usd": one.usd} for one in how.asked]
    found = {"asked": asked, "selected": how.selected, "confidence": how.confidence, "degraded": how.degraded}
    return found | {"note": orjson.loads(how.note)} if how.note else found


def _body_json(body: RecordedBody) -> dict[str, Any]:
    found: dict[str, Any] = {"content_type": body.content_type, "bytes": body.size_bytes}
    if body.json_bytes is not None:
        found["json_bytes"] = body.json_bytes
    if body.data is None:
        return found | {"sha256": body.sha256}
    try:
        return found | {"text": body.data.decode()}
    except UnicodeDecodeError:
        return found | {"base64": b64encode(body.data).decode()}


def _line(record: dict[str, Any]) -> bytes:
    return orjson.dumps(record, option=orjson.OPT_APPEND_NEWLINE)


def _own_folder(folder: Path) -> tuple[Path, int]:
    """Lock the first subfolder that no other process has; return it and the lock. Raises OSError."""
    for number in range(1, _MOST_PROCESSES + 1):
        own = folder / str(number)
        own.mkdir(mode=0o700, parents=True, exist_ok=True)
        lock = os.open(own / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return own, lock
        except BlockingIOError:
            os.close(lock)
    raise BadInput(f"{_MOST_PROCESSES} processes have a log there", WHERE, str(folder))


class _Files:
    """The files of one kind: the newest is written, the oldest are deleted. A failed write begins a new file."""

    def __init__(self, folder: Path, kind: str, most_bytes: int) -> None:
        self._folder, self._kind = folder, kind
        self._most_bytes, self._file_bytes = most_bytes, most_bytes // _FILES
        self._old = {path: path.stat().st_size for path in sorted(folder.glob(f"{kind}-*.jsonl"))}
        last = max((int(path.stem.rpartition("-")[2]) for path in self._old), default=0)
        self._numbers = count(last + 1)
        self._path = folder
        self._open: int | None = None
        self._bytes = 0

    def write(self, lines: Iterable[bytes]) -> None:
        """Append lines. Raises OSError, possibly after writing some of them."""
        chunk = bytearray()
        for line in lines:
            if self._bytes + len(chunk) + len(line) > self._file_bytes and self._bytes + len(chunk) > 0:
                self._append(chunk)
                chunk.clear()
                self.sync()
                self._next()
            chunk += line
        if chunk:
            self._append(chunk)

    def sync(self) -> None:
        """Put the written lines on the disk. Raises OSError."""
        if self._open is not None:
            try:
                os.fsync(self._open)
            except OSError:
                self._next()  # a second fsync would not report the data that a failed one has lost
                raise

    def rewrite(self, change: Change) -> None:
        """Change the lines of all files. Raises OSError."""
        if self._open is not None:
            self._next()
        drop_unfinished(self._folder, self._kind)
        for path in list(self._old):
            self._old[path] = rewrite_lines(path, change)

    def close(self) -> None:
        if self._open is not None:
            os.close(self._open)
            self._open = None

    def _append(self, chunk: bytearray) -> None:
        if self._open is None:
            self._begin()
        assert self._open is not None
        left, before = memoryview(chunk), self._bytes
        try:
            while left:
                written = os.write(self._open, left)
                self._bytes += written
                left = left[written:]
        except OSError:
            with suppress(OSError):  # these lines will be written again
                os.ftruncate(self._open, before)
                self._bytes = before
            self._next()
            raise

    def _begin(self) -> None:
        self._path = self._folder / f"{self._kind}-{next(self._numbers):08d}.jsonl"
        self._open = os.open(self._path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_APPEND | os.O_CLOEXEC, 0o600)
        folder = os.open(self._folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            os.fsync(folder)  # so that the file's name is on the disk too
        finally:
            os.close(folder)
        self._make_room()

    def _next(self) -> None:
        """Continue with a new file."""
        self.close()
        if self._bytes:
            self._old[self._path] = self._bytes
        else:  # otherwise a full disk would get many empty files
            self._path.unlink(missing_ok=True)
        self._bytes = 0

    def _make_room(self) -> None:
        while self._old and sum(self._old.values()) + self._file_bytes > self._most_bytes:
            oldest = next(iter(self._old))
            del self._old[oldest]
            oldest.unlink(missing_ok=True)
