"""What a gateway learns from the answers of replicas, in compiled code, by the rules of `mark.domain.rules.routing`.

A stage keeps outstanding answers, each with the time at which its request was sent. An answer counts once the clock
has reached it.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from mark.domain.rules import admission, routing
from mark.kernel.arrays import BUDGET, INF, LEARNED, READY, TICKED_S, Floats, Records, Stage
from mark.kernel.compiled import compiled
from mark.kernel.records import of_slot

_expected_s = compiled(routing.expected_s)
_learned_s = compiled(routing.learned_s)
_outrun_s = compiled(routing.outrun_s)
_overtakes = compiled(routing.overtakes)
_forgotten_s = compiled(routing.forgotten_s)
TICK_S = routing.TICK_S
AVOID_S = routing.AVOID_S
TOLERANCE_S = admission.TOLERANCE_S


def nothing_learned(learns: bool, budget: float) -> tuple[Floats, Records]:
    """Return a gateway's state without replicas; empty unless the stage learns."""
    gateway = np.zeros(2 if learns else 0)
    if learns:
        gateway[TICKED_S], gateway[BUDGET] = -INF, budget
    return gateway, np.zeros(0, dtype=LEARNED)


def new_replica(st: Stage, number: int) -> None:
    """Give a replica the best response time of ready ones that have answered, else `FIRST_RESPONSE_S`."""
    ready = st.learned[st.ready[: st.counter[READY]]]
    known_s = ready["response_s"][ready["answers"] > 0]
    first_s = known_s.min() if len(known_s) else routing.FIRST_RESPONSE_S
    st.learned[number] = (first_s, -INF, -INF, 0)


@compiled
def learns(st: Stage) -> bool:
    """Return whether the stage is behind a gateway that learns how fast replicas answer."""
    return st.gateway.shape[0] > 0


@compiled
def of_replica(st: Stage, slot: int) -> Any:
    return st.learned[np.uint64(slot)]


@compiled
def sent(st: Stage, slot: int, sent_s: float, answer_s: float) -> None:
    """Insert the answer time of a request in order, for as many as `flight_s` has columns."""
    own = of_slot(st, slot)
    place = own.flight_count
    if place == st.flight_s.shape[1]:
        return
    own.flight_count = place + 1
    flight_s, since_s = st.flight_s, st.sent_s
    while place > 0 and (
        flight_s[slot, place - 1] > answer_s
        or (flight_s[slot, place - 1] == answer_s and since_s[slot, place - 1] > sent_s)
    ):
        flight_s[slot, place], since_s[slot, place] = flight_s[slot, place - 1], since_s[slot, place - 1]
        place -= 1
    flight_s[slot, place], since_s[slot, place] = answer_s, sent_s
    own.flight_next_s = flight_s[slot, 0]


@compiled
def learn(st: Stage, slot: int, took_s: float, now_s: float) -> None:
    own = of_replica(st, slot)
    own.response_s = _learned_s(own.response_s, took_s)
    own.seen_s = now_s


@compiled
def answered(st: Stage, slot: int, until_s: float) -> None:
    """Learn from the answers of a replica up to `until_s`, in order of time."""
    own = of_slot(st, slot)
    if own.flight_next_s > until_s + TOLERANCE_S:
        return
    heard, count = 0, own.flight_count
    while heard < count and st.flight_s[slot, heard] <= until_s + TOLERANCE_S:
        answer_s = st.flight_s[slot, heard]
        learn(st, slot, answer_s - st.sent_s[slot, heard], answer_s)
        of_replica(st, slot).answers += 1
        heard += 1
    for place in range(heard, count):
        st.flight_s[slot, place - heard] = st.flight_s[slot, place]
        st.sent_s[slot, place - heard] = st.sent_s[slot, place]
    own.flight_count = count - heard
    own.flight_next_s = st.flight_s[slot, 0] if count > heard else INF


@compiled
def next_tick_s(st: Stage) -> float:
    ticked_s = st.gateway[TICKED_S]
    return ticked_s + TICK_S if ticked_s >= 0.0 else 0.0


@compiled
def skip_ticks(st: Stage, until_s: float) -> None:
    """Skip the ticks up to `until_s`: without answers, and without requests in flight, they change nothing."""
    ticked_s = st.gateway[TICKED_S]
    st.gateway[TICKED_S] = ticked_s + max(0.0, np.floor((until_s - ticked_s) / TICK_S)) * TICK_S


@compiled
def best_seen_s(st: Stage) -> float:
    """Return the best response time of the ready replicas that answered since the last tick; infinite without one."""
    best_s = INF
    for a in range(st.counter[READY]):
        own = of_replica(st, st.ready[a])
        if own.seen_s >= st.gateway[TICKED_S]:
            best_s = min(best_s, own.response_s)
    return best_s


@compiled
def forget(st: Stage, slot: int, in_flight: int, best_s: float, now_s: float) -> None:
    """At a tick, forget in part how slow a replica was, if it had no request since the last tick."""
    own, ticked_s = of_replica(st, slot), st.gateway[TICKED_S]
    if own.seen_s < ticked_s and in_flight == 0:
        own.response_s = _forgotten_s(own.response_s, best_s, now_s - ticked_s)


@compiled
def expected(st: Stage, slot: int, in_flight: int, now_s: float) -> float:
    own = of_replica(st, slot)
    return _expected_s(own.response_s, in_flight, own.avoid_until_s, now_s)


@compiled
def overtakes(st: Stage, slot: int, in_flight: int, first: int, sent_s: float, now_s: float) -> bool:
    """Return whether a second copy is expected before the first one, sent to replica `first` at `sent_s`."""
    took_s = now_s - sent_s
    assumed_s = _outrun_s(of_replica(st, first).response_s, took_s)
    return bool(_overtakes(expected(st, slot, in_flight, now_s), took_s, assumed_s))


@compiled
def refused(st: Stage, slot: int, now_s: float) -> None:
    """Avoid a replica whose bouncer has just refused a request."""
    own = of_replica(st, slot)
    own.answers += 1
    own.avoid_until_s = now_s + AVOID_S


@compiled
def outrun(st: Stage, slot: int, sent_s: float, now_s: float) -> None:
    """Assume when a replica ends a request that another one just answered, and learn from it if it is slow."""
    own = of_replica(st, slot)
    took_s = now_s - sent_s
    assumed_s = _outrun_s(own.response_s, took_s)
    own.avoid_until_s = max(own.avoid_until_s, sent_s + assumed_s)
    if took_s > own.response_s:
        learn(st, slot, assumed_s, now_s)
