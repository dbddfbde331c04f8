"""Kill, cut off and replace servers that learn together while feedback comes, and count lost and doubled feedback.

    .venv/bin/python benchmarks/data_plane/learned_kills.py [--kills 200] [--rate 500] [--servers 2] [--keep-disk 0.5]
    .venv/bin/python benchmarks/data_plane/learned_kills.py --personal --rate 2000 --partitions 50 --rollouts 20

Each kill is a SIGKILL of one server at a random time; a share of them takes the server's disk, too. A partition stops
all that servers send each other for 0.3 to 3 s; in half of them a server is killed. A roll-out replaces all servers,
one after the other. The next fault comes as soon as all servers are ready again. Clients send feedback to any server
and repeat it until they hear a result. Afterwards every state must contain each piece of feedback that was answered
with `applied`, and contain it once, and all states must be equal. With `--personal` the feedback is observations of 200
users, each roll-out brings another table of item vectors, and the heads must equal those of a fold of the observations
to 1e-6. If one of these checks fails, exits with 1 and keeps the servers' folders.
"""

from __future__ import annotations

import argparse
import shutil
import sys
import tempfile
from pathlib import Path

import numpy as np
import uvloop

sys.path[:0] = [str(Path(__file__).resolve().parents[2])]

from tests.serving.learned.faults import told_under_faults  # noqa: E402
from tests.serving.learned.processes import Labels, Place, places  # noqa: E402
from tests.serving.personal.processes import Observations, PersonalPlace  # noqa: E402


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--personal", action="store_true", help="send observations for personal heads")
    parser.add_argument("--kills", type=int, default=200)
    parser.add_argument("--partitions", type=int, default=0)
    parser.add_argument("--rollouts", type=int, default=0)
    parser.add_argument("--rate", type=float, default=500.0, help="pieces of feedback due per second")
    parser.add_argument("--batch", type=int, default=10, help="pieces of feedback in a POST")
    parser.add_argument("--servers", type=int, default=2)
    parser.add_argument("--keep-disk", type=float, default=0.5, help="share of the kills that leave the disk")
    parser.add_argument("--most-seconds", type=float, default=float("inf"), help="seconds after which no fault begins")
    parser.add_argument("--seed", type=int, default=0)
    args = parser.parse_args()
    told = Observations(args.batch, seed=args.seed) if args.personal else Labels(args.batch)
    folder = tempfile.mkdtemp(prefix="learned-kills-")
    # Without a store, servers that are cut off from each other tell their clients to repeat everything.
    store = f'store = "{folder}/store"' if args.partitions else ""
    with places(Path(folder), args.servers, store, kind=PersonalPlace if args.personal else Place) as servers:
        found = uvloop.run(
            told_under_faults(
                servers,
                told,
                args.rate,
                kills=args.kills,
                partitions=args.partitions,
                rollouts=args.rollouts,
                keep_disk=args.keep_disk,
                batch=args.batch,
                seed=args.seed,
                most_s=args.most_seconds,
            )
        )
    if found.good:
        shutil.rmtree(folder)
    else:
        print(f"the servers' folders are kept: {folder}")
    heard = sum(found.results.values())
    faults = ", ".join(f"{number} {fault}" for fault, number in found.faults.items())
    print(f"{faults}, {found.killed_apart} kills in partitions, in {found.seconds:.0f} s")
    print(f"{heard} pieces of feedback, {heard / found.seconds:.0f} a second, {found.repeated} posts repeated")
    p50, p99 = (1e3 * np.percentile(found.latencies_s, q) for q in (50, 99))
    print(f"posts of {args.batch} that were answered: p50 {p50:.0f} ms, p99 {p99:.0f} ms")
    print(", ".join(f"{number} {result}" for result, number in found.results.most_common()))
    print(f"lost {found.lost}, applied twice {found.doubled}, states that differ {found.differ}, heads {found.off:.1e}")
    return 0 if found.good else 1


if __name__ == "__main__":
    sys.exit(main())
