"""Compile the kernel into mark/kernel/machine_code, which goes into the wheel: a first run then compiles nothing.

The code is for Linux, this version of Python, and processors with the features of x86-64-v3 (AVX2; Intel since 2013,
AMD since 2015). Others compile at their first run, as a checkout does.

    python packaging/machine_code.py              the functions that the commands below use
    python packaging/machine_code.py reactive     the functions of one policy, for a test
"""

from __future__ import annotations

import os
import platform
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from mark.kernel.compiled import SHIPPED, SHIPPED_CPU, SHIPPED_FEATURES

ROOT = Path(__file__).resolve().parents[1]
TRACE = str(ROOT / "traces/diurnal_day_5s.csv.gz")
SERVICE = ("--service", "inception-v3-2026")


def commands(policies: str | None) -> list[list[str]]:
    """Return the commands whose kernels are shipped."""
    if policies is not None:
        return [["compare", TRACE, *SERVICE, "--duration", "600", "--policies", policies, "--no-bound", "--jobs", "1"]]
    spot = ("--markets", "on-demand,spot,burstable")
    return [
        ["compare", TRACE, *SERVICE, "--duration", "1800", "--jobs", "1"],
        ["simulate", TRACE, "--service", "opennmt-ende", *spot, "--duration", "1800", "--cold-start"],
        ["plan", "--trace", TRACE, *SERVICE],
        ["insure", TRACE, *SERVICE, "--duration", "600"],
    ]


def main(policies: str | None) -> None:
    shutil.rmtree(SHIPPED, ignore_errors=True)
    if (sys.platform, platform.machine()) != ("linux", "x86_64"):
        print("machine_code: only made on Linux, x86-64: the wheel compiles at its first run")
        return
    with tempfile.TemporaryDirectory() as scratch:
        environment = os.environ | {
            "MARK_CACHE_DIR": scratch,
            "NUMBA_CPU_NAME": SHIPPED_CPU,
            "NUMBA_CPU_FEATURES": SHIPPED_FEATURES,
        }
        for command in commands(policies):
            subprocess.run(
                [sys.executable, "-m", "mark.cli.main", *command],
                env=environment,
                cwd=scratch,
                check=True,
                stdout=subprocess.DEVNULL,
            )
        for file in sorted(Path(scratch).glob("kernel-*/*/*.nb[ci]")):
            to = SHIPPED / file.relative_to(scratch)
            to.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(file, to)
    made = list(SHIPPED.rglob("*.nbc"))
    print(f"machine_code: {len(made)} functions, {sum(file.stat().st_size for file in made) / 1e6:.1f} MB")


if __name__ == "__main__":
    main(sys.argv[1] if len(sys.argv) > 1 else None)
