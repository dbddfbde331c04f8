"""The settings page lists each environment variable that the code names, and no other."""

from __future__ import annotations

import ast
import re

from tests.docs.pages import DOCS, ROOT

_NAME = re.compile(r"MARK_[A-Z][A-Z_]+")


def _named_in_code(*folders: str) -> set[str]:
    """Return the variables among the strings of the code; names inside prose do not count."""
    found: set[str] = set()
    texts = (file.read_text() for folder in folders for file in (ROOT / folder).rglob("*.py"))
    for text in (text for text in texts if "MARK_" in text):  # parsing all of them takes two seconds
        for node in ast.walk(ast.parse(text)):
            if isinstance(node, ast.Constant) and isinstance(node.value, str) and _NAME.fullmatch(node.value):
                found.add(node.value)
    return found


def _listed(*sections: str) -> set[str]:
    parts = re.split(r"^## (.+)$", (DOCS / "settings.md").read_text(), flags=re.MULTILINE)
    text = dict(zip(parts[1::2], parts[2::2], strict=True))
    return {name for section in sections for name in re.findall(r"^\| `(\w+)`", text[section], re.MULTILINE)}


def test_users_find_every_variable_that_the_code_reads() -> None:
    listed = _listed("Environment variables", "Variables that mark sets itself")
    assert listed == _named_in_code("mark", "infra", "predictors", "lambda_handlers", "tools")


def test_developers_find_every_variable_that_the_tests_read() -> None:
    users = _listed("Environment variables", "Variables that mark sets itself")
    assert _named_in_code("tests", "benchmarks", "packaging") - users == _listed("For developers")
