"""Inflating: compressed data comes back unchanged, and stays within its bounds."""

from __future__ import annotations

import gzip
import random
import tracemalloc
import zlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mark.models.compression import Refused, inflated

MIB = 1024 * 1024
MOST_BYTES = 4 * MIB


def refusal(body: bytes, coding: bytes, most_bytes: int = MOST_BYTES) -> int:
    with pytest.raises(Refused) as refused:
        inflated(body, coding, most_bytes)
    assert "\n" not in str(refused.value)
    return refused.value.status


@given(st.binary(max_size=2000))
def test_what_was_compressed_comes_back(body: bytes) -> None:
    for coding in (b"gzip", b"x-gzip", b" GZIP "):
        assert inflated(gzip.compress(body), coding, MOST_BYTES) == body
    assert inflated(zlib.compress(body), b"deflate", MOST_BYTES) == body
    assert inflated(body, b"identity", MOST_BYTES) == inflated(body, b"", MOST_BYTES) == body


@given(st.binary(max_size=200), st.sampled_from([b"gzip", b"deflate"]))
def test_any_other_bytes_are_refused_and_nothing_else_happens(body: bytes, coding: bytes) -> None:
    try:
        zlib.decompress(body, 47)
    except zlib.error:
        assert refusal(body, coding) == 400


@pytest.mark.parametrize("coding", [b"br", b"zstd", b"gzip, deflate", b"compress", b"\xff"])
def test_an_unknown_coding_is_415(coding: bytes) -> None:
    assert refusal(b"", coding) == 415


def test_the_end_must_be_there_and_be_the_end() -> None:
    whole = gzip.compress(b"some body")
    for wrong in (whole[:-1], whole + b"x", whole + whole, b""):
        assert refusal(wrong, b"gzip") == 400


def test_bodies_may_inflate_to_one_mib_or_32_fold() -> None:
    zeros = zlib.compress(b"\0" * MIB)
    assert len(inflated(zeros, b"deflate", MOST_BYTES)) == MIB
    assert refusal(zlib.compress(b"\0" * (MIB + 1)), b"deflate") == 413
    noise = random.Random(1).randbytes(50_000)
    body = noise + b"\0" * MIB  # into some 51 kB, of which it may become 32 times as much
    assert inflated(zlib.compress(body), b"deflate", MOST_BYTES) == body
    assert refusal(zlib.compress(noise + b"\0" * 2 * MIB), b"deflate") == 413


def test_never_beyond_the_limit_of_bodies() -> None:
    body = b"\0" * 1000
    assert inflated(zlib.compress(body), b"deflate", 1000) == body
    assert refusal(zlib.compress(body), b"deflate", 999) == 413


def test_a_bomb_costs_no_more_memory_than_its_bound() -> None:
    bomb = zlib.compress(b"\0" * 64 * MIB)
    tracemalloc.start()
    try:
        assert refusal(bomb, b"deflate", 48 * MIB) == 413
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 3 * max(MIB, 32 * len(bomb))
