"""The computing time of a machine, from which its CPU credits are counted."""

from __future__ import annotations

import urllib.request

from mark_infra.telemetry.counters import read_bouncer


def busy_s(address: str, port: int) -> float:
    """Return the average computing seconds of the bouncer's workers. Raises OSError if no bouncer answers."""
    with urllib.request.urlopen(f"http://{address}:{port}/metrics", timeout=1.0) as answer:
        page = answer.read()
    try:
        counts = read_bouncer(page)
    except ValueError as error:
        raise OSError(f"{address} is no bouncer") from error
    return counts.service_s / max(1.0, counts.workers)
