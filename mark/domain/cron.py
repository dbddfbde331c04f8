"""Times of day in the five fields of cron: minute, hour, day of month, month, day of week (0 to 6, Sunday first)."""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import datetime, timedelta

_MONTHS = ("JAN", "FEB", "MAR", "APR", "MAY", "JUN", "JUL", "AUG", "SEP", "OCT", "NOV", "DEC")
_DAYS = ("SUN", "MON", "TUE", "WED", "THU", "FRI", "SAT")
_FIELDS = (("minute", 0, 59), ("hour", 0, 23), ("day of month", 1, 31), ("month", 1, 12), ("day of week", 0, 6))
_PART = re.compile(r"(\*|(\w+)(?:-(\w+))?)(?:/(\d{1,2}))?", re.ASCII)
_MOST_DAYS = 366 * 8  # 29 February comes within eight years


@dataclass(frozen=True, slots=True)
class CronSchedule:
    """The minutes that a cron expression names, on the caller's clock.

    If both kinds of days are restricted, either may match, as in cron.
    """

    text: str
    minutes: frozenset[int]
    hours: frozenset[int]
    days: frozenset[int]
    months: frozenset[int]
    weekdays: frozenset[int]
    either_day: bool

    def next_after(self, at: datetime) -> datetime | None:
        """Return the first named minute after `at`, on the same clock; None if no date matches, such as 30 February."""
        soonest = at.replace(second=0, microsecond=0) + timedelta(minutes=1)
        for ahead in range(_MOST_DAYS):
            day = soonest if ahead == 0 else soonest.replace(hour=0, minute=0) + timedelta(days=ahead)
            if not self._has_day(day):
                continue
            for hour in sorted(h for h in self.hours if h >= day.hour):
                first = day.minute if hour == day.hour else 0
                for minute in sorted(m for m in self.minutes if m >= first):
                    return day.replace(hour=hour, minute=minute)
        return None

    def _has_day(self, day: datetime) -> bool:
        if day.month not in self.months:
            return False
        of_month, of_week = day.day in self.days, day.isoweekday() % 7 in self.weekdays
        return of_month or of_week if self.either_day else of_month and of_week


def cron_schedule(text: str) -> CronSchedule:
    """Return the schedule of a cron expression. Raises ValueError with the reason."""
    fields = text.split()
    if len(fields) != len(_FIELDS):
        raise ValueError(f"must have five fields (minute, hour, day of month, month, day of week), not {len(fields)}")
    minutes, hours, days, months, weekdays = (_numbers(f, *known) for f, known in zip(fields, _FIELDS, strict=True))
    either_day = not (fields[2].startswith("*") or fields[4].startswith("*"))
    schedule = CronSchedule(text, minutes, hours, days, months, weekdays, either_day)
    if schedule.next_after(datetime(2024, 1, 1)) is None:
        raise ValueError("names a date that does not exist")
    return schedule


def _numbers(field: str, name: str, least: int, most: int) -> frozenset[int]:
    found: set[int] = set()
    for part in field.split(","):
        matched = _PART.fullmatch(part)
        if matched is None:
            raise ValueError(f"cannot read the {name} {part!r}")
        every, first, last, step = matched.groups()
        if every == "*":
            begin, end = least, most
        else:
            begin = _number(first, name, least, most)
            end = _number(last, name, least, most) if last else (most if step else begin)
        if end < begin or step == "0":
            raise ValueError(f"cannot read the {name} {part!r}")
        found.update(range(begin, end + 1, int(step or 1)))
    return frozenset(found)


def _number(text: str, name: str, least: int, most: int) -> int:
    names = {"month": _MONTHS, "day of week": _DAYS}.get(name, ())
    if text.upper() in names:
        return names.index(text.upper()) + least
    if not text.isdigit() or not least <= int(text[:3]) <= most:
        raise ValueError(f"the {name} must lie between {least} and {most}, not {text}")
    return int(text)
