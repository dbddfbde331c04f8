"""Admission: what a bouncer takes, and where the rest goes (MArk, section 4.1)."""

# Sums of times near 1e6 s carry rounding errors of about 1e-10 s; a microsecond is far above them and far below any
# latency that matters. Without it a request that takes exactly RT_max would be late by chance.
TOLERANCE_S = 1e-6

NEVER_S = float("inf")
INSTANCE = 0
FUNCTION = 1
REJECT = 2


def in_time(latency_s: float, rt_max_s: float) -> bool:
    """Was (or would be) a request answered within RT_max?"""
    return latency_s <= rt_max_s + TOLERANCE_S


def destination(instance_s: float, function_s: float, horizon_s: float) -> int:
    """Where a request goes, given its latency on the best instance and on a function (infinite: not to be had).

    A bouncer admits what would finish within its horizon (RT_max) if no further request came. Otherwise the function
    answers; where neither meets the horizon, the one that finishes first. Without a function the request is refused.
    """
    if instance_s <= horizon_s + TOLERANCE_S:
        return INSTANCE
    if function_s == NEVER_S:
        return REJECT
    if function_s <= horizon_s + TOLERANCE_S or function_s < instance_s:
        return FUNCTION
    return INSTANCE


def promised_s(horizon_s: float, function_s: float) -> float:
    """How long a batch keeps its promise by refusing requests that would break it (`batching.joins`).

    For the horizon, where functions answer in time what may not join, or where there are none. Where functions are
    slower than that, a request that may not join waits behind and needs a batch of its own: small batches at half the
    throughput keep a queue for hours that full ones end in seconds. Then batches fill.
    """
    slow = horizon_s + TOLERANCE_S < function_s < NEVER_S
    return NEVER_S if slow else horizon_s
