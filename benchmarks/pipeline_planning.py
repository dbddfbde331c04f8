"""What a pipeline costs as planned here, by InferLine's planner and as one black box, and what new traffic then misses.

    python benchmarks/pipeline_planning.py [--quick] [--out out/pipeline_planning.md]

Four pipelines as in InferLine's section 6, at unit prices as in its cost model (a vCPU, a K80, a V100 by itself), with
profiles T(b) = fixed + b x each in the style of its figures. Planned on 120 s, judged on another 300 s, with gamma
arrivals; CV is sigma / mu. Prints dollars per hour and the share of new queries missed; exits 1 where something is
dearer than InferLine's plan or misses more than promised.
"""

from __future__ import annotations

import argparse
import itertools
import sys
import time
from pathlib import Path

import numpy as np

from mark.domain.pipeline import Lineage, Pipeline, PipelineStage
from mark.domain.slo import Slo
from mark.pipelines.coarse import coarse_plan
from mark.pipelines.configure import configure
from mark.pipelines.estimate import QuerySample, StageChoice, StageOption, estimate
from mark.pipelines.inferline import inferline_plan

USD_PER_HOUR = {"vCPU": 0.05, "K80": 0.70, "V100": 2.90}
LARGEST = 64
# ms: what a batch takes by itself, and each item, by hardware
MODELS = {
    "preprocess": {"vCPU": (1.0, 4.0)},
    "resnet152": {"vCPU": (30.0, 1640.0), "K80": (42.0, 18.5), "V100": (14.0, 4.8)},
    "detect": {"vCPU": (20.0, 900.0), "K80": (30.0, 24.0), "V100": (10.0, 6.5)},
    "vehicles": {"vCPU": (5.0, 160.0), "K80": (12.0, 6.0), "V100": (5.0, 1.6)},
    "people": {"vCPU": (5.0, 160.0), "K80": (12.0, 6.0), "V100": (5.0, 1.6)},
    "plates": {"vCPU": (5.0, 60.0), "K80": (15.0, 8.0), "V100": (7.0, 3.0)},
    "language": {"vCPU": (0.5, 1.5)},
    "translate": {"vCPU": (40.0, 320.0), "K80": (35.0, 9.0), "V100": (16.0, 2.6)},
    "categorise": {"vCPU": (1.0, 6.0), "K80": (4.0, 0.6)},
    "fast": {"vCPU": (3.0, 18.0), "K80": (6.0, 1.0), "V100": (3.0, 0.4)},
    "slow": {"vCPU": (30.0, 1640.0), "K80": (42.0, 18.5), "V100": (14.0, 4.8)},
}


def stage(name: str, *after: str) -> PipelineStage:
    return PipelineStage(name, name, after)


def lineage(stages: list[str], *patterns: tuple[int, ...]) -> Lineage:
    """Rows of (queries, calls of each stage)."""
    rows = np.array(patterns)
    return Lineage(tuple(stages), rows[:, 1:], rows[:, 0])


PIPELINES = {
    "image": (
        Pipeline((stage("preprocess"), stage("resnet152", "preprocess"))),
        lineage(["preprocess", "resnet152"], (100, 1, 1)),
    ),
    "video": (
        Pipeline((stage("detect"), stage("vehicles", "detect"), stage("people", "detect"), stage("plates", "vehicles"))),
        lineage(["detect", "vehicles", "people", "plates"], (35, 1, 0, 0, 0), (25, 1, 1, 0, 0), (15, 1, 1, 0, 1),
                (15, 1, 0, 1, 0), (10, 1, 1, 1, 1)),
    ),
    "social": (
        Pipeline((stage("language"), stage("translate", "language"), stage("resnet152"),
                  stage("categorise", "translate", "resnet152"))),
        lineage(["language", "translate", "resnet152", "categorise"], (36, 1, 0, 1, 1), (24, 1, 1, 1, 1),
                (24, 1, 0, 0, 1), (16, 1, 1, 0, 1)),
    ),
    "cascade": (
        Pipeline((stage("fast"), stage("slow", "fast"))),
        lineage(["fast", "slow"], (70, 1, 0), (30, 1, 1)),
    ),
}  # fmt: skip


def options_of(pipeline: Pipeline) -> list[list[StageOption]]:
    found = []
    for one in pipeline.stages:
        times = {hardware: (fixed, each) for hardware, (fixed, each) in MODELS[one.model].items()}
        found.append([
            StageOption(hardware, USD_PER_HOUR[hardware],
                        np.array([0.0, *(1e-3 * (fixed + each * b) for b in range(1, LARGEST + 1))]))
            for hardware, (fixed, each) in times.items()
        ])  # fmt: skip
    return found


def traffic(law: Lineage, rate: float, cv: float, duration_s: float, seed: int) -> QuerySample:
    rng = np.random.default_rng(seed)
    shape = 1.0 / cv**2
    gaps_s = rng.gamma(shape, 1.0 / (rate * shape), size=int(rate * duration_s * 1.5) + 1000)
    arrivals_s = np.cumsum(gaps_s)
    arrivals_s = arrivals_s[arrivals_s < duration_s]
    return QuerySample(arrivals_s, law.drawn(len(arrivals_s), rng))


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="one rate, two promises")
    parser.add_argument("--only", choices=PIPELINES)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--out", type=Path, default=Path("out/pipeline_planning.md"))
    args = parser.parse_args()
    rates, slos = ((150.0,), (150.0, 300.0)) if args.quick else ((50.0, 150.0, 300.0), (150.0, 300.0, 500.0))
    names = [args.only] if args.only else list(PIPELINES)
    lines = [
        "| pipeline | queries/s | SLO ms | CV | coarse-peak | misses | coarse-mean | misses | InferLine | misses | s | mark | misses"
        " | s | InferLine / mark |",
        "|---|--:|--:|--:|--:|--:|--:|--:|--:|--:|--:|--:|--:|--:|--:|",
    ]
    print(*lines, sep="\n", flush=True)
    ratios, wrong, coarse = [], [], []
    for name, rate, slo_ms, cv in itertools.product(names, rates, slos, (1.0, 4.0)):
        pipeline, law = PIPELINES[name]
        options, slo = options_of(pipeline), Slo(slo_ms / 1e3, 0.99)
        sample = traffic(law, rate, cv, 120.0, seed=args.seed)
        new = traffic(law, rate, cv, 300.0, seed=args.seed + 1_000_000)

        def judged(choices: tuple[StageChoice, ...]) -> tuple[float, float]:
            seen = estimate(pipeline, new, choices)
            return seen.usd_per_hour, 100.0 * seen.miss_share(slo.rt_max_s)

        began_s = time.perf_counter()
        peak, mean = (judged(coarse_plan(pipeline, sample, options, slo, by=by)) for by in ("peak", "mean"))
        t0 = time.perf_counter()
        theirs = judged(inferline_plan(pipeline, sample, options, slo)[0])
        t1 = time.perf_counter()
        found = configure(pipeline, sample, options, slo, seed=args.seed)
        t2 = time.perf_counter()
        ours = judged(found.choices)
        cell = f"{name} {rate:g}/s {slo_ms:g} ms CV {cv:g}"
        if ours[0] > theirs[0] + 1e-9:
            wrong.append(f"{cell}: dearer than InferLine's plan")
        if ours[1] > 1.0:
            wrong.append(f"{cell}: {ours[1]:.2f} % of new queries missed")
        ratios.append(ours[0] / theirs[0])
        coarse.append((cv, peak[0] / ours[0]))
        both = " | ".join(f"{usd:.2f} | {missed:.2f} %" for usd, missed in (peak, mean, theirs))
        line = (f"| {name} | {rate:g} | {slo_ms:g} | {cv:g} | {both} | {t1 - t0:.2f} | {ours[0]:.2f} | {ours[1]:.2f} % | "
                f"{t2 - t1:.2f}{'' if found.complete else '+'} | {theirs[0] / ours[0]:.2f} |")  # fmt: skip
        lines.append(line)
        print(line, flush=True)
        del began_s
    bursty = [ratio for cv, ratio in coarse if cv > 1.0]
    lines += [
        "",
        f"mark / InferLine: mean {np.mean(ratios):.3f}, worst {max(ratios):.3f}; coarse-peak / mark at CV 4: median "
        f"{np.median(bursty):.1f}, greatest of all {max(ratio for _, ratio in coarse):.1f}",
        *wrong,
    ]
    print(*lines[-1 - len(wrong) - 1 :], sep="\n")
    args.out.parent.mkdir(parents=True, exist_ok=True)
    args.out.write_text("\n".join(lines) + "\n")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
