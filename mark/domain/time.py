"""Lengths of time, in seconds."""

import re

MINUTE_S = 60.0
HOUR_S = 3600.0
DAY_S = 86400.0

STEP_S = 60.0  # between two decisions of the controller, and between two points of a forecast

_SPAN = re.compile(r"(\d+(?:\.\d+)?)(s|min|m|h|d|w)")
_UNIT_S = {"s": 1.0, "m": 60.0, "min": 60.0, "h": 3600.0, "d": 86400.0, "w": 604800.0}


def span_s(text: str) -> float | None:
    """Return the seconds of 90s, 30m, 1h30m, 7d, 2w; None for any other text."""
    parts = _SPAN.findall(text)
    if parts and "".join(map("".join, parts)) == text:
        return float(sum(float(value) * _UNIT_S[unit] for value, unit in parts))
    return None
