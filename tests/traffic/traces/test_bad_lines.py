"""How many bad lines a file may have."""

from __future__ import annotations

import pytest

from mark.domain.errors import BadInput
from mark.traffic.traces.bad_lines import DEFAULT, BadLines


@pytest.mark.parametrize(
    ("text", "lines", "allowed"),
    [
        ("20", 5, 20),
        ("0", 1000, 0),
        ("2%", 1000, 20),
        ("2.5 %", 1000, 25),
        ("1%", 10, 0),
        ("0%", 1000, 0),
        ("100%", 7, 7),
    ],
)
def test_a_number_or_a_share_of_lines_is_allowed(text: str, lines: int, allowed: int) -> None:
    bad = BadLines.parse(text)
    assert bad.allowed(lines) == allowed
    assert BadLines.parse(str(bad)) == bad


def test_a_share_allows_a_least_number_unless_it_is_zero() -> None:
    assert [BadLines.parse(text).allowed(10, least=1) for text in ("1%", "0%", "0")] == [1, 0, 0]


@pytest.mark.parametrize("text", ["", "-1", "-3", "1.5", "101%", "1%%", "many", "nan", "1e3"])
def test_anything_else_is_refused(text: str) -> None:
    with pytest.raises(BadInput, match=r"skip_bad_lines: must be a number of lines.*20 or 5%"):
        BadLines.parse(text)


def test_a_share_above_one_or_a_negative_number_is_refused() -> None:
    for share, most in ((1.5, None), (-0.1, None), (float("nan"), None), (0.01, -1)):
        with pytest.raises(BadInput, match="skip_bad_lines: must be a number of lines"):
            BadLines(share, most)


def test_a_check_names_the_first_line_and_enough() -> None:
    DEFAULT.check(10, 1000, "line 3", "a.csv")
    with pytest.raises(BadInput, match=r"a.csv: 11 of 1,000 lines .* first is line 3, `skip_bad_lines` 11 leaves"):
        DEFAULT.check(11, 1000, "line 3", "a.csv")
    with pytest.raises(BadInput, match=r"`skip_bad_lines` 3% leaves"):
        DEFAULT.check(30, 1000, "line 3", "a.csv")


def test_one_line_in_a_hundred_is_the_default() -> None:
    assert (DEFAULT, str(DEFAULT)) == (BadLines(share=0.01), "1%")
    assert DEFAULT.allowed(1000) == 10
