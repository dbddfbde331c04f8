"""A counter-based generator for compiled code: SplitMix64 (Steele, Lea, Flood 2014); its state is a 64-bit integer."""

from __future__ import annotations

import math

import numpy as np

from mark.kernel.arrays import RANDOM, Ints
from mark.kernel.compiled import compiled


@compiled
def next_bits(counter: Ints) -> np.uint64:
    counter[RANDOM] += np.int64(-7046029254386353131)  # 0x9E3779B97F4A7C15 as a signed integer
    return mixed(np.uint64(counter[RANDOM]))


@compiled
def mixed(z: np.uint64) -> np.uint64:
    """Return the generator's output function: one to one, with random bits even for similar inputs."""
    z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return z ^ (z >> np.uint64(31))


@compiled
def uniform_of(bits: np.uint64) -> float:
    """Return a number in (0, 1]."""
    return (float(bits >> np.uint64(11)) + 1.0) * (1.0 / 9007199254740992.0)


@compiled
def lognormal(first: float, second: float, sigma: float) -> float:
    """Return a lognormal number of mean 1, from two uniform numbers (Box and Muller 1958)."""
    normal = math.sqrt(-2.0 * math.log(first)) * math.cos(2.0 * math.pi * second)
    return math.exp(sigma * normal - 0.5 * sigma * sigma)


@compiled
def factor_of(seed: int, stage: int, query: int, call: int, sigma: float) -> float:
    """Return the factor of mean 1 for one call of a query at a stage, always the same for the same arguments.

    It is lognormal, and exponential for sigma < 0. Replicas without a central queue use it for their batches, by
    number.
    """
    bits = mixed(np.uint64(seed))
    bits = mixed(bits ^ np.uint64(stage))
    bits = mixed(bits ^ np.uint64(query))
    bits = mixed(bits + np.uint64(call))
    if sigma < 0.0:
        return -math.log(uniform_of(bits))
    return lognormal(uniform_of(bits), uniform_of(mixed(~bits)), sigma)
