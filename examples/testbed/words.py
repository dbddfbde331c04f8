"""A model in plain Python, which keeps one core busy: how friendly is a text?"""

from __future__ import annotations

import math
import random
from itertools import pairwise
from typing import Any

import mark

FEATURES = 4096


class Words(mark.Model):
    """A logistic regression on hashed words and pairs of words. Its weights are drawn: it is here to be served."""

    inputs = (mark.TensorSpec("text", "BYTES"),)
    outputs = (mark.TensorSpec("friendly", "FP64"),)
    warmup = (b"a first text to begin with",)

    def load(self) -> None:
        numbers = random.Random(1)
        self._weights = [numbers.gauss(0.0, 1.0) for _ in range(FEATURES)]

    def predict(self, batch: list[Any]) -> list[float]:
        return [self._score(bytes(text).lower().split()) for text in batch]

    def _score(self, words: list[bytes]) -> float:
        pairs = [first + b" " + second for first, second in pairwise(words)]
        total = sum(self._weights[_hash(feature) % FEATURES] for feature in (*words, *pairs))
        return 1.0 / (1.0 + math.exp(-total / math.sqrt(1.0 + len(words) + len(pairs))))


def _hash(feature: bytes) -> int:
    """FNV-1a, the same in every process."""
    value = 0x811C9DC5
    for byte in feature:
        value = (value ^ byte) * 0x01000193 & 0xFFFFFFFF
    return value
