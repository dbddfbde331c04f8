"""A learner and facts for tests."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable

from mark.serving.feedback.port import Observation
from mark.serving.learned.facts import Fact
from mark.serving.learned.learner_port import Learner


class Tally:
    """Adds up the numbers that feedback gives as labels, so that a lost fact and a doubled one show.

    Labels other than numbers teach nothing. `counts` has each number with how often it was applied.
    """

    def __init__(self, version: int = 1) -> None:
        self.version = version
        self.counts: Counter[int] = Counter()

    def fact(self, observation: Observation) -> bytes | None:
        label = observation.feedback.said.get("label")
        return str(label).encode() if isinstance(label, int) else None

    def apply(self, fact: bytes) -> None:
        self.counts[int(fact)] += 1

    def freeze(self) -> Callable[[], bytes]:
        counts = {str(number): count for number, count in sorted(self.counts.items())}
        return lambda: json.dumps({"version": self.version, "counts": counts}).encode()

    def restore(self, state: bytes) -> None:
        said = json.loads(state)
        if said["version"] != self.version:
            raise ValueError("another version")
        self.counts = Counter({int(number): count for number, count in said["counts"].items()})

    @property
    def sum(self) -> int:
        return sum(number * count for number, count in self.counts.items())


_: type[Learner] = Tally


def fact(writer: str, number: int, at_s: float = 1000.0, content: bytes | None = None) -> Fact:
    content = str(number).encode() if content is None else content
    return Fact(writer, number, at_s, f"{writer}-{number:x}", content)
