"""Join the logs of several bouncers, or of one before and after a restart, offline: each id at most once.

If feedback reached another bouncer than the one that answered, it is in one log and the answer in the other. Feedback
that a bouncer has joined itself is used as it is. For any other id, the first feedback within the horizon counts, with
the newest answer before it.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from mark.domain.errors import BadInput

_KINDS = ("observations", "feedback", "answers")


@dataclass(slots=True)
class LogJoin:
    """The counts of `join_logs`."""

    observed: int = 0  # joined by the bouncer that answered
    joined: int = 0  # joined here
    repeated: int = 0  # feedback on an id that has some already
    unanswered: int = 0  # feedback on an id whose answer is too old or missing in all logs
    unreadable: int = 0  # lines truncated by a crash or a full disk


def join_logs(folders: Sequence[Path], horizon_s: float, found: LogJoin) -> Iterator[dict[str, Any]]:
    """Yield the observations of the logs below the folders (`mark.serving.feedback.log`) and count them in `found`.

    Memory holds the ids with feedback, and answers only for those joined here, one for each. Raises BadInput for a
    folder without a log.
    """
    files = {kind: [file for folder in folders for file in _files(folder, kind)] for kind in _KINDS}
    ids: set[str] = set()
    for line in _lines(files["observations"], found):
        if line["id"] in ids:
            found.repeated += 1
            continue
        ids.add(line["id"])
        found.observed += 1
        yield line
    feedback: dict[str, list[dict[str, Any]]] = {}
    for line in _lines(files["feedback"], found):
        if line["id"] in ids:
            found.repeated += 1
        else:
            feedback.setdefault(line["id"], []).append(line)
    pairs: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {}
    for answer in _lines(files["answers"], found):
        for one in feedback.get(answer["id"], ()):
            age_s = one["received_at_s"] - answer["served_at_s"]
            if 0.0 <= age_s <= horizon_s and one.get("version", answer["version"]) == answer["version"]:
                # The first feedback counts, with the newest answer before it.
                before = pairs.get(answer["id"])
                if before is None or _rank(one, answer) < _rank(*before):
                    pairs[answer["id"]] = one, answer
    for one, answer in pairs.values():
        found.joined += 1
        found.repeated += len(feedback[answer["id"]]) - 1
        yield answer | {"received_at_s": one["received_at_s"], "feedback": one["feedback"]}
    found.unanswered = sum(len(each) for identity, each in feedback.items() if identity not in pairs)


def _rank(feedback: dict[str, Any], answer: dict[str, Any]) -> tuple[float, float]:
    return feedback["received_at_s"], -answer["served_at_s"]


def _files(folder: Path, kind: str) -> list[Path]:
    try:
        folder.stat()  # pathlib's glob skips folders that it cannot read
    except OSError as error:
        raise BadInput(f"cannot be read ({error.strerror})", "folder", str(folder)) from None
    files = sorted(folder.rglob(f"{kind}-*.jsonl"))
    if not files and not any(folder.rglob("lock")):
        raise BadInput("no feedback log in it", "folder", str(folder))
    return files


def _lines(files: Sequence[Path], found: LogJoin) -> Iterator[dict[str, Any]]:
    for file in files:
        with file.open("rb") as lines:
            for line in lines:
                try:
                    record = json.loads(line)
                except ValueError:
                    found.unreadable += 1
                else:
                    yield record
