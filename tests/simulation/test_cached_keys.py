"""The share of requests that a cache answers, by its size and the popularity of the keys."""

from __future__ import annotations

from collections import OrderedDict

import numpy as np
import pytest

from mark.domain.errors import BadInput
from mark.domain.service import CacheSettings
from mark.simulation.cached_keys import KeyPopularity, cached_keys, popularity_of

MEGABYTE = CacheSettings(memory_mb=1)
FEW = KeyPopularity(1.1, 10_000, 9_600)  # 100 answers of these fit into a megabyte


def test_share_lies_between_that_of_lru_and_that_of_the_most_popular_keys() -> None:
    found = cached_keys(FEW, MEGABYTE)
    weights = np.arange(1, FEW.keys + 1) ** -FEW.exponent
    best = weights[: found.answers_kept].sum() / weights.sum()
    kept: OrderedDict[int, None] = OrderedDict()
    hits = 0
    for key in np.random.default_rng(0).choice(FEW.keys, 60_000, p=weights / weights.sum()).tolist():
        hits += key in kept
        kept[key] = None
        kept.move_to_end(key)
        if len(kept) > found.answers_kept:
            kept.popitem(last=False)

    assert found.answers_kept == 100
    assert hits / 60_000 + 0.05 < found.hit_share < best


def test_one_of_a_hundred_answers_kept_takes_two_thirds_of_the_requests() -> None:
    shares = [
        cached_keys(FEW, MEGABYTE).hit_share,
        cached_keys(KeyPopularity(1.1, 100_000, 600), MEGABYTE).hit_share,
    ]
    assert shares[0] == pytest.approx(0.635, abs=0.01)
    assert shares[1] == pytest.approx(0.733, abs=0.01)


def test_more_memory_and_steeper_popularity_give_more_hits_and_equal_seeds_equal_ones() -> None:
    base = cached_keys(FEW, MEGABYTE, seed=3)

    assert cached_keys(FEW, MEGABYTE, seed=3) == base
    assert cached_keys(FEW, CacheSettings(memory_mb=4)).hit_share > base.hit_share + 0.1
    assert cached_keys(KeyPopularity(1.5, 10_000, 9_600), MEGABYTE).hit_share > base.hit_share + 0.1


def test_popularity_is_read_from_text() -> None:
    assert popularity_of("zipf:1.1,1e6") == KeyPopularity(1.1, 1_000_000, 1000)
    assert popularity_of("zipf:0.8,500,64") == KeyPopularity(0.8, 500, 64)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("1.1,1e6", "must be zipf:EXPONENT,KEYS"),
        ("zipf:1.1", "must be zipf:EXPONENT,KEYS"),
        ("zipf:1.1,many", "must be zipf:EXPONENT,KEYS"),
        ("zipf:1.1,10,10,10", "must be zipf:EXPONENT,KEYS"),
        ("zipf:nan,10", "EXPONENT must be a number above 0, 10 at most"),
        ("zipf:0,10", "EXPONENT must be a number above 0"),
        ("zipf:1,1e9", "KEYS must be a whole number above 0, 10,000,000 at most"),
        ("zipf:1,inf", "KEYS must be a whole number"),
        ("zipf:1,2.5", "KEYS must be a whole number"),
        ("zipf:1,10,0", "BYTES must be a whole number above 0"),
    ],
)
def test_popularity_that_cannot_be_is_one_line(text: str, said: str) -> None:
    with pytest.raises(BadInput, match=said) as caught:
        popularity_of(text)
    assert (caught.value.where, caught.value.value) == ("--keys", text)


@pytest.mark.parametrize(
    ("popularity", "cache", "said"),
    [
        (
            KeyPopularity(1.1, 700),
            MEGABYTE,
            r"memory_mb: keeps the answers of all keys.*: 1, with room for 714",
        ),
        (KeyPopularity(1.1, 700, 2_000_000), MEGABYTE, "has no room for an answer of 2,000,000 bytes"),
        (FEW, CacheSettings(memory_mb=1, ttl_s=60.0), r"\[cache\] ttl_s: is not simulated with --keys"),
    ],
)
def test_cache_that_cannot_be_simulated_is_one_line(popularity: KeyPopularity, cache: CacheSettings, said: str) -> None:
    with pytest.raises(BadInput, match=said):
        cached_keys(popularity, cache)
