"""The cost of a pipeline planned by mark, by InferLine's planner and as one black box, and the misses of new traffic.

    python benchmarks/planner/pipeline_planning.py [--quick] [--confidence 0.95] [--out out/pipeline_planning.md]

The four pipelines are those of InferLine's section 6, at unit prices as in its cost model (a vCPU, a K80, a V100 by
itself), with profiles T(b) = fixed + b x each in the style of its figures. Each pipeline is planned on 120 s and judged
on another 300 s, with gamma arrivals; CV is sigma / mu. "mark, trusting" plans as if new traffic were just like the
120 s, as InferLine does. Prints dollars per hour and the share of new queries missed. Exits with 1 if a plan that
trusts the sample is dearer than InferLine's, or if a plan for new traffic misses more than promised.
"""

from __future__ import annotations

import argparse
import itertools
import sys
import time
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from mark_papers.inferline.pipelines import PIPELINES, gamma_queries, options_of

from mark.domain.pipeline import Pipeline
from mark.domain.slo import Slo
from mark.planning.graphs.black_box import coarse_plan
from mark.planning.graphs.configure import configure
from mark.planning.graphs.estimate import Choices, QuerySample, estimate
from mark.planning.graphs.inferline import inferline_plan
from mark.planning.graphs.promise_judge import CONFIDENCE

PLANNED_S, JUDGED_S = 120.0, 300.0


def judged(pipeline: Pipeline, new: QuerySample, slo: Slo, choices: Choices) -> tuple[float, float]:
    """Return the dollars per hour, and the share of new queries that miss the promise."""
    seen = estimate(pipeline, new, choices)
    return seen.usd_per_hour, seen.miss_share(slo.rt_max_s)


@dataclass(frozen=True)
class Cell:
    """One row of the grid: (dollars per hour, share missed) of each planner, and its seconds of processor."""

    name: str
    cv: float
    usd: dict[str, tuple[float, float]]
    cpu_s: dict[str, float]
    complete: bool

    def ratio(self, other: str, planner: str = "mark") -> float:
        return self.usd[planner][0] / self.usd[other][0]

    def row(self) -> str:
        cells = [f"{usd:.2f} | {100.0 * missed:.2f}" for usd, missed in self.usd.values()]
        times = [f"{self.cpu_s[planner]:.2f}" for planner in ("InferLine", "mark")]
        return f"| {self.name} | " + " | ".join((*cells, *times, f"{self.ratio('InferLine'):.2f}")) + " |"


def cell(name: str, rate: float, slo_ms: float, cv: float, seed: int, confidence: float) -> Cell:
    pipeline, law = PIPELINES[name]
    options, slo = options_of(pipeline), Slo(slo_ms / 1e3, 0.99)
    sample, new = (
        gamma_queries(law, rate, cv, PLANNED_S, seed),
        gamma_queries(law, rate, cv, JUDGED_S, seed + 1_000_000),
    )
    usd, cpu_s = {}, {}
    for by in ("peak", "mean"):
        usd[f"coarse-{by}"] = judged(pipeline, new, slo, coarse_plan(pipeline, sample, options, slo, by=by))
    began_s = time.process_time()
    usd["InferLine"] = judged(pipeline, new, slo, inferline_plan(pipeline, sample, options, slo)[0])
    cpu_s["InferLine"] = time.process_time() - began_s
    found = configure(pipeline, sample, options, slo, resamples=0)
    usd["mark, trusting"] = judged(pipeline, new, slo, found.choices)
    began_s = time.process_time()
    found = configure(pipeline, sample, options, slo, confidence=confidence, seed=seed)
    cpu_s["mark"] = time.process_time() - began_s
    usd["mark"] = judged(pipeline, new, slo, found.choices)
    return Cell(f"{name} | {rate:g} | {slo_ms:g} | {cv:g}", cv, usd, cpu_s, found.complete)


def summary(cells: list[Cell]) -> list[str]:
    coarse = [1.0 / one.ratio("coarse-peak") for one in cells]
    bursty = [ratio for ratio, one in zip(coarse, cells, strict=True) if one.cv > 1.0]
    lines = [f"coarse-peak / mark: median at CV 4 {np.median(bursty):.1f}, greatest {max(coarse):.1f}"]
    for planner in ("mark", "mark, trusting"):
        ratios = [one.ratio("InferLine", planner) for one in cells]
        lines.append(f"{planner} / InferLine: mean {np.mean(ratios):.3f}, greatest {max(ratios):.3f}; dearer in "
                     f"{sum(ratio > 1.0 + 1e-9 for ratio in ratios)} of {len(cells)}")  # fmt: skip
    for planner in cells[0].usd:
        missed = [one.usd[planner][1] for one in cells]
        lines.append(f"{planner}: misses more than 1 % of new queries in {sum(m > 0.01 for m in missed)}, at most "
                     f"{100.0 * max(missed):.2f} %")  # fmt: skip
    cpu_s = [one.cpu_s["mark"] for one in cells]
    lines.append(f"mark plans in {np.median(cpu_s):.1f} s of one core (median), {max(cpu_s):.1f} s at most; its search "
                 f"ended by itself in {sum(one.complete for one in cells)} of {len(cells)}")  # fmt: skip
    return lines


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="measure only one rate and two promises")
    parser.add_argument("--only", choices=PIPELINES)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument(
        "--confidence", type=float, default=CONFIDENCE, help="probability that new traffic keeps the promise"
    )
    parser.add_argument("--out", type=Path, default=Path("out/pipeline_planning.md"))
    args = parser.parse_args()
    rates, slos = ((150.0,), (150.0, 300.0)) if args.quick else ((50.0, 150.0, 300.0), (150.0, 300.0, 500.0))
    lines = [
        "| pipeline | queries/s | SLO ms | CV | coarse-peak $/h | misses % | coarse-mean $/h | misses % "
        "| InferLine $/h | misses % | mark, trusting $/h | misses % | mark $/h | misses % | InferLine s | mark s "
        "| mark / InferLine |",
        "|---" + "|--:" * 16 + "|",
    ]
    cells = []
    print(*lines, sep="\n", flush=True)
    for name, rate, slo_ms, cv in itertools.product([args.only] if args.only else PIPELINES, rates, slos, (1.0, 4.0)):
        cells.append(cell(name, rate, slo_ms, cv, args.seed, args.confidence))
        lines.append(cells[-1].row())
        print(lines[-1], flush=True)
    told = summary(cells)
    print("", *told, sep="\n")
    args.out.parent.mkdir(parents=True, exist_ok=True)
    args.out.write_text("\n".join([*lines, "", *told]) + "\n")
    return int(any(one.ratio("InferLine", "mark, trusting") > 1.0 + 1e-9 or one.usd["mark"][1] > 0.01 for one in cells))


if __name__ == "__main__":
    sys.exit(main())
