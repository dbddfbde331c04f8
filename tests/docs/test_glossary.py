"""The glossary: each word once, and every name in it exists in the code."""

from __future__ import annotations

import re

from tests.docs.pages import ROOT

GLOSSARY = (ROOT / "docs/glossary.md").read_text()
PACKAGES = ("mark", "predictors/mark_predictors", "lambda_handlers/mark_lambda", "infra/mark_infra")


def test_a_word_stands_in_the_glossary_once() -> None:
    words = [word for word in re.findall(r"^\| ([^|]+) \|.*\|.*\|$", GLOSSARY, re.MULTILINE) if word != "word"]
    assert len(words) > 60
    assert len(words) == len(set(words))


def test_names_in_the_glossary_exist() -> None:
    """A name is a class, a function or a type of some module."""
    rows = re.findall(r"^\|.*\|(.*)\|$", GLOSSARY, re.MULTILINE)
    named = [name for cell in rows for name in re.findall(r"`(\w+)`", cell)]
    assert len(named) > 60
    defined = re.compile(r"^(?:class |def |async def )?(\w+)\b *[(:=]", re.MULTILINE)
    known = {
        name
        for package in PACKAGES
        for path in (ROOT / package).rglob("*.py")
        for name in defined.findall(path.read_text())
    }
    assert [name for name in named if name not in known] == []
