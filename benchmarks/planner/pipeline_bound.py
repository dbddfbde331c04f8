"""The distance of mark's plans of pipelines from proven lower bounds.

    python benchmarks/planner/pipeline_bound.py [--only image,video] [--out out/pipeline_bound.md]

Pipelines, profiles, unit prices and gamma arrivals as in benchmarks/planner/pipeline_planning.py, 120 s of them.
"Trusting" is the plan for just these queries, "mark" the plan for new queries. Both are compared with the bound of
fixed fleets of whole machines, and with the bound of any fleet, whose machines are billed for 70 s of boot. Exits with
1 if the trusting plan costs less than a bound.
"""

from __future__ import annotations

import argparse
import itertools
import sys
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from mark_papers.inferline.least_cost import service_of
from mark_papers.inferline.pipelines import PIPELINES, gamma_queries, options_of
from pipeline_planning import PLANNED_S

from mark.domain.slo import Slo
from mark.planning.bounds.fixed_bound import fixed_fleet_bound
from mark.planning.bounds.pipeline_bound import PipelineBoundProblem, pipeline_bound
from mark.planning.graphs.configure import configure

BOOT_S = 70.0  # that are billed


@dataclass(frozen=True)
class Distance:
    """Dollars per hour."""

    name: str
    cv: float
    trusting: float
    mark: float
    fixed: float
    any_fleet: float

    def row(self) -> str:
        usd = f"{self.trusting:.2f} | {self.mark:.2f} | {self.fixed:.2f} | {self.any_fleet:.2f}"
        over = (self.trusting / self.fixed, self.mark / self.fixed, self.mark / self.any_fleet)
        return f"| {self.name} | {usd} | " + " | ".join(f"{times:.2f}" for times in over) + " |"


def distance(name: str, rate: float, slo_ms: float, cv: float, seed: int) -> Distance:
    pipeline, law = PIPELINES[name]
    options, slo = options_of(pipeline), Slo(slo_ms / 1e3, 0.99)
    sample = gamma_queries(law, rate, cv, PLANNED_S, seed)
    trusting = configure(pipeline, sample, options, slo, resamples=0).usd_per_hour
    planned = configure(pipeline, sample, options, slo, seed=seed).usd_per_hour
    services = [service_of(of, None, slo, BOOT_S) for of in options]
    problem = PipelineBoundProblem.of_sample(pipeline, sample, services, slo, end_s=PLANNED_S)
    late = (1.0 - slo.attainment) * len(sample.arrivals_s)
    fixed, any_fleet = fixed_fleet_bound(problem, late), pipeline_bound(problem, late)
    assert fixed is not None
    assert any_fleet.usd is not None
    per_hour = any_fleet.usd / PLANNED_S * 3600.0
    return Distance(f"{name} | {rate:g} | {slo_ms:g} | {cv:g}", cv, trusting, planned, fixed.usd_per_hour, per_hour)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", default="image,video", help=f"pipelines of {', '.join(PIPELINES)}")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--out", type=Path, default=Path("out/pipeline_bound.md"))
    args = parser.parse_args()
    lines = [
        "| pipeline | queries/s | SLO ms | CV | trusting $/h | mark $/h | fixed fleet $/h | any fleet $/h "
        "| trusting / fixed | mark / fixed | mark / any |",
        "|---" + "|--:" * 10 + "|",
    ]
    print(*lines, sep="\n", flush=True)
    found = []
    for name, rate, slo_ms, cv in itertools.product(
        args.only.split(","), (50.0, 300.0), (150.0, 300.0, 500.0), (1.0, 4.0)
    ):
        found.append(distance(name, rate, slo_ms, cv, args.seed))
        lines.append(found[-1].row())
        print(lines[-1], flush=True)
    lines.append("")
    for cv in (1.0, 4.0):
        of = [one for one in found if one.cv == cv]
        words = (
            f"{what} {np.median(ratios):.2f}, least {min(ratios):.2f}, greatest {max(ratios):.2f}"
            for what, ratios in (
                ("trusting / fixed", [one.trusting / one.fixed for one in of]),
                ("mark / fixed", [one.mark / one.fixed for one in of]),
                ("mark / any", [one.mark / one.any_fleet for one in of]),
            )
        )
        lines.append(f"CV {cv:g}, medians: {'; '.join(words)}")
        print(lines[-1])
    args.out.parent.mkdir(parents=True, exist_ok=True)
    args.out.write_text("\n".join(lines) + "\n")
    return int(any(one.trusting < max(one.fixed, one.any_fleet) * (1.0 - 1e-9) for one in found))


if __name__ == "__main__":
    sys.exit(main())
