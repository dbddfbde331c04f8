"""Admission: what a bouncer takes, and where the rest goes (MArk, section 4.1)."""

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
