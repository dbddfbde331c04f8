"""Compare the latencies of testbed and simulator while instances slow down, hang and crash.

    python benchmarks/fidelity/fidelity_straggling.py [--only slow|hangs|crashes] [--rate 8] [--out FILE]

The fleet is small, of one type and without functions; its service times are an assumed profile's, and its faults are
`FAULTS`. Both worlds draw the same arrivals, boots, slow periods, hangs and crashes; the testbed's load begins so that
the clocks of the faults agree. The benchmark compares quantiles of latency, the shares of late (RT_max) and refused
requests, and crashes. On the testbed each request must have exactly one answer. Two more results stand beside these:
the simulator with `--others` other seeds, which shows how much of a difference is chance, and the simulator without
faults. OUT.md and OUT.json have the results. Exits with 1 if an answer is missing or given twice. Quantiles have no
target, because a few minutes contain only one draw of rare periods.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
from fidelity_testbed import MINUTE_S, Cut, Testbed

from mark.cloud.ec2.draws import service_seed
from mark.simulation.inputs import open_inputs
from mark.simulation.request import RunRequest
from mark.simulation.result import SimulationResult
from mark.simulation.run import simulate_inputs

FAULTS = {
    "slow": "slow_share = 0.15\nslow_s = 20\nslow_factor = 3\nhost_group = 2\n",
    "hangs": "hangs_per_hour = 40\nhang_s = 3\n",
    "crashes": "crashes_per_hour = 6\n",
}
SERVICE = """
[service]
name = "straggler"
model = "straggler"
slo_ms = 1500
slo_attainment = 0.9
profile = "profile.csv"
routing = "fewest-in-flight"
[fleet]
catalog = "catalog.csv"
markets = ["on-demand"]
instances = ["c7i.large"]
min_instances = {least}
max_instances = {most}
max_usd_per_hour = 5.0
"""
PROFILE = """model,instance,batch,latency_ms,basis
straggler,c7i.large,1,200,assumed
straggler,c7i.large,2,360,assumed
straggler,c7i.large,4,680,assumed
"""
CATALOG = """instance,market,zone,usd_per_hour,vcpu,memory_gib,gpus,boot_mean_s,boot_p95_s,interruptions_per_hour,\
retired
c7i.large,on-demand,,0.1,2,4,0,15,20,,false
"""
HISTORY_S = 1800.0
BIN_S = 15.0
CALM, FAULTY = "without faults", "simulated"


def cut(args: argparse.Namespace, folder: Path) -> Cut:
    """Write half an hour of history, a gap, and the load, all of them at one rate."""
    begin_s = HISTORY_S + args.lead
    times_s = np.concatenate([np.arange(0.0, HISTORY_S, BIN_S), np.arange(begin_s, begin_s + args.calm, BIN_S)])
    made = Cut(folder / "cut.csv", folder / "history.csv", begin_s)
    for file, rows in ((made.file, len(times_s)), (made.history, round(HISTORY_S / BIN_S))):
        lines = [f"{at:g},{args.rate * BIN_S:g}" for at in times_s[:rows]]
        file.write_text("\n".join(["t_seconds,count", *lines]) + "\n")
    return made


def simulated(args: argparse.Namespace, part: Cut, file: Path, seed: int, faults: Path) -> SimulationResult:
    """Return the run of world 1 from the end of the history on."""
    request = RunRequest(
        trace=str(part.file), service=str(file), predictor=args.predictor, start_s=HISTORY_S, gaps="zero",
        duration_s=args.lead + args.calm, seed=seed, cold_start=True, with_bound=False, faults=str(faults),
    )  # fmt: skip
    return simulate_inputs(open_inputs(request), "mark", args.predictor)


def row(latency_ms: dict[str, float], attainment: float, requests: dict[str, int], crashes: int) -> dict[str, float]:
    refused = requests["rejected"] / requests["total"]
    quantiles = {f"{name} ms": latency_ms[name] for name in ("p50", "p95", "p99")}
    late = 1.0 - attainment - refused
    return {**quantiles, "late %": 100.0 * late, "refused %": 100.0 * refused, "crashes": crashes}


def of_simulation(result: SimulationResult) -> dict[str, float]:
    said = result.as_json()
    crashes = said.get("resilience", {}).get("crashes", 0)
    return row(said["latency_ms"], said["slo"]["attainment"], said["requests"], crashes)


def table(rows: dict[str, dict[str, float]]) -> str:
    names = list(next(iter(rows.values())))
    lines = ["| | " + " | ".join(names) + " |", "|---|" + "--:|" * len(names)]
    for world, row_of in rows.items():
        cells = (f"{row_of[name]:,.{1 if '%' in name else 0}f}" for name in names)
        lines.append(f"| {world} | {' | '.join(cells)} |")
    return "\n".join(lines)


def span(rows: list[dict[str, float]], q: float) -> dict[str, float]:
    return {name: float(np.quantile([one[name] for one in rows], q)) for name in rows[0]}


def played(args: argparse.Namespace, part: Cut, file: Path, folder: Path) -> tuple[dict[str, float], dict[str, Any]]:
    """Play world 2 and return the load's report."""
    testbed = Testbed(folder, args, part, {"straggler": file})
    with testbed:
        origin = testbed.origins(("straggler",))["straggler"]
        look = testbed.status()
        began = time.time() - look["control_s"]  # start of the cloud, and so of its faults
        print(f"the controller began {origin - began:.1f} s after the cloud", flush=True)
        watching = testbed.watch(began + args.lead)
        told = testbed.load({"straggler": began + args.lead})["straggler"]
        watching.join()
        crashes = testbed.status()["crashed"]
    return row(told["latency_ms"], told["slo"]["attainment"], told["requests"], crashes), {
        "load": told, "busy": testbed.busy, "looks": testbed.looks,
    }  # fmt: skip


def run(args: argparse.Namespace, folder: Path) -> int:
    file, faults, calm = (folder / name for name in ("straggler.toml", "faults.toml", "calm.toml"))
    service = SERVICE.format(least=args.instances, most=args.instances + 1)
    said = "[faults]\n" + "".join(lines for kind, lines in FAULTS.items() if args.only in (None, kind))
    for path, text in (
        (file, service + said), (faults, said), (calm, ""),
        (folder / "profile.csv", PROFILE), (folder / "catalog.csv", CATALOG),
    ):  # fmt: skip
        path.write_text(text)
    part = cut(args, folder)
    rows = {CALM: of_simulation(simulated(args, part, file, 0, calm))}
    rows[FAULTY] = of_simulation(simulated(args, part, file, 0, faults))
    others = [of_simulation(simulated(args, part, file, service_seed(0, n + 1), faults)) for n in range(args.others)]
    rows |= {f"{name} of {args.others} other seeds": span(others, q) for name, q in (("least", 0.0), ("most", 1.0))}
    rows["testbed"], data = played(args, part, file, folder)
    told = data["load"]
    wrong = [f"{told[what]} {what}" for what in ("unanswered", "answered_twice") if told[what]]
    busy = f"processors busy: {100.0 * float(np.mean(data['busy'])):.0f} %; "
    busy += f"sent late: p99 {told['client_lag_ms']['p99']:.1f} ms"
    text = "\n\n".join([table(rows), busy])
    print(text, *(wrong or ["each request has one answer"]), sep="\n")
    args.out.parent.mkdir(parents=True, exist_ok=True)
    args.out.with_suffix(".md").write_text("\n".join([text, "", *wrong]) + "\n")
    args.out.with_suffix(".json").write_text(json.dumps({"rows": rows, "wrong": wrong, **data}, indent=1) + "\n")
    return 1 if wrong else 0


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", choices=FAULTS, help="kind of faults (default: all)")
    parser.add_argument("--rate", type=float, default=8.0, help="requests/s")
    parser.add_argument("--instances", type=int, default=4, help="instances at least; one more may be bought")
    parser.add_argument("--lead", type=float, default=MINUTE_S, help="seconds to make the fleet ready")
    parser.add_argument("--calm", type=float, default=240.0, help="seconds of load")
    parser.add_argument("--others", type=int, default=20, help="number of other seeds of the simulator")
    parser.add_argument("--predictor", default="seasonal-naive")
    parser.add_argument("--account", default="generous", help="limits of the testbed's AWS, as in `mark testbed up`")
    parser.add_argument("--out", type=Path, default=Path("out/fidelity_straggling"))
    args = parser.parse_args()
    args.settle = args.faulty = 0.0  # options of `fidelity`: skip no seconds and kill no process
    with tempfile.TemporaryDirectory(prefix="mark-straggling-") as name:
        return run(args, Path(name))


if __name__ == "__main__":
    sys.exit(main())
