"""Burstables that carry load as long as their CPU credits last; then they are drained, and new ones may be started.

An instance at full use spends v credits a minute (one by each vCPU) and earns e; with c of them it lasts

    life(c) = c / (v - e)      minutes at full speed                                                            (1)

so an instance started with L launch credits costs price + launch / life(L) a minute: its own price and its renewal.
Less use lets it last longer; full use is the safe case. Launch credits are granted to `STARTS_PER_DAY` starts in any
24 hours. They are paced by a bucket of `RESERVE` starts that fills again with the others of a day: after the starts t_1
< ... < t_n of the last 24 hours

    left(t) = min(RESERVE, min_k RESERVE + (STARTS_PER_DAY - RESERVE) (t - t_k) / 24 h - (n - k + 1))          (2)

may be made at t, never more than a day allows. So (STARTS_PER_DAY - RESERVE) life(L) / 24 h instances run all the time
if that pays (2.3 t2.medium), and `RESERVE` more of them meet a surge after a time of little load.

Where spot is sold burstables are standbys only: a request costs as little on spot, and each start may bridge an
interruption.

Types in unlimited mode (t3, t4g) go on at full speed without credits. They are bought like other types, at their price
and that of the surplus credits that the load takes (`surplus_usd_per_hour`).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from mark.domain.arrays import FloatArray
from mark.domain.ec2_limits import LAUNCH_CREDIT_STARTS_PER_DAY as STARTS_PER_DAY
from mark.domain.fleet import Fleet, Phase
from mark.domain.offer import Market, Offer
from mark.domain.profile import Candidate
from mark.domain.service import ResolvedService
from mark.domain.time import DAY_S, STEP_S
from mark.planning.market.spot import boot_usd
from mark.planning.resolve import buyable
from mark.planning.solver.program import Program

RESERVE = 10  # starts in a full bucket


@dataclass(frozen=True, slots=True)
class Seen:
    """A burstable of the last 24 hours: its launch, and the time since when its balance shows `credits`."""

    number: int
    launched_s: float
    credits: float
    since_s: float


@dataclass(frozen=True, slots=True)
class Lasting:
    """A burstable that carries load: the steps until it serves, and until its credits end at full use (with
    fractions).
    """

    number: int
    serves_in: float
    ends_in: float


def spent_per_minute(offer: Offer) -> float:
    """Return the credits that an instance loses a minute at full use, net of those it earns; above zero."""
    assert offer.credits is not None
    return max(1e-9, offer.vcpu - offer.credits.credits_per_hour / 60.0)


def life_s(offer: Offer) -> float:
    """Return the seconds at full use that launch credits last, see (1)."""
    assert offer.credits is not None
    return 60.0 * offer.credits.launch_credits / spent_per_minute(offer)


def surplus_usd_per_hour(
    offers: Sequence[Offer], candidates: Sequence[Candidate], load_rps: float, instances: FloatArray
) -> FloatArray:
    """Return the $/h of surplus credits of an instance of each offer if `instances` of it share a load: (offers,).

    `instances` (offers,) is rounded up. Each request counts as a batch of its own, which overstates the busy time.
    Credits that were earned before are left out.
    """
    found = np.zeros(len(offers))
    for i, (offer, candidate) in enumerate(zip(offers, candidates, strict=True)):
        if offer.unlimited:
            busy = load_rps * float(candidate.service_s[1]) / candidate.workers / math.ceil(instances[i] - 1e-9)
            found[i] = offer.usd_per_hour_at(min(1.0, busy)) - offer.usd_per_hour
    return found


def carrier(resolved: ResolvedService) -> int | None:
    """Return the burstable (place in the resolved service's offers) that may carry load beside steady ones, if any.

    AWS counts starts, whatever their size, so it is the burstable whose start saves most against the cheapest steady
    request.
    """
    offers, candidates = resolved.offers, resolved.candidates
    steady = [i for i in buyable(resolved) if offers[i].always_full]
    if not steady or any(offer.market is Market.SPOT for offer in offers):
        return None
    usd_per_request = min(offers[i].usd_per_hour_at(1.0) / 3600.0 / candidates[i].capacity_rps for i in steady)

    def saved_usd(i: int) -> float:
        per_s = usd_per_request * candidates[i].capacity_rps - offers[i].usd_per_s
        return per_s * life_s(offers[i]) - boot_usd(offers[i])

    able = [i for i, offer in enumerate(offers) if not offer.always_full and saved_usd(i) > 0.0]
    return min(able, key=lambda i: (-saved_usd(i), offers[i].name), default=None)


def starts_left(starts_s: Sequence[float], now_s: float) -> int:
    """Return how many may be started now after those `starts_s` (ascending), see (2)."""
    recent = [at_s for at_s in starts_s if at_s > now_s - DAY_S]
    left = float(RESERVE)
    for k, at_s in enumerate(recent):
        filled = (STARTS_PER_DAY - RESERVE) * (now_s - at_s) / DAY_S
        left = min(left, RESERVE + filled - (len(recent) - k))
    return max(0, math.floor(left + 1e-9))


def remember(memory: Sequence[Seen], fleet: Fleet, offer: Offer, now_s: float) -> tuple[Seen, ...]:
    """Return the burstables of the last 24 hours, in order of their start. An unknown balance counts as a launch's."""
    assert offer.credits is not None
    known = {one.number: one for one in memory if one.launched_s > now_s - DAY_S}
    for i in fleet.instances:
        if i.offer != offer.name or i.phase is Phase.STOPPED:
            continue
        credits = offer.credits.launch_credits if i.credits is None else i.credits
        before = known.get(i.number)
        if before is None or before.credits != credits:
            ready_s = i.ready_s if i.ready_s is not None and i.phase is not Phase.PENDING else now_s
            since_s = min(now_s, ready_s) if i.credits is None else now_s
            known[i.number] = Seen(i.number, i.launched_s, credits, since_s)
    return tuple(sorted(known.values(), key=lambda one: (one.launched_s, one.number)))


def lasting(memory: Sequence[Seen], fleet: Fleet, offer: Offer, now_s: float) -> tuple[Lasting, ...]:
    """Return the burstables whose credits last at least for a step, the longest first.

    A balance is some minutes old (EC2 shows it every five), so full use is assumed since then.
    """
    known = {one.number: one for one in memory}
    found = []
    for i in fleet.instances:
        if i.offer != offer.name or i.phase not in (Phase.PENDING, Phase.READY) or i.standby or i.number not in known:
            continue
        seen, serves_in, since_s = known[i.number], 0.0, now_s
        if i.phase is Phase.PENDING:
            serves_in = 1.0 if i.ready_s is None else max(0.0, (i.ready_s - now_s) / STEP_S)
        else:
            since_s = seen.since_s if i.ready_s is None else min(now_s, max(seen.since_s, i.ready_s))
        left_s = 60.0 * seen.credits / spent_per_minute(offer) - (now_s - since_s)
        if left_s >= STEP_S:
            found.append(Lasting(i.number, serves_in, serves_in + left_s / STEP_S))
    return tuple(sorted(found, key=lambda one: (-one.ends_in, one.serves_in, one.number)))


def carried_rps(those: Sequence[Lasting], steps: int, capacity_rps: float) -> FloatArray:
    """Return the load that `those` serve, in the steps that they serve from beginning to end: (steps,).

    Booting instances count as serving, because the program subtracts all booting instances. Instances without credits
    count for nothing, not even their baseline, because they are drained.
    """
    ends = np.array([one.ends_in for one in those])
    there = np.arange(1.0, steps + 1.0)[:, None] <= ends + 1e-9
    return np.asarray(capacity_rps * there.sum(axis=1), dtype=np.float64)


def shifted(overflow_usd: FloatArray, levels: FloatArray) -> FloatArray:
    """Return overflow (T, K + 1) beside capacity of `levels` (T,) that is there anyway. Convex as before."""
    every = np.arange(overflow_usd.shape[1], dtype=np.float64)
    rows = [np.interp(every + more, every, row) for row, more in zip(overflow_usd, levels, strict=True)]
    return np.array(rows)


def worth_keeping(
    those: Sequence[Lasting], overflow_usd: FloatArray, levels: float, usd_per_step: float
) -> tuple[Lasting, ...]:
    """Return the burstables that pay, longest-lasting first; each has `levels` levels of `overflow_usd` (T, K + 1).

    They stand below all other capacity, because they are the cheapest. A burstable pays if over some number of steps
    from now on it saves more overflow than it costs.
    """
    steps = len(overflow_usd)
    kept: list[Lasting] = []
    for one in those:
        below = carried_rps(kept, steps, levels)
        more = carried_rps([one], steps, levels)
        saved = shifted(overflow_usd, below)[:, 0] - shifted(overflow_usd, below + more)[:, 0]
        if np.cumsum(saved - usd_per_step)[: max(1, math.floor(one.ends_in))].max() <= 0.0:
            break  # because the next one lasts no longer and saves no more
        kept.append(one)
    return tuple(kept)


@dataclass(frozen=True, slots=True)
class Burst:
    """A planner's use of its burstable, which is offer number `place` of its programs."""

    offer: Offer
    place: int

    def look(self, fleet: Fleet, memory: Sequence[Seen], now_s: float) -> tuple[tuple[Seen, ...], tuple[Lasting, ...]]:
        """Return the memory, and the instances that carry load."""
        memory = remember(memory, fleet, self.offer, now_s)
        return memory, lasting(memory, fleet, self.offer, now_s)

    def spent(self, fleet: Fleet, those: Sequence[Lasting]) -> tuple[int, ...]:
        """Return the burstables of the fleet that no longer carry load, by number."""
        left = {one.number for one in those}
        return tuple(i.number for i in fleet.instances if i.offer == self.offer.name and i.number not in left)

    def revised(
        self, program: Program, those: Sequence[Lasting], memory: Sequence[Seen], now_s: float
    ) -> tuple[Program, int]:
        """Return the program without the instances that credits decide, and how many of `those` stay beside its plan.

        The burstable's column counts new ones: they also cost their renewal, and their number is limited by the starts
        left. Running ones that do not stay by themselves may fill it without a start.
        """
        j, size_rps = self.place, float(program.capacity_rps[self.place])
        price_usd = float(program.usd_per_step[j])
        kept = worth_keeping(those, program.overflow_usd, size_rps / program.spacing_rps, price_usd)
        usd_per_step, running, most = program.usd_per_step.copy(), program.running.copy(), program.most.copy()
        usd_per_step[j] += boot_usd(self.offer) * STEP_S / life_s(self.offer)
        running[j] = 0
        left = starts_left([one.launched_s for one in memory], now_s)
        most[j] = min(int(most[j]), left + len(those) - len(kept))
        return (
            replace(
                program,
                usd_per_step=usd_per_step,
                running=running,
                most=most,
                overflow_usd=shifted(
                    program.overflow_usd, carried_rps(kept, program.steps, size_rps / program.spacing_rps)
                ),
                max_instances=max(0, program.max_instances - len(kept)),
                max_usd_per_step=max(0.0, program.max_usd_per_step - len(kept) * price_usd),
            ),
            len(kept),
        )
