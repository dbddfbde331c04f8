"""Requests that a cache answers, so that no instance gets them, by the known popularity of their keys.

Each request asks for a key by Zipf's law, independently of the others. A cache in steady state answers a fixed share of
them. The remaining requests are thinned; only these reach instances and planners.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from mark.domain.errors import BadInput
from mark.domain.service import CacheSettings
from mark.serving.backend.sieve import ENTRY_BYTES, Owner, Sieve

ZIPF = "zipf:"
_MOST_KEYS, _MOST_EXPONENT = 10_000_000, 10.0
_ANSWER_BYTES, _MOST_BYTES = 1000, 1 << 30
# Requests that fill the cache, for each answer that it holds, and requests that are counted.
_FILLING, _LEAST_FILLING, _MOST_FILLING, _COUNTED = 4, 100_000, 2_000_000, 200_000


@dataclass(frozen=True, slots=True)
class KeyPopularity:
    """The k-th of `keys` keys is requested in proportion to k^-exponent. An answer has `answer_bytes`."""

    exponent: float
    keys: int
    answer_bytes: int = _ANSWER_BYTES


@dataclass(frozen=True, slots=True)
class CachedKeys:
    """The share of requests that the cache answers, and the number of answers that it holds."""

    hit_share: float
    answers_kept: int


def popularity_of(text: str) -> KeyPopularity:
    """Return the popularity that `zipf:EXPONENT,KEYS[,BYTES]` names. Raises BadInput."""
    parts = text.removeprefix(ZIPF).split(",")
    try:
        if not text.startswith(ZIPF) or not 2 <= len(parts) <= 3:
            raise ValueError
        exponent, keys, size = (*map(float, parts), float(_ANSWER_BYTES))[:3]
    except ValueError:
        what = "must be zipf:EXPONENT,KEYS or zipf:EXPONENT,KEYS,BYTES, such as zipf:1.1,1e6,400"
        raise BadInput(what, "--keys", text) from None
    for value, most, named in (
        (exponent, _MOST_EXPONENT, "EXPONENT"),
        (keys, _MOST_KEYS, "KEYS"),
        (size, _MOST_BYTES, "BYTES"),
    ):
        if not 0.0 < value <= most or (named != "EXPONENT" and value != int(value)):
            kind = "number" if named == "EXPONENT" else "whole number"
            raise BadInput(f"{named} must be a {kind} above 0, {most:,.0f} at most", "--keys", text)
    return KeyPopularity(exponent, int(keys), int(size))


def cached_keys(popularity: KeyPopularity, cache: CacheSettings, seed: int = 0) -> CachedKeys:
    """Return the share that one process's cache answers under its own eviction rule. Raises BadInput for a `ttl_s`."""
    if cache.ttl_s is not None:
        what = "is not simulated with --keys: leave it out, and answers stay while there is memory"
        raise BadInput(what, "[cache] ttl_s", cache.ttl_s)
    size = ENTRY_BYTES + popularity.answer_bytes
    room = cache.memory_mb * 1_000_000 // size
    if room == 0:
        raise BadInput(f"has no room for an answer of {popularity.answer_bytes:,} bytes", "[cache] memory_mb")
    if room >= popularity.keys:
        what = "keeps the answers of all keys, so that no instance sees a request"
        raise BadInput(what, "[cache] memory_mb", f"{cache.memory_mb}, with room for {room:,} answers")
    filling = min(max(_LEAST_FILLING, _FILLING * room), _MOST_FILLING)
    weights = np.cumsum(np.arange(1, popularity.keys + 1) ** -popularity.exponent)
    drawn = np.random.default_rng(seed).random(filling + _COUNTED) * weights[-1]
    sieve, owner, hits = Sieve[bool](room), Owner(), 0
    for number, key in enumerate(np.searchsorted(weights, drawn).tolist()):
        name = key.to_bytes(4)
        if sieve.get(name, 0.0):
            hits += number >= filling
        else:
            sieve.put(name, True, owner, 1, 0.0)
    return CachedKeys(hits / _COUNTED, room)
