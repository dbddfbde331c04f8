"""The figures of a small checkout, counted by hand."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

sys.path.append(str(Path(__file__).parents[2] / "benchmarks" / "planner"))
from figures import Checkout, main

A = '''"""A module."""
from mark.b.two import two  # a comment


def one(values):
    from mark.b.two import two
    self.x, self.y = 1, 2
    return two(*values)
'''
B = '''from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from mark.a.one import one


def two(*values):
    """Documented."""
'''
TEST = "def test_it(): ...\n"


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    for name, content in {
        "mark/a/one.py": A,
        "mark/b/two.py": B,
        "mark/b/__init__.py": "",
        "tests/test_it.py": TEST,
    }.items():
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(content)
    return tmp_path


def test_figures_are_those_counted_by_hand(checkout: Path) -> None:
    figures = Checkout(checkout).figures()
    assert {key: value for key, value in figures.items() if not key.startswith("lines a")} == {
        "source: files / lines": "3 / 16",
        "tests: files / lines": "1 / 1",
        "import cycles between modules (modules in them)": "1 (2)",
        "import cycles between folders (folders in them)": "1 (2)",
        "imports inside functions": "1",
        "public classes' names used twice": "0",
        "public functions and classes with a docstring": "50 %",
        "lines with a comment": "6.2 %",
        "calls with an unpacked sequence among arguments": "1",
        "calls with more than five positional arguments": "0",
        "lines that assign several attributes": "1",
        "`# fmt: skip`": "0",
    }


def test_two_checkouts_are_printed_side_by_side(checkout: Path, capsys: pytest.CaptureFixture[str]) -> None:
    main([str(checkout), str(checkout)])
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == "| figure | before | after |"
    assert "| `mark.b`: files / lines | 2 / 8 | 2 / 8 |" in lines


@pytest.fixture(scope="module")
def ours() -> Checkout:
    return Checkout(Path(__file__).parents[2])


def test_no_import_cycle_is_in_the_source(ours: Checkout) -> None:
    """Between modules or folders, late and type-only imports counted."""
    assert set(ours.cycles().values()) == {"0 (0)"}


def test_no_two_public_classes_share_a_name(ours: Checkout) -> None:
    """One word for one thing: a reader who knows a name knows the class."""
    assert ours.names_used_twice() == {}
