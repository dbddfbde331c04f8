"""A pipeline of three real models on the testbed, through an interruption and a surge, beside the simulator.

    python benchmarks/fidelity/fidelity_stages.py [--rate 20] [--surge 1.5] [--out FILE]

The digits cascade of examples/pipeline on slow machines (assumed times), a fleet for each stage, on demand and spot.
Both worlds begin with only two hours of history, buy fleets for its forecast, and have them ready when the first query
comes. Then both get the same events in the same seconds: all spot instances of one zone are interrupted, and later the
load rises to `--surge` times its rate within three minutes. The benchmark compares the dollars of instances from the
first launch on, and the latency of queries. On the testbed each query must have exactly one answer. Boots and arrivals
are the same draws in both worlds. The simulator draws the queries that go to the large model from a trace of the
driver, recorded on the queries that the testbed gets. OUT.md and OUT.json have the results. Exits with 1 if a figure
misses its asked precision, the promise is missed or a check fails.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import fidelity_faults as faults
import numpy as np
from fidelity import measured, nearest, row, table, usd_between
from fidelity_testbed import MINUTE_S, REPOSITORY, Cut, Looks, Testbed

from mark.config.pipeline_file import load_pipeline
from mark.planning.graphs.lineage_file import lineage_csv
from mark.planning.graphs.trace_file import trace_file
from mark.simulation.request import RunRequest
from mark.studies.pipeline_run import simulate_pipeline

PIPELINE = REPOSITORY / "examples" / "pipeline"
STAGES = ("deskew", "small", "large")
SERVICES = tuple(f"digits-{stage}" for stage in STAGES)
FILE = """
[service]
name = "digits"
slo_ms = 3000
slo_attainment = 0.98
pipeline = "digits:classify"
profile = "slow.csv"
lineage = "lineage.csv"
[fleet]
markets = ["on-demand", "spot"]
instances = ["c7i.large"]
max_instances = 75
max_usd_per_hour = 15.0
[stage.deskew]
model = "digits:Deskew"
slo_ms = 800
[stage.small]
model = "digits:Digits?kind=small"
slo_ms = 800
[stage.large]
model = "digits:Digits?kind=large"
slo_ms = 1400
"""
PROFILE = """model,instance,batch,latency_ms,basis
digits:Deskew,c7i.large,1,200,assumed
digits:Deskew,c7i.large,2,360,assumed
digits:Deskew,c7i.large,4,680,assumed
digits:Digits?kind=small,c7i.large,1,180,assumed
digits:Digits?kind=small,c7i.large,2,320,assumed
digits:Digits?kind=small,c7i.large,4,600,assumed
digits:Digits?kind=large,c7i.large,1,600,assumed
digits:Digits?kind=large,c7i.large,2,1100,assumed
"""
HISTORY_S = 7200.0
RISE_S = 180.0
ZONES = 4
STARTS_S = 20.0  # approximate start-up time of the testbed


def cut(args: argparse.Namespace, folder: Path) -> Cut:
    """Write two hours of history at `--rate`, a gap, `--calm` seconds at that rate, the rise, and the higher rate."""
    load_s = np.arange(0.0, seconds_of(args), MINUTE_S / 4.0)
    rise = np.clip((load_s - args.calm) / RISE_S, 0.0, 1.0)
    before_s = np.arange(0.0, HISTORY_S, MINUTE_S / 4.0)
    begin_s = HISTORY_S + args.lead
    counts = args.rate * MINUTE_S / 4.0 * np.concatenate([np.ones(len(before_s)), 1.0 + (args.surge - 1.0) * rise])
    made = Cut(folder / "cut.csv", folder / "history.csv", begin_s)
    for file, rows in ((made.file, len(counts)), (made.history, len(before_s))):
        times_s = np.concatenate([before_s, begin_s + load_s])[:rows]
        lines = [f"{at:g},{count:.4f}" for at, count in zip(times_s, counts, strict=False)]
        file.write_text("\n".join(["t_seconds,count", *lines]) + "\n")
    return made


def seconds_of(args: argparse.Namespace) -> float:
    return float(args.calm + RISE_S + args.high)


def markets(folder: Path, at_s: float) -> list[str]:
    """Write a series for each zone: in the first one all spot capacity is gone for a minute."""
    files = []
    for zone in range(ZONES):
        files.append(folder / f"zone{zone}-{at_s:.1f}.csv")
        gone = "" if zone else f"{at_s:.1f},0\n{at_s + MINUTE_S:.1f},1\n"
        files[-1].write_text(f"t_seconds,nodes\n0,1\n{gone}86400,1\n")
    return [str(file) for file in files]


def simulated(args: argparse.Namespace, part: Cut, file: Path, queries: Path, spot: list[str]) -> Any:
    """Return the run of world 1 from the end of the history on."""
    request = RunRequest(
        trace=str(part.file), service=str(file), start_s=HISTORY_S, duration_s=args.lead + seconds_of(args),
        spot_traces=tuple(spot), predictor=args.predictor, cold_start=True, with_bound=False,
    )  # fmt: skip
    return simulate_pipeline(request, ("mark",), queries=str(queries))["mark"]


def minutes(looks: Looks, log: list[dict[str, str]], begin_unix_s: float, args: argparse.Namespace) -> str:
    """Return the testbed's table by minute: queries, in time, p50, and the running instances of each stage."""
    part = measured([line if line["status"] == "200" else line | {"answered_s": "nan"} for line in log])
    lines = [f"| minute | queries | in time % | p50 ms | {' | '.join(STAGES)} |", "|--:" * (4 + len(STAGES)) + "|"]
    for minute in range(int(seconds_of(args) // MINUTE_S)):
        of = part.between(minute * MINUTE_S, (minute + 1) * MINUTE_S)
        _, look = nearest(looks, begin_unix_s + minute * MINUTE_S)
        fleet = [sum(i["service"] == name and i["state"] == "running" for i in look["fleet"]) for name in SERVICES]
        in_time = 100.0 * np.mean(of.latency_s <= args.rt_max_s)
        lines.append(
            f"| {minute + 1} | {len(of.latency_s)} | {in_time:.2f} | {1e3 * np.nanmedian(of.latency_s):.0f} | "
            + " | ".join(map(str, fleet)) + " |"
        )  # fmt: skip
    return "\n".join(lines)


def wrong_of(told: dict[str, Any], log: list[dict[str, str]]) -> list[str]:
    """Return sentences about all that is wrong besides the numbers."""
    wrong = []
    ids = {line["request_id"] for line in log}
    if told["answered_twice"] or told["unanswered"] or len(ids) != told["requests"]["total"]:
        wrong.append(f"{told['answered_twice']} queries were answered twice, {told['unanswered']} never")
    if told["slo"]["attainment"] < told["slo"]["target"]:
        wrong.append(f"{100.0 * told['slo']['attainment']:.2f} % were in time")
    if not told["fleet"]["interrupted"]:
        wrong.append("nothing was interrupted")
    return wrong


def run(args: argparse.Namespace, folder: Path) -> int:
    file, queries = folder / "digits_slow.toml", folder / "queries.jsonl"
    file.write_text(FILE)
    (folder / "slow.csv").write_text(PROFILE)
    queries.write_text((PIPELINE / "queries.jsonl").read_text())
    (folder / "digits.py").write_text((PIPELINE / "digits.py").read_text().replace("slo_ms=100", "slo_ms=3000"))
    config = load_pipeline(str(file))
    (folder / "lineage.csv").write_text(lineage_csv(trace_file(config, str(queries)).lineage))
    part = cut(args, folder)
    gone_s = STARTS_S + args.lead + args.interruption
    spot = [option for series in markets(folder, gone_s) for option in ("--spot-trace", series)]
    testbed = Testbed(folder, args, part, {"digits": file}, spot)
    testbed.seconds = seconds_of(args)
    with testbed:
        origin = max(testbed.origins(SERVICES).values())
        look = testbed.status()
        testbed.looks.append((time.time(), look))
        began = time.time() - look["control_s"]  # start of the cloud, and so of its market
        begin = origin + args.lead
        watching = testbed.watch(begin)
        told = testbed.load({"digits": begin}, "--body", str(queries))["digits"]
        watching.join()
        decisions = {name: testbed.asked(f"/api/v1/services/{name}/decisions?count=500") for name in SERVICES}
    simulation = simulated(args, part, file, queries, markets(folder, gone_s - (origin - began)))
    log = faults.log_of(folder, "digits")
    end = begin + testbed.seconds
    rows = [row("digits", "bill", simulation.usd, usd_between(testbed.looks, origin, end))]
    rows += [row("digits", q, getattr(simulation.latency_ms, q), told["latency_ms"][q]) for q in ("p50", "p99")]
    rows[0]["asked"], rows[0]["kept"] = args.asked, abs(rows[0]["off"]) <= args.asked
    wrong = wrong_of(told, log)
    attained = (
        f"In time: simulated {100 * simulation.attainment:.2f} %, testbed {100 * told['slo']['attainment']:.2f} %"
    )
    text = "\n\n".join([table(rows), attained, minutes(testbed.looks, log, begin, args)])
    print(text, *(wrong or ["everything else as it should be"]), sep="\n")
    args.out.parent.mkdir(parents=True, exist_ok=True)
    args.out.with_suffix(".md").write_text("\n".join([text, "", *wrong]) + "\n")
    stages = {
        one.stage: {"usd": one.usd, "calls": one.calls, "instances": one.instances, "wait_s": one.wait_s}
        for one in simulation.stages
    }
    data = {
        "rows": rows, "wrong": wrong, "load": told, "looks": testbed.looks, "busy": testbed.busy,
        "decisions": decisions, "simulated": stages,
    }  # fmt: skip
    args.out.with_suffix(".json").write_text(json.dumps(data, indent=1) + "\n")
    return 0 if all(one["kept"] for one in rows) and not wrong else 1


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rate", type=float, default=20.0, help="queries/s before the surge")
    parser.add_argument(
        "--surge", type=float, default=1.5, help="load after the surge, as a multiple of the rate before"
    )
    parser.add_argument("--lead", type=float, default=240.0, help="seconds to make the first fleet ready")
    parser.add_argument("--calm", type=float, default=360.0, help="seconds until the surge begins")
    parser.add_argument(
        "--interruption", type=float, default=60.0, help="second of the load at which the zone is interrupted"
    )
    parser.add_argument("--high", type=float, default=300.0, help="seconds after the surge")
    parser.add_argument("--asked", type=float, default=0.03, help="asked precision of the bill")
    parser.add_argument("--predictor", default="auto")
    parser.add_argument("--account", default="generous")
    parser.add_argument("--out", type=Path, default=Path("out/fidelity_stages"))
    args = parser.parse_args()
    args.settle, args.faulty, args.rt_max_s = 0.0, 0.0, 3.0
    with tempfile.TemporaryDirectory(prefix="mark-fidelity-") as name:
        return run(args, Path(name))


if __name__ == "__main__":
    sys.exit(main())
