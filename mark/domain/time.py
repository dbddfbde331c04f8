"""Lengths of time, in seconds."""

MINUTE_S = 60.0
HOUR_S = 3600.0
DAY_S = 86400.0

STEP_S = 60.0  # between two decisions of the controller, and between two points of a forecast
