"""Times of logs: the same microseconds as Python's own parser, and no result for invalid times."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta, timezone

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mark.domain.errors import BadInput
from mark.traffic.traces.stamps import TimeFormat, ZoneClock, stamps_of

MOMENTS = st.datetimes(datetime(1993, 1, 1), datetime(2064, 12, 31))
OFFSETS = st.integers(-14 * 4, 14 * 4).map(lambda quarters: timezone(timedelta(minutes=15 * quarters)))


def micros(at: datetime) -> int:
    return (at - datetime(1970, 1, 1, tzinfo=UTC)) // timedelta(microseconds=1)


@given(at=MOMENTS, zone=OFFSETS)
def test_a_time_with_an_offset_is_read_in_every_form(at: datetime, zone: timezone) -> None:
    zoned = at.replace(tzinfo=zone)
    offset = zoned.strftime("%z")
    web = zoned.strftime("%d/%b/%Y:%H:%M:%S")
    epoch = zoned.timestamp()
    texts = [
        zoned.isoformat(timespec="microseconds"),
        f"{at.isoformat(sep=' ', timespec='microseconds')}{offset}",
        f"{at.isoformat(timespec='microseconds')}789 {offset}".replace(".", ","),
        f"{web}.{at.microsecond:06} {offset}",
        f"{epoch:.6f}",
        f"{micros(zoned)}",
    ]
    found = stamps_of([text.encode() for text in texts])
    assert abs(found.micros - micros(zoned)).max() <= 1
    assert not found.local.any()
    whole = micros(zoned.replace(microsecond=0))
    found = stamps_of([f"{web} {offset}".encode(), zoned.strftime("%Y-%m-%dT%H:%M:%S%z").encode()])
    assert found.micros.tolist() == [whole, whole]


@given(at=MOMENTS)
def test_a_time_without_an_offset_is_local(at: datetime) -> None:
    found = stamps_of([at.strftime(form).encode() for form in ("%Y-%m-%d %H:%M:%S.%f", "%d/%b/%Y %H:%M:%S.%f")])
    assert found.micros.tolist() == [micros(at.replace(tzinfo=UTC))] * 2
    assert found.local.all()


@pytest.mark.parametrize(
    "text",
    [
        *(
            "",
            "-",
            "soon",
            "2026-02-29T10:00:00Z",
            "2026-05-32T10:00:00Z",
            "2026-05-01T24:00:00Z",
            "31/Apr/2026:10:00:00",
        ),
        *("2026-05-01T10:00:0", "2026-05-01T10:00:00.Z", "2026-05-01T10:00:00+2", "01/Mai/2026:10:00:00", "2026-05-01"),
        *("200", "0.25", "1_777_629_600", "1e400", "nan", "2026-05-01T10:00:00Zulu", "2026-05-01T1o:00:00Z"),
    ],
)
def test_what_is_no_time_is_negative(text: str) -> None:
    found = stamps_of([b"2026-05-01T10:00:00Z", text.encode(), b"1777629600"])
    assert found.micros[0] == found.micros[2] == 1_777_629_600_000_000
    assert found.micros[1] < 0


@given(at=MOMENTS)
def test_a_time_format_is_read_as_by_strptime(at: datetime) -> None:
    for form in ("%d.%m.%Y %I:%M:%S.%f %p", "%Y%m%d-%H%M%S.%f", "%b %d %Y %T.%f", "%F %T.%f%z"):
        text = at.replace(tzinfo=UTC).strftime(form)
        found = TimeFormat(form).stamps([text.encode(), b"no"])
        assert found.micros.tolist() == [micros(at.replace(tzinfo=UTC)), -1], form
        assert bool(found.local[0]) == ("%z" not in form)


def test_two_nodes_in_one_file_pass_the_repeated_hour_each() -> None:
    clock = ZoneClock("Europe/Berlin")
    texts = [f"2026-10-25 0{hour}:{minute:02}:00" for hour in (1, 2, 2, 3) for minute in range(0, 60, 5)] * 2
    utc = clock.utc(stamps_of([text.encode() for text in texts]).micros)
    began = micros(datetime(2026, 10, 24, 23, tzinfo=UTC))
    assert utc.tolist() == [began + 300_000_000 * k for k in range(48)] * 2
    assert clock.twice == 48


def test_a_zone_that_is_not_known_is_refused() -> None:
    for name in ("Berlin", "", "../etc/passwd", "Europe"):
        with pytest.raises(BadInput, match="time_zone: no such time zone"):
            ZoneClock(name)
