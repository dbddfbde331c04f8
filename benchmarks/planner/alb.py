"""The cost of an AWS load balancer that counts requests: target groups by capacity class, and a single group.

    python benchmarks/planner/alb.py [--service NAME|FILE ...] [--seeds 1 2 3] [--json FILE]

Two hours of the diurnal day with `mark`, forecasts by seasonal-naive, and three balancers: least completion (the best
there is), `routing = "alb"`, and the same with a single target group. Inception-v3 then runs on c5.large and p2.xlarge,
a twelvefold difference. Unless other services are named, the benchmark exits with 1 if `alb` sends more than 1 % of the
requests to functions or costs 3 % more than least completion. It takes some seconds.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterator
from contextlib import AbstractContextManager, nullcontext
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from unittest.mock import patch

from mark.domain.rules.capacity_classes import capacity_classes
from mark.simulation import parts
from mark.simulation.inputs import Inputs, open_inputs
from mark.simulation.request import RunRequest
from mark.simulation.run import Simulation

TRACE = str(Path(__file__).resolve().parents[2] / "traces" / "diurnal_day_5s.csv.gz")
BEGIN_S, TRAIN_S, HOURS_2_S = 36_000.0, 36_000.0, 7200.0
LEAST, GROUPS, ONE_GROUP = "least completion", "alb", "alb, one group"
MOST_OVERFLOW, MOST_EXTRA = 0.01, 0.03


@dataclass(frozen=True)
class Row:
    service: str
    seed: int
    routing: str
    overflow: float  # share of the requests
    attainment: float
    usd: float
    extra: float  # excess over the bill of least completion, as a share
    p99_ms: float


def target_groups(most: int | None) -> AbstractContextManager[object]:
    """Limit the target groups of simulations that begin inside."""
    if most is None:
        return nullcontext()
    return patch.object(parts, "capacity_classes", partial(capacity_classes, most=most))


def two_hours(service: str, seed: int) -> Inputs:
    request = RunRequest(
        TRACE,
        service,
        start_s=BEGIN_S,
        duration_s=HOURS_2_S,
        train_s=TRAIN_S,
        policy="mark",
        predictor="seasonal-naive",
        seed=seed,
        with_bound=False,
    )
    return open_inputs(request)


def routed(inputs: Inputs, routing: str) -> Inputs:
    service = replace(inputs.resolved.service, routing=routing)
    return replace(inputs, resolved=replace(inputs.resolved, service=service))


def rows(inputs: Inputs) -> Iterator[Row]:
    """Yield a row for each balancer, least completion first."""
    least_usd = None
    for name, routing, most in (
        (LEAST, "least-completion", None),
        (GROUPS, "alb", None),
        (ONE_GROUP, "alb", 1),
    ):
        with target_groups(most):
            result = Simulation(routed(inputs, routing), "mark", "seasonal-naive").run()
        usd = result.bill.total
        least_usd = least_usd or usd
        yield Row(
            inputs.service.name,
            inputs.request.seed,
            name,
            result.requests.functions / result.requests.total,
            result.slo_result.attainment or 0.0,
            usd,
            usd / least_usd - 1.0,
            result.latency_ms.p99 or 0.0,
        )


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--service", nargs="+", default=["inception-v3"])
    parser.add_argument("--seeds", nargs="+", type=int, default=[1])
    parser.add_argument("--json", metavar="FILE", help="also write the rows to FILE")
    options = parser.parse_args()

    found = []
    out = sys.stdout.write
    out(f"{'service':<20} seed  {'routing':<18} to functions  in time      bill            p99\n")
    for service in options.service:
        for seed in options.seeds:
            for row in rows(two_hours(service, seed)):
                found.append(row)
                out(f"{row.service:<20} {row.seed:>4}  {row.routing:<18} {row.overflow:>12.2%} {row.attainment:>8.2%}")
                out(f"  {row.usd:>7.2f} $ {row.extra:>+7.1%} {row.p99_ms:>6.0f} ms\n")
    if options.json:
        Path(options.json).write_text(json.dumps([asdict(row) for row in found], indent=1), encoding="utf-8")
    if options.service != ["inception-v3"]:
        return 0
    missed = [r for r in found if r.routing == GROUPS and (r.overflow > MOST_OVERFLOW or r.extra > MOST_EXTRA)]
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
