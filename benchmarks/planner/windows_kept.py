"""Compare how often the promise of a window is kept with the stated confidence.

    python benchmarks/planner/windows_kept.py [--confidences 0.8,0.9,0.95] [--parts 14] [--out out/windows_kept.json]

Policy `mark` with forecasts by `auto` serves NASNet and OpenNMT-ende, whose functions are slower than RT_max, on
windows of 490 minutes of the raw Twitter stream and on days of three other families. Each window is a separate run,
with a `slo_window` of the same length. For each stated confidence the table has the share of the windows that kept
98 %, with its 90 % interval (Clopper and Pearson 1934), and the dollars. A stated confidence holds if the interval
contains it or lies above it. Forecasts of a part are made once. The traffic is real, from MARK_DATA or ../shared/data.
The forecasts of a part take a minute, a run 5 to 30 s. Exits with 1 if a stated confidence does not hold.
"""

from __future__ import annotations

import argparse
import json
import math
import sys
from dataclasses import replace
from pathlib import Path

from miss_price import NASA, STREAM, TWITTER, WORLD_CUP, Part, Replayed, replays
from scipy.stats import beta

from mark.domain.time import HOUR_S
from mark.simulation.inputs import Inputs
from mark.simulation.run import Simulation

PARTS: tuple[Part, ...] = (
    *((STREAM, day) for day in (7, 7.5, 8, 8.5, 9, 9.5, 10, 10.5, 11, 11.5, 12, 12.5, 13, 13.5)),
    *(
        (trace, day)
        for trace, days in ((WORLD_CUP, (40, 46, 52)), (TWITTER, (3, 4, 5)), (NASA, (12, 15, 19)))
        for day in days
    ),
)


def stated(inputs: Inputs, confidence: float) -> Inputs:
    """Return the same run with that confidence, and a window as long as the part."""
    service = inputs.resolved.service
    window_s = math.ceil(inputs.duration_s / HOUR_S) * HOUR_S
    slo = replace(service.slo, confidence=confidence, window_s=window_s)
    return replace(inputs, resolved=replace(inputs.resolved, service=replace(service, slo=slo)))


def interval(kept: int, windows: int) -> tuple[float, float]:
    """Return the 90 % interval of the probability of a kept window."""
    low = 0.0 if kept == 0 else float(beta.ppf(0.05, kept, windows - kept + 1))
    high = 1.0 if kept == windows else float(beta.ppf(0.95, kept + 1, windows - kept))
    return low, high


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--confidences", default="0.8,0.9,0.95")
    parser.add_argument("--parts", type=int, default=len(PARTS))
    parser.add_argument("--out", type=Path, default=Path("out/windows_kept.json"))
    args = parser.parse_args()
    confidences = [float(text) for text in args.confidences.split(",")]
    rows = []
    for part in PARTS[: args.parts]:
        for service, inputs, forecasts in replays(part):
            for confidence in confidences:
                result = Simulation(stated(inputs, confidence), "mark", Replayed(forecasts)).run()
                kept = result.slo_result.attainment
                assert kept is not None
                rows.append(
                    {
                        "trace": part[0], "day": part[1], "service": service, "stated": confidence,
                        "in_time": kept, "usd": result.bill.total,
                    }
                )  # fmt: skip
                print(*part, service, confidence, f"{kept:.2%}", f"{result.bill.total:.2f} $", sep=" | ", flush=True)
    wrong = 0
    for confidence in confidences:
        mine = [row for row in rows if row["stated"] == confidence]
        kept_windows = sum(float(str(row["in_time"])) >= 0.98 for row in mine)
        low, high = interval(kept_windows, len(mine))
        holds = high >= confidence
        wrong += not holds
        usd = sum(float(str(row["usd"])) for row in mine)
        print(
            f"stated {confidence:.0%}: {kept_windows} of {len(mine)} windows kept, {low:.0%} to {high:.0%}, "
            f"{usd:.2f} $: {'holds' if holds else 'does not hold'}"
        )
    args.out.parent.mkdir(parents=True, exist_ok=True)
    args.out.write_text(json.dumps(rows, indent=1))
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
