"""Events of instances that no call causes, and their order."""

from __future__ import annotations

from enum import IntEnum


class InstanceEvent(IntEnum):
    """The kind of an event. The value is the priority among events of one time, lowest first."""

    GONE = 0  # the cloud takes a spot instance back
    RUNNING = 1  # billing begins
    BOOTED = 2
    STOPPED = 3
    TERMINATED = 4
    SHARE = 5  # of a zone's spot capacity changes
    NOTICE = 6  # of an interruption
    IDLE = 7  # a draining instance may have finished
    CREDITS = 8  # are settled
    FORGOTTEN = 9  # its description ends
    CRASHED = 10  # it no longer answers, though the cloud reports it as running
