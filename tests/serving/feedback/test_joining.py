"""Feedback finds its answer once, for as long as it should, in memory that does not grow."""

from __future__ import annotations

from hypothesis import example, given, settings
from hypothesis import strategies as st

from mark.models.answer import AskedModel, Provenance
from mark.serving.feedback.joining import ANSWER_BYTES, ID_BYTES, FeedbackJoin, size_of
from mark.serving.feedback.port import APPLIED, DUPLICATE, EXPIRED, UNKNOWN, ServedAnswer
from tests.serving.feedback.made import answer, feedback

AMPLE = 10**9


def apply(join: FeedbackJoin, identity: str, now_s: float, version: str | None = None) -> str:
    """Judge one piece, and store it if it must be stored."""
    ((result, _),) = join.judge([feedback(identity, version)], now_s)
    if result == APPLIED:
        join.applied(identity, now_s)
    return result


def test_an_answer_takes_feedback_once() -> None:
    join = FeedbackJoin(100.0, AMPLE)
    served = answer("a", 5.0)
    join.answered(served)
    assert join.judge([feedback("a"), feedback("a"), feedback("b")], 6.0) == [
        (APPLIED, served),
        (DUPLICATE, None),
        (UNKNOWN, None),
    ]
    join.applied("a", 6.0)
    assert apply(join, "a", 7.0) == DUPLICATE
    assert join.waiting == 0


def test_what_could_not_be_kept_may_come_again() -> None:
    """Judging alone stores nothing."""
    join = FeedbackJoin(100.0, AMPLE)
    join.answered(answer("a"))
    for _ in range(2):
        assert join.judge([feedback("a")], 1.0)[0][0] == APPLIED


def test_answers_expire_at_the_horizon_ids_are_forgotten_at_two() -> None:
    join = FeedbackJoin(100.0, AMPLE)
    join.answered(answer("a"))
    join.answered(answer("b"))
    assert apply(join, "a", 100.0) == APPLIED
    assert apply(join, "b", 100.5) == EXPIRED
    assert apply(join, "b", 200.5) == EXPIRED
    assert apply(join, "b", 201.0) == UNKNOWN
    assert (join.waiting, join.bytes) == (0, 0)


def test_an_id_answered_again_stands_for_the_newest_answer() -> None:
    """If the answer before already has feedback, the id takes no more."""
    join = FeedbackJoin(100.0, AMPLE)
    newest = answer("a", 60.0, "2")
    join.answered(answer("a", 0.0, "1"))
    join.answered(newest)
    assert join.judge([feedback("a")], 110.0) == [(APPLIED, newest)]
    join.applied("a", 110.0)
    join.answered(answer("a", 120.0))
    assert apply(join, "a", 121.0) == DUPLICATE
    assert join.waiting == 0


def test_an_expired_id_that_is_answered_again_is_an_answer() -> None:
    join = FeedbackJoin(100.0, AMPLE)
    join.answered(answer("a"))
    assert apply(join, "a", 101.0) == EXPIRED
    join.answered(answer("a", 102.0))
    assert apply(join, "a", 103.0) == APPLIED


def test_feedback_for_a_version_is_on_its_answers_only() -> None:
    join = FeedbackJoin(100.0, AMPLE)
    join.answered(answer("a", version="1"))
    assert apply(join, "a", 1.0, "2") == UNKNOWN
    assert apply(join, "a", 1.0, "1") == APPLIED


def test_the_oldest_answers_make_room() -> None:
    join = FeedbackJoin(100.0, 3 * size_of(answer("a")))
    for identity in "abcd":
        join.answered(answer(identity))
    assert [apply(join, identity, 1.0) for identity in "ad"] == [UNKNOWN, APPLIED]


def test_provenance_counts_in_memory() -> None:
    join = FeedbackJoin(100.0, 4 * size_of(answer("a")))
    join.answered(answer("a"))
    before = join.bytes
    how = Provenance((AskedModel("1"),), note=b"{}")
    join.answered(answer("b", provenance=how))
    assert join.bytes == before + size_of(answer("b")) + how.memory_bytes()
    join.answered(answer("c", provenance=Provenance(note=b"x" * 4 * size_of(answer("a")))))
    assert join.waiting == 0


def test_ids_leave_half_of_the_memory_to_answers() -> None:
    """The oldest ids are dropped, however much feedback comes."""
    join = FeedbackJoin(100.0, 10 * ID_BYTES + 100 * ANSWER_BYTES)
    for number in range(1000):
        join.answered(answer(str(number)))
        assert apply(join, str(number), 1.0) == APPLIED
    for number in range(1000, 1040):
        join.answered(answer(str(number)))
    assert join.waiting == 40
    assert apply(join, "999", 2.0) == DUPLICATE
    assert apply(join, "0", 2.0) == UNKNOWN


IDS = st.sampled_from("abcdef")
STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("answer"), IDS, st.integers(0, 2000)),
        st.tuples(st.just("feedback"), st.lists(IDS, min_size=1, max_size=4), st.booleans()),
        st.tuples(st.just("time"), st.integers(0, 80), st.none()),
    ),
    max_size=30,
)


@settings(max_examples=60, deadline=None)
@given(STEPS)
@example(
    [("answer", "a", 0), ("feedback", ["a"], True), ("time", 80, None), ("time", 21, None)]
    + 2 * [("answer", "a", 0)]
    + [("feedback", ["a"], False)]
)
def test_in_any_order_ids_are_applied_once_in_a_horizon(steps: list) -> None:
    """With ample memory it equals a table without limits, in which a failed write leaves nothing."""
    horizon_s, now_s = 100.0, 0.0
    join = FeedbackJoin(horizon_s, AMPLE)
    newest: dict[str, ServedAnswer] = {}  # by id
    applied_s: dict[str, float] = {}
    for what, argument, more in steps:
        if what == "time":
            now_s += argument
        elif what == "answer":
            # Another answer does not replace one whose feedback is still remembered.
            if now_s - applied_s.get(argument, -1e9) > horizon_s:
                newest[argument] = answer(argument, now_s)
            join.answered(answer(argument, now_s))
        else:
            taken = set()
            judged = join.judge([feedback(one) for one in argument], now_s)
            for one, (result, found) in zip(argument, judged, strict=True):
                fresh = one in newest and now_s - newest[one].served_at_s <= horizon_s
                assert (result == APPLIED) == (fresh and one not in taken)
                if result == APPLIED:
                    assert found == newest[one]
                    taken.add(one)
                elif one in taken:
                    assert result == DUPLICATE
            for one in taken if more else ():
                assert now_s - applied_s.get(one, -1e9) > horizon_s
                applied_s[one] = now_s
                del newest[one]
                join.applied(one, now_s)


@settings(max_examples=40, deadline=None)
@given(STEPS, st.integers(0, 8000))
def test_in_any_order_memory_is_bounded_and_answers_applied_once(steps: list, memory_bytes: int) -> None:
    now_s, applied = 0.0, []
    join = FeedbackJoin(100.0, memory_bytes)
    for what, argument, more in steps:
        if what == "time":
            now_s += argument
            join.forget(now_s)
        elif what == "answer":
            join.answered(answer(argument, now_s, data=bytes(more)))
        else:
            for identity in argument:
                ((result, found),) = join.judge([feedback(identity)], now_s)
                if result == APPLIED:
                    applied.append(found)
                    join.applied(identity, now_s)
        assert 0 <= join.bytes <= memory_bytes
        assert join.bytes == sum(map(size_of, join._answers.values())) + ID_BYTES * len(join._ids)
    assert len(set(map(id, applied))) == len(applied)
