"""Compare late shares of requests with sizes: mark draws lognormal sizes, SimPy uses the size of each request.

    python benchmarks/planner/sized_requests.py azure_llm_2023_code.csv.gz --sizes context_tokens+generated_tokens \
        --instances 8 --workers 4 --units-per-s 2400 --rt-max-s 20

The trace has `t_seconds` and the columns of the sizes. Both simulators serve it on the same fixed fleet, behind a
balancer that counts requests in flight. Two more rows of SimPy draw the arrival times from the sums of each minute,
with sizes of the trace and with the mean size. `--spread-s 3` spreads time stamps that are rounded to 3 s.
"""

from __future__ import annotations

import argparse
import tempfile
from collections.abc import Generator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import simpy

from mark.domain.arrays import FloatArray
from mark.domain.load_unit import UnitSizes
from mark.simulation.request import RunRequest
from mark.studies.compare import run_one
from mark.traffic.traces.table_files import TableColumns

INSTANCE = "g6.2xlarge"
SEEDS = 3


@dataclass(frozen=True)
class SizedFleet:
    """A fleet of `instances`, each with `workers` that share `units_per_s`, for a promise of `rt_max_s`."""

    instances: int
    workers: int
    units_per_s: float
    rt_max_s: float

    def simulated(self, trace: Path, columns: str, sizes: UnitSizes, folder: Path, seed: int) -> float:
        """Return the late share in mark's simulator; writes the service and its profile into `folder`."""
        (folder / "profile.csv").write_text(
            f"model,instance,unit,units_per_s,workers\nsized,{INSTANCE},units,{self.units_per_s},{self.workers}\n"
        )
        (folder / "service.toml").write_text(
            f'[service]\nname = "sized"\nmodel = "sized"\nslo_ms = {self.rt_max_s * 1e3}\nslo_attainment = 0.5\n'
            f'unit = "units"\nunit_size = {sizes.mean}\ntail = {sizes.tail}\nprofile = "profile.csv"\n'
            f'[fleet]\ninstances = ["{INSTANCE}"]\n[overflow]\nlate = "refuse"\n'
        )
        run = run_one(
            RunRequest(
                trace=str(trace),
                service=str(folder / "service.toml"),
                policy=f"fixed:{INSTANCE}={self.instances}",
                columns=TableColumns(size=columns),
                seed=seed,
                with_bound=False,
            )
        )
        assert run.slo_result.attainment is not None
        return 1.0 - run.slo_result.attainment

    def served(self, times: FloatArray, sizes: FloatArray) -> FloatArray:
        """Return latencies in SimPy: a request goes to the replica with the fewest in flight, and waits in order."""
        env = simpy.Environment()
        replicas = [simpy.Resource(env, self.workers) for _ in range(self.instances)]
        found: list[float] = []

        def answered(replica: simpy.Resource, size: float, came_s: float) -> Generator[Any, Any, None]:
            with replica.request() as turn:
                yield turn
                yield env.timeout(size * self.workers / self.units_per_s)
            found.append(env.now - came_s)

        def arrivals() -> Generator[Any, Any, None]:
            for number, (came_s, size) in enumerate(zip(times.tolist(), sizes.tolist(), strict=True)):
                yield env.timeout(came_s - env.now)
                turns = (replicas[(number + i) % self.instances] for i in range(self.instances))
                env.process(answered(min(turns, key=lambda one: one.count + len(one.queue)), size, came_s))

        env.process(arrivals())
        env.run()
        return np.array(found)

    def late(self, times: FloatArray, sizes: FloatArray) -> float:
        return float((self.served(times, sizes) > self.rt_max_s).mean())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("trace", type=Path)
    parser.add_argument("--sizes", required=True)
    parser.add_argument("--instances", type=int, required=True)
    parser.add_argument("--workers", type=int, required=True)
    parser.add_argument("--units-per-s", type=float, required=True)
    parser.add_argument("--rt-max-s", type=float, required=True)
    parser.add_argument("--spread-s", type=float, default=0.0)
    args = parser.parse_args()
    random = np.random.default_rng(0)
    table = np.genfromtxt(args.trace, delimiter=",", names=True)
    sizes = UnitSizes(np.sum([table[name] for name in args.sizes.split("+")], axis=0))
    times = np.sort(table["t_seconds"] + random.uniform(0.0, args.spread_s, len(table)))
    fleet = SizedFleet(args.instances, args.workers, args.units_per_s, args.rt_max_s)
    minutes = np.bincount((times // 60.0).astype(int), weights=sizes.values) / sizes.mean
    drawn = np.concatenate([60.0 * (i + np.sort(random.random(random.poisson(n)))) for i, n in enumerate(minutes)])
    print(f"{len(times)} requests of {sizes.mean:.0f} units, cv {sizes.cv:.2f}, tail {sizes.tail:.2f}; "
          f"busy {sizes.values.sum() / times[-1] / args.units_per_s / args.instances:.0%}")  # fmt: skip
    with tempfile.TemporaryDirectory() as folder:
        ours = [fleet.simulated(args.trace, args.sizes, sizes, Path(folder), seed) for seed in range(SEEDS)]
    for name, late in (
        ("SimPy, the trace itself", fleet.late(times, sizes.values)),
        ("mark", float(np.mean(ours))),
        ("SimPy, times from minutes", fleet.late(drawn, random.choice(sizes.values, len(drawn)))),
        ("SimPy, times from minutes, mean size", fleet.late(drawn, np.full(len(drawn), sizes.mean))),
    ):
        print(f"{name}: {late:.2%} late")


if __name__ == "__main__":
    main()
