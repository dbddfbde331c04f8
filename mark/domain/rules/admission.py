"""Admission: what a bouncer takes, and where the rest goes (MArk, section 4.1)."""

from math import erf, log, sqrt

# Sums of times near 1e6 s carry rounding errors of about 1e-10 s; a microsecond is far above them and far below any
# latency that matters. Without it a request that takes exactly RT_max would be late by chance.
TOLERANCE_S = 1e-6

NEVER_S = float("inf")
INSTANCE = 0
FUNCTION = 1
REJECT = 2
LATE = {"function": FUNCTION, "refuse": REJECT}  # of `destination`, by its name in a service file

# Standard deviations of the margin. Measured at 5 to 130 % load with a 99th percentile of 1.1 to 3 times the mean: with
# 1 more requests miss where few batches fit into RT_max, see docs/kernel.md.
MARGIN = 0.5

# Where a function answers in time, an instance must be in time with this probability. A miss is priced at 10 calls
# where 2 % may be late, and at more where less may. Measured over prices of 3 to 100 calls, see docs/kernel.md.
LEAST_PROBABILITY, DOUBTS = 0.85, 2.5


def in_time(latency_s: float, rt_max_s: float) -> bool:
    """Was (or would be) a request answered within RT_max?"""
    return latency_s <= rt_max_s + TOLERANCE_S


def destination(instance_s: float, function_s: float, horizon_s: float, late: int) -> int:
    """Where a request goes, given its latency on the best instance and on a function (infinite: not to be had).

    A bouncer admits what would finish within its horizon (RT_max) if no further request came, and no other: a queue of
    late requests makes those behind it late too, for long after a surge has ended. Otherwise the function answers in
    time, and at once (MArk, section 4.1). What is late wherever goes where `late` says: FUNCTION or REJECT. Without a
    function it is refused.
    """
    if instance_s <= horizon_s + TOLERANCE_S:
        return INSTANCE
    if function_s == NEVER_S:
        return REJECT
    return FUNCTION if function_s <= horizon_s + TOLERANCE_S else late


def margin_s(waits: bool, squares_s2: float, variation: float) -> float:
    """What a bouncer adds to the expected completion of a request for the scatter of the batches up to its own.

    `squares_s2` is the sum of their squared mean times, `variation` the squared coefficient of variation of each. A
    request that is admitted and late makes those behind it late too, so the margin is kept where a batch `waits`. A
    request that waits for running batches only is admitted by its expected completion. Certain times need no margin.
    """
    return MARGIN * (variation * squares_s2) ** 0.5 if waits else 0.0


def least_probability(attainment: float) -> float:
    """The least probability of being in time with which an instance keeps a request that a function answers in time.

    By value: with P(in time) on the instance, a miss at its price loses (1 - P) x price there, and nothing on the
    function, which takes the price of a call. Every second request that an instance takes sends one behind it to the
    function. So the instance is worth it where P > 1 - call / (2 x price). The price of a miss follows from the share
    that may be late.
    """
    return max(LEAST_PROBABILITY, 1.0 - DOUBTS * (1.0 - attainment))


def in_time_probability(expected_s: float, squares_s2: float, variation: float, left_s: float) -> float:
    """The probability that batches are over within `left_s`, if they take `expected_s` on average, by a lognormal.

    `squares_s2` and `variation` are those of `margin_s`.
    """
    if left_s <= 0.0:
        return 0.0
    spread = log(1.0 + variation * squares_s2 / (expected_s * expected_s))
    if spread <= 0.0:
        return 1.0 if expected_s <= left_s + TOLERANCE_S else 0.0
    return 0.5 * (1.0 + erf((log(left_s / expected_s) + 0.5 * spread) / sqrt(2.0 * spread)))


def doubtful(probability: float, alone: float, least: float) -> bool:
    """Is a request better passed on to a function that is in time, by `least_probability`?

    `alone` is the probability of a request on an idle instance. Where that is low the rule asks for no more than the
    instance can do, because otherwise instances would stand idle.
    """
    return probability < least * alone
