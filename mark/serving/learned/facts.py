"""Facts of writers, their lines in files and messages, and the vector that says which facts a state holds.

A process is a writer for as long as it runs, and numbers its facts from 1. A vector has, for each writer, the numbers
that were applied. So it tells a new fact from a repeated one, and a gap shows that a fact is missing.

A vector would grow with each start of a process. Therefore it forgets a writer whose newest fact is older than
`KEPT_S`, and remembers until when it has forgotten (`since_s`). A fact from before that time, of a writer that the
vector does not list, is `OLD`: it was applied before, or it comes 30 days late and is dropped.
"""

from __future__ import annotations

import math
from base64 import b64decode, b64encode
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import orjson

KEPT_S = 30 * 86_400.0
MOST_CONTENT = 512 * 1024  # bytes of one fact: a request may have a thousand items
_LONGEST_NAME = 128  # characters of a writer and of a request id
_MOST_NUMBER = 1 << 53
NEW, REPEATED, OLD = "new", "repeated", "old"


@dataclass(frozen=True, slots=True)
class Fact:
    """A fact that one process learned from feedback on the answer to request `about`, at Unix time `at_s`."""

    writer: str
    number: int
    at_s: float
    about: str
    content: bytes

    @property
    def memory_bytes(self) -> int:
        """Return the approximate memory of the fact."""
        return 400 + len(self.content)


def line_of(fact: Fact) -> bytes:
    """Return the fact as a line of JSON."""
    said = (fact.writer, fact.number, fact.at_s, fact.about, b64encode(fact.content).decode())
    return orjson.dumps(said, option=orjson.OPT_APPEND_NEWLINE)


def fact_in(line: bytes) -> Fact:
    """Return the fact in a line. Raises ValueError."""
    said = orjson.loads(line)
    if not isinstance(said, list) or len(said) != 5:
        raise ValueError("a fact has five parts")
    writer, number, at_s, about, content = said
    if not (_is_name(writer) and isinstance(about, str) and len(about) <= _LONGEST_NAME and isinstance(content, str)):
        raise ValueError("a fact has a writer, a request id and content")
    if not _is_number(number) or number < 1 or not isinstance(at_s, int | float) or not math.isfinite(at_s):
        raise ValueError("a fact has a number and a time")
    if len(content) > MOST_CONTENT * 4 // 3 + 4:
        raise ValueError(f"a fact has {MOST_CONTENT} bytes at most")
    return Fact(writer, number, float(at_s), about, b64decode(content, validate=True))


def facts_in(lines: bytes) -> list[Fact]:
    """Return the facts in complete lines. Raises ValueError if one of them cannot be read."""
    return [fact_in(line) for line in lines.split(b"\n") if line]


@dataclass(slots=True)
class Applied:
    """The applied numbers of a writer: all up to `through`, and those in `beyond`. Times are Unix time."""

    through: int = 0
    beyond: set[int] = field(default_factory=set)
    newest_s: float = -math.inf

    def has(self, number: int) -> bool:
        return number <= self.through or number in self.beyond

    def add(self, number: int, at_s: float) -> None:
        self.newest_s = max(self.newest_s, at_s)
        self.beyond.add(number)
        while self.through + 1 in self.beyond:
            self.through += 1
            self.beyond.remove(self.through)

    def lacked_by(self, other: Applied) -> int:
        """Return the count of numbers here that `other` lacks."""
        common = sum(number <= self.through for number in other.beyond)
        beyond = sum(not other.has(number) for number in self.beyond)
        return max(0, self.through - other.through - common) + beyond


_NOTHING = Applied()


class Vector:
    """The facts that a state holds, as the module describes."""

    def __init__(self, writers: Mapping[str, Applied] | None = None, since_s: float = -math.inf) -> None:
        self.writers = dict(writers or {})
        self.since_s = since_s

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Vector) and (self.writers, self.since_s) == (other.writers, other.since_s)

    __hash__ = None  # type: ignore[assignment]

    def copy(self) -> Vector:
        """Return an independent copy."""
        writers = {name: Applied(one.through, set(one.beyond), one.newest_s) for name, one in self.writers.items()}
        return Vector(writers, self.since_s)

    def judge(self, fact: Fact) -> str:
        """Return whether this fact is new, repeated, or too old to tell."""
        applied = self.writers.get(fact.writer)
        if applied is None:
            return NEW if fact.at_s >= self.since_s else OLD
        return REPEATED if applied.has(fact.number) else NEW

    def has(self, writer: str, number: int) -> bool:
        """Return whether the fact was applied. Any thread may call it."""
        applied = self.writers.get(writer)
        return applied is not None and applied.has(number)

    def add(self, fact: Fact) -> None:
        """Note a new fact as applied."""
        self.writers.setdefault(fact.writer, Applied()).add(fact.number, fact.at_s)

    def forget(self, before_s: float, keep: Collection[str]) -> list[str]:
        """Forget writers whose newest fact is from before that time, except those to keep. Returns their names."""
        old = [name for name, one in self.writers.items() if one.newest_s < before_s and name not in keep]
        for name in old:
            del self.writers[name]
        if old:
            self.since_s = max(self.since_s, before_s)
        return old

    def ahead_of(self, other: Vector) -> Iterator[tuple[str, int]]:
        """Yield each writer with facts here that `other` lacks, and the count of these facts."""
        for name, one in self.writers.items():
            theirs = other.writers.get(name)
            if theirs is None and one.newest_s < other.since_s:
                continue
            if count := one.lacked_by(theirs or _NOTHING):
                yield name, count

    def lacks(self, other: Vector) -> int:
        """Return the count of facts in `other` that are missing here."""
        return sum(count for _, count in other.ahead_of(self))

    def to_json(self) -> dict[str, Any]:
        """Return the vector for a message or a file."""
        since_s = self.since_s if math.isfinite(self.since_s) else None
        writers = {
            name: [one.through, sorted(one.beyond), one.newest_s if math.isfinite(one.newest_s) else None]
            for name, one in self.writers.items()
        }
        return {"since_s": since_s, "writers": writers}


def vector_in(said: Any) -> Vector:
    """Return the vector that `to_json` wrote. Raises ValueError."""
    try:
        since_s, writers = said["since_s"], said["writers"]
        found = {name: _applied(*one) for name, one in writers.items()}
        if not all(map(_is_name, found)):
            raise ValueError("a writer has a name")
        return Vector(found, -math.inf if since_s is None else float(since_s))
    except (KeyError, TypeError, AttributeError) as error:
        raise ValueError(f"no vector ({error})") from None


def _applied(through: Any, beyond: Any, newest_s: Any) -> Applied:
    if not _is_number(through) or through < 0 or not all(_is_number(n) and n > through for n in beyond):
        raise ValueError("a vector has numbers of facts")
    return Applied(through, set(beyond), -math.inf if newest_s is None else float(newest_s))


def _is_number(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value < _MOST_NUMBER


def _is_name(value: Any) -> bool:
    return isinstance(value, str) and 0 < len(value) <= _LONGEST_NAME


def pages(facts: Iterable[Fact], most_bytes: int) -> Iterator[tuple[list[Fact], bytes]]:
    """Yield the facts in pages of about `most_bytes` bytes of lines."""
    page: list[Fact] = []
    lines = bytearray()
    for fact in facts:
        page.append(fact)
        lines += line_of(fact)
        if len(lines) >= most_bytes:
            yield page, bytes(lines)
            page, lines = [], bytearray()
    if page:
        yield page, bytes(lines)
