"""Slow periods, hangs and crashes of replicas in compiled code.

Their times do not depend on the load, so a batch's end is known when it closes, as without faults. Every draw is a
function of (seed, purpose, replica or host group, number of earlier draws), so each purpose has a separate stream. A
replica keeps its position in these streams; its batches begin in order of time.
"""

from __future__ import annotations

import math

import numpy as np

from mark.domain.faults import Faults
from mark.kernel.arrays import INF, FaultState
from mark.kernel.compiled import compiled
from mark.kernel.random import mixed, uniform_of

# Positions in FaultState.value
SHARE, SLOW_S, CALM_S, FACTOR, ADD_S, BETWEEN_HANGS_S, HANG_S, ANSWER_S = range(8)
# Purpose of a draw; part of the key
_SLOW, _HANG = range(2)
# A departure that a crash prevents has the slot LOST - slot.
LOST = -3
_GOLDEN = np.uint64(0x9E3779B97F4A7C15)


def fault_state(faults: Faults, seed: int, fault_seed: int | None = None) -> FaultState:
    """Return the state without replicas; empty without faults.

    `fault_seed` is the seed of the faults if it differs.
    """
    value = np.zeros(0)
    if faults.any:
        value = np.zeros(8)
        value[FACTOR], value[ADD_S], value[ANSWER_S] = faults.slow_factor, faults.slow_add_s, faults.slow_answer_s
        value[BETWEEN_HANGS_S] = INF
        if faults.slows:
            value[SHARE], value[SLOW_S] = faults.slow_share, faults.slow_s
            value[CALM_S] = faults.slow_s * (1.0 - faults.slow_share) / faults.slow_share
        if faults.hangs:
            value[BETWEEN_HANGS_S], value[HANG_S] = 3600.0 / faults.hangs_per_hour, faults.hang_s
    return FaultState(
        value=value,
        key=np.array([seed, faults.host_group, seed if fault_seed is None else fault_seed], dtype=np.int64),
        slow=np.zeros(0, dtype=np.int64),
        slow_until_s=np.zeros(0),
        slow_drawn=np.zeros(0, dtype=np.int64),
        hang_s=np.zeros(0),
        hangs_drawn=np.zeros(0, dtype=np.int64),
        crash_s=np.zeros(0),
    )


def with_slots(state: FaultState, more: int) -> FaultState:
    """Return the state with `more` additional replicas, without known crashes."""
    if not state.value.shape[0]:
        return state
    none, never = np.zeros(more), np.full(more, INF)
    hangs = state.value[BETWEEN_HANGS_S] < INF
    return state._replace(
        slow=np.concatenate([state.slow, none.astype(np.int64)]),
        slow_until_s=np.concatenate([state.slow_until_s, none]),
        slow_drawn=np.concatenate([state.slow_drawn, none.astype(np.int64)]),
        hang_s=np.concatenate([state.hang_s, none - state.value[HANG_S] if hangs else never]),
        hangs_drawn=np.concatenate([state.hangs_drawn, none.astype(np.int64)]),
        crash_s=np.concatenate([state.crash_s, never]),
    )


@compiled
def _exponential(state: FaultState, purpose: int, whose: int, drawn: int) -> float:
    """Return an exponential draw of mean 1."""
    return -math.log(_uniform(state, purpose, whose, drawn))


@compiled
def _uniform(state: FaultState, purpose: int, whose: int, drawn: int) -> float:
    bits = mixed(np.uint64(state.key[2]) + _GOLDEN * np.uint64(purpose + 1))
    bits = mixed(bits ^ np.uint64(whose))
    return uniform_of(mixed(bits + _GOLDEN * np.uint64(drawn)))


@compiled
def _is_slow(state: FaultState, slot: int, at_s: float) -> bool:
    """Return whether the replica is in a slow period.

    Periods are exponential, and the process is stationary from the start.
    """
    share = state.value[SHARE]
    if share <= 0.0:
        return False
    group = slot // state.key[1]
    while state.slow_until_s[slot] <= at_s:
        drawn = state.slow_drawn[slot]
        if drawn == 0:
            state.slow[slot] = 1 if _uniform(state, _SLOW, group, 0) <= share else 0
            drawn = 1
        else:
            state.slow[slot] = 1 - state.slow[slot]
        mean_s = state.value[SLOW_S] if state.slow[slot] > 0 else state.value[CALM_S]
        state.slow_until_s[slot] += mean_s * _exponential(state, _SLOW, group, drawn)
        state.slow_drawn[slot] = drawn + 1
    return bool(state.slow[slot] > 0)


@compiled
def begins_s(state: FaultState, slot: int, start_s: float) -> float:
    """Return when a batch that a worker has from `start_s` on begins: after the hang, if there is one."""
    length_s = state.value[HANG_S]
    while state.hang_s[slot] + length_s <= start_s:
        drawn = state.hangs_drawn[slot]
        state.hang_s[slot] += length_s + state.value[BETWEEN_HANGS_S] * _exponential(state, _HANG, slot, drawn)
        state.hangs_drawn[slot] = drawn + 1
    return max(start_s, state.hang_s[slot] + length_s) if start_s >= state.hang_s[slot] else start_s


@compiled
def takes_s(state: FaultState, slot: int, start_s: float, service_s: float) -> float:
    """Return the time of a batch that begins at `start_s`, including hangs in between. After `begins_s`."""
    if _is_slow(state, slot, start_s):
        service_s = service_s * state.value[FACTOR] + state.value[ADD_S]
    length_s = state.value[HANG_S]
    # Leave the state as it is, because another worker of the replica may begin before this batch ends.
    hang_s, drawn = state.hang_s[slot], state.hangs_drawn[slot]
    while hang_s < start_s + service_s:
        if hang_s >= start_s:
            service_s += length_s
        hang_s += length_s + state.value[BETWEEN_HANGS_S] * _exponential(state, _HANG, slot, drawn)
        drawn += 1
    return service_s


@compiled
def answers_later_s(state: FaultState, slot: int) -> float:
    """Return the delay of a batch's answers, in which its worker is free.

    Call this after `takes_s` of the same batch.
    """
    return state.value[ANSWER_S] if state.slow[slot] > 0 else 0.0


@compiled
def works_s(state: FaultState, slot: int, start_s: float, service_s: float) -> float:
    """Return how much of `service_s` it works: until it crashes."""
    return max(0.0, min(service_s, state.crash_s[slot] - start_s))


@compiled
def shown_slot(state: FaultState, slot: int, answer_s: float) -> int:
    """Return the slot of its departure: LOST - slot if a crash comes before the answer."""
    return LOST - slot if answer_s > state.crash_s[slot] else slot
