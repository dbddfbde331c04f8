"""Batch closing (MArk, section 4.3): when a batch starts, and who may still join it."""

from mark.rules.admission import TOLERANCE_S


def start_s(worker_free_s: float, oldest_s: float, window_s: float) -> float:
    """When a batch that isn't full starts: the worker is free and its oldest request has waited the window."""
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
    """May one more request join a batch that has room?

    Only if the oldest request in it still finishes within its horizon (a promise once made is kept), and if joining
    is no slower for the newcomer than a batch of its own right behind.
    """
    kept = start + service_joined_s + overhead_s - oldest_s <= horizon_s + TOLERANCE_S
    return kept and service_joined_s <= service_now_s + service_alone_s + TOLERANCE_S
