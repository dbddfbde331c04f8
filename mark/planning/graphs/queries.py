"""Sample queries of a pipeline: JSON Lines with one query per line."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NoReturn

from mark.domain.cells import read_text
from mark.domain.errors import BadInput


@dataclass(frozen=True, slots=True)
class SampleQuery:
    """A query as written, and its line in the file (from 1)."""

    line: int
    text: str

    def value(self) -> Any:
        """Return the query as a driver gets it: parsed at each call, because drivers may change it."""
        return json.loads(self.text)


def read_queries(file: str) -> list[SampleQuery]:
    """Read the queries of a file without blank lines. Raises BadInput for a line that is not JSON, and without a
    query.
    """
    found = []
    # Not splitlines: JSON's texts may hold characters that Unicode takes for the end of a line.
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
