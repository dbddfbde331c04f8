"""Reads of the store: they begin while this process doubts that it has all facts, and not too often."""

from __future__ import annotations

from mark.serving.learned.read_schedule import READ_S, ReadSchedule


def read(schedule: ReadSchedule, now_s: float, found: bool = True) -> None:
    """Begin and complete a read within no time."""
    schedule.begun(now_s)
    schedule.complete(now_s)
    schedule.ended(found)


def begins_s(schedule: ReadSchedule, until_s: int, in_doubt: bool, found: bool) -> list[int]:
    """Return the times of all reads, asked for once a second."""
    begins = []
    for now_s in range(until_s):
        if schedule.is_due(now_s, in_doubt):
            read(schedule, now_s, found)
            begins.append(now_s)
    return begins


def test_first_read_is_due_immediately_and_the_next_one_after_an_hour() -> None:
    assert begins_s(ReadSchedule(0.0), 4000, in_doubt=False, found=False) == [0, 3600]


def test_doubt_is_answered_every_half_minute_while_reads_find_facts() -> None:
    assert begins_s(ReadSchedule(0.0), 100, in_doubt=True, found=True) == [0, 30, 60, 90]


def test_reads_that_find_nothing_become_rarer_up_to_ten_minutes() -> None:
    begins = begins_s(ReadSchedule(0.0), 3000, in_doubt=True, found=False)
    assert begins == [0, 30, 90, 210, 450, 930, 1530, 2130, 2730]


def test_incomplete_read_leaves_the_doubt() -> None:
    schedule = ReadSchedule(0.0)
    schedule.begun(0.0)
    schedule.ended(found=True)
    assert not schedule.is_due(29.0, in_doubt=False)
    assert schedule.is_due(30.0, in_doubt=False)


def test_doubt_during_a_read_needs_another_one() -> None:
    schedule = ReadSchedule(0.0)
    schedule.begun(0.0)
    schedule.is_due(1.0, in_doubt=True)
    schedule.complete(0.0)
    assert schedule.is_due(30.0, in_doubt=False)


def test_peer_that_has_gone_brings_the_next_read_forward_and_leaves_doubt_for_ten_minutes() -> None:
    schedule = ReadSchedule(0.0)
    for now_s in (0.0, 30.0, 90.0, 210.0, 450.0):
        read(schedule, now_s, found=False)
    assert not schedule.is_due(460.0, in_doubt=True)
    schedule.peer_gone(460.0)
    assert schedule.is_due(460.0, in_doubt=False)
    assert schedule.pause_s == READ_S
    read(schedule, 1059.0)
    assert schedule.is_due(1089.0, in_doubt=False)
    read(schedule, 1089.0)
    assert not schedule.is_due(1119.0, in_doubt=False)


def test_peers_that_go_in_turns_bring_at_most_one_read_forward_in_half_a_minute() -> None:
    schedule, begins = ReadSchedule(0.0), []
    for now_s in range(95):
        schedule.peer_gone(now_s)
        if schedule.is_due(now_s, in_doubt=False):
            read(schedule, now_s, found=False)
            begins.append(now_s)
    assert begins == [0, 30, 60, 90]


def test_second_peer_that_goes_within_half_a_minute_brings_the_read_forward_to_its_end() -> None:
    schedule = ReadSchedule(0.0)
    schedule.peer_gone(0.0)
    for now_s in (0.0, 1.0):
        read(schedule, now_s, found=False)
    assert schedule.next_s == 61.0
    schedule.peer_gone(15.0)
    assert schedule.next_s == 30.0
