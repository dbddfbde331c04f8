"""Notes and facts: a note has the items that an answer scored for a key; feedback on the answer makes a fact of it.

Keys are named by a digest, so that no user's name is in a note, fact, snapshot or file of rows.
"""

from __future__ import annotations

import hashlib
from base64 import b64decode, b64encode
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import orjson
from numpy.typing import NDArray

Vector = NDArray[np.float32]
_DIGEST_BYTES = 16
MOST_KEY_BYTES = 128  # as for the header mark-key


def key_name(key: str) -> str:
    """Return the name of a key in the state: a digest of its UTF-8 bytes."""
    return hashlib.blake2b(key.encode("utf-8", "surrogatepass"), digest_size=_DIGEST_BYTES).hexdigest()


def key_of_header(value: str) -> str:
    """Return the key in the header `mark-key`, which the listener has read as Latin-1. Clients send UTF-8."""
    return value.encode("latin-1", "replace").decode("utf-8", "replace")


def id_name(identity: str) -> int:
    """Return a number for an id of feedback: a digest of 53 bits, which JSON holds exactly."""
    digest = hashlib.blake2b(identity.encode("utf-8", "surrogatepass"), digest_size=8).digest()
    return int.from_bytes(digest) >> 11


@dataclass(frozen=True, slots=True, eq=False)
class Scored:
    """A scored item: its name, its vector, or both; and the probability with which it was shown."""

    item: str | None = None
    vector: Vector | None = None
    propensity: float = 1.0


@dataclass(frozen=True, slots=True, eq=False)
class HeadNote:
    """The items that were scored for a key ("": the client sent none) with vectors of a version.

    `own_id` is 0, or for feedback without an answer the number of the client's id: the feedback may come again at
    another process, and counts once.
    """

    key: str
    version: str
    scored: Sequence[Scored]
    own_id: int = 0

    def to_json(self) -> bytes:
        rows = [[one.item, _text(one.vector), one.propensity] for one in self.scored]
        return orjson.dumps({"key": self.key, "version": self.version, "scored": rows, "own_id": self.own_id})


def notes_in(note: bytes) -> list[HeadNote]:
    """Return the notes of an answer: one, or a list if the request has several items. Raises ValueError."""
    try:
        said = orjson.loads(note)
        heads = said if isinstance(said, list) else [said]
        return [
            HeadNote(
                str(one["key"]),
                str(one["version"]),
                [Scored(item, _vector(text), float(propensity)) for item, text, propensity in one["scored"]],
                int(one["own_id"]),
            )
            for one in heads
        ]
    except (KeyError, TypeError, AttributeError) as error:
        raise ValueError(f"no note of a head ({error})") from None


@dataclass(frozen=True, slots=True, eq=False)
class HeadFact:
    """A reward of a key for an item, or without `reward` the deletion of the key; at Unix time `at_s`."""

    key: str
    at_s: float
    version: str = ""
    reward: float | None = None
    item: str | None = None
    vector: Vector | None = None
    own_id: int = 0

    def to_json(self) -> bytes:
        said: dict[str, Any] = {"key": self.key, "at_s": self.at_s}
        if self.reward is not None:
            said |= {"version": self.version, "reward": self.reward, "item": self.item, "vector": _text(self.vector)}
            said |= {"own_id": self.own_id}
        return orjson.dumps(said)


def fact_in(content: bytes) -> HeadFact | None:
    """Return the fact that `to_json` wrote; None if its content was erased. Raises ValueError."""
    if not content:
        return None
    try:
        said = orjson.loads(content)
        key, at_s = str(said["key"]), float(said["at_s"])
        if "reward" not in said:
            return HeadFact(key, at_s)
        item = said["item"]
        if item is not None and not isinstance(item, str):
            raise ValueError("an item has a name")
        return HeadFact(
            key,
            at_s,
            str(said["version"]),
            float(said["reward"]),
            item,
            _vector(said["vector"]),
            int(said["own_id"]),
        )
    except (KeyError, TypeError, AttributeError) as error:
        raise ValueError(f"no fact of a head ({error})") from None


def _text(vector: Vector | None) -> str | None:
    return None if vector is None else b64encode(vector.astype("<f4").tobytes()).decode()


def _vector(text: str | None) -> Vector | None:
    return None if text is None else np.frombuffer(b64decode(text, validate=True), dtype="<f4")
