"""The states of an EC2 instance, as one table ("Instance lifecycle", EC2 user guide)."""

from __future__ import annotations

from enum import StrEnum


class State(StrEnum):
    """A state by AWS's name. Only `running` is billed."""

    PENDING = "pending"
    RUNNING = "running"
    STOPPING = "stopping"
    STOPPED = "stopped"
    SHUTTING_DOWN = "shutting-down"
    TERMINATED = "terminated"

    @property
    def code(self) -> int:
        """AWS's number of the state."""
        return _CODES[self]


_CODES = {
    State.PENDING: 0,
    State.RUNNING: 16,
    State.SHUTTING_DOWN: 32,
    State.TERMINATED: 48,
    State.STOPPING: 64,
    State.STOPPED: 80,
}

TRANSITIONS: dict[State, tuple[State, ...]] = {
    State.PENDING: (State.RUNNING, State.SHUTTING_DOWN),
    State.RUNNING: (State.STOPPING, State.SHUTTING_DOWN),
    State.STOPPING: (State.STOPPED, State.SHUTTING_DOWN),
    State.STOPPED: (State.PENDING, State.SHUTTING_DOWN),
    State.SHUTTING_DOWN: (State.TERMINATED,),
    State.TERMINATED: (),
}
HOLDS_CAPACITY = (State.PENDING, State.RUNNING, State.STOPPING)


class IllegalStateChange(ValueError):
    """EC2 does not allow this change of state."""


def moved(before: State, after: State) -> State:
    """Return `after` if the table allows the transition. Raises IllegalStateChange."""
    if after not in TRANSITIONS[before]:
        raise IllegalStateChange(f"no instance goes from {before} to {after}")
    return after
