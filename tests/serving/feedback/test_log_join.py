"""Logs of several bouncers, joined: every id with an answer and feedback once, wherever they came."""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mark.domain.errors import BadInput
from mark.serving.feedback.joining import FeedbackJoin
from mark.serving.feedback.log import FeedbackLog
from mark.serving.feedback.log_join import LogJoin, join_logs
from mark.serving.feedback.port import APPLIED, UNKNOWN, Observation
from tests.serving.feedback.made import answer, feedback

MB = 1_000_000
HORIZON_S = 100.0


class Bouncer:
    """A bouncer's handling of answers and feedback, without its loop."""

    def __init__(self, folder: Path) -> None:
        self.log, self.join = FeedbackLog(folder, 16 * MB), FeedbackJoin(HORIZON_S, MB)

    def answers(self, identity: str, now_s: float, version: str = "1") -> None:
        one = answer(identity, now_s, version)
        self.join.answered(one)
        self.log.answered([one])

    def receives(self, identity: str, now_s: float, label: int = 7, version: str | None = None) -> str:
        one = feedback(identity, version, label=label)
        ((result, found),) = self.join.judge([one], now_s)
        observed = [] if found is None else [Observation(found, one, now_s)]
        self.log.received(observed, [one] if result == UNKNOWN else [], now_s)
        if result == APPLIED:
            self.join.applied(identity, now_s)
        return result


def joined(*folders: Path, horizon_s: float = HORIZON_S) -> tuple[list[tuple[str, float, int]], LogJoin]:
    """Return id, time of the answer and label of each observation."""
    found = LogJoin()
    lines = list(join_logs(folders, horizon_s, found))
    return [(line["id"], line["served_at_s"], line["feedback"]["label"]) for line in lines], found


def test_feedback_that_reached_another_bouncer_is_joined_once(tmp_path: Path) -> None:
    one, other = Bouncer(tmp_path / "one"), Bouncer(tmp_path / "other")
    for identity in ("here", "there", "both"):
        one.answers(identity, 1.0)
    assert one.receives("here", 2.0) == APPLIED
    assert other.receives("there", 2.0, label=1) == other.receives("there", 3.0, label=2) == UNKNOWN
    assert one.receives("both", 2.0, label=3) == APPLIED
    assert other.receives("both", 1.5, label=4) == UNKNOWN
    assert other.receives("unknown", 2.0) == UNKNOWN
    assert joined(tmp_path) == (
        [("here", 1.0, 7), ("both", 1.0, 3), ("there", 1.0, 1)],
        LogJoin(observed=2, joined=1, repeated=2, unanswered=1),
    )
    assert joined(tmp_path / "other") == ([], LogJoin(unanswered=4))


def test_an_answer_from_before_a_restart_is_joined(tmp_path: Path) -> None:
    before = Bouncer(tmp_path)
    before.answers("a", 1.0)
    before.answers("b", 1.0)
    assert before.receives("a", 2.0) == APPLIED
    before.log.close()
    after = Bouncer(tmp_path)
    assert after.receives("a", 3.0) == after.receives("b", 3.0) == UNKNOWN
    assert joined(tmp_path) == ([("a", 1.0, 7), ("b", 1.0, 7)], LogJoin(observed=1, joined=1, repeated=1))


def test_two_copies_of_a_request_are_one_observation(tmp_path: Path) -> None:
    """With hedging both answered, and both have feedback. Otherwise the newest answer before the feedback counts."""
    one, other, third = (Bouncer(tmp_path / name) for name in ("one", "other", "third"))
    one.answers("a", 1.0)
    other.answers("a", 1.1)
    assert one.receives("a", 2.0) == other.receives("a", 2.0) == APPLIED
    for now_s, bouncer in ((4.0, other), (3.0, one), (9.0, one)):
        bouncer.answers("b", now_s)
    assert third.receives("b", 5.0) == UNKNOWN
    assert joined(tmp_path) == ([("a", 1.0, 7), ("b", 4.0, 7)], LogJoin(observed=1, joined=1, repeated=1))


def test_the_horizon_and_the_version_hold_off_line(tmp_path: Path) -> None:
    one, other = Bouncer(tmp_path / "one"), Bouncer(tmp_path / "other")
    one.answers("late", 0.0)
    one.answers("versioned", 0.0, "2")
    other.receives("late", 100.5)
    other.receives("versioned", 1.0, label=1, version="1")
    assert joined(tmp_path) == ([], LogJoin(unanswered=2))
    other.receives("versioned", 2.0, label=2, version="2")
    assert joined(tmp_path)[0] == [("versioned", 0.0, 2)]
    assert len(joined(tmp_path, horizon_s=101.0)[0]) == 2


def test_a_line_that_was_cut_off_harms_no_other(tmp_path: Path) -> None:
    one = Bouncer(tmp_path)
    one.answers("a", 1.0)
    one.receives("a", 2.0)
    one.log.close()
    with next(tmp_path.rglob("observations-*")).open("ab") as file:
        file.write(b'{"id": "b", "mod')
    again = Bouncer(tmp_path)
    again.answers("c", 1.0)
    again.receives("c", 2.0)
    assert joined(tmp_path) == ([("a", 1.0, 7), ("c", 1.0, 7)], LogJoin(observed=2, unreadable=1))


def test_a_folder_without_a_log_is_bad_input(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match="no feedback log in it"):
        joined(tmp_path)
    FeedbackLog(tmp_path, MB).close()
    assert joined(tmp_path) == ([], LogJoin())


@settings(max_examples=8, deadline=None)
@given(
    st.lists(
        st.tuples(st.sampled_from(("answer", "feedback", "restart")), st.sampled_from("abcd"), st.integers(0, 2)),
        max_size=15,
    )
)
def test_each_id_is_joined_exactly_once_wherever_its_parts_come(
    steps: Sequence[tuple[str, str, int]],
) -> None:
    """An id is observed if some feedback on it came after some answer, and then once."""
    with tempfile.TemporaryDirectory() as folder:
        bouncers = [Bouncer(Path(folder, str(number))) for number in range(3)]
        expected, answered = set(), set()
        for now_s, (what, identity, number) in enumerate(steps):
            if what == "answer":
                bouncers[number].answers(identity, float(now_s))
                answered.add(identity)
            elif what == "feedback":
                bouncers[number].receives(identity, float(now_s))
                expected |= {identity} & answered
            else:
                bouncers[number].log.close()
                bouncers[number] = Bouncer(Path(folder, str(number)))
        found, _ = joined(Path(folder))
        assert sorted(identity for identity, *_ in found) == sorted(expected)
        for bouncer in bouncers:
            bouncer.log.close()
