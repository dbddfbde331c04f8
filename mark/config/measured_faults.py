"""Faults as a service's bouncers measured them, from saved pages of `/metrics`."""

from __future__ import annotations

import math
import re
from collections import defaultdict
from itertools import pairwise

from mark.domain.errors import BadInput
from mark.domain.faults import Faults
from mark.domain.pace import SLOW_RATIO

RATIO, SECONDS, PERIODS = "mark_service_ratio_bucket", "mark_pace_seconds_total", "mark_slow_periods_total"
_LEAST_PERIODS = 10  # fewer do not tell the mean length of a period
_HANG_RATIO = 20.0  # a batch that took longer hung, so it does not tell how slow its instance was
_LINE = re.compile(r"(?P<name>[a-z_]+)\{(?P<labels>.*)\}\s+(?P<value>\S+)")
_LABEL = re.compile(r'(\w+)="([^"]*)"')


def is_metrics(text: str) -> bool:
    """Return whether it is a page of metrics and not a file with `[faults]`."""
    return RATIO in text or "# TYPE " in text


def measured_faults(text: str, where: str) -> Faults:
    """Return how often, how long and how much the instances of these pages were slow. Raises BadInput.

    Pages of several instances may follow each other. `slow_share` and `slow_s` come from the time that instances were
    slow, `slow_factor` from the batches that took more than `SLOW_RATIO` times as long as profiled.
    """
    ratios: defaultdict[float, float] = defaultdict(float)
    seconds: defaultdict[str, float] = defaultdict(float)
    periods, models = 0.0, set()
    for number, line in enumerate(text.splitlines(), start=1):
        found = _LINE.match(line)
        if found is None or found["name"] not in (RATIO, SECONDS, PERIODS):
            continue
        labels = dict(_LABEL.findall(found["labels"]))
        value = _number(found["value"], f"{where} line {number}")
        models.add((labels.get("model", ""), labels.get("stage", "")))
        if found["name"] == RATIO:
            ratios[_number(labels.get("le", ""), f"{where} line {number}", infinite=True)] += value
        elif found["name"] == SECONDS:
            seconds[labels.get("pace", "")] += value
        else:
            periods += value
    if len(models) > 1:
        named = ", ".join(" ".join(filter(None, one)) for one in sorted(models))
        raise BadInput(f"has the metrics of several models ({named}): keep the lines of one", where)
    batches = ratios.get(math.inf, 0.0)
    if not batches:
        raise BadInput(f"{RATIO} has no batches: only an instance whose model has a profile counts them", where)
    if not sum(seconds.values()):
        raise BadInput(f"has no {SECONDS}, without which nobody knows how long an instance stays slow", where)
    if not periods and seconds["slow"]:
        what = f"has {seconds['slow']:g} slow seconds and no {PERIODS}: is it cut?"
        raise BadInput(f"{what} Save the whole page", where)
    if not periods:
        return Faults()
    if periods < _LEAST_PERIODS:
        what = f"has {periods:g} slow periods, and {_LEAST_PERIODS} are needed to tell how long one lasts"
        raise BadInput(f"{what}: save the metrics of more instances or later, or write [faults] by hand", where)
    return Faults(
        slow_share=seconds["slow"] / sum(seconds.values()),
        slow_s=seconds["slow"] / periods,
        slow_factor=_slow_factor(ratios, where),
    )


def _slow_factor(ratios: dict[float, float], where: str) -> float:
    """Return the mean ratio of slow batches that did not hang; each counts as the middle of its bucket."""
    slow = total = 0.0
    bounds = sorted(ratios)
    for low, high in pairwise(bounds):
        if low >= SLOW_RATIO and high <= _HANG_RATIO:
            count = ratios[high] - ratios[low]
            slow, total = slow + count, total + count * (low + high) / 2.0
    if slow <= 0.0:
        what = f"has slow batches only above {_HANG_RATIO:g} times their profiled time: they hung"
        raise BadInput(f"{what}, so write hangs_per_hour in [faults] by hand", where)
    return total / slow


def _number(text: str, where: str, *, infinite: bool = False) -> float:
    """Return a count or a bound."""
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not value >= 0.0 or (math.isinf(value) and not infinite):
        raise BadInput("must be a number of zero or more", where, text)
    return value
