"""Admission: what a bouncer takes, and where the rest goes (MArk, section 4.1)."""

# Sums of times near 1e6 s carry rounding errors of about 1e-10 s; a microsecond is far above them and far below any
# latency that matters. Without it a request that takes exactly RT_max would be late by chance.
TOLERANCE_S = 1e-6

NEVER_S = float("inf")
INSTANCE = 0
FUNCTION = 1
REJECT = 2
LATE = {"function": FUNCTION, "refuse": REJECT}  # of `destination`, by its name in a service file


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
