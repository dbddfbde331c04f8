"""The calls that a cache answers most often: their order, their limits, and their form on the disk."""

from __future__ import annotations

import pytest

from mark.models.call import Call
from mark.models.results import call_with
from mark.serving.backend.hot_calls import HotCalls, calls_in, packed


def use(hot: HotCalls, item: object, times: int = 1) -> Call:
    call = call_with(item)
    for _ in range(times):
        hot.used(bytes(call.body), call, 0.0)
    return call


def test_calls_are_in_the_order_of_their_uses() -> None:
    hot = HotCalls()
    calls = [use(hot, item, times) for item, times in (("once", 1), ("often", 5), ("twice", 2))]
    assert hot.most_used(0.0) == [calls[1], calls[2], calls[0]]


def test_recent_uses_count_more_than_old_ones() -> None:
    hot = HotCalls()
    old, new = use(hot, "old", 8), use(hot, "new", 1)
    assert hot.most_used(0.0) == [old, new]
    hot.age()
    use(hot, "new", 4)
    assert hot.most_used(0.0) == [new, old]


def test_calls_before_a_deletion_and_of_yesterday_are_left_out() -> None:
    hot = HotCalls()
    use(hot, "of a deleted key", 9)
    hot.forget()
    new = use(hot, "new")
    assert hot.most_used(86_000.0) == [new]
    assert hot.most_used(87_000.0) == []


def test_call_that_would_take_much_of_the_memory_is_left_out() -> None:
    hot = HotCalls(64_000)
    use(hot, "x" * 1000)
    small = use(hot, "small")
    assert hot.most_used(0.0) == [small]


def test_call_that_is_not_used_again_leaves_first() -> None:
    hot = HotCalls(64 * 500)
    kept = use(hot, 0, 2)
    for item in range(1, 200):
        use(hot, item)
    assert hot.most_used(0.0)[0] == kept
    assert len(hot.most_used(0.0)) < 100


def test_call_of_a_client_without_stages_is_left_out() -> None:
    hot = HotCalls()
    hot.used(b"key", Call("oip", "application/json", b"{}"), 0.0)
    assert hot.most_used(0.0) == []


def test_packed_calls_are_read_again() -> None:
    calls = [call_with(item) for item in ("a", {"b": [1, 2.5]}, b"\n\n", None)]
    assert calls_in(packed(calls)) == calls
    assert calls_in(packed([])) == []


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"{}\n",
        b"[]\n",
        b'{"format": 2, "calls": []}\n',
        packed([call_with("a")])[:-1],
        b'{"format":1,"calls":[1]}\n',
    ],
)
def test_other_data_are_refused(data: bytes) -> None:
    with pytest.raises(ValueError):  # noqa: PT011, because each has its own text
        calls_in(data)
