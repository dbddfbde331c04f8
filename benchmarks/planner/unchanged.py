"""Check that a refactoring leaves every result unchanged.

Records the JSON of `mark compare`, `plan`, `bound`, `simulate`, `frontier`, `diff` and `torture` on services and
pipelines, both OpenAPI descriptions and the help of every command, and compares two such records byte by byte:

    python benchmarks/planner/unchanged.py record FOLDER [--checkout OTHER] [--only WORD,WORD] [--jobs 2]
    python benchmarks/planner/unchanged.py diff BEFORE AFTER

`--checkout` runs another checkout's code with that checkout's own `.venv`, or with this Python if it has none. `speed`,
the seconds a run took, is left out. A scenario whose data are missing (`MARK_DATA`, or `../shared/data` beside the
project) is named and left out.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
ROOTS = ("", "predictors", "infra", "lambda_handlers")  # of the import packages
DATA = Path(os.environ.get("MARK_DATA", ROOT.parent / "shared" / "data"))

FIXED = "fixed:c5.xlarge=4"
EVERY = (
    "mark,greedy,ilp,mark-paper,target-tracking,target-tracking-best,reactive,static-peak,static-mean,oracle," + FIXED
)
TODAY = "mark,mark-paper,reactive,static-peak,oracle"
DIURNAL = "traces/diurnal_day_5s.csv.gz"
TWO_HOURS = ("--start", "86400", "--duration", "7200")
TWITTER = str(DATA / "traces" / "twitter_stream_2021_d00_14_60s.csv.gz")
TWITTER_1S = str(DATA / "traces" / "twitter_stream_2021_d00_14_1s.csv.gz")
WORLD_CUP = str(DATA / "traces" / "worldcup98_apr30_jun30_60s.csv.gz")
AVAILABLE = str(DATA / "spot" / "avail_aws_2022-10-26_1n_k80x1_us-west-2a.csv.gz")
PREEMPTED = str(DATA / "spot" / "preempt_aws_2023-08-03_4n_v100x1_us-west-2c.csv.gz")
SPOT_PRICE = str(DATA / "spot" / "price_aws_2015_c3.xlarge_us-east-1a.csv.gz")
SERVICES = ("inception-v3", "nasnet", "lstm-ptb", "opennmt-ende")
ALL_MARKETS = ("--markets", "on-demand,spot,burstable")


def commands() -> dict[str, tuple[str, ...]]:
    """Return the arguments of `mark`, without `--json`, by the name of the scenario."""
    social = ("examples/pipeline/social.toml",)
    fleets = ("--service", "examples/pipeline/digits_fleets.toml")
    graph = ("--queries", "examples/pipeline/queries.jsonl")
    spikes = "synthetic:mmpp"
    own = ("--service", "examples/own-autoscaler.toml")
    found = {name: ("compare", *arguments) for name, arguments in scenarios().items()}
    for service in ("inception-v3-2026", "nasnet"):
        found[f"plan_{service}"] = ("plan", DIURNAL, "--service", service, "--at", "43200", *ALL_MARKETS)
        found[f"bound_{service}"] = ("bound", DIURNAL, "--service", service, "--duration", "7200")
    found |= {
        "plan_small": ("plan", "synthetic:poisson?rate=1", "--service", "inception-v3-2026"),
        "simulate_tail": ("simulate", spikes, "--service", "inception-v3-2026", "--tail", "3", "--duration", "7200"),
        "frontier": ("frontier", DIURNAL, "--service", "inception-v3-2026", "--duration", "3600"),
        "commitment": ("plan", DIURNAL, *own, "--advise-commitment", "--duration", "7200"),
        "torture": ("torture", "--seeds", "40", "--hours", "6"),
        "catalog": ("catalog", "show", "aws-2026"),
    }
    for command, seconds in {"compare": "1800", "plan": "3600", "bound": "3600", "simulate": "1800"}.items():
        more = ("--duration", seconds)
        found[f"{command}_social"] = (command, "synthetic:poisson?rate=20", "--service", *social, *more)
        found[f"{command}_fleets"] = (command, "synthetic:poisson?rate=20", *fleets, *graph, *more)
    return found


def scenarios() -> dict[str, tuple[str, ...]]:
    """Return the arguments of `mark compare` by the name of the scenario."""
    found: dict[str, tuple[str, ...]] = {
        "diurnal": (DIURNAL, "--service", "inception-v3", "--policies", EVERY),
        "alb": ("traces/alb_sample.log.gz", "--service", "inception-v3", "--policies", EVERY),
        "as_is": (
            *("traces/alb_sample.log.gz", "--service", "examples/own-autoscaler.toml", "--policies", "mark,as-is"),
        ),
        "twitter": (TWITTER, "--service", "inception-v3", "--policies", EVERY, *TWO_HOURS),
        "twitter_1s": (TWITTER_1S, "--service", "nasnet", "--policies", "mark,mark-paper,reactive", *TWO_HOURS),
        "world_cup": (
            *(WORLD_CUP, "--service", "inception-v3", "--policies", EVERY, "--scale", "5"),
            *("--start", "864000", "--duration", "7200"),
        ),
        "spot_availability": (
            *(TWITTER, "--service", "inception-v3", "--policies", "mark,mark-paper,oracle", *TWO_HOURS, *ALL_MARKETS),
            *("--spot-trace", PREEMPTED, "--seed", "3"),
        ),
        "spot_price": (
            *(TWITTER, "--service", "inception-v3", "--policies", "mark,reactive", *TWO_HOURS, *ALL_MARKETS),
            *("--spot-trace", SPOT_PRICE, "--spot-first-hour-free"),
        ),
        # Capacity that falls to nothing, in two zones, and a fleet that has to be booted first.
        "faults": (
            *(TWITTER, "--service", "inception-v3", "--policies", "mark,mark-paper,oracle", *ALL_MARKETS),
            *("--start", "90000", "--duration", "21600", "--scale", "3", "--seed", "7", "--cold-start"),
            *("--spot-trace", AVAILABLE, "--spot-trace", PREEMPTED),
        ),
    }
    part = ("--start", "28800", "--duration", "3600", "--scale", "0.3")
    for service in SERVICES:
        found[f"service_{service}"] = (DIURNAL, "--service", service, "--policies", EVERY, *part)
        found[f"today_{service}"] = (
            *(DIURNAL, "--service", service, "--catalog", "aws-2026", "--policies", TODAY, *part, *ALL_MARKETS),
        )
    return found


# The checkout's own Python runs this: help and both OpenAPI descriptions, which no scenario prints.
TEXTS = """
import argparse, json
from mark.api.app import app
from mark.cli.main import every_command
from mark.serving.frontend.openapi import openapi

def helps(parser):
    yield parser.prog, parser.format_help()
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            for one in action.choices.values():
                yield from helps(one)

inputs = [{"name": "x", "datatype": "FP32", "shape": [-1, 4]}]
print(json.dumps({
    "openapi_control": app(None, None).openapi(),
    "openapi_serving": openapi("m", ["1", "2"], inputs),
    "help": dict(helps(every_command())),
}))
"""


def record(folder: Path, checkout: Path, only: str, jobs: int) -> int:
    """Record the scenarios and return the number of failed ones."""
    folder.mkdir(parents=True, exist_ok=True)
    own = checkout / ".venv/bin/python"
    python = str(own) if own.exists() else sys.executable
    paths = os.pathsep.join(str(checkout / root) for root in ROOTS)
    environment = os.environ | {"COLUMNS": "100", "PYTHONPATH": paths}

    def one(name: str, arguments: tuple[str, ...]) -> bool:
        missing = [part for part in arguments if part.startswith(str(DATA)) and not Path(part).exists()]
        if missing:
            print(f"{name}: left out, no {missing[0]}")
            return True
        began = time.monotonic()
        run = subprocess.run([python, *arguments], cwd=checkout, capture_output=True, text=True, env=environment)
        if run.returncode:
            print(f"{name}: exit {run.returncode}: {run.stderr.strip()}", flush=True)
            return False
        result = without_speed(json.loads(run.stdout))
        (folder / f"{name}.json").write_text(json.dumps(result, indent=1) + "\n")
        print(f"{name}: {time.monotonic() - began:.0f} s", flush=True)
        return True

    asked = {name: ("-m", "mark.cli.main", *arguments, "--json", "-") for name, arguments in commands().items()}
    asked["texts"] = ("-c", TEXTS)
    with ThreadPoolExecutor(jobs) as pool:
        return sum(
            pool.map(
                lambda name: not one(name, asked[name]),
                [name for name in asked if any(word in name for word in only.split(","))],
            )
        )


def without_speed(value: object) -> object:
    if isinstance(value, dict):
        return {key: without_speed(part) for key, part in value.items() if key != "speed"}
    if isinstance(value, list):
        return [without_speed(part) for part in value]
    return value


def diff(before: Path, after: Path) -> int:
    names = {path.name for folder in (before, after) for path in folder.glob("*.json")}
    other = 0
    for name in sorted(names):
        texts = [(folder / name).read_bytes() if (folder / name).exists() else b"" for folder in (before, after)]
        same = texts[0] == texts[1]
        other += not same
        print(f"{name}: {'identical' if same else 'OTHER'}, {len(texts[0])} bytes")
    print(f"{len(names)} records, {other} differ")
    return min(1, other) if names else 1


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(dest="command", required=True)
    recording = commands.add_parser("record")
    recording.add_argument("folder", type=Path)
    recording.add_argument("--checkout", type=Path, default=ROOT)
    recording.add_argument("--only", default="")
    recording.add_argument("--jobs", type=int, default=2)
    comparing = commands.add_parser("diff")
    comparing.add_argument("before", type=Path)
    comparing.add_argument("after", type=Path)
    args = parser.parse_args()
    if args.command == "record":
        return record(args.folder, args.checkout.resolve(), args.only, args.jobs)
    return diff(args.before, args.after)


if __name__ == "__main__":
    sys.exit(main())
