"""Heavy tails: check that `mark` keeps the promise if the best fixed fleet does, and compare their dollars.

    python benchmarks/planner/tails.py [--only NAME=VALUE ...] [--sample N] [--hours 6] [--seeds 3]
            [--out out/tails.json]

The cases are all combinations of p99 / mean, RT_max / mean, traffic, requests/s, types and functions, each with its
seeds. A case counts if the best fixed fleet keeps SL_min + 0.2 points. It is bad if `mark` misses the promise, or costs
more than 1.02 times that fleet on constant load. `--sample N` takes N cases, spread evenly over the list of 5,184; a
case takes 10 to 40 s. Exits with 1 if a case is bad.
"""

from __future__ import annotations

import argparse
import itertools
import json
import sys
import tempfile
from collections import Counter
from collections.abc import Callable, Mapping
from pathlib import Path

from mark.domain.errors import Infeasible
from mark.planning.policies.names import BEST_FIXED
from mark.simulation.request import RunRequest
from mark.studies.compare import compare

MEAN_MS = 30.0
ATTAINMENT = 0.98
DEARER = 1.02
MARGIN = 0.002
TRAFFIC = {
    "constant": "synthetic:poisson?rate={rate:g}",
    "diurnal": "synthetic:diurnal?rate={rate:g}",
    "spiky": "synthetic:mmpp?rates={half:g},{double:g}&dwell_s=300",
}
# Times of each type over those of the first. `sizes` are one type and its double, at twice the price.
TYPES: Mapping[str, Mapping[str, float]] = {
    "1": {"c7i.large": 1.0},
    "2": {"c7i.large": 1.0, "c8g.large": 2.0},
    "sizes": {"c7i.large": 1.0, "c7i.xlarge": 0.58},
}
CASES: Mapping[str, tuple[object, ...]] = {
    "tail": (1.1, 1.5, 2.0, 3.0),
    "slack": (2.0, 3.0, 5.0, 10.0),
    "traffic": tuple(TRAFFIC),
    "rps": (1.0, 10.0, 50.0, 200.0),
    "types": tuple(TYPES),
    "function": ("in time", "late", "none"),
}


def service_of(folder: Path, tail: float, slack: float, types: str, function: str) -> str:
    """Write a service file: batches take 1 + (b - 1) / 4 of a single request."""
    slo_ms = slack * MEAN_MS
    kinds = TYPES[types]
    rows = ["model,instance,batch,latency_ms,p99_ms,cold_ms,basis"]
    for instance, times in kinds.items():
        for batch in (1, 2, 4, 8, 16):
            mean_ms = MEAN_MS * times * (1.0 + (batch - 1) / 4.0)
            rows.append(f"m,{instance},{batch},{mean_ms:g},{tail * mean_ms:g},,assumed")
    rows.append(f"m,lambda:1024,1,{(0.5 if function == 'in time' else 1.5) * slo_ms:g},,400,assumed")
    (folder / "profile.csv").write_text("\n".join(rows) + "\n")
    path = folder / "tails.toml"
    path.write_text(
        f'[service]\nname = "tails"\nmodel = "m"\nslo_ms = {slo_ms:g}\nslo_attainment = {ATTAINMENT}\n'
        f'profile = "profile.csv"\n[fleet]\ncatalog = "aws-2026"\ninstances = {json.dumps(list(kinds))}\n'
        f'[overflow]\nfunction = "{"none" if function == "none" else "lambda:1024"}"\n'
    )
    return str(path)


def judged(case: Mapping[str, object], hours: float, seed: int) -> dict[str, object]:
    """Return both bills and shares, and the faults."""
    rate = float(str(case["rps"]))
    with tempfile.TemporaryDirectory() as name:
        request = RunRequest(
            trace=TRAFFIC[str(case["traffic"])].format(rate=rate, half=0.5 * rate, double=2.0 * rate),
            service=service_of(
                Path(name),
                float(str(case["tail"])),
                float(str(case["slack"])),
                str(case["types"]),
                str(case["function"]),
            ),
            start_s=86_400.0,
            duration_s=hours * 3600.0,
            with_bound=False,
            seed=seed,
        )
        try:
            results = compare(request, ("mark", BEST_FIXED))
        except Infeasible as error:
            return {**case, "seed": seed, "verdict": "infeasible", "why": str(error)}
    run, fixed = results["mark"], results[BEST_FIXED]
    kept, fixed_kept = run.slo_result.attainment, fixed.slo_result.attainment
    assert kept is not None
    assert fixed_kept is not None
    # Leave out the balancer and the controller, because services share them.
    ratio = (run.bill.total - run.bill.other) / (fixed.bill.total - fixed.bill.other)
    verdict = "not asked"
    if fixed_kept >= ATTAINMENT + MARGIN:
        verdict = "kept" if kept >= ATTAINMENT else "missed"
        if verdict == "kept" and case["traffic"] == "constant" and ratio > DEARER:
            verdict = "dear"
    return {
        **case,
        "seed": seed,
        "mark": round(100.0 * kept, 3),
        "fixed": round(100.0 * fixed_kept, 3),
        "ratio": round(ratio, 4),
        "fixed_instances": fixed.fleet.peak_instances,
        "verdict": verdict,
    }


def sweep(
    doc: str | None,
    every: Mapping[str, tuple[object, ...]],
    judge: Callable[[Mapping[str, object], float, int], dict[str, object]],
    *,
    hours: float,
    seeds: int,
    out: str,
) -> int:
    """Judge the cases that the command line selects, and return the exit code. A row has a `verdict`."""
    parser = argparse.ArgumentParser(description=doc, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", action="append", default=[], metavar="NAME=VALUE")
    parser.add_argument("--sample", type=int)
    parser.add_argument("--hours", type=float, default=hours)
    parser.add_argument("--seeds", type=int, default=seeds)
    parser.add_argument("--out", type=Path, default=Path(out))
    args = parser.parse_args()
    only = dict(pair.split("=", 1) for pair in args.only)
    cases = [dict(zip(every, values, strict=True)) for values in itertools.product(*every.values())]
    cases = [case for case in cases if all(str(case[name]) == value for name, value in only.items())]
    if not cases:
        parser.error(f"no case has {', '.join(args.only)}")
    asked = list(itertools.product(cases, range(args.seeds)))
    if args.sample is not None and args.sample < len(asked):
        asked = [asked[i * len(asked) // args.sample] for i in range(args.sample)]
    rows = []
    for case, seed in asked:
        rows.append(judge(case, args.hours, seed))
        print(*rows[-1].values(), sep=" | ", flush=True)
    verdicts = Counter(str(row["verdict"]) for row in rows)
    args.out.parent.mkdir(parents=True, exist_ok=True)
    args.out.write_text(json.dumps({"hours": args.hours, "rows": rows, "verdicts": verdicts}, indent=1))
    print(f"{len(rows)} cases: {dict(verdicts)}")
    return 1 if verdicts["missed"] + verdicts["dear"] else 0


if __name__ == "__main__":
    sys.exit(sweep(__doc__, CASES, judged, hours=6.0, seeds=3, out="out/tails.json"))
