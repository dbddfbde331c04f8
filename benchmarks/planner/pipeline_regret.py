"""Compare the bill of a pipeline of three stages with its clairvoyant bound on days of real traffic, and split the gap.

    python benchmarks/planner/pipeline_regret.py days [--days twitter_stream,worldcup98] [--rt-max-ms 4000] [--hours 24]
    python benchmarks/planner/pipeline_regret.py apart [--days twitter_stream,worldcup98] [--rt-max-ms 4000]
            [--hours 24]
    python benchmarks/planner/pipeline_regret.py split [--days twitter_stream,worldcup98] [--hours 24]

The pipeline sees each image (Inception-v3), finds words for it (LSTM-ptb) and translates those of three in ten
(OpenNMT-ende), on the shipped profiles of the paper's models at prices of 2019, with 98 % in time. With an RT_max of
4 s each stage may have a function; with 2.1 s, the sum of these services' promises, `translate` has none.

`days` runs policy `mark` with and without functions and spot. `apart` attributes the distance on demand, with
functions, to its causes: by runs with perfect forecasts and certain boots, and by plans that know every arrival
(docs/attribution.md). `split` computes how much the best split of RT_max of each hour would save over the split for
the load of the day before.

The traffic is real, from MARK_DATA or ../shared/data; without it nothing is measured. A day has 7 to 10 million
queries; a run takes five minutes and 3 GiB. Exits with 1 if a bill that keeps the promise is below the bound.
"""

from __future__ import annotations

import argparse
import itertools
import json
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass, fields, replace
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
from miss_price import DATA

from mark.config.pipeline_file import load_pipeline
from mark.domain.arrays import FloatArray
from mark.domain.time import DAY_S, HOUR_S
from mark.planning.bounds.cost_gap import CostGap, cost_gap
from mark.planning.bounds.lower_bound import fluid_bound
from mark.planning.graphs.latency_split import StageCost, split_latency
from mark.planning.graphs.stage_cost import stage_cost
from mark.simulation.bounding import drawn_problem
from mark.simulation.inputs import trace_named_in
from mark.simulation.request import RunRequest, Sensitivity
from mark.studies.pipeline_bound_study import promise_bound
from mark.studies.pipeline_plan import graph_and_law
from mark.studies.pipeline_result import PipelineRun
from mark.studies.pipeline_run import simulate_pipeline
from mark.studies.pipeline_stages import controlled_stages, loads_by_hour, stage_services

FILE = """
[service]
name = "caption"
slo_ms = {rt_max_ms:g}
slo_attainment = 0.98
[fleet]
catalog = "aws-2019"
markets = ["on-demand"]
instances = ["c5.*", "p2.xlarge"]
max_instances = 1000
max_usd_per_hour = 1000.0
[overflow]
function = "{function}"
max_usd_per_hour = 200.0
[packs]
allow = "{packs}"
[stage.see]
model = "inception-v3"
[stage.word]
model = "lstm-ptb"
after = ["see"]
[stage.translate]
model = "opennmt-ende"
after = ["word"]
share = 0.3
"""
# Trace, day that it begins on, scale: at most the ten million queries that are simulated at a time.
DAYS = {
    "twitter_stream": ("twitter_stream_2021_d00_14_1s", 7.0, 1.7),
    "worldcup98": ("worldcup98_apr30_jun30_60s", 40.0, 0.2),
    "worldcup98-52": ("worldcup98_apr30_jun30_60s", 52.0, 0.2),
}
VARIANTS = {
    "on demand": ("none", ("on-demand",)),
    "on demand, functions": ("lambda:3008", ("on-demand",)),
    "spot": ("none", ("on-demand", "spot")),
    "spot, functions": ("lambda:3008", ("on-demand", "spot")),
}


@dataclass(frozen=True)
class Case:
    """A day with one way to buy."""

    day: str
    variant: str
    rt_max_ms: float
    hours: float
    load: float  # times the scale of the day

    def request(self, folder: Path, packs: str = "auto") -> RunRequest:
        trace, day, scale = DAYS[self.day]
        function, markets = VARIANTS[self.variant]
        file = folder / f"{self.rt_max_ms:g}-{function.partition(':')[0]}-{packs}.toml"
        file.write_text(FILE.format(rt_max_ms=self.rt_max_ms, function=function, packs=packs))
        return RunRequest(
            trace=str(DATA / f"{trace}.csv.gz"),
            service=str(file),
            markets=markets,
            scale=scale * self.load,
            start_s=day * DAY_S,
            duration_s=self.hours * HOUR_S,
        )


def run_of(request: RunRequest) -> PipelineRun:
    run = simulate_pipeline(request, ("mark",))["mark"]
    # Each query calls the first stage once, and a later stage at most as often, because queries may be given up.
    see, word, translate = (stage.calls for stage in run.stages)
    assert see == run.queries, (see, run.queries)
    assert see >= word >= translate > 0, (see, word, translate)
    return run


def separate_usd(case: Case, folder: Path) -> float | None:
    """Return the bound of fleets whose instances host one stage each."""
    request = case.request(folder, "separate")
    pipeline, law, _ = graph_and_law(load_pipeline(request.service), None, None)
    return promise_bound(request, pipeline, law).usd


def row(case: Case, run: PipelineRun, separate: float | None, wall_s: float) -> dict[str, Any]:
    """Return a run's row of the table. `over_bound` is given even if the promise was missed; `regret` is not."""
    return asdict(case) | {
        "queries": run.queries,
        "usd": run.usd,
        "bound_usd": run.bound_usd,
        "separate_usd": separate,
        "over_bound": None if not run.bound_usd else run.usd / run.bound_usd,
        "regret": run.regret,
        "in_time": run.attainment,
        "function_usd": run.function_usd,
        "throttled": run.by_function.throttled,
        "instances": run.instances,
        "stages": [asdict(stage) for stage in run.stages],
        "wall_s": wall_s,
    }


def told(found: dict[str, Any]) -> str:
    over = "-" if found["over_bound"] is None else f"{found['over_bound']:.3f}"
    stages = ", ".join(f"{of['stage']} {of['usd']:.2f} ({1e3 * of['part_s']:.0f} ms)" for of in found["stages"])
    return " | ".join(
        (
            f"{found['day']}, {found['variant']}, {found['rt_max_ms']:g} ms",
            f"{found['queries']:,} queries, {found['instances']:.1f} instances",
            f"${found['usd']:.2f}, functions {found['function_usd']:.2f}, {found['throttled']} calls throttled",
            f"{found['in_time']:.2%} in time",
            f"bound {found['bound_usd'] or 0.0:.2f}, of separate instances {found['separate_usd'] or 0.0:.2f}",
            f"{over}{'' if found['regret'] else ' (missed)'}",
            stages,
            f"{found['wall_s']:.0f} s",
        )
    )


def days(cases: list[Case], folder: Path) -> Iterator[dict[str, Any]]:
    for case in cases:
        began = time.perf_counter()
        found = row(case, run_of(case.request(folder)), separate_usd(case, folder), time.perf_counter() - began)
        print(told(found), flush=True)
        yield found


def plans_of(request: RunRequest, parts_s: list[float]) -> tuple[float, CostGap]:
    """Return the bound, and plans that know every arrival, of all stages.

    Each stage has its part of RT_max and of the misses.
    """
    config = load_pipeline(request.service)
    said = zip(config.stages, parts_s, strict=True)
    config = replace(config, stages=tuple(replace(stage, rt_max_s=part_s) for stage, part_s in said))
    pipeline, law, _ = graph_and_law(config, None, None)
    trace = trace_named_in(request)
    part = trace.part(request.start_s, request.duration_s, request.scale)
    bound_usd, gaps = 0.0, []
    for stage in controlled_stages(request, config, pipeline, law, trace, part, np.ones((1, 1)))[0]:
        problem, total = drawn_problem(stage.inputs)
        late = (1.0 - stage.inputs.service.slo.attainment) * total
        bound, gap = fluid_bound(problem, late), cost_gap(problem, late)
        assert bound.usd is not None
        assert gap is not None
        bound_usd += bound.usd
        gaps.append(gap)
    names = [field.name for field in fields(CostGap)]
    return bound_usd, CostGap(*(sum(getattr(gap, name) for gap in gaps) for name in names))


def apart(cases: list[Case], folder: Path) -> Iterator[dict[str, Any]]:
    for case in cases:
        began = time.perf_counter()
        request = case.request(folder)
        unbounded = replace(request, with_bound=False)
        perfect = replace(unbounded, foresight=True)
        bill = run_of(request)
        foreseen = run_of(perfect)
        certain = run_of(replace(perfect, sensitivity=Sensitivity(certain_boots=True)))
        split_usd, gap = plans_of(request, [stage.part_s or 0.0 for stage in bill.stages])
        separate = separate_usd(case, folder)
        assert bill.bound_usd is not None
        assert separate is not None
        parts = {
            "forecasts": bill.usd - foreseen.usd,
            "boots": foreseen.usd - certain.usd,
            "launches": gap.launches_usd,
            "queueing": gap.queueing_usd - gap.whole_usd,
            "whole instances": gap.whole_usd - gap.fluid_usd,
            "split": split_usd - separate,
            "separate instances": separate - bill.bound_usd,
        }
        parts["other"] = bill.usd - bill.bound_usd - sum(parts.values())
        found = row(case, bill, separate, time.perf_counter() - began) | {
            "parts": parts,
            "perfect_usd": foreseen.usd,
            "perfect_in_time": foreseen.attainment,
            "certain_usd": certain.usd,
        }
        print(told(found), flush=True)
        print(f"  of {bill.usd - bill.bound_usd:.2f}:", ", ".join(f"{name} {usd:.2f}" for name, usd in parts.items()))
        print(f"  perfect forecasts {foreseen.usd:.2f}, {foreseen.attainment:.2%}, certain boots {certain.usd:.2f}")
        sys.stdout.flush()
        yield found


def split_of(case: Case, folder: Path) -> dict[str, Any]:
    """Return the day's dollars with the one split of RT_max, with the best fixed one in hindsight, and hour by hour."""
    request = case.request(folder)
    config = load_pipeline(request.service)
    pipeline, law, _ = graph_and_law(config, None, None)
    trace, rt_max_s, start_s = trace_named_in(request), config.slo.rt_max_s, request.start_s
    whole = stage_services(config, request, dict.fromkeys(pipeline.names, rt_max_s))

    def costs(loads_rps: FloatArray) -> list[StageCost]:
        calls = zip(pipeline.names, law.calls_per_query, strict=True)
        return [cache(stage_cost(whole[name], loads_rps * of_query)) for name, of_query in calls]

    before, hours = (
        loads_by_hour(trace, trace.part(from_s, duration_s, request.scale), request.scale)
        for from_s, duration_s in ((start_s - DAY_S, DAY_S), (start_s, case.hours * HOUR_S))
    )
    by_hour = [costs(hour[None, :]) for hour in hours]
    splits = [split_latency(pipeline, law.calls, of, rt_max_s) for of in (costs(before), costs(hours), *by_hour)]
    usd = np.array(
        [[sum(cost(s) for cost, s in zip(of, parts_s, strict=True)) for of in by_hour] for parts_s in splits]
    )
    return {
        "parts_s": splits[0],
        "one_usd": float(usd[0].sum()),
        "hindsight_usd": float(usd.sum(axis=1).min()),
        "followed_usd": float(usd.min(axis=0).sum()),
    }


def split(cases: list[Case], folder: Path) -> Iterator[dict[str, Any]]:
    """Split RT_max by the hourly cost of each stage (mark/planning/graphs/stage_cost.py), without a run."""
    for case in cases:
        found = split_of(case, folder)
        said = ", ".join(f"{1e3 * part_s:.0f}" for part_s in found["parts_s"])
        less = [
            f"${usd:.2f}, {1 - usd / found['one_usd']:.1%} less"
            for usd in (found["hindsight_usd"], found["followed_usd"])
        ]
        print(
            f"{case.day}, {case.variant}, {case.rt_max_ms:g} ms | split ({said} ms) ${found['one_usd']:.2f}, the best "
            f"one in hindsight {less[0]}, the best of each hour {less[1]}",
            flush=True,
        )
        yield asdict(case) | found | {"regret": None}


ASKED = {"days": days, "apart": apart, "split": split}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=tuple(ASKED))
    parser.add_argument("--days", default="twitter_stream,worldcup98", help=f"days of {', '.join(DAYS)}")
    parser.add_argument("--variants", default="", help=f"variants, separated by ;, of {'; '.join(VARIANTS)}")
    parser.add_argument("--rt-max-ms", default="4000", help="RT_max in ms, separated by commas")
    parser.add_argument("--hours", type=float, default=24.0)
    parser.add_argument("--load", type=float, default=1.0, help="load, as a multiple of the day's")
    parser.add_argument("--out", type=Path, default=Path("out/pipeline_regret.json"))
    args = parser.parse_args()
    if not DATA.is_dir():
        print(f"skipped: no {DATA}", file=sys.stderr)
        return 0
    default = ["on demand, functions"] if args.what != "days" else list(VARIANTS)
    variants = args.variants.split(";") if args.variants else default
    named = itertools.product(args.rt_max_ms.split(","), args.days.split(","), variants)
    cases = [Case(day, variant, float(rt_max_ms), args.hours, args.load) for rt_max_ms, day, variant in named]
    rows = []
    with tempfile.TemporaryDirectory() as folder:
        for found in ASKED[args.what](cases, Path(folder)):
            rows.append(found)
            args.out.parent.mkdir(parents=True, exist_ok=True)
            args.out.write_text(json.dumps(rows, indent=1))
    return int(any(found["regret"] is not None and found["regret"] < 1.0 - 1e-9 for found in rows))


if __name__ == "__main__":
    sys.exit(main())
