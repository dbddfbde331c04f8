"""The distance of the bound from its linear program, and the seconds of both.

    python benchmarks/planner/bound.py [--days 1]

The traffic is real (twitter_stream x 2.5, from MARK_DATA or ../shared/data) if the trace exists, else a seeded
stand-in. The assertions do not depend on the machine: the bound never exceeds the program and stays within 0.1 % of it,
and the interior-point method takes at most 40 steps. Seconds are only printed.

    python benchmarks/planner/bound.py --whole

This measures the bound in whole instances of a diurnal day and of a week with 600 million requests (seed 0,
`inception-v3-2026`): its seconds, a plan, the certificate's bytes, and the seconds of `scripts/check_bound.py`. It
asserts that the bound is at most the plan, that the certificate has at most 1 MB, and that the script accepts it.
"""

from __future__ import annotations

import argparse
import gzip
import itertools
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np

from mark.config.service_file import load_service
from mark.domain.catalog.tables import load_catalog
from mark.planning.bounds.certificate import certify_blocks
from mark.planning.bounds.dual import solve
from mark.planning.bounds.feasible_plan import feasible_usd
from mark.planning.bounds.linear_program import solve_lp
from mark.planning.bounds.lower_bound import build_problem, fluid_bound, program_of
from mark.planning.bounds.whole_bound import whole_proof
from mark.planning.resolve import resolve
from mark.profiling.table import load_profiles

DAY_S = 86_400
SCRIPT = Path(__file__).parents[2] / "scripts" / "check_bound.py"


def arrivals(days: int) -> tuple[str, np.ndarray]:
    """Return requests per second, drawn with a fixed seed."""
    rng = np.random.default_rng(0)
    data = Path(os.environ.get("MARK_DATA", Path(__file__).parents[2].parent / "shared" / "data"))
    trace = data / "traces" / "twitter_stream_2021_d00_14_1s.csv.gz"
    if not trace.is_file():
        t = np.arange(days * DAY_S)
        surges = 3.0 * np.exp(-((((t % 3600) - 300.0) / 150.0) ** 2))
        return "stand-in", rng.poisson(90.0 * (1.5 + np.sin(2.0 * np.pi * t / DAY_S) + surges))
    with gzip.open(trace, "rt") as lines:
        rows = np.loadtxt(itertools.islice(lines, 1, days * DAY_S + 1), delimiter=",")
    counts = np.zeros(days * DAY_S)
    within = rows[:, 0] < len(counts)
    counts[rows[within, 0].astype(np.int64)] = rows[within, 1]
    return "twitter_stream x 2.5", rng.poisson(2.5 * counts)


def whole() -> None:
    service = load_service("inception-v3-2026")
    resolved = resolve(service, load_catalog(service.catalog), load_profiles(None))
    rng = np.random.default_rng(0)
    at = np.arange(DAY_S)
    day_rps = 163.0 * (1.0 + 0.6 * np.sin(2.0 * np.pi * at / DAY_S)) * np.repeat(rng.gamma(25.0, 1.0 / 25.0, 288), 300)
    print("part    requests     fluid $    whole $     plan $  block s  seconds  bytes  check s")
    for name, rates in (("day", day_rps), ("week", np.tile(day_rps, 7) * 6.1)):
        counts = rng.poisson(rates).astype(float)
        problem = build_problem(resolved, counts, end_s=float(len(counts)))
        late = (1.0 - service.slo.attainment) * float(counts.sum())
        whole_proof(build_problem(resolved, counts[:4000], end_s=4000.0), 0.0)  # compiled
        began = time.perf_counter()
        proof = whole_proof(problem, late)
        seconds = time.perf_counter() - began
        assert proof is not None
        plan_usd = feasible_usd(proof.problem, late, proof.late_usd)
        certificate = certify_blocks(problem, late)
        with tempfile.NamedTemporaryFile(suffix=".npz") as file:
            file.write(certificate.content)
            file.flush()
            began = time.perf_counter()
            subprocess.run([sys.executable, SCRIPT, file.name, "--digest", certificate.sha256], check=True)
            check_s = time.perf_counter() - began
        fluid_usd = fluid_bound(problem, late).usd
        print(f"{name:5s} {counts.sum():11,.0f} {fluid_usd:11.3f} {proof.usd:10.3f} {plan_usd:10.3f} "
              f"{proof.blocks.block_bins:8d} {seconds:8.2f} {len(certificate.content):7,d} {check_s:6.2f}")  # fmt: skip
        assert plan_usd is not None
        assert proof.usd <= plan_usd
        assert len(certificate.content) <= 1_000_000


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--days", type=int, default=1)
    parser.add_argument(
        "--whole", action="store_true", help="measure the bound in whole instances of a day and of a week"
    )
    args = parser.parse_args()
    if args.whole:
        whole()
        return
    days = args.days
    service = load_service("inception-v3")
    resolved = resolve(service, load_catalog(service.catalog), load_profiles(None))
    name, counts = arrivals(days)
    began = time.perf_counter()
    fluid_bound(build_problem(resolved, np.ones(20), end_s=20.0))
    print(f"{name}, {days} d, {counts.mean():.0f} requests/s; first call {time.perf_counter() - began:.1f} s")

    print("hour   program $     bound $   below %  steps  HiGHS s  bound s")
    for hour in (0, 6, 12, 18):
        part = counts[hour * 3600 : (hour + 1) * 3600]
        problem = build_problem(resolved, part, end_s=3600.0)
        program = program_of(problem)
        assert program is not None
        began = time.perf_counter()
        exact = solve_lp(program)
        highs_s = time.perf_counter() - began
        assert exact is not None
        began = time.perf_counter()
        found = fluid_bound(problem)
        bound_s = time.perf_counter() - began
        assert found.usd is not None
        *_, steps, _ = solve(
            program.demand, program.price, program.available, program.start, program.start.copy(),
            np.zeros(program.types), program.function, 3e-4, 80,
        )  # fmt: skip
        value = exact.value * program.usd
        print(f"{hour:4d} {value:11.5f} {found.usd:11.5f} {1e2 * (1.0 - found.usd / value):9.4f} {steps:6d} "
              f"{highs_s:8.2f} {bound_s:8.3f}")  # fmt: skip
        assert 0.999 * value <= found.usd <= value
        assert steps <= 40

    print("late %     bound $  functions %  seconds")
    problem = build_problem(resolved, counts, end_s=float(len(counts)))
    for share in (0.0, 0.001, 1.0 - service.slo.attainment):
        began = time.perf_counter()
        found = fluid_bound(problem, share * float(counts.sum()))
        seconds = time.perf_counter() - began
        print(f"{1e2 * share:6.1f} {found.usd:11.4f} {1e2 * found.function_share:12.3f} {seconds:8.2f}")


if __name__ == "__main__":
    main()
