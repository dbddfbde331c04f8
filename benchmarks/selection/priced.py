"""A cascade with prices against fixed thresholds, through two hours with a surge to three times the load.

    python benchmarks/selection/priced.py [--data mnist|digits] [--seed 0] [--rate 200] [--surges 1]

The cheap model is a logistic regression, the dear one a support vector machine; both answer held-out images. The dear
model serves about 60 calls/s on an instance, an instance boots in 150 s, and a function takes the calls that exceed the
fleet's capacity. Half an hour after the start the load is three times as high for a quarter of an hour; with
`--surges N` this time is divided among N surges, one every quarter of an hour. Every run is `mark simulate --answers`.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from models import classified

from mark.domain import catalog as catalog_data
from mark.simulation.request import RunRequest
from mark.studies.pipeline_result import PipelineRun
from mark.studies.pipeline_run import simulate_pipeline

HISTORY_S, PART_S, FIRST_S, SURGES_S = 7200, 7200, 1800, 900
CORRECT_USD = (2e-6, 1e-5, 4e-5, 1e-4)
SHARES = (0.0, 0.1, 0.15, 0.2, 0.25, 0.3, 0.33, 0.37, 0.43, 0.5, 0.6, 1.0)  # of queries below a threshold
PROFILE = """\
model,instance,batch,latency_ms,workers,cold_ms
cheap,c7i.large,1,1.5,2,
dear,c7i.large,1,28,2,
dear,lambda:1769,1,140,1,300
"""
BOOT_S = 150

FILE = """\
[service]
name = "priced"
slo_ms = 400
slo_attainment = 0.98
profile = "profile.csv"
[fleet]
instances = ["c7i.large"]
markets = ["on-demand"]
catalog = "catalog.csv"
[packs]
allow = "separate"
[overflow]
function = "lambda:1769"
[stage.cheap]
model = "cheap"
function = "none"
[stage.dear]
model = "dear"
[feedback]
log = "feedback"
[selection]
policy = "cascade"
score = "margin"
deadline_ms = 399
"""


@dataclass(frozen=True)
class Priced:
    """One run: dollars per million queries, the share of wrong answers, the share in time, and the dear fleet."""

    usd: float
    error: float
    attainment: float
    dear_share: float
    by_function: float  # of the dear calls
    dear_before: float  # instances a minute before the surge
    dear_after: float  # at the end of the part
    dear_most: float
    dear_usd: float


def answers_csv(data: str) -> str:
    """Return the answers of both models to the held-out images, as CSV."""
    found = classified(data)
    cheap, dear = found.names.index("logreg"), found.names.index("svm")
    right = (found.answers == found.labels[:, None]).astype(int)
    rows = zip(right[:, cheap], found.margins[:, cheap], right[:, dear], strict=True)
    print(
        f"{data}: {len(right)} answers; errors: cheap {100 * found.errors[cheap]:.2f} %, "
        f"dear {100 * found.errors[dear]:.2f} %"
    )
    lines = [f"{one},{margin:.6f},{other}" for one, margin, other in rows]
    return "\n".join(["cheap.correct,cheap.score,dear.correct", *lines, ""])


def catalog_csv() -> str:
    """Return the shipped prices of the instance and of functions, with boots that take `BOOT_S`."""
    header, *rows = (Path(catalog_data.__file__).parent / "data" / "aws-2026.csv").read_text().splitlines()
    names = header.split(",")
    kept = [row.split(",", len(names) - 3) for row in rows if row.startswith(("c7i.large,on-demand", "lambda,"))]
    for cells in kept:
        if cells[0] == "c7i.large":
            cells[names.index("boot_mean_s")] = cells[names.index("boot_p95_s")] = str(BOOT_S)
    return "\n".join([header, *(",".join(cells) for cells in kept), ""])


def trace_csv(rate: float, surges: int) -> str:
    """Return counts by half minutes, in a steady load with surges."""
    begins = [HISTORY_S + FIRST_S + 900 * at for at in range(surges)]
    rows = [
        f"{at},{round(30 * rate * (3 if any(0 <= at - one < SURGES_S / surges for one in begins) else 1))}"
        for at in range(0, HISTORY_S + PART_S, 30)
    ]
    return "\n".join(["t_seconds,count", *rows, ""])


def run(folder: Path, said: str, seed: int) -> Priced:
    """Simulate the file with this line in its section `[selection]`."""
    (folder / "priced.toml").write_text(f"{FILE}{said}\n")
    request = RunRequest(
        str(folder / "trace.csv"),
        str(folder / "priced.toml"),
        start_s=float(HISTORY_S),
        duration_s=float(PART_S),
        predictor="seasonal-naive",
        seed=seed,
        with_bound=False,
    )
    (found,) = simulate_pipeline(request, ("mark",), answers=str(folder / "answers.csv")).values()
    return priced(found)


def priced(found: PipelineRun) -> Priced:
    assert found.selection is not None
    assert found.selection.error is not None
    _, dear = found.stages
    return Priced(
        usd=found.usd_per_million,
        error=found.selection.error,
        attainment=found.attainment,
        dear_share=found.selection.asked[1],
        by_function=dear.function_share or 0.0,
        dear_before=float(dear.paid[FIRST_S // 60 - 1]),
        dear_after=float(dear.paid[-2]),
        dear_most=float(dear.most_instances),
        dear_usd=1e6 * dear.usd / found.queries,
    )


def shown(name: str, one: Priced) -> None:
    print(
        f"{name:22} ${one.usd:.3f} per million (dear ${one.dear_usd:.3f}), error {100 * one.error:.2f} %, "
        f"in time {100 * one.attainment:.2f} %, asks dear {100 * one.dear_share:.1f} %, of them by function "
        f"{100 * one.by_function:.2f} %; dear instances {one.dear_before:g} before, {one.dear_most:g} at most, "
        f"{one.dear_after:g} after",
        flush=True,
    )


def at_error(fixed: Sequence[Priced], error: float, what: str) -> float | None:
    """Return the dollars of a threshold with this error, between neighbours among thresholds that no other beats.

    None if no threshold has so small an error.
    """
    best: list[Priced] = []
    for one in sorted(fixed, key=lambda one: (one.error, one.usd)):
        if not best or one.usd < best[-1].usd:
            best.append(one)
    errors = [one.error for one in best]
    if error < errors[0]:
        return None
    return float(np.interp(error, errors, [getattr(one, what) for one in best]))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", default="mnist")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--rate", type=float, default=200.0)
    parser.add_argument("--surges", type=int, default=1, choices=(1, 2, 3, 6))
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "profile.csv").write_text(PROFILE)
        (folder / "catalog.csv").write_text(catalog_csv())
        (folder / "trace.csv").write_text(trace_csv(args.rate, args.surges))
        (folder / "answers.csv").write_text(answers_csv(args.data))
        began = time.perf_counter()
        fixed = []
        margins = np.loadtxt(folder / "answers.csv", delimiter=",", skiprows=1)[:, 1]
        for share in SHARES:
            threshold = 2.0 if share == 1.0 else round(float(np.quantile(margins, share)), 4)
            fixed.append(run(folder, f"threshold = {threshold}\nexplore = 0", args.seed))
            shown(f"threshold {threshold}", fixed[-1])
        asked = []
        for correct_usd in CORRECT_USD:
            asked.append(run(folder, f"correct_usd = {correct_usd}", args.seed))
            shown(f"correct_usd {correct_usd:g}", asked[-1])
        for correct_usd, one in zip(CORRECT_USD, asked, strict=True):
            for what in ("usd", "dear_usd"):
                equal = at_error(fixed, one.error, what)
                said = "is below all errors of thresholds" if equal is None else f"{getattr(one, what) / equal:.0%}"
                print(f"correct_usd {correct_usd:g}: {what} against thresholds of the same error: {said}")
        bills = [one.usd for one in asked]
        print(
            f"in time at least {100 * min(one.attainment for one in asked):.2f} %; bill rises with correct_usd: "
            f"{bills == sorted(bills)}; fleet after the surge as before: "
            f"{all(one.dear_before == one.dear_after for one in asked)}; {time.perf_counter() - began:.0f} s"
        )


if __name__ == "__main__":
    main()
