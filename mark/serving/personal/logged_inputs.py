"""The inputs that a features stage got, with the rewards that followed, from a feedback log."""

from __future__ import annotations

from base64 import b64decode
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import orjson

from mark.models.answering import decode
from mark.models.call import Call
from mark.models.model import Model
from mark.personal.settings import PersonalSettings
from mark.serving.personal.heads import learnable
from mark.serving.personal.notes import HeadFact

_OBSERVATIONS = "*/observations-*.jsonl"


@dataclass(frozen=True, slots=True, eq=False)
class LoggedInput:
    """A reward for an item, and the item as the features stage got it."""

    fact: HeadFact
    input: Any


def logged_inputs(folder: Path, settings: PersonalSettings) -> Iterator[LoggedInput | None]:
    """Yield each learnable observation of the log once, in any order; None for one whose input is not in the log.

    Lines that a crash cut off and files that vanish are skipped. Observations of every version count.
    """
    model, seen = Model(), set[str | int]()
    for path in sorted(folder.glob(_OBSERVATIONS)):
        for line in _lines(path):
            try:
                said = orjson.loads(line)
                fact = learnable(
                    settings, orjson.dumps(said["provenance"]["note"]), said["feedback"], said["received_at_s"]
                )
                identity = said["id"]
            except (ValueError, KeyError, TypeError):
                continue
            if fact is None or fact.vector is None or (fact.own_id or identity) in seen:
                continue
            seen.add(fact.own_id or identity)
            try:
                yield LoggedInput(fact, _input(said, fact, model))
            except (ValueError, KeyError, TypeError):
                yield None


def _lines(path: Path) -> Iterator[bytes]:
    try:
        with path.open("rb") as lines:
            yield from lines
    except FileNotFoundError:
        return


def _input(said: dict[str, Any], fact: HeadFact, model: Model) -> Any:
    """Return the input. Raises ValueError, KeyError or TypeError if the log does not have it."""
    feedback, recorded = said["feedback"], said["input"]
    if fact.own_id:
        return feedback["input"]
    body = b64decode(recorded["base64"]) if "base64" in recorded else recorded["text"].encode()
    json = orjson.loads(body) if recorded["content_type"].startswith("application/json") else None
    if isinstance(json, dict) and isinstance(json.get("items"), list):  # a request to `/top`
        (found,) = [one["input"] for one in json["items"] if one["item"] == fact.item]
        return found
    is_oip = "json_bytes" in recorded or (isinstance(json, dict) and "inputs" in json)
    call = Call("oip" if is_oip else "sagemaker", recorded["content_type"], body, recorded.get("json_bytes"))
    (found,) = decode(model, [call]).batch
    return found
