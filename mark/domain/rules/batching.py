"""Batch closing (MArk, section 4.3): when a batch starts, and which requests may still join it."""

from mark.domain.rules.admission import TOLERANCE_S


def start_s(worker_free_s: float, oldest_s: float, window_s: float) -> float:
    """Return when a batch that is not full starts: the worker is free and its oldest request has waited the window."""
    return max(worker_free_s, oldest_s + window_s)


def joins(
    start: float,
    service_now_s: float,
    service_joined_s: float,
    service_alone_s: float,
    oldest_s: float,
    overhead_s: float,
    horizon_s: float,
) -> bool:
    """Return whether one more request may join a batch that has room.

    The oldest request in the batch that would be in time, which arrived at `oldest_s`, must still be in time; late ones
    do not count. And joining must be no slower for the newcomer than a separate batch right behind.
    """
    limit_s = oldest_s + horizon_s + TOLERANCE_S - overhead_s
    kept = start + service_joined_s <= limit_s or start + service_now_s > limit_s
    return kept and service_joined_s <= service_now_s + service_alone_s + TOLERANCE_S


def reserve_s(waits: bool, service_alone_s: float, service_full_s: float) -> float:
    """Return the addition to the expected completion of a request that opens a batch, before it is admitted.

    Others will join such a batch while it waits, so the request is admitted as if the batch were full. Without this
    reserve a saturated bouncer accepts requests that just fit alone and may then let none join: batches of one, half
    the throughput, for as long as the overload lasts.
    """
    return max(0.0, service_full_s - service_alone_s) if waits else 0.0
