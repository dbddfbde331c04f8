"""How many bad lines a file may have."""

from __future__ import annotations

import pytest

from mark.domain.errors import BadInput
from mark.workload.bad_lines import DEFAULT, BadLines, parse_bad_lines


@pytest.mark.parametrize(
    ("text", "lines", "allowed"),
    [
        ("20", 5, 20),
        ("0", 1000, 0),
        ("2%", 1000, 20),
        ("2.5 %", 1000, 25),
        ("1%", 10, 1),  # a single line never refuses a file
        ("0%", 1000, 0),
        ("100%", 7, 7),
    ],
)
def test_a_number_or_a_share_of_lines_is_allowed(text: str, lines: int, allowed: int) -> None:
    bad = parse_bad_lines(text)
    assert bad.allowed(lines) == allowed
    assert parse_bad_lines(str(bad)) == bad


@pytest.mark.parametrize("text", ["", "-1", "1.5", "101%", "1%%", "many", "nan", "1e3"])
def test_anything_else_is_refused(text: str) -> None:
    with pytest.raises(BadInput, match="skip_bad_lines: must be a number of lines"):
        parse_bad_lines(text)


def test_one_line_in_a_hundred_is_the_default() -> None:
    assert (DEFAULT, str(DEFAULT)) == (BadLines(0.01, share=True), "1%")
    assert DEFAULT.allowed(1000) == 10
