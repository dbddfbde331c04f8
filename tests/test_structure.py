"""The sizes of classes in the wheel's source, and the names of its files. `ruff` counts parameters (pyproject.toml)."""

from __future__ import annotations

import re
from collections import Counter
from pathlib import Path

_ROOT = Path(__file__).resolve().parents[1]
_SOURCES = [
    path
    for folder in ("mark", "infra/mark_infra", "predictors/mark_predictors", "lambda_handlers/mark_lambda")
    for path in (_ROOT / folder).rglob("*.py")
]
# A class at the top of a module, up to the next line that is not indented.
_CLASS = re.compile(r"^class (\w+).*(?:\n(?:[ \t].*|\)[^\n]*:)?$)*", re.MULTILINE)


def test_classes_have_at_most_500_lines() -> None:
    sizes = {
        f"{path.relative_to(_ROOT)}: {found[1]}": found[0].rstrip().count("\n") + 1
        for path in _SOURCES
        for found in _CLASS.finditer(path.read_text())
    }
    assert len(sizes) > 500
    assert {name: lines for name, lines in sizes.items() if lines > 500} == {}


def test_no_three_files_have_the_same_name() -> None:
    names = Counter(path.name for path in _SOURCES if path.name != "__init__.py")
    assert [name for name, count in names.items() if count > 2] == []
