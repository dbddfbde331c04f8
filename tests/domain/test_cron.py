from __future__ import annotations

from datetime import datetime
from zoneinfo import ZoneInfo

import pytest

from mark.domain.cron import cron_schedule
from mark.domain.scaler import CronWindow

MONDAY = datetime(2026, 1, 5)


@pytest.mark.parametrize(
    ("text", "after", "then"),
    [
        ("30 * * * *", MONDAY, datetime(2026, 1, 5, 0, 30)),
        ("0 8 * * MON-FRI", datetime(2026, 1, 9, 8), datetime(2026, 1, 12, 8)),
        ("*/20 22-23 * * *", datetime(2026, 1, 5, 22, 50), datetime(2026, 1, 5, 23, 0)),
        ("0 0 1 jan,MAR *", MONDAY, datetime(2026, 3, 1)),
        ("5/25 1 * * *", datetime(2026, 1, 5, 1, 5, 1), datetime(2026, 1, 5, 1, 30)),
        ("0 0 29 2 *", MONDAY, datetime(2028, 2, 29)),
    ],
)
def test_schedule_finds_its_next_minute(text: str, after: datetime, then: datetime) -> None:
    """Ranges, lists, steps and names; the time itself is never the next."""
    assert cron_schedule(text).next_after(after) == then


def test_schedule_with_two_restricted_days_takes_either() -> None:
    """The 13th or a Friday, as cron has it; the week alone where the day of month is free."""
    either = cron_schedule("0 0 13 * 5")
    assert either.next_after(MONDAY) == datetime(2026, 1, 9)
    assert either.next_after(datetime(2026, 1, 9)) == datetime(2026, 1, 13)
    assert cron_schedule("0 0 * * 5").next_after(datetime(2026, 1, 9)) == datetime(2026, 1, 16)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("0 8 * *", "five fields"),
        ("60 * * * *", "minute must lie between 0 and 59, not 60"),
        ("0 8-6 * * *", "cannot read the hour '8-6'"),
        ("*/0 * * * *", "cannot read the minute"),
        ("0 8 * * funday", "day of week"),
        ("0 0 30 2 *", "does not exist"),
        ("0 ٣ * * *", "cannot read the hour"),
    ],
)
def test_schedule_says_what_cannot_be_read(text: str, says: str) -> None:
    with pytest.raises(ValueError, match=says):
        cron_schedule(text)


def test_window_is_active_on_the_clock_of_its_time_zone() -> None:
    """From eight to eight in Berlin is from seven to nineteen UTC in winter, the start included and the end not."""
    berlin = ZoneInfo("Europe/Berlin")
    window = CronWindow(cron_schedule("0 8 * * *"), cron_schedule("0 20 * * *"), 3, berlin)
    utc = ZoneInfo("UTC")
    at = [(hour, minute) for hour, minute in ((6, 59), (7, 0), (18, 59), (19, 0))]
    states = [window.state_at(datetime(2026, 1, 5, hour, minute, tzinfo=utc)) for hour, minute in at]
    assert [active for active, _ in states] == [False, True, True, False]
    assert states[1][1] == datetime(2026, 1, 5, 20, tzinfo=berlin)


def test_window_over_midnight_is_active_at_night() -> None:
    window = CronWindow(cron_schedule("0 22 * * *"), cron_schedule("0 6 * * *"), 3, ZoneInfo("UTC"))
    assert window.state_at(datetime(2026, 1, 5, 23, tzinfo=ZoneInfo("UTC")))[0]
    assert not window.state_at(datetime(2026, 1, 5, 12, tzinfo=ZoneInfo("UTC")))[0]
