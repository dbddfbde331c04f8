"""States of an instance and their transitions."""

from __future__ import annotations

import pytest

from mark.cloud.ec2.lifecycle import HOLDS_CAPACITY, TRANSITIONS, IllegalStateChange, State, moved


@pytest.mark.parametrize("before", State)
def test_only_the_tables_transitions_are_legal(before: State) -> None:
    """Any other transition raises an error that names both states."""
    for after in State:
        if after in TRANSITIONS[before]:
            assert moved(before, after) is after
        else:
            with pytest.raises(IllegalStateChange, match=f"from {before} to {after}"):
                moved(before, after)


def test_every_state_can_still_end_and_terminated_is_final() -> None:
    """Reachability over the table."""
    for state in State:
        reached, new = {state}, {state}
        while new:
            new = {after for one in new for after in TRANSITIONS[one]} - reached
            reached |= new
        assert State.TERMINATED in reached
    assert TRANSITIONS[State.TERMINATED] == ()


def test_capacity_is_held_from_launch_to_the_end_of_stopping() -> None:
    """Stopped and ending instances hold none."""
    assert set(State) - set(HOLDS_CAPACITY) == {State.STOPPED, State.SHUTTING_DOWN, State.TERMINATED}


def test_codes_are_those_of_aws() -> None:
    """DescribeInstances returns them beside the names."""
    assert {str(state): state.code for state in State} == {
        "pending": 0, "running": 16, "shutting-down": 32, "terminated": 48, "stopping": 64, "stopped": 80,
    }  # fmt: skip
