"""Every comment that cites the page on semantics leads to one of its sections."""

from __future__ import annotations

import re
from pathlib import Path

from tests.docs.pages import DOCS, ROOT

_CITED = re.compile(r"docs/semantics\.md, (\d+)")
_FOLDERS = ("mark", "infra", "predictors", "lambda_handlers", "tools", "tests", "benchmarks", "terraform")


def _citations(text: str) -> list[int]:
    return [int(number) for number in _CITED.findall(text)]


def _sources() -> list[Path]:
    found = [path for folder in _FOLDERS for path in (ROOT / folder).rglob("*.py") if path != Path(__file__)]
    return [path for path in found if ".terraform" not in path.parts]


def test_sections_are_numbered_without_a_hole() -> None:
    numbers = re.findall(r"^## (\d+)\. \S", (DOCS / "semantics.md").read_text(), re.MULTILINE)
    assert [int(number) for number in numbers] == list(range(1, 21))


def test_every_citation_leads_to_a_section() -> None:
    cited = {path: _citations(path.read_text()) for path in _sources()}
    assert sum(len(numbers) for numbers in cited.values()) >= 10
    assert {path for path, numbers in cited.items() if not set(numbers) <= set(range(1, 21))} == set()


def test_no_comment_cites_a_page_outside_the_repository() -> None:
    word = "INTER" + "FACES"
    assert [path for path in [*_sources(), *DOCS.glob("*.md")] if word in path.read_text()] == []
