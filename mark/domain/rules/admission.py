"""Admission: the requests that a bouncer accepts, and the destination of the others (MArk, section 4.1)."""

from math import erf, log, sqrt

# Sums of times near 1e6 s carry rounding errors of about 1e-10 s; a microsecond is far above them and far below any
# latency that matters. Without it a request that takes exactly RT_max would be late by chance.
TOLERANCE_S = 1e-6

NEVER_S = float("inf")
INSTANCE = 0
FUNCTION = 1
REJECT = 2
LATE = {"function": FUNCTION, "refuse": REJECT}  # `late` of `destination`, by its name in a service file

# Standard deviations of the margin. Measured at 5 to 130 % load with a 99th percentile of 1.1 to 3 times the mean; with
# 1, more requests miss if few batches fit into RT_max, see docs/kernel.md.
MARGIN = 0.5

# If a function answers in time, an instance must be in time with at least this probability. A miss is priced at 10
# calls if 2 % may be late, and higher if less may. Measured over prices of 3 to 100 calls, see docs/kernel.md.
LEAST_PROBABILITY, DOUBTS = 0.85, 2.5

# Half of the requests that may be late may queue late. If all may, one fleet in eight misses its promise at a load at
# which it kept it, see docs/designs/2026-11-28-admission-under-scatter.md.
QUEUED_LATE = 0.5
MOST_QUEUED_LATE = 20.0
LONGEST_LATE = 1.25  # times RT_max


def in_time(latency_s: float, rt_max_s: float) -> bool:
    """Return whether a request with this latency is answered within RT_max."""
    return latency_s <= rt_max_s + TOLERANCE_S


def destination(instance_s: float, function_s: float, horizon_s: float, late: int) -> int:
    """Return a request's destination, by its latency on the best instance and on a function (infinite: not available).

    A bouncer admits exactly the requests that would finish within their horizon (RT_max) if no further request came,
    because a queue of late requests makes those behind it late too, long after a surge has ended. Other requests go to
    the function if that answers in time (MArk, section 4.1). A request that is late everywhere goes to `late`: FUNCTION
    or REJECT. Without a function it is refused.
    """
    if instance_s <= horizon_s + TOLERANCE_S:
        return INSTANCE
    if function_s == NEVER_S:
        return REJECT
    return FUNCTION if function_s <= horizon_s + TOLERANCE_S else late


def margin_s(waits: bool, squares_s2: float, variation: float) -> float:
    """Return the margin on the expected completion of a request for the variance of the batches up to its own.

    `squares_s2` is the sum of their squared mean times, `variation` the squared coefficient of variation of each. An
    admitted request that is late makes those behind it late too, so the margin applies when a batch `waits`. A request
    that waits only for running batches is admitted by its expected completion. Deterministic times need no margin.
    """
    return MARGIN * (variation * squares_s2) ** 0.5 if waits else 0.0


def least_probability(attainment: float) -> float:
    """Return the least probability of being in time for an instance to keep a request that a function can answer.

    By expected cost: a request costs (1 - P) x price of a miss on the instance, where P is its probability of being in
    time, and a call on the function. But every second request on an instance sends a later one to the function, so the
    instance saves half a call only, and is better if P > 1 - call / (2 x price). The price of a miss follows from the
    share that may be late.
    """
    return max(LEAST_PROBABILITY, 1.0 - DOUBTS * (1.0 - attainment))


def in_time_probability(expected_s: float, squares_s2: float, variation: float, left_s: float) -> float:
    """Return the probability that batches end within `left_s`, if they take `expected_s` on average, by a lognormal.

    `squares_s2` and `variation` are those of `margin_s`.
    """
    if left_s <= 0.0:
        return 0.0
    spread = log(1.0 + variation * squares_s2 / (expected_s * expected_s))
    if spread <= 0.0:
        return 1.0 if expected_s <= left_s + TOLERANCE_S else 0.0
    return 0.5 * (1.0 + erf((log(left_s / expected_s) + 0.5 * spread) / sqrt(2.0 * spread)))


def doubtful(probability: float, alone: float, least: float) -> bool:
    """Return whether a request should go to a function that is in time, by `least_probability`.

    `alone` is the probability on an idle instance. The rule demands a share of it, because otherwise instances that are
    rarely in time would stand idle.
    """
    return probability < least * alone


def late_share(attainment: float) -> float:
    """Return the late requests that an instance may queue, per request, where a function would answer them late too.

    A call would cost money and save none of them. This holds for service times that vary. A request that is late by
    certain times is late for sure, and makes those behind it late.
    """
    return QUEUED_LATE * (1.0 - attainment)


def late_budget(left: float, change: float) -> float:
    """Return an instance's budget of late requests after a change: each request adds `late_share`, a late one -1."""
    return min(max(left + change, 0.0), MOST_QUEUED_LATE)


def queues_late(left: float, instance_s: float, function_s: float, horizon_s: float) -> bool:
    """Return whether a request that is late here and on a function queues here, for a budget of `left` late requests.

    A late request costs 1 of the budget even if it is passed on. So the budget is empty under overload, when a place
    taken by a late request is missing for one that would be in time. A request that queues late has no promise, so that
    its batch may fill.
    """
    return left >= 1.0 and instance_s <= min(LONGEST_LATE * horizon_s, function_s) + TOLERANCE_S
