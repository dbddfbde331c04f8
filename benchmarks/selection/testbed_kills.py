"""Kill conductors of a selection on the testbed while clients send feedback, and count facts lost or applied twice.

    .venv/bin/python benchmarks/selection/testbed_kills.py [--kills 20] [--rate 50] [--seed 0]

`mark testbed` runs two candidates, each with a separate fleet, and two conductors behind a gateway. The controller
tells the conductors of each other. Each kill is a SIGKILL of one conductor; the next kill follows when the gateway
asks that conductor again. Afterwards the states of both conductors must contain all feedback that was answered with
`applied`, and contain it once, and their weights must be equal to 1e-12. Exits with 1 if one of these checks fails.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
import time
from pathlib import Path

import uvloop

sys.path[:0] = [str(Path(__file__).resolve().parents[2])]

from tests.infra.testbed.selection_kills import killed_under_feedback, write_selection  # noqa: E402
from tests.infra.testbed.test_daemon import CATALOG, mark, status  # noqa: E402

_START_S = 120.0


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--kills", type=int, default=20)
    parser.add_argument("--rate", type=float, default=50.0, help="queries due per second, each with feedback")
    parser.add_argument("--seed", type=int, default=0)
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        os.chdir(folder)
        write_selection(folder)
        (folder / "catalog.csv").write_text(CATALOG)
        done = mark(folder, "up", "pick.toml", "--seed", "1", "--history", f"synthetic:poisson?rate={args.rate:g}")
        if done.returncode != 0:
            sys.exit(done.stderr)
        try:
            end_s = time.monotonic() + _START_S
            while not all(one["url"] for one in status()["conductors"].values()):
                if time.monotonic() > end_s:
                    sys.exit("the conductors are not ready")
                time.sleep(0.5)
            found = uvloop.run(killed_under_feedback(status, args.kills, args.rate, args.seed))
        finally:
            mark(folder, "down")
            os.chdir("/")
    print(f"{found.kills} kills of 2 conductors in {found.seconds:.0f} s")
    print(f"{found.results.total()} pieces of feedback, {found.repeated} posts repeated")
    print(", ".join(f"{count} {result}" for result, count in found.results.most_common()))
    print(f"{found.failed.total()} queries without an answer: {dict(found.failed.most_common(5))}")
    print(
        f"facts {found.facts}, lost {found.lost}, applied twice {found.doubled}, weights that differ {len(found.off)}"
    )
    bad = found.lost or found.doubled or found.off or len(set(found.facts)) > 1 or found.results["never answered"]
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
