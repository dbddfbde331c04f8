"""Compare the estimator of pipelines with a real `mark serve`: the same arrivals, and the latency of queries in both.

    python benchmarks/fidelity/fidelity_pipelines.py [--seconds 30] [--rounds 3] [--out out/fidelity_pipelines]

Each stage of the four pipelines has separate worker processes. Three pipelines have the shapes of InferLine's (SoCC
'20, figure 2); their models compute nothing and take a fixed time and some more for each item
(`mark.profiling.replay`). The fourth is a real cascade: its stages straighten sheets of handwritten digits, read them
with a small model, and read them with a bigger model if the small one is unsure. Its times are those that `mark
profile` measures here. The server has core 0 for all its processes (both cores for the real cascade), the open-loop
client has core 1. RT_max is so long that no query is late: the benchmark compares queueing and batching, not deadlines.

The estimator knows as much as a plan: times by batch size and workers. The excess of a lone query's time over its
batches is spread over its calls as their overhead. The first estimate treats the overhead as time of the workers, as
plans do; the second as time between stages, which occupies no worker. Both get the times at which the client really
sent, and the calls that each query made. Arrivals are Poisson and bursty (gamma inter-arrivals, CV 4 as sigma^2 /
mu^2). The table shows the round whose difference is the median. Writes OUT.json and OUT.md. Exits with 1 if p50 or p99
of the second estimate differs from the measured one by more than 5 %. On a machine that others use too, `chrt -f 1`
before the command helps.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from mark.domain.pipeline import Pipeline, PipelineStage
from mark.domain.profile import Profile
from mark.planning.graphs.estimate import QuerySample, StageChoice, StageOption, estimate
from mark.profiling.policy import sigma_of
from mark.profiling.table import load_profiles

sys.path.append(str(Path(__file__).resolve().parents[1] / "data_plane"))
import load

ROOT = Path(__file__).resolve().parents[2]
CLIENT_CORE = 1
RT_MAX_MS = 4000
CV2 = 4.0  # sigma^2 / mu^2 of bursty inter-arrivals, as InferLine counts it
SIZES = (1, 2, 4, 8)
QUANTILES = {"p50": 0.5, "p95": 0.95, "p99": 0.99}
ASKED = {"p50": 0.05, "p99": 0.05}
CONNECTIONS = 512
UNSURE = 0.12  # share of the digits on a sheet above which the bigger model reads the sheet, too
LONE = 60  # single queries, which show the overhead of their calls beside the models

Row = dict[str, float]


@dataclass(frozen=True)
class Stage:
    """Replayed: a batch of b takes `fixed_ms + each_ms * b`."""

    fixed_ms: float
    each_ms: float
    workers: int
    after: tuple[str, ...] = ()
    share: float = 1.0


@dataclass(frozen=True)
class Case:
    rate_rps: float
    stages: Mapping[str, Stage]
    real: bool = False


CASES = {
    "image": Case(90.0, {"preprocess": Stage(4, 1, 1), "classify": Stage(16, 6, 2, ("preprocess",))}),
    "video": Case(
        60.0,
        {
            "detect": Stage(12, 5, 2),
            "vehicles": Stage(8, 8, 2, ("detect",), 0.6),
            "people": Stage(10, 5, 1, ("detect",), 0.4),
        },
    ),
    "social": Case(
        80.0,
        {
            "language": Stage(2, 1, 1),
            "vision": Stage(12, 8, 2, (), 0.6),
            "translate": Stage(25, 12, 2, ("language",), 0.4),
            "categorise": Stage(3, 2, 1, ("translate", "vision")),
        },
    ),
    "digits": Case(
        25.0,
        {"deskew": Stage(0, 0, 1), "small": Stage(0, 0, 1, ("deskew",)), "large": Stage(0, 0, 1, ("small",))},
        real=True,
    ),
}

# Any graph, by the calls drawn for the n-th query that comes.
REPLAYED = """
import asyncio, itertools, json
from pathlib import Path
import mark

CALLS, AFTER = json.loads((Path(__file__).parent / "calls.json").read_text())
number = itertools.count()

@mark.pipeline(slo_ms=%d)
async def respond(query, models):
    calls, done = CALLS[next(number)], {}

    async def stage(name):
        await asyncio.gather(*(done[one] for one in AFTER[name]))
        if calls[name]:
            await getattr(models, name)(1)

    for name in AFTER:
        done[name] = asyncio.ensure_future(stage(name))
    await asyncio.gather(*done.values())
    return 1
"""
# A sheet is many digits, so that the models have something to do.
REAL = """
import itertools, json, sys
from pathlib import Path
import numpy as np
import mark

sys.path.append(%r)
import digits

SHEETS = json.loads((Path(__file__).parent / "sheets.json").read_text())
number = itertools.count()

class Deskew(mark.Model):
    warmup = SHEETS[:1]
    def predict(self, batch):
        return [np.stack([digits.deskewed(one) for one in sheet]) for sheet in batch]

class Read(digits.Digits):
    inputs = ()
    def __init__(self, kind="small", times="1"):
        super().__init__(kind)
        self._times = int(times)
    def predict(self, batch):
        rows = np.concatenate([np.asarray(sheet) for sheet in batch])
        for _ in range(self._times):
            found = super().predict(list(rows))
        sizes = np.cumsum([len(sheet) for sheet in batch])[:-1]
        parts = np.split(np.array([one["sure"] < digits.SURE for one in found]), sizes)
        return [{"unsure": float(part.mean())} for part in parts]

@mark.pipeline(slo_ms=%d)
async def respond(query, models):
    sheet = query["sheet"] if isinstance(query, dict) else next(number)  # traced, or as they come
    image = await models.deskew(SHEETS[sheet %% len(SHEETS)])
    if (await models.small(image))["unsure"] > %r:
        await models.large(image)
    return 1
"""


def calls_of(case: Case, queries: int, seed: int) -> np.ndarray:
    """Return which stages each query visits, shape (queries, stages)."""
    draws = np.random.default_rng(seed).random((queries, len(case.stages)))
    return (draws < [stage.share for stage in case.stages.values()]).astype(np.int64)


def arrivals(stream: str, rate_rps: float, seconds: float, seed: int) -> load.FloatArray:
    if stream == "poisson":
        return load.poisson(rate_rps, seconds, seed)
    random = np.random.default_rng(seed)
    times = np.cumsum(random.gamma(1.0 / CV2, CV2 / rate_rps, int(3.0 * rate_rps * seconds) + 1000))
    return times[times < seconds]


def write_files(name: str, case: Case, folder: Path) -> None:
    """Write the pipeline file, its driver and, of replayed stages, their profile."""
    models = {
        "deskew": "driver:Deskew", "small": "driver:Read?kind=small", "large": "driver:Read?kind=large&times=3"
    } if case.real else {
        stage: f"mark.profiling.replay:Replay?model={stage}&instance=here&profile=nominal.csv" for stage in case.stages
    }  # fmt: skip
    lines = ["[service]", f'name = "{name}"', f"slo_ms = {RT_MAX_MS}", "slo_attainment = 0.99"]
    lines += ['pipeline = "driver:respond"', 'profile = "profile.csv"']
    for stage, own in case.stages.items():
        lines += [f"[stage.{stage}]", f'model = "{models[stage]}"', f"workers = {own.workers}"]
    (folder / "pipeline.toml").write_text("\n".join(lines) + "\n")
    if case.real:
        sheets = real_sheets()
        (folder / "sheets.json").write_text(json.dumps(sheets))
        (folder / "driver.py").write_text(REAL % (str(ROOT / "examples" / "pipeline"), RT_MAX_MS, UNSURE))
        (folder / "queries.jsonl").write_text("".join(f'{{"sheet": {n}}}\n' for n in range(len(sheets))))
        command = [sys.executable, "-m", "mark.cli.main", "profile", "pipeline.toml", "--queries", "queries.jsonl"]
        command += [
            "--batch",
            ",".join(map(str, SIZES)),
            "--seconds",
            "1",
            "--instance",
            "here",
            "--out",
            "profile.csv",
        ]
        subprocess.run(command, cwd=folder, check=True, stdout=subprocess.DEVNULL)
        return
    (folder / "driver.py").write_text(REPLAYED % RT_MAX_MS)
    rows = [(stage, batch, own.fixed_ms + own.each_ms * batch) for stage, own in case.stages.items() for batch in SIZES]
    for file, named in (("nominal.csv", {}), ("profile.csv", models)):
        lines = [f"{named.get(stage, stage)},here,{batch},{ms}" for stage, batch, ms in rows]
        (folder / file).write_text("\n".join(["model,instance,batch,latency_ms", *lines]) + "\n")


def real_sheets() -> list[list[list[int]]]:
    """Return sheets of sixty digits each, which the models were not trained on."""
    from sklearn.datasets import load_digits

    images, _ = load_digits(return_X_y=True)
    held_out, random = images[1::2].astype(int), np.random.default_rng(0)
    return [held_out[random.integers(0, len(held_out), 60)].tolist() for _ in range(200)]


def real_calls() -> np.ndarray:
    """Return which stages each sheet visits, by the models themselves."""
    sys.path.append(str(ROOT / "examples" / "pipeline"))
    import digits

    small = digits.Digits("small")
    small.load()
    unsure = [
        np.mean([one["sure"] < digits.SURE for one in small.predict([digits.deskewed(image) for image in sheet])])
        for sheet in real_sheets()
    ]
    return np.array([[1, 1, share > UNSURE] for share in unsure], dtype=np.int64)


def played(case: Case, folder: Path, stream: str, seconds: float, seed: int, core: str) -> tuple[Row, Row]:
    """Play one round, measured and estimated. The first queries come one at a time."""
    times_s = arrivals(stream, case.rate_rps, seconds, seed)
    queries = LONE + len(times_s)
    if case.real:
        of_sheets = real_calls()
        calls = of_sheets[np.arange(queries) % len(of_sheets)]
    else:
        calls = calls_of(case, queries, seed)
        named = [dict(zip(case.stages, map(int, row), strict=True)) for row in calls]
        after = {name: stage.after for name, stage in case.stages.items()}
        (folder / "calls.json").write_text(json.dumps([named, after]))
    with load.serving(["pipeline.toml", "--instance", "here"], folder, core) as url:
        target = load.Target(f"{url}/invocations", b"1", expected=b"1")
        lone = load.open_loop(target, np.arange(LONE) * 0.2, 4, patience_s=3.0)
        answers = load.open_loop(target, times_s, CONNECTIONS, patience_s=RT_MAX_MS / 1e3)
    assert lone["right"].all(), "a lone query was not answered"
    assert answers["right"].all(), "a query was not answered"
    pipeline = Pipeline(tuple(PipelineStage(name, name, stage.after) for name, stage in case.stages.items()))
    profiles = {model: of["here"] for model, of in load_profiles(str(folder / "profile.csv")).items()}
    found = in_order(profiles, case)
    batch_s = [np.array([0.0, *(profile.latency_s(b) for b in range(1, max(SIZES) + 1))]) for profile in found]
    sigmas = [max(sigma_of(row) for row in profile.rows) for profile in found]

    def options(overhead_s: float) -> list[StageChoice]:
        return [
            StageChoice(StageOption("here", 1.0, of_batch + overhead_s, own.workers, sigma), max(SIZES), 1)
            for own, of_batch, sigma in zip(case.stages.values(), batch_s, sigmas, strict=True)
        ]

    # The excess of a lone query's time over its batches, spread over the calls on its longest path.
    apart = QuerySample(np.arange(queries) * 10.0, calls)
    alone_s = estimate(pipeline, apart, options(0.0)).latency_s
    hops = np.round((estimate(pipeline, apart, options(1e-3)).latency_s - alone_s) / 1e-3)
    lone_s = lone["answered_s"] - lone["sent_s"]
    overhead_s = max(0.0, float(np.median((lone_s - alone_s[:LONE]) / hops[:LONE])))
    sample = QuerySample(answers["sent_s"], calls[LONE:])
    seen = estimate(pipeline, sample, options(0.0))
    between_s = seen.latency_s + overhead_s * hops[LONE:]
    planned_s = estimate(pipeline, sample, options(overhead_s)).latency_s
    measured_s = answers["answered_s"] - answers["sent_s"]
    lag_ms = 1e3 * float(np.quantile(answers["sent_s"] - answers["scheduled_s"], 0.99))
    extra = {"queries": float(len(times_s)), "lag_p99": lag_ms, "overhead": 1e3 * overhead_s}
    busy = {f"busy_{one.stage}": one.utilisation for one in seen.stages}
    planned = {f"planned_{key}": value for key, value in row(planned_s).items()}
    return row(measured_s) | extra, row(between_s) | planned | busy


def in_order(profiles: Mapping[str, Profile], case: Case) -> list[Profile]:
    """Return the profile of each stage."""
    words = {"deskew": "Deskew", "small": "kind=small", "large": "kind=large"} if case.real else {}
    return [
        next(profile for model, profile in profiles.items() if words.get(stage, f"model={stage}&") in model)
        for stage in case.stages
    ]


def row(latency_s: load.FloatArray) -> Row:
    quantiles = 1e3 * np.quantile(latency_s, list(QUANTILES.values()))
    return dict(zip(QUANTILES, map(float, quantiles), strict=True))


def compared(rounds: Sequence[tuple[Row, Row]]) -> Row:
    """Return, for each quantile, the difference in the median round, and both values there."""
    cell = {key: max(seen[key] for seen, _ in rounds) for key in ("lag_p99", "overhead")}
    cell["queries"] = min(seen["queries"] for seen, _ in rounds)
    cell["busiest"] = float(np.mean([max(v for k, v in said.items() if k.startswith("busy_")) for _, said in rounds]))
    for key in QUANTILES:
        middle = sorted(rounds, key=lambda both: both[0][key] / both[1][key])[len(rounds) // 2]
        cell |= {f"measured_{key}": middle[0][key], f"estimated_{key}": middle[1][key]}
        cell[f"planned_{key}"] = middle[1][f"planned_{key}"]
        cell[f"off_{key}"] = middle[0][key] / middle[1][key] - 1.0
    return cell


def agrees(cell: Row) -> bool:
    return all(abs(cell[f"off_{key}"]) <= asked for key, asked in ASKED.items())


def markdown(table: Mapping[str, Row]) -> str:
    lines = [
        "| pipeline, arrivals | queries | busiest stage | p50 ms, measured / estimated / as plans have it | p95 | p99 "
        "| overhead of a call, ms | client's lag p99 at most, ms | |",
        "|---|--:|--:|---|---|---|--:|--:|---|",
    ]
    for name, cell in table.items():
        quantiles = [
            f"{cell[f'measured_{q}']:.1f} / {cell[f'estimated_{q}']:.1f} ({cell[f'off_{q}']:+.1%}) "
            f"/ {cell[f'planned_{q}']:.1f}"
            for q in QUANTILES
        ]
        lines.append(
            f"| {name} | {cell['queries']:.0f} | {cell['busiest']:.0%} | {' | '.join(quantiles)} "
            f"| {cell['overhead']:.2f} | {cell['lag_p99']:.2f} | {'' if agrees(cell) else 'apart'} |"
        )
    return "\n".join(lines) + "\n"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=30.0)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--cases", default=",".join(CASES))
    parser.add_argument("--streams", default="poisson,bursty")
    parser.add_argument("--out", type=Path, default=Path("out/fidelity_pipelines"))
    args = parser.parse_args()
    args.out.parent.mkdir(parents=True, exist_ok=True)
    os.sched_setaffinity(0, {CLIENT_CORE})
    table: dict[str, Row] = {}
    for name in args.cases.split(","):
        case = CASES[name]
        with tempfile.TemporaryDirectory() as folder:
            write_files(name, case, Path(folder))
            for stream in args.streams.split(","):
                rounds = [
                    played(case, Path(folder), stream, args.seconds, seed, "0,1" if case.real else "0")
                    for seed in range(args.rounds)
                ]
                table[f"{name}, {stream}"] = compared(rounds)
                print(markdown({f"{name}, {stream}": table[f"{name}, {stream}"]}).splitlines()[-1], flush=True)
    text = markdown(table)
    print(text)
    args.out.with_suffix(".md").write_text(text)
    args.out.with_suffix(".json").write_text(json.dumps(table, indent=1) + "\n")
    return 0 if all(agrees(cell) for cell in table.values()) else 1


if __name__ == "__main__":
    sys.exit(main())
