"""Traffic envelopes against a count of every window."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from mark.domain.errors import BadInput
from mark.planning.graphs.envelope import RecentEnvelope, envelope_windows_s, most_within

# In eighths of a second, which sums keep exact
WINDOWS_S = np.array([0.125, 0.25, 1.0, 4.0])
ARRIVALS = st.lists(st.integers(0, 200), max_size=40).map(lambda eighths: np.sort(np.array(eighths) / 8.0))


def counted(arrivals_s: np.ndarray, windows_s: np.ndarray, since_s: float = -np.inf) -> list[int]:
    """Return the counts by definition: of all windows (e - w, e] that end with an arrival after `since_s`."""
    return [
        max(
            (int(np.sum((arrivals_s > end - w) & (arrivals_s <= end))) for end in arrivals_s if end > since_s),
            default=0,
        )
        for w in windows_s
    ]


def test_windows_double_from_the_service_time_to_a_minute() -> None:
    assert envelope_windows_s(0.15).tolist() == pytest.approx([0.15 * 2**n for n in range(9)])
    assert envelope_windows_s(7.5).tolist() == [7.5, 15.0, 30.0, 60.0]
    assert envelope_windows_s(60.0).tolist() == [60.0]


@pytest.mark.parametrize("shortest_s", [0.0, -1.0, 60.1, np.nan])
def test_a_shortest_window_that_is_none_is_refused(shortest_s: float) -> None:
    with pytest.raises(BadInput, match="shortest_s"):
        envelope_windows_s(shortest_s)


@given(ARRIVALS)
def test_the_most_is_that_of_every_window(arrivals_s: np.ndarray) -> None:
    assert most_within(arrivals_s, WINDOWS_S).tolist() == counted(arrivals_s, WINDOWS_S)


@given(ARRIVALS, st.integers(0, 40))
def test_what_came_before_the_first_counts_where_it_lies_within(arrivals_s: np.ndarray, first: int) -> None:
    ends = arrivals_s[first:]
    most = [
        max((int(np.sum(arrivals_s[: first + n + 1] > end - w)) for n, end in enumerate(ends)), default=0)
        for w in WINDOWS_S
    ]
    assert most_within(arrivals_s, WINDOWS_S, first).tolist() == most


@given(ARRIVALS, st.integers(1, 8))
@example(np.array([0.0]), 2)
def test_steps_give_the_envelope_of_what_ended_recently(arrivals_s: np.ndarray, seconds: int) -> None:
    """The steps' times do not matter; here they come every second, so that "recently" is whole seconds."""
    envelope = RecentEnvelope(WINDOWS_S, recent_s=float(seconds))
    for now_s in np.arange(27.0):
        # Windows that end exactly now belong to this step: arrivals until now, as the tuner gets them.
        known_s = arrivals_s[arrivals_s <= now_s]
        envelope = envelope.advanced(known_s, now_s)
        assert envelope.counts.tolist() == counted(known_s, WINDOWS_S, now_s - seconds)


def test_one_burst_does_not_count_for_ever() -> None:
    envelope = RecentEnvelope(WINDOWS_S, recent_s=5.0)
    burst_s = np.zeros(100)
    assert envelope.advanced(burst_s, 0.0).counts.tolist() == [100] * 4
    assert envelope.advanced(burst_s, 0.0).advanced(burst_s, 5.0).counts.tolist() == [0] * 4


def test_nothing_was_seen_at_first() -> None:
    assert RecentEnvelope(WINDOWS_S).counts.tolist() == [0] * 4
