"""Compare the late shares of the simulated and the live bouncer if service times scatter, both without I/O.

    python benchmarks/fidelity/fidelity_tails.py [--requests 40000] [--json FILE]

The same arrivals and the same drawn service times go through the kernel and through `mark.serving.backend.bouncer` in
virtual time: one instance, batches of up to 8 that take 20 ms + 2 ms x b on average, RT_max 100 ms, lognormal times
with a 99th percentile of 1.1 to 3 times their mean, Poisson arrivals at 5 to 130 % of the capacity, without a function
and with one that takes 1.5 RT_max. Each row shows the late share (late or refused) of both in per cent, and the late
share of a bouncer that hands its workers the next batch ahead, as `mark serve` does. Exits with 1 if the kernel and the
bouncer without this hand-over differ by more than 0.2 points.
"""

from __future__ import annotations

import argparse
import heapq
import itertools
import json
import math
import sys
from collections.abc import Sequence
from pathlib import Path
from statistics import NormalDist

import numpy as np
from numpy.typing import NDArray

from mark.domain.function_offer import FunctionOffer
from mark.domain.profile import BatchPolicy, Candidate, Profile, ProfileRow
from mark.domain.rules.admission import INSTANCE, NEVER_S, in_time, late_share
from mark.domain.service import FunctionUse
from mark.kernel.accounting import Accounting
from mark.kernel.random import factor_of
from mark.kernel.stage import Admission, StageSimulation
from mark.models.call import Call
from mark.serving.backend.bouncer import Bouncer, FixedTimes, Overflow
from mark.serving.backend.request import Batch, Request

Floats = NDArray[np.float64]

FIXED_MS, EACH_MS, LARGEST, RT_MAX_S = 20.0, 2.0, 8, 0.1
RATIOS, LOADS, WORKERS = (1.1, 1.5, 2.0, 3.0), (0.05, 0.4, 0.8, 1.0, 1.3), (1, 2)
FUNCTIONS_S = (NEVER_S, 1.5 * RT_MAX_S)
LATE_SHARE = late_share(0.98)
POINTS = 0.002
SEED = 1
_CALL = Call("oip", "application/json", b"")


def sigma_of(ratio: float) -> float:
    """Return the sigma of a lognormal whose 99th percentile is `ratio` times its mean: the smaller root."""
    z = NormalDist().inv_cdf(0.99)
    return z - math.sqrt(z * z - 2.0 * math.log(ratio))


def kind_of(sigma: float, workers: int) -> Candidate:
    sizes = range(1, LARGEST + 1)
    rows = tuple(ProfileRow(b, FIXED_MS + EACH_MS * b, workers=workers) for b in sizes)
    table = np.array([0.0, *((FIXED_MS + EACH_MS * b) / 1e3 for b in sizes)])
    rate = workers * LARGEST / float(table[-1])
    return Candidate(Profile("m", "i", rows), BatchPolicy(LARGEST, 0.0), table, rate, rate, sigma)


def simulated(kind: Candidate, arrivals_s: Floats, function_s: float) -> float:
    """Return the late share by the kernel."""
    offer = FunctionOffer(128, 0.0, 0.0, 1.0, 1 << 16, 1e9, np.inf, 1e9)
    stage = StageSimulation(
        [kind],
        accounts=Accounting(rt_max_s=RT_MAX_S, end_s=float(arrivals_s[-1]) + 1.0),
        admission=Admission(late_share=LATE_SHARE),
        function=FunctionUse(offer, function_s, 0.0, "assumed") if function_s < NEVER_S else None,
        seed=SEED,
    )
    stage.add(0, 0, 0.0)
    stage.advance(arrivals_s, 0, np.inf)
    stage.finish()
    return 1.0 - stage.accounts.in_time / stage.accounts.departed


def live(kind: Candidate, arrivals_s: Floats, function_s: float, *, ahead: bool) -> float:
    """Return the late share by the bouncer of `mark serve`; with `ahead` workers may have the next batch already."""
    bouncer = Bouncer(
        FixedTimes(kind.service_s.tolist(), kind.policy.n_batch),
        rt_max_s=RT_MAX_S,
        variation=kind.variation,
        workers=kind.workers,
        overflow=Overflow(function_s, late_share=LATE_SHARE),
    )
    ends: list[tuple[float, int, Batch]] = []
    begun = in_time_count = 0

    def begin(batch: Batch, now_s: float) -> None:
        nonlocal begun
        begun += 1
        factor = factor_of(SEED, 0, begun, 0, kind.sigma)
        heapq.heappush(ends, (now_s + float(kind.service_s[batch.items]) * factor, begun, batch))

    def pump(now_s: float) -> None:
        while (batch := bouncer.next_batch(now_s)) is not None:
            begin(batch, now_s)
        while ahead and bouncer.next_ahead(now_s) is not None:
            pass

    def until(now_s: float) -> None:
        nonlocal in_time_count
        while True:
            end_s = ends[0][0] if ends else NEVER_S
            next_s = min(end_s, bouncer.due_s())
            if next_s > now_s or next_s == NEVER_S:
                return
            if end_s == next_s:
                batch = heapq.heappop(ends)[2]
                bouncer.finished(batch, end_s)
                in_time_count += sum(in_time(end_s - request.arrived_s, RT_MAX_S) for request in batch.requests)
                if batch.behind is not None:
                    begin(batch.behind, end_s)
            pump(next_s)

    for arrived_s in arrivals_s.tolist():
        until(arrived_s)
        request = Request(_CALL, 1, arrived_s, arrived_s + RT_MAX_S, lambda *_: None)
        if bouncer.offer(request, arrived_s) == INSTANCE:
            pump(arrived_s)
    until(NEVER_S)
    return 1.0 - in_time_count / len(arrivals_s)


def main(argv: Sequence[str] = sys.argv[1:]) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--requests", type=int, default=40_000, help="requests in each row")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the rows to FILE")
    args = parser.parse_args(argv)
    rows = []
    print("| function | workers | p99 / mean | load | kernel % | bouncer % | with the next batch ahead % |")
    print("|---|---|---|---|---|---|---|")
    for function_s, workers, ratio, load in itertools.product(FUNCTIONS_S, WORKERS, RATIOS, LOADS):
        kind = kind_of(sigma_of(ratio), workers)
        gaps_s = np.random.default_rng(SEED).exponential(1.0 / (load * kind.capacity_rps), args.requests)
        arrivals_s = np.cumsum(gaps_s)
        row = {
            "function": "late" if function_s < NEVER_S else "none",
            "workers": workers,
            "ratio": ratio,
            "load": load,
            "kernel": simulated(kind, arrivals_s, function_s),
            "bouncer": live(kind, arrivals_s, function_s, ahead=False),
            "ahead": live(kind, arrivals_s, function_s, ahead=True),
        }
        rows.append(row)
        shown = " | ".join(f"{100.0 * float(row[late]):.2f}" for late in ("kernel", "bouncer", "ahead"))
        print(f"| {row['function']} | {workers} | {ratio:g} | {load:.0%} | {shown} |", flush=True)
    if args.json is not None:
        args.json.write_text(json.dumps(rows, indent=1) + "\n")
    return int(any(abs(float(row["kernel"]) - float(row["bouncer"])) > POINTS for row in rows))


if __name__ == "__main__":
    sys.exit(main())
