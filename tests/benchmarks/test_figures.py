"""The figures of a small checkout, counted by hand."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

sys.path.append(str(Path(__file__).parents[2] / "benchmarks" / "planner"))
from figures import Checkout, main

A = '''"""Nobody reads this."""
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
TEST = "def test_a_name_of_more_than_ten_words_is_counted_once_only(): ...\n"


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    for name, content in {
        "mark/a/one.py": A,
        "mark/b/two.py": B,
        "mark/b/__init__.py": "",
        "tests/test_it.py": TEST,
        "README.md": "So many words,\nand who reads them?\nA user who pays, or `nobody`.\n",
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
        "lines with who, nobody, so many ...: source": "1",
        "lines with who, nobody, so many ...: tests": "0",
        "lines with who, nobody, so many ...: documents": "2",
        "public functions and classes with a docstring": "50 %",
        "lines with a comment": "6.2 %",
        "calls with an unpacked sequence among arguments": "1",
        "calls with more than five positional arguments": "0",
        "lines that assign several attributes": "1",
        "`# fmt: skip`": "0",
        "tests with a name longer than 10 words": "1",
    }


def test_lines_with_slipped_words_are_named(checkout: Path) -> None:
    """Not where a person is meant, nor the value of `answered_by`; of a test also its name."""
    (checkout / "tests/test_it.py").write_text(f"{TEST}\n\nasync def test_somebody_looks(): ...  # nobody()\n")
    found = Checkout(checkout)
    assert found.persons() == {
        "source": ['mark/a/one.py:1: """Nobody reads this."""'],
        "tests": ["tests/test_it.py:4: # nobody()", "tests/test_it.py:4: somebody looks"],
        "documents": ["README.md:1: So many words,", "README.md:2: and who reads them?"],
    }
    assert found.long_test_names() == ["tests/test_it.py:1: a name of more than ten words is counted once only"]


def test_two_checkouts_are_printed_side_by_side(checkout: Path, capsys: pytest.CaptureFixture[str]) -> None:
    main([str(checkout), str(checkout)])
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == "| figure | before | after |"
    assert "| `mark.b`: files / lines | 2 / 8 | 2 / 8 |" in lines


def test_no_import_cycle_is_in_the_source() -> None:
    """Between modules or folders, late and type-only imports counted."""
    assert set(Checkout(Path(__file__).parents[2]).cycles().values()) == {"0 (0)"}
