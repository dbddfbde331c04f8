"""Sample queries of a pipeline: JSON Lines, a query a line."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NoReturn

from mark.domain.cells import read_text
from mark.domain.errors import BadInput


@dataclass(frozen=True, slots=True)
class SampleQuery:
    """A query as written, and the line on which it stands (from 1)."""

    line: int
    text: str

    def value(self) -> Any:
        """What a driver is given: made anew at each call, since drivers may change it."""
        return json.loads(self.text)


def read_queries(file: str) -> list[SampleQuery]:
    """The queries of a file, blank lines left out. Raises BadInput for a line that is no JSON, and for no query."""
    found = []
    # Not splitlines: JSON's texts may hold what Unicode takes for the end of a line.
    for line, text in enumerate(read_text(Path(file)).split("\n"), 1):
        if not text.strip():
            continue
        try:
            json.loads(text, parse_constant=_no_json)
        except (ValueError, RecursionError) as error:
            raise BadInput(f"is no JSON ({error})", f"{file}:{line}", text) from None
        found.append(SampleQuery(line, text))
    if not found:
        raise BadInput("holds no query", file)
    return found


def _no_json(name: str) -> NoReturn:
    raise ValueError(f"{name} is no number of JSON")
