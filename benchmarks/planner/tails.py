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
import math
import sys
import tempfile
from collections import Counter
from collections.abc import Callable, Mapping
from pathlib import Path
from types import MappingProxyType

from mark.domain.errors import Infeasible
from mark.domain.time import DAY_S
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
# How long each type takes, as a multiple of the first. `sizes` are one type and its double, at twice the price.
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
    return write_service(folder, TYPES[types], (MEAN_MS, tail, 0.25), slack * MEAN_MS, ATTAINMENT, function)


def write_service(
    folder: Path,
    types: Mapping[str, float],
    times: tuple[float, float, float],
    slo_ms: float,
    attainment: float,
    function: str,
    more: Mapping[str, Mapping[str, object]] = MappingProxyType({}),
) -> str:
    """Write a service file and its profile, and return its path.

    `times` are the milliseconds of a single request, its p99 over the mean, and the share of it that each further
    request of a batch adds. `types` has the factor of each type. `more` are further keys by section.
    """
    mean_ms, tail, per_item = times
    rows = ["model,instance,batch,latency_ms,p99_ms,cold_ms,basis"]
    for instance, factor in types.items():
        for batch in (1, 2, 4, 8, 16):
            latency_ms = mean_ms * factor * (1.0 + (batch - 1) * per_item)
            rows.append(f"m,{instance},{batch},{latency_ms:g},{tail * latency_ms:g},,assumed")
    rows.append(f"m,lambda:1024,1,{(0.5 if function == 'in time' else 1.5) * slo_ms:g},,400,assumed")
    (folder / "profile.csv").write_text("\n".join(rows) + "\n")
    sections: dict[str, dict[str, object]] = {
        "service": {"name": "drawn", "model": "m", "slo_ms": slo_ms, "slo_attainment": attainment},
        "fleet": {"catalog": "aws-2026", "instances": list(types)},
        "overflow": {"function": "none" if function == "none" else "lambda:1024"},
    }
    sections["service"]["profile"] = "profile.csv"
    lines = []
    for name in {**sections, **more}:
        lines.append(f"[{name}]")
        keys = {**sections.get(name, {}), **more.get(name, {})}
        lines += [f"{json.dumps(key)} = {json.dumps(value)}" for key, value in keys.items()]
    path = folder / "service.toml"
    path.write_text("\n".join(lines) + "\n")
    return str(path)


def judged(case: Mapping[str, object], hours: float, seed: int) -> dict[str, object]:
    """Return both bills and shares, and the verdict."""
    rate = float(str(case["rps"]))
    trace = TRAFFIC[str(case["traffic"])].format(rate=rate, half=0.5 * rate, double=2.0 * rate)
    with tempfile.TemporaryDirectory() as name:
        drawn = float(str(case["tail"])), float(str(case["slack"])), str(case["types"]), str(case["function"])
        service = service_of(Path(name), *drawn)
        dearest = DEARER if case["traffic"] == "constant" else math.inf
        return {**case, "seed": seed, **beside_best_fixed(trace, service, ATTAINMENT, hours, seed, dearest)}


def beside_best_fixed(
    trace: str, service: str, attainment: float, hours: float, seed: int, dearest: float, past_s: float = DAY_S
) -> dict[str, object]:
    """Return the shares of `mark` and the best fixed fleet after `past_s` of history, the ratio of the bills, the
    verdict.

    The case counts if that fleet keeps 0.2 points more than promised, or all requests. `mark` is dear above `dearest`
    times its dollars.
    """
    request = RunRequest(
        trace=trace,
        service=service,
        start_s=past_s,
        duration_s=hours * 3600.0,
        with_bound=False,
        seed=seed,
    )
    try:
        results = compare(request, ("mark", BEST_FIXED))
    except Infeasible as error:
        return {"verdict": "infeasible", "why": str(error)}
    run, fixed = results["mark"], results[BEST_FIXED]
    kept, fixed_kept = run.slo_result.attainment, fixed.slo_result.attainment
    assert kept is not None
    assert fixed_kept is not None
    # Leave out the balancer and the controller, because services share them.
    ratio = (run.bill.total - run.bill.other) / (fixed.bill.total - fixed.bill.other)
    verdict = "not asked"
    if fixed_kept >= min(1.0, attainment + MARGIN):
        verdict = "missed" if kept < attainment else "dear" if ratio > dearest else "kept"
    return {
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
