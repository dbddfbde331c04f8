"""Insurance against slow instances, measured.

    python benchmarks/insurance.py table [--hours H] [--seed S]
    python benchmarks/insurance.py train [--seeds N]

`table` runs `mark insure` for eight promises under three kinds of faults and prints the fleets beside those of the
design, which come from another program with the same kernel. It fails where the cheapest option differs, or a fleet by
more than one instance.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from pathlib import Path

from mark.domain.slo import Slo
from mark.simulation.request import RunRequest
from mark.studies.executor import executor_for
from mark.studies.insure import Insurance, insure

SERVICE = Path(__file__).parents[1] / "examples" / "insurance" / "noisy.toml"
TRACE = "synthetic:poisson?rate=100"
REQUEST_S = 0.1

NOISY = "slow_share = 0.05\nslow_s = 20\nslow_factor = 3.0\n"
RARE = "slow_share = 0.01\nslow_s = 5\nslow_factor = 8.0\n"
TOGETHER = f"{NOISY}host_group = 3\n"
OPTIONS = ("instances", "hedge", "parity", "replicate")
# Faults, RT_max in times of a request, SL_min; then the design's fleets by option, None: no fleet keeps it.
ROWS: tuple[tuple[str, str, float, float, tuple[int | None, ...]], ...] = (
    ("5 % x3 20 s", NOISY, 2.0, 0.99, (None, None, 18, 26)),
    ("5 % x3 20 s", NOISY, 3.0, 0.99, (None, 16, 17, 24)),
    ("5 % x3 20 s", NOISY, 3.0, 0.999, (None, 16, 18, 26)),
    ("5 % x3 20 s", NOISY, 5.0, 0.999, (13, 14, 17, 24)),
    ("1 % x8 5 s", RARE, 2.0, 0.99, (13, 13, 17, 24)),
    ("1 % x8 5 s", RARE, 2.0, 0.999, (None, None, 18, 26)),
    ("1 % x8 5 s", RARE, 3.0, 0.999, (None, 14, 17, 24)),
    ("5 % x3, 3 at a time", TOGETHER, 2.0, 0.99, (None, None, 22, 26)),
)


def table(hours: float, seed: int) -> bool:
    """Print our fleets beside the design's; True where all agree."""
    right = True
    print(f"{'faults':<20}{'RT_max':>7}{'SL_min':>8}  " + "".join(f"{name:>16}" for name in OPTIONS) + "   advised")
    with tempfile.TemporaryDirectory() as folder:
        for name, faults, times, share, design in ROWS:
            file = Path(folder) / "faults.toml"
            file.write_text(f"[faults]\n{faults}")
            slo = Slo(round(times * REQUEST_S, 9), share)
            request = RunRequest(
                TRACE, str(SERVICE), slo=slo, faults=str(file), duration_s=3600.0 * hours, seed=seed, with_bound=False
            )
            began_s = time.perf_counter()
            found = insure(request, executor=executor_for(2))
            took_s = time.perf_counter() - began_s
            ours = [deployed(found, option) for option in OPTIONS]
            advised = None if found.advised is None else found.advised.option
            agrees = winner(ours) & winner(list(design)) and all(map(within_one, ours, design))
            right = right and bool(agrees)
            cells = "".join(f"{shown(mine):>8} ({shown(theirs):>5})" for mine, theirs in zip(ours, design, strict=True))
            verdict = "" if agrees else "   DIFFERS"
            print(f"{name:<20}{times:>5g} T{share:>8.1%}  {cells}   {advised} {took_s:.0f} s{verdict}", flush=True)
    return right


def deployed(found: Insurance, option: str) -> int | None:
    one = found.of(option)
    return one.deployed if one is not None and one.able else None


def winner(fleets: list[int | None]) -> set[str]:
    """The options with the fewest instances."""
    able = {option: fleet for option, fleet in zip(OPTIONS, fleets, strict=True) if fleet is not None}
    return {option for option, fleet in able.items() if fleet == min(able.values())}


def within_one(ours: int | None, design: int | None) -> bool:
    return ours == design if ours is None or design is None else abs(ours - design) <= 1


def shown(fleet: int | None) -> str:
    return "never" if fleet is None else str(fleet)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=("table", "train"))
    parser.add_argument(
        "--hours", type=float, default=2.8, help="simulated for each row (default: the design's 10,000 s)"
    )
    parser.add_argument("--seed", type=int, default=0)
    asked = parser.parse_args()
    return 0 if table(asked.hours, asked.seed) else 1


if __name__ == "__main__":
    sys.exit(main())
