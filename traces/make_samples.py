"""Make the sample traces of this folder again: `python traces/make_samples.py FOLDER`. Same bytes each time."""

from __future__ import annotations

import gzip
import subprocess
import sys
from pathlib import Path

import numpy as np

from mark.traffic.traces import open_trace

BIN_S = 5.0
SPEC, SEED = "synthetic:diurnal?rate=160&spikes_per_day=3&spike_height=2.5", 7
LOG_SPEC, LOG_SEED, LOG_LINES = "synthetic:gamma?rate=2&cv=2", 1, 500


def diurnal_day() -> bytes:
    """A Monday of about 160 requests/s, drawn, and counted in bins of 5 s."""
    trace = open_trace(SPEC, seed=SEED)
    counts = np.zeros(round(trace.duration_s / BIN_S), dtype=int)
    covered_s = 0.0
    for times, until_s in trace.chunks(0.0, trace.duration_s, 1.0, SEED):
        counts += np.bincount((times / BIN_S).astype(int), minlength=len(counts))
        covered_s = until_s
    assert covered_s == trace.duration_s
    return "".join(["t_seconds,count\n", *(f"{5 * k},{n}\n" for k, n in enumerate(counts.tolist()))]).encode()


def main(folder: Path) -> None:
    folder.joinpath("diurnal_day_5s.csv.gz").write_bytes(gzip.compress(diurnal_day(), 9, mtime=0))
    maker = Path(__file__).parents[1] / "benchmarks" / "data_plane" / "make_alb_log.py"
    log = folder / "alb_sample.log.gz"
    command = [str(maker), str(LOG_LINES), "--spec", LOG_SPEC, "--seed", str(LOG_SEED), "--out", str(log)]
    subprocess.run([sys.executable, *command], check=True)


if __name__ == "__main__":
    main(Path(sys.argv[1] if len(sys.argv) > 1 else "."))
