"""Compare mark's policies with the best fixed fleet on small services: which is dearer, rejects more or launches often?

    python benchmarks/planner/small_services.py [--rates 0.01,1.5,20] [--hours 6] [--workers 2]
            [--out out/small_services.json]

A quick model (0.6 ms, RT_max 100 ms) and a slow model (60 ms, RT_max 500 ms) run on one type, on three types, and on a
GPU beside a CPU, with a function in time, a late function or none, on calm, diurnal and spiky traffic. A row is flagged
if a policy costs 2 % more than the best fixed fleet that keeps the promise, misses the promise, rejects more requests
than that fleet, or launches more than twice on calm traffic. A row takes 20 s to a minute. Exits with 1 if `mark` has a
flag on calm traffic.
"""

from __future__ import annotations

import argparse
import itertools
import json
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path

from mark.planning.policies.names import BEST_FIXED
from mark.simulation.request import RunRequest
from mark.simulation.result import SimulationResult
from mark.studies.compare import compare
from mark.studies.executor import executor_for

POLICIES = ("mark", "greedy", "mark-paper:auto")
DEARER = 1.02
MOST_CALM_LAUNCHES = 2
PROFILE = """model,instance,batch,latency_ms,cold_ms,basis
quick,c7i.large,1,0.6,,assumed
quick,c7i.large,16,3.5,,assumed
quick,c7i.xlarge,1,0.4,,assumed
quick,c7i.xlarge,16,1.8,,assumed
quick,c8g.large,1,0.7,,assumed
quick,c8g.large,16,4,,assumed
quick,g4dn.xlarge,1,0.5,,assumed
quick,g4dn.xlarge,64,2,,assumed
quick,lambda:1024,1,{quick_ms},400,assumed
slow,c7i.large,1,60,,assumed
slow,c7i.large,4,180,,assumed
slow,c7i.xlarge,1,35,,assumed
slow,c7i.xlarge,4,90,,assumed
slow,c8g.large,1,70,,assumed
slow,g4dn.xlarge,1,12,,assumed
slow,g4dn.xlarge,8,30,,assumed
slow,lambda:1024,1,{slow_ms},900,assumed
"""
SERVICE = """[service]
name = "small"
model = "{model}"
slo_ms = {slo_ms}
slo_attainment = 0.98
profile = "profile.csv"
[fleet]
catalog = "aws-2026"
instances = {instances}
[overflow]
function = "{function}"
"""
SLO_MS = {"quick": 100, "slow": 500}
INSTANCES = {
    "one type": ["c7i.large"],
    "three types": ["c7i.large", "c7i.xlarge", "c8g.large"],
    "GPU beside CPU": ["c7i.large", "g4dn.xlarge"],
}
FUNCTION_MS = {"in time": (20, 200), "late": (400, 900), "none": (20, 200)}  # of the quick and of the slow model
TRAFFIC = {
    "calm": "synthetic:poisson?rate={rate:g}",
    "diurnal": "synthetic:diurnal?rate={rate:g}",
    "spiky": "synthetic:mmpp?rates={half:g},{triple:g}&dwell_s=300",
}


def service(folder: Path, model: str, instances: list[str], function: str) -> str:
    """Write a service file in `folder` and return its path."""
    quick_ms, slow_ms = FUNCTION_MS[function]
    (folder / "profile.csv").write_text(PROFILE.format(quick_ms=quick_ms, slow_ms=slow_ms))
    path = folder / "small.toml"
    path.write_text(
        SERVICE.format(
            model=model,
            slo_ms=SLO_MS[model],
            instances=json.dumps(instances),
            function="none" if function == "none" else "lambda:1024",
        )
    )
    return str(path)


def flags(policy: str, traffic: str, results: Mapping[str, SimulationResult]) -> list[str]:
    """Return the faults of a policy's run, compared with the best fixed fleet's."""
    run, fixed = results[policy], results[BEST_FIXED]
    attained, promised = run.slo_result.attainment, run.slo.attainment
    found = []
    # Leave out the balancer and the controller, because services share them.
    run_usd, fixed_usd = (bill.total - bill.other for bill in (run.bill, fixed.bill))
    if run_usd > DEARER * fixed_usd:
        found.append(f"{run_usd / fixed_usd - 1.0:.0%} dearer")
    if attained is not None and attained < promised:
        found.append(f"missed: {attained:.2%}")
    if run.requests.rejected > fixed.requests.rejected:
        found.append(f"{run.requests.rejected - fixed.requests.rejected} rejected")
    if traffic == "calm" and run.fleet.launched > MOST_CALM_LAUNCHES:
        found.append(f"{run.fleet.launched} launches")
    return found


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rates", default="0.01,1.5,20", help="requests/s, separated by commas")
    parser.add_argument("--hours", type=float, default=6.0)
    parser.add_argument("--models", default="quick,slow")
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--out", type=Path, default=Path("out/small_services.json"))
    args = parser.parse_args()
    rows, wrong = [], 0
    cases = itertools.product(
        args.models.split(","), INSTANCES, FUNCTION_MS, TRAFFIC, map(float, args.rates.split(","))
    )
    with tempfile.TemporaryDirectory() as name:
        for model, types, function, traffic, rate in cases:
            request = RunRequest(
                trace=TRAFFIC[traffic].format(rate=rate, half=rate / 2.0, triple=rate * 3.0),
                service=service(Path(name), model, INSTANCES[types], function),
                duration_s=args.hours * 3600.0,
                with_bound=False,
            )
            results = compare(request, (*POLICIES, BEST_FIXED), executor=executor_for(args.workers))
            found = {policy: flags(policy, traffic, results) for policy in POLICIES}
            wrong += bool(found["mark"]) and traffic == "calm"
            bills = {policy: round(run.bill.total, 4) for policy, run in results.items()}
            case = {"model": model, "types": types, "function": function, "traffic": traffic, "rate_rps": rate}
            rows.append({**case, "bill_usd": bills, "flags": found})
            told = "; ".join(f"{policy}: {', '.join(those)}" for policy, those in found.items() if those)
            print(*case.values(), *(f"{policy} ${usd:g}" for policy, usd in bills.items()), told, sep=" | ", flush=True)
    args.out.parent.mkdir(parents=True, exist_ok=True)
    args.out.write_text(json.dumps({"hours": args.hours, "rows": rows}, indent=1))
    print(f"{len(rows)} cases; {wrong} calm ones in which `mark` is dearer, misses, rejects or churns")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
