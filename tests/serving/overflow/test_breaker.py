"""The breaker of functions: when and for how long it is open, and which call probes them."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from mark.domain.backoff import Backoff
from mark.serving.overflow.breaker import Breaker

NOTHING_CHANGED = 0.0


def opened(most_failures: int = 3) -> Breaker:
    """Open from 0 s to 1 s."""
    breaker = Breaker(most_failures, Backoff(1.0, 8.0))
    for _ in range(most_failures):
        backed_off_s = breaker.failed(breaker.begin(0.0), 0.0)
    assert backed_off_s == 1.0
    return breaker


def test_consecutive_failures_open_the_breaker() -> None:
    breaker = Breaker(3, Backoff(1.0, 8.0))
    assert breaker.failed(breaker.begin(0.0), 0.0) == breaker.failed(breaker.begin(0.0), 0.0) == NOTHING_CHANGED
    assert breaker.admits(0.0)
    breaker.begin(0.0)
    breaker.succeeded()
    assert breaker.failed(breaker.begin(0.0), 0.0) == breaker.failed(breaker.begin(0.0), 0.0) == NOTHING_CHANGED
    assert breaker.failed(breaker.begin(0.0), 0.0) == 1.0
    assert not breaker.closed
    assert not breaker.admits(0.99)
    assert breaker.admits(1.0)


def test_half_open_sends_one_call_at_a_time() -> None:
    breaker = opened()
    period = breaker.begin(1.0)
    assert not breaker.admits(1.0)
    breaker.undecided(period)
    assert breaker.admits(1.0)
    breaker.begin(1.0)
    breaker.succeeded()
    assert breaker.closed
    assert breaker.admits(1.0)


def test_each_failed_probe_doubles_the_wait_up_to_a_limit() -> None:
    breaker, now_s, waits_s = opened(), 1.0, []
    for _ in range(5):
        waits_s.append(breaker.failed(breaker.begin(now_s), now_s))
        now_s += waits_s[-1]
        assert not breaker.admits(now_s - 0.01)
    assert waits_s == [2.0, 4.0, 8.0, 8.0, 8.0]
    breaker.begin(now_s)
    breaker.succeeded()
    assert [breaker.failed(breaker.begin(now_s), now_s) for _ in range(3)] == [0.0, 0.0, 1.0]


def test_functions_that_ask_for_time_get_it() -> None:
    """Days are not granted: the `retry-after` may be wrong, and a probe costs little."""
    breaker = Breaker(1, Backoff(1.0, 8.0))
    assert breaker.failed(breaker.begin(0.0), 0.0, asked_s=3.0) == 3.0
    assert not breaker.admits(2.9)
    assert breaker.failed(breaker.begin(3.0), 3.0, asked_s=86_400.0) == 8.0


def test_calls_that_were_under_way_when_it_opened_prolong_nothing() -> None:
    breaker = Breaker(2, Backoff(1.0, 8.0))
    early = [breaker.begin(0.0) for _ in range(10)]
    assert [breaker.failed(period, 0.5) for period in early[:4]] == [0.0, 1.0, 0.0, 0.0]
    assert breaker.admits(1.5)
    probe = breaker.begin(1.5)
    assert breaker.failed(early[5], 1.6) == NOTHING_CHANGED
    breaker.undecided(early[6])
    assert not breaker.admits(1.6)  # the probe is still under way
    assert breaker.failed(probe, 1.7) == 2.0


def test_a_late_success_closes_it() -> None:
    """Any successful call shows that functions answer."""
    breaker = opened()
    breaker.succeeded()
    assert breaker.admits(0.0)


@given(st.lists(st.tuples(st.sampled_from(["ok", "bad", "unknown"]), st.floats(0.0, 3.0)), max_size=60))
def test_the_breaker_bounds_failures_and_never_stays_open_for_good(steps: list[tuple[str, float]]) -> None:
    """A call may go out at the latest 8 s later, and calls since the last success are bounded by the elapsed time."""
    breaker, now_s, since_s, asked = Breaker(3, Backoff(1.0, 8.0)), 0.0, 0.0, 0
    for outcome, pause_s in steps:
        now_s += pause_s
        if not breaker.admits(now_s):
            assert breaker.admits(now_s + 8.0)
            continue
        period = breaker.begin(now_s)
        if outcome == "ok":
            breaker.succeeded()
            asked, since_s = 0, now_s
        elif outcome == "bad":
            asked += 1
            breaker.failed(period, now_s)
            assert asked <= 3 + (now_s - since_s) / 1.0 + 1
        else:
            breaker.undecided(period)
