"""Numbers on the command line: functions for argparse's `type`, with one clear line for each invalid value."""

from __future__ import annotations

import argparse
import math
from collections.abc import Callable

from mark.domain.time import span_s

MOST_SEED = 2**63 - 1


def number(text: str) -> float:
    """Parse any finite number."""
    try:
        value = float(text)
    except ValueError:
        raise argparse.ArgumentTypeError(f"must be a number, not {text!r}") from None
    if not math.isfinite(value):
        raise argparse.ArgumentTypeError(f"must be finite, not {text!r}")
    return value


def _seconds(text: str) -> float:
    """Parse a number of seconds, or 90s, 30m, 1h30m, 7d, 2w."""
    found_s = span_s(text)
    if found_s is not None:
        return found_s
    try:
        return number(text)
    except argparse.ArgumentTypeError as error:
        raise argparse.ArgumentTypeError(str(error).replace("a number", "seconds, or 30m, 1h30m, 7d")) from None


def above_zero(text: str) -> float:
    value = number(text)
    if value <= 0.0:
        raise argparse.ArgumentTypeError(f"must be above zero, not {text!r}")
    return value


def seconds(text: str) -> float:
    """Parse seconds, zero or more, in the forms of `_seconds`."""
    value = _seconds(text)
    if value < 0.0:
        raise argparse.ArgumentTypeError(f"must be zero or more, not {text!r}")
    return value


def span(text: str) -> float:
    """Parse seconds above zero, in the forms of `_seconds`."""
    value = _seconds(text)
    if value <= 0.0:
        raise argparse.ArgumentTypeError(f"must be above zero, not {text!r}")
    return value


def share(text: str) -> float:
    """Parse a share from 0 to 1, both included."""
    value = number(text)
    if not 0.0 <= value <= 1.0:
        raise argparse.ArgumentTypeError(f"must lie between 0 and 1, not {text!r}")
    return value


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
