"""Routing: least expected completion; ties go to the open batch, then to the lowest number.

A gateway sees no queue. It estimates a request's completion from a replica's requests in flight and earlier answers, so
that a slow replica gets fewer requests. mark's gateway calls these functions, and the kernel compiles them.
"""

from __future__ import annotations

from math import exp

# Assumed response time of the first replicas, before any answer. It is shorter than any real one, so that all are
# tried, and a slow first answer over a new connection hardly counts against its replica.
FIRST_RESPONSE_S = 0.0005
# A replica that just refused or failed is avoided for this long; a queue's state changes within a batch or two.
AVOID_S = 0.1
TICK_S = 0.25  # between a gateway's calls of `forgotten_s`
_LEARNED = 0.1  # share of the newest answer in the response time
_FORGETTING_S = 10.0  # seconds in which two thirds of a replica's excess over the best response time are forgotten


def better(finish_s: float, joins_open: bool, number: int, than_s: float, than_open: bool, than_number: int) -> bool:
    """Return whether the first choice (completion, open batch, number) is better than the second, in a total order."""
    if finish_s != than_s:
        return finish_s < than_s
    if joins_open != than_open:
        return joins_open
    return number < than_number


def expected_s(each_s: float, in_flight: int, avoid_until_s: float, now_s: float) -> float:
    """Return the time until a replica is expected to answer one more request.

    `each_s` is its response time, divided by its weight.
    """
    finish_s = each_s * (in_flight + 1)
    if avoid_until_s > now_s:
        finish_s += avoid_until_s - now_s
    return finish_s


def learned_s(response_s: float, newest_s: float) -> float:
    """Return the response time of a replica after an answer that took `newest_s`: an exponential moving average."""
    return response_s + _LEARNED * (newest_s - response_s)


def outrun_s(response_s: float, took_s: float) -> float:
    """Return the assumed time of an attempt without an answer after `took_s`.

    Without more knowledge, the best guess is that it takes as long again as it has taken. Nobody sees the end of a
    cancelled attempt, but a worker may go on with it.
    """
    return max(response_s, 2.0 * took_s)


def overtakes(finish_s: float, took_s: float, assumed_s: float) -> bool:
    """Return whether a second attempt, expected in `finish_s`, comes before the first one, which has taken `took_s`.

    `assumed_s` is the first one's `outrun_s`. A second attempt that comes later only adds load to a busy fleet.
    """
    return took_s + finish_s < assumed_s


def forgotten_s(response_s: float, best_s: float, since_s: float) -> float:
    """Return the response time of a replica that had no request for `since_s`.

    It approaches the best replica's. Otherwise a slow replica is never chosen again, and cannot show that it is fast
    again.
    """
    if response_s <= best_s:
        return response_s
    return best_s + (response_s - best_s) * exp(-since_s / _FORGETTING_S)
