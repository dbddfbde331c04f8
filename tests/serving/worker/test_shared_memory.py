"""Batches in shared memory: one side reads the other's writes, at any size; and nonsense is detected."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mark.models.call import Call, Reply
from mark.serving.worker.shared_memory import KEEP_BYTES, Arena, Malformed

# Headers as latin-1 decodes them, and worse.
TEXTS = st.text(st.characters(codec="latin-1"), max_size=12) | st.sampled_from(["application/json", "\ud800", "ŝ\0"])
PARTS = st.none() | st.integers(0, 2**40)
CALLS = st.builds(Call, TEXTS, TEXTS, st.binary(max_size=50), PARTS, TEXTS)
VIEWS = st.binary().map(lambda content: memoryview(content))
REPLIES = st.builds(Reply, st.integers(100, 599), TEXTS, st.binary(max_size=50) | VIEWS, PARTS)


class Sides:
    """The two ends of one arena: each has a separate descriptor and map, as in two processes."""

    def __init__(self) -> None:
        self.writer = Arena.create("mark-test")
        self.reader = Arena(os.dup(self.writer.fd))

    def close(self) -> None:
        self.writer.close()
        self.reader.close()


@pytest.fixture
def sides() -> Iterator[Sides]:
    sides = Sides()
    yield sides
    sides.close()


SIDES = Sides()  # for properties: examples share it, as batches do


def one_call(body: bytes) -> Call:
    return Call("oip", "application/json", body)


@given(st.lists(CALLS, max_size=20))
def test_calls_arrive_as_they_were_sent(calls: list[Call]) -> None:
    """All parts arrive in order, whatever the last batch left in memory; bodies are views, not copies."""
    got = SIDES.reader.read_calls(SIDES.writer.write_calls(calls))
    assert got == calls
    assert all(isinstance(call.body, memoryview) and call.body.readonly for call in got)


@given(st.lists(REPLIES, max_size=20))
def test_replies_arrive_as_they_were_sent(replies: list[Reply]) -> None:
    got = SIDES.reader.read_replies(SIDES.writer.write_replies(replies))
    assert got == replies


def test_replies_outlive_the_next_batch(sides: Sides) -> None:
    """A worker may write its next answers while the last are on their way to clients."""
    got = sides.reader.read_replies(sides.writer.write_replies([Reply(200, "text/plain", b"first")]))
    sides.writer.write_replies([Reply(200, "text/plain", b"later")])
    assert got[0].body == b"first"


def test_texts_are_written_once_for_a_batch(sides: Sides) -> None:
    """64 calls of one kind cost 24 bytes each and its texts once: the hot path encodes no text per request."""
    texts = b'[["oip", "application/json", ""]]'
    assert sides.writer.write_calls([one_call(b"x" * 100)] * 64) == 16 + 64 * (24 + 100) + len(texts)


def test_replies_are_promised_before_they_are_there(sides: Sides) -> None:
    """Both sides see the promise; the written replies keep it, and the next batch begins without one."""
    ours, theirs = sides.reader, sides.writer
    ours.begin()
    assert not ours.promised
    theirs.promise()
    assert ours.promised
    size = theirs.write_replies([Reply(200, "a/b", b"x")])
    assert ours.promised
    assert [bytes(reply.body) for reply in ours.read_replies(size)] == [b"x"]
    ours.begin()
    assert not theirs.promised


def test_a_batch_larger_than_the_arena_fits(sides: Sides) -> None:
    """The arena grows, on both sides; views of the smaller map stay valid."""
    small = sides.reader.read_calls(sides.writer.write_calls([one_call(b"small")]))
    body = os.urandom(KEEP_BYTES) * 2
    large = sides.reader.read_calls(sides.writer.write_calls([one_call(b"small"), one_call(body)]))
    assert (large[0].body, large[1].body) == (b"small", body)
    assert len(small[0].body) == 5
    bytes(small[0].body)  # no fault: the memory is mapped


def test_trimming_gives_back_what_a_large_batch_took(sides: Sides) -> None:
    """Memory returns to the system, and the arena can still be used."""
    sides.writer.write_calls([one_call(bytes(3 * KEEP_BYTES))])
    assert os.fstat(sides.writer.fd).st_blocks * 512 >= 3 * KEEP_BYTES
    sides.reader.trim()
    sides.writer.trim()
    assert os.fstat(sides.writer.fd).st_blocks * 512 <= KEEP_BYTES
    assert sides.reader.read_calls(sides.writer.write_calls([one_call(b"next")]))[0].body == b"next"


def test_unused_memory_costs_nothing(sides: Sides) -> None:
    """A worker's arenas are address space until a batch needs them."""
    sides.writer.write_calls([one_call(b"x" * 1000)])
    assert os.fstat(sides.writer.fd).st_blocks * 512 <= 8192


def test_an_arena_cannot_be_shrunk(sides: Sides) -> None:
    """A worker that could would kill the bouncer by SIGBUS."""
    with pytest.raises(PermissionError):
        os.ftruncate(sides.reader.fd, 1)


def test_a_body_that_is_no_bytes_is_refused_at_once(sides: Sides) -> None:
    with pytest.raises(TypeError):
        sides.writer.write_replies([Reply(200, "text/plain", "text")])  # type: ignore[arg-type]


@given(st.binary(min_size=64, max_size=200), st.integers(0, 300) | st.integers(0, 2**64 - 1))
def test_nonsense_is_malformed(noise: bytes, size: int) -> None:
    """A broken worker may leave any bytes: they give one error, no crash, and no gigabytes of memory."""
    os.pwrite(SIDES.writer.fd, noise, 0)
    with pytest.raises(Malformed):
        SIDES.reader.read_replies(size)


@given(st.lists(REPLIES, min_size=1, max_size=3), st.data())
def test_a_damaged_batch_is_malformed_or_well_formed(replies: list[Reply], data: st.DataObject) -> None:
    """One byte wrong in the head: either it is seen, or there are still replies, with the right types."""
    size = SIDES.writer.write_replies(replies)
    at = data.draw(st.integers(0, 16 + 24 * len(replies)))
    os.pwrite(SIDES.writer.fd, data.draw(st.binary(min_size=1, max_size=1)), at)
    try:
        got = SIDES.reader.read_replies(size)
    except Malformed:
        return
    assert all(isinstance(reply.status, int) and isinstance(reply.content_type, str) for reply in got)
    assert sum(len(reply.body) for reply in got) <= size
