"""The source of the shipped profiles on hardware of 2026: the paper's rows, scaled by half of the advertised gains.

    python benchmarks/planner/derived_profiles.py     # writes mark/profiling/data/derived-2026.csv

AWS advertises gains of "up to" a number, and peak arithmetic is not the same as served requests. So only half of each
advertised gain counts: a type that is advertised as 1.39 times as fast counts as 1.19 times as fast.
docs/profiles.md has the sources of the gains.
"""

from __future__ import annotations

import csv
import math
from pathlib import Path

DATA = Path(__file__).resolve().parents[2] / "mark" / "profiling" / "data"
COLUMNS = ("model", "instance", "batch", "latency_ms", "cold_ms", "basis", "source")
MODELS = ("inception-v3", "nasnet", "lstm-ptb", "opennmt-ende")
# (type measured in 2019, type of today): how many times as fast it is advertised to be.
_C7I = 1.15 * 1.15 * 1.05  # two generations of "up to 15 % better price performance", the second at 5 % more a vCPU
# c6g: 40 % better price performance than c5 at 80 % of its price; c7g: 25 % faster; c8g: 30 % faster.
_C8G = 1.40 * 0.80 * 1.25 * 1.30
_K80_TFLOPS, _T4_TFLOPS, _L4_TFLOPS = 8.73 / 2.0, 8.1, 30.3  # single precision; p2.xlarge is half a K80
ADVERTISED = {
    **{(f"c5.{size}", f"c7i.{size}"): _C7I for size in ("large", "xlarge", "2xlarge", "4xlarge")},
    **{(f"c5.{size}", f"c8g.{size}"): _C8G for size in ("large", "xlarge", "2xlarge", "4xlarge")},
    ("p2.xlarge", "g4dn.xlarge"): _T4_TFLOPS / _K80_TFLOPS,
    ("p2.xlarge", "g6.xlarge"): _L4_TFLOPS / _K80_TFLOPS,
}
MEASURED_MB, FUNCTIONS_MB = 3008, (3008, 5120, 10240)  # a function's share of a processor is proportional to its memory


def derived_rows(paper: list[dict[str, str]]) -> list[dict[str, str]]:
    """Return the rows of today's types from rows of the paper's, model by model, instances before functions."""
    found = []
    for model in MODELS:
        rows = [row for row in paper if row["model"] == model]
        for (old, new), advertised in ADVERTISED.items():
            speed = 1.0 + (advertised - 1.0) / 2.0
            for row in rows:
                if row["instance"] == old:
                    latency_ms = float(row["latency_ms"]) / speed
                    found.append(_row(row, new, latency_ms, f"{old} of {model} / {speed:.3f}"))
        (function,) = [row for row in rows if row["instance"] == f"lambda:{MEASURED_MB}"]
        exponent = _scaling(rows)
        for memory_mb in FUNCTIONS_MB if exponent else (MEASURED_MB,):
            slower = (MEASURED_MB / memory_mb) ** exponent
            how = f"lambda:{MEASURED_MB} of {model} x {slower:.3f}"
            found.append(_row(function, f"lambda:{memory_mb}", float(function["latency_ms"]) * slower, how))
    return found


def _scaling(rows: list[dict[str, str]]) -> float:
    """Return the power of the processors by which latency falls from four vCPUs to eight; 0 if it was not measured."""
    by_type = {row["instance"]: float(row["latency_ms"]) for row in rows if row["batch"] == _largest(rows, row)}
    if "c5.2xlarge" not in by_type:
        return 0.0
    return math.log2(by_type["c5.xlarge"] / by_type["c5.2xlarge"])


def _largest(rows: list[dict[str, str]], row: dict[str, str]) -> str:
    return max((other["batch"] for other in rows if other["instance"] == row["instance"]), key=int)


def _row(of: dict[str, str], instance: str, latency_ms: float, how: str) -> dict[str, str]:
    """Return a derived row; a row derived from an assumed one is assumed."""
    basis = "assumed" if of["basis"] == "assumed" else "derived"
    values = (f"{of['model']}-2026", instance, of["batch"], f"{latency_ms:.1f}", of["cold_ms"], basis, how)
    return dict(zip(COLUMNS, values, strict=True))


def read(name: str) -> list[dict[str, str]]:
    with (DATA / name).open(newline="") as file:
        return list(csv.DictReader(file))


if __name__ == "__main__":
    with (DATA / "derived-2026.csv").open("w", newline="") as file:
        writer = csv.DictWriter(file, COLUMNS, lineterminator="\n")
        writer.writeheader()
        writer.writerows(derived_rows(read("paper.csv")))
