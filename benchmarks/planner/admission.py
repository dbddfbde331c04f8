"""Admission by value: compare rules for passing a request on to a function that is in time if an instance may be late.

    python benchmarks/planner/admission.py [--requests 20000] [--seeds 2] [--json FILE]

The kernel simulates fleets of 1, 4 and 16 instances at 5 to 130 % of their capacity, with lognormal service times, one
by one and in the batches of their policy. The services have a mean of 24 ms, a 99th percentile of 75 ms and an RT_max
of 80 ms; 31, 90 and 100 ms; 50, 140 and 200 ms; and 20, 60 and 200 ms. All rules see the same arrivals. A rule is the
least probability of being in time with which an instance keeps a request (`StageSimulation(least_in_time=...)`); 0 is
the margin for scatter alone.

Each table is for one price of a miss, in calls: late requests x price + calls, per request, by load. `better` and
`worse` count the cases that differ from the margin alone by more than 2 % and by more than 0.1 points of misses. Exits
with 1 if the rule for a promise of 98 % is worse than the margin alone in more than one case of 20 at 10 calls a miss.
"""

from __future__ import annotations

import argparse
import itertools
import json
import sys
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from mark.domain.function_offer import FunctionOffer
from mark.domain.profile import Candidate, Profile, ProfileRow
from mark.domain.rules.admission import least_probability
from mark.domain.service import FunctionUse
from mark.domain.slo import Slo
from mark.kernel.accounting import Accounting
from mark.kernel.stage import Admission, StageSimulation
from mark.profiling.policy import candidate, unbatched

SERVICES = ((24.0, 75.0, 80.0), (31.0, 90.0, 100.0), (50.0, 140.0, 200.0), (20.0, 60.0, 200.0))  # mean, p99, RT_max, ms
SIZES = (1, 2, 4, 8, 16)
FLEETS = (1, 4, 16)
LOADS = (0.05, 0.2, 0.4, 0.6, 0.8, 0.9, 1.0, 1.15, 1.3)
LEAST = (0.0, 0.85, 0.9, 0.95, 0.98)
PRICES = (3.0, 10.0, 30.0, 100.0)  # of a miss, in calls
CHECKED = 10.0
MOST_WORSE = 0.05


def kind_of(mean_ms: float, p99_ms: float, slo: Slo, batches: bool) -> Candidate:
    """Return a candidate whose batches take 1 + (b - 1) / 4 of a single request."""
    times = {b: 1.0 + (b - 1) / 4.0 for b in SIZES}
    profile = Profile("m", "i", tuple(ProfileRow(b, x * mean_ms, x * p99_ms) for b, x in times.items()))
    found = candidate(profile, slo) if batches else unbatched(profile, slo)
    assert isinstance(found, Candidate), found
    return found


def shares(
    kind: Candidate, rt_max_s: float, arrivals_s: NDArray[np.float64], instances: int, least: float, seed: int
) -> tuple[float, float]:
    """Return the shares of requests that are late, and that go to a function that takes half of RT_max."""
    offer = FunctionOffer(1024, 0.0, 0.0, 1.0, 1 << 16, 1e9, np.inf, 1e9)
    stage = StageSimulation(
        [kind],
        accounts=Accounting(rt_max_s=rt_max_s, end_s=float(arrivals_s[-1]) + 1.0),
        admission=Admission(least_in_time=least),
        function=FunctionUse(offer, 0.5 * rt_max_s, 0.0, "assumed"),
        seed=seed,
    )
    for number in range(instances):
        stage.add(number, 0, 0.0)
    stage.advance(arrivals_s, 0, np.inf)
    stage.finish()
    accounts = stage.accounts
    return 1.0 - accounts.in_time / accounts.departed, accounts.by_functions / accounts.departed


def table(found: NDArray[np.float64], price: float) -> tuple[list[str], float]:
    """Return rows by rule; and the share of cases in which the rule for 98 % is worse than the margin alone.

    `found` is (cases, loads, rules, [late, calls]).
    """
    cost = found[..., 0] * price + found[..., 1]
    rows, worse_share = [], 0.0
    for place, least in enumerate(LEAST):
        more = cost[..., place] - cost[..., 0]
        clear = (np.abs(more) > 1e-3 * price) & (np.abs(more) > 0.02 * cost[..., 0])
        better, worse = int((clear & (more < 0)).sum()), int((clear & (more > 0)).sum())
        by_load = " | ".join(f"{c:.3f}" for c in cost[..., place].mean(axis=0))
        rows.append(f"| {least:g} | {by_load} | {better} | {worse} |")
        if least == round(least_probability(0.98), 6):
            worse_share = worse / more.size
    return rows, worse_share


def main(argv: Sequence[str] = sys.argv[1:]) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--requests", type=int, default=20_000, help="requests in each case")
    parser.add_argument("--seeds", type=int, default=2)
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the shares to FILE")
    args = parser.parse_args(argv)
    cases = list(itertools.product(SERVICES, (True, False), FLEETS))
    found = np.zeros((len(cases), len(LOADS), len(LEAST), 2))
    for at, ((mean_ms, p99_ms, rt_max_ms), batches, instances) in enumerate(cases):
        kind = kind_of(mean_ms, p99_ms, Slo(rt_max_ms / 1e3, 0.98), batches)
        each_rps = kind.workers * kind.policy.n_batch / float(kind.service_s[-1])
        for (j, load), seed in itertools.product(enumerate(LOADS), range(1, args.seeds + 1)):
            gaps_s = np.random.default_rng(seed).exponential(1.0 / (load * instances * each_rps), args.requests)
            for k, least in enumerate(LEAST):
                found[at, j, k] += shares(kind, rt_max_ms / 1e3, np.cumsum(gaps_s), instances, least, seed)
    found /= args.seeds
    bad = 0.0
    for price in PRICES:
        print(f"\nA miss costs {price:g} calls\n")
        print(f"| least probability | {' | '.join(f'{load:.0%}' for load in LOADS)} | better | worse |")
        print(f"|---|{'---|' * (len(LOADS) + 2)}")
        rows, worse = table(found, price)
        print("\n".join(rows), flush=True)
        bad = worse if price == CHECKED else bad
    print("\n| least probability | late %, calls % by load |\n|---|---|")
    for k, least in enumerate(LEAST):
        pairs = ", ".join(f"{100 * late:.2f} {100 * calls:.1f}" for late, calls in found[:, :, k].mean(axis=0))
        print(f"| {least:g} | {pairs} |")
    if args.json is not None:
        args.json.write_text(json.dumps({"cases": cases, "loads": LOADS, "least": LEAST, "shares": found.tolist()}))
    return int(bad > MOST_WORSE)


if __name__ == "__main__":
    sys.exit(main())
