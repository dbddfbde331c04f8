"""Kill servers that learn together while feedback comes, and count facts that were lost or applied twice.

    .venv/bin/python benchmarks/data_plane/learned_kills.py [--kills 200] [--rate 500] [--servers 2] [--keep-disk 0.5]

Each kill is a SIGKILL of one server at a random time; a share of them takes the server's disk, too. The next server is
killed as soon as that one is ready again. Clients send their feedback to any server, so that half of it is passed on,
and repeat it until they hear a result. Afterwards no label that was told `applied` may lack in a state, none may be
there twice, and all states must be equal. Exits 1 where one of these does not hold.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from pathlib import Path

import uvloop

sys.path[:0] = [str(Path(__file__).resolve().parents[2])]

from tests.serving.learned.processes import killed_under_feedback, places  # noqa: E402


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--kills", type=int, default=200)
    parser.add_argument("--rate", type=float, default=500.0, help="pieces of feedback a second that are due")
    parser.add_argument("--servers", type=int, default=2)
    parser.add_argument("--keep-disk", type=float, default=0.5, help="share of the kills that leave the disk")
    parser.add_argument("--seed", type=int, default=0)
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        servers = places(Path(folder), args.servers)
        try:
            found = uvloop.run(killed_under_feedback(servers, args.kills, args.rate, args.seed, args.keep_disk))
        finally:
            for server in servers:
                server.stop()
    heard = sum(found.results.values())
    print(f"{found.kills} kills of {args.servers} servers in {found.seconds:.0f} s")
    print(f"{heard} pieces of feedback, {heard / found.seconds:.0f} a second, {found.repeated} requests repeated")
    print(", ".join(f"{count} {result}" for result, count in found.results.most_common()))
    print(f"lost {found.lost}, applied twice {found.doubled}, states that differ {found.differ}")
    return 1 if found.lost or found.doubled or found.differ else 0


if __name__ == "__main__":
    sys.exit(main())
