"""End to end: a day of 14 million requests, bound included, and a week of 605 million, through the command line.

`mark-paper` and `mark` simulate the day, and their decisions are counted and timed; `mark-paper` simulates the week.

The benchmark asserts the amount of work and prints the time:

    python benchmarks/planner/end_to_end.py [--week] [--json FILE]
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

DAY = ["synthetic:diurnal?rate=175", "--duration", "86400", "--start", "0"]
WEEK = ["synthetic:diurnal?rate=1083", "--duration", "604800"]
OPTIONS = ["--service", "inception-v3", "--predictor", "seasonal-naive"]


def measure(trace: list[str], at_least: int, policy: str = "mark-paper") -> dict[str, float]:
    """Make one run in a new process.

    Returns seconds from start to exit, peak memory, requests, and decisions on a forecast.
    """
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder) / "result.json"
        command = [
            sys.executable,
            "-m",
            "mark.cli.main",
            "simulate",
            *trace,
            *OPTIONS,
            "--policy",
            policy,
            "--json",
            str(out),
        ]
        began = time.perf_counter()
        subprocess.run(command, check=True, capture_output=True)
        wall_s = time.perf_counter() - began
        result = json.loads(out.read_text())
    assert result["requests"]["total"] >= at_least, result["requests"]
    assert result["bound_usd"] is not None
    decisions = sum(result["predictors"].values())
    return {"wall_s": wall_s, "requests": result["requests"]["total"], "decisions": decisions, **result["speed"]}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--week", action="store_true", help="also simulate the week, which takes a minute or two")
    parser.add_argument("--json", metavar="FILE")
    args = parser.parse_args()
    measure(DAY, 13_000_000)  # fills the compile caches
    table = {}
    for name, policy in (("day", "mark-paper"), ("day by mark", "mark")):
        days = [measure(DAY, 13_000_000, policy) for _ in range(5)]
        table[name] = {key: statistics.median(day[key] for day in days) for key in days[0]}
        assert table[name]["decisions"] == 1440, table[name]
    if args.week:
        table["week"] = measure(WEEK, 600_000_000)
    for name, row in table.items():
        print(
            f"{name}: {row['requests'] / 1e6:.1f} million requests in {row['wall_s']:.2f} s from start to exit "
            f"({row['requests'] / row['wall_s'] / 1e6:.1f} million/s), kernel {row['kernel_s']:.2f} s, "
            f"{row['decisions']:.0f} decisions in {row['planner_s']:.2f} s, "
            f"peak {row['peak_rss_mb']:.0f} MB"
        )
    if args.json:
        Path(args.json).write_text(json.dumps(table, indent=2) + "\n")


if __name__ == "__main__":
    main()
