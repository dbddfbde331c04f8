"""Numbers on the command line: functions for argparse's `type`, with one clear line for each invalid value."""

from __future__ import annotations

import argparse
import math
from collections.abc import Callable

from mark.domain.time import span_s

MOST_SEED = 2**63 - 1


def number(text: str, forms: str = "a number") -> float:
    """Parse any finite number; `forms` names the valid forms of a text."""
    try:
        value = float(text)
    except ValueError:
        raise argparse.ArgumentTypeError(f"must be {forms}, not {text!r}") from None
    if not math.isfinite(value):
        raise argparse.ArgumentTypeError(f"must be finite, not {text!r}")
    return value


def _seconds(text: str) -> float:
    """Parse a number of seconds, or 90s, 30m, 1h30m, 7d, 2w."""
    found_s = span_s(text)
    return number(text, "seconds, or 30m, 1h30m, 7d") if found_s is None else found_s


def _checked(parse: Callable[[str], float], is_valid: Callable[[float], bool], what: str) -> Callable[[str], float]:
    """Return a parser that refuses all values but the valid ones; `what` names these."""

    def parsed(text: str) -> float:
        value = parse(text)
        if not is_valid(value):
            raise argparse.ArgumentTypeError(f"must {what}, not {text!r}")
        return value

    return parsed


above_zero = _checked(number, lambda value: value > 0.0, "be above zero")
# Seconds, zero or more, and a span of them above zero, both in the forms of `_seconds`.
seconds = _checked(_seconds, lambda value: value >= 0.0, "be zero or more")
span = _checked(_seconds, lambda value: value > 0.0, "be above zero")
share = _checked(number, lambda value: 0.0 <= value <= 1.0, "lie between 0 and 1")


def whole(least: int, most: int) -> Callable[[str], int]:
    """Return a parser of whole numbers from `least` to `most`."""

    def parsed(text: str) -> int:
        # Digits only, because int() would also accept "1_000" and " 7".
        value = int(text[:20]) if text.isascii() and text.isdigit() else -1
        if not least <= value <= most:
            raise argparse.ArgumentTypeError(f"must be a whole number from {least} to {most}, not {text!r}")
        return value

    return parsed


count = whole(1, 1024)
port = whole(0, 65535)


def seed(text: str) -> int:
    if not (text.isascii() and text.isdigit()) or int(text[:20]) > MOST_SEED:
        raise argparse.ArgumentTypeError(f"must be a whole number from 0 to 2^63 - 1, not {text!r}")
    return int(text)
