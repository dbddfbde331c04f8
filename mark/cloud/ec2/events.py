"""Events of instances that happen without a call, and their order."""

from __future__ import annotations

from enum import IntEnum


class InstanceEvent(IntEnum):
    """The kind of an event. The value is the priority among events of one time, lowest first."""

    GONE = 0  # the cloud takes a spot instance back
    RUNNING = 1  # billing begins
    BOOTED = 2
    STOPPED = 3
    TERMINATED = 4
    SHARE = 5  # a zone's share of spot capacity changes
    NOTICE = 6  # the cloud announces an interruption
    IDLE = 7  # a draining instance may have finished
    CREDITS = 8  # CPU credits are settled
    FORGOTTEN = 9  # the cloud no longer describes the instance
    CRASHED = 10  # the instance no longer answers, although the cloud reports it as running
