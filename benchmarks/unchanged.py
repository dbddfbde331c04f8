"""Does a refactoring leave every result as it was?

Records the JSON of `mark compare` on a list of scenarios, and compares two such records byte by byte (`speed` apart):

    python benchmarks/unchanged.py record FOLDER [--checkout OTHER] [--only WORD]
    python benchmarks/unchanged.py diff BEFORE AFTER

`--checkout` runs another checkout's code with that checkout's own `.venv`. Scenarios whose data are not there
(`MARK_DATA`, or `../shared/data` beside the project) are left out, and named.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
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


def scenarios() -> dict[str, tuple[str, ...]]:
    """Arguments of `mark compare` by the name of the scenario."""
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


def record(folder: Path, checkout: Path, only: str) -> int:
    folder.mkdir(parents=True, exist_ok=True)
    failed = 0
    for name, arguments in scenarios().items():
        if only not in name:
            continue
        missing = [part for part in arguments if part.startswith(str(DATA)) and not Path(part).exists()]
        if missing:
            print(f"{name}: left out, no {missing[0]}")
            continue
        began = time.monotonic()
        run = subprocess.run(
            [checkout / ".venv/bin/python", "-m", "mark.cli.main", "compare", *arguments, "--json", "-"],
            cwd=checkout,
            capture_output=True,
            text=True,
        )
        if run.returncode:
            failed += 1
            print(f"{name}: exit {run.returncode}: {run.stderr.strip()}")
            continue
        result = without_speed(json.loads(run.stdout))
        (folder / f"{name}.json").write_text(json.dumps(result, indent=1) + "\n")
        print(f"{name}: {len(result['policies'])} policies, {time.monotonic() - began:.0f} s", flush=True)
    return failed


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
    comparing = commands.add_parser("diff")
    comparing.add_argument("before", type=Path)
    comparing.add_argument("after", type=Path)
    args = parser.parse_args()
    if args.command == "record":
        return record(args.folder, args.checkout.resolve(), args.only)
    return diff(args.before, args.after)


if __name__ == "__main__":
    sys.exit(main())
