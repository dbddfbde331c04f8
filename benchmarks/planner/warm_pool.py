"""The saving of a warm pool: bills with and without a pool, from the same forecasts (docs/results.md).

    python benchmarks/planner/warm_pool.py [--services nasnet,opennmt-ende] [--pools 0,8,16] [--parts STREAM:7,...]
            [--cold]
        [--capped] [--bound]

Policy `mark` runs with forecasts by `auto`, on demand, seed 0. When a part begins, the pool is full of instances of one
type; later its types change with the drained instances. With --cold there are neither running nor stopped instances
when a part begins. The bill includes the disks of stopped instances, 8 GiB on a CPU and 100 GiB on a GPU. --capped
takes the stream's minutes as the paper's figures show them. --bound adds the regret, against a bound in which every
start is a resume. The traffic is real, from MARK_DATA or ../shared/data. The forecasts of a part and a service take a
minute, a run 5 to 20 s.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from dataclasses import replace

from mark_papers.paper.replay import open_replay, replay_inputs
from miss_price import DATA, STREAM, Part, Recorder, Replayed, inputs_of

from mark.domain.time import DAY_S
from mark.simulation.inputs import Inputs
from mark.simulation.run import Simulation

STARTS = (7, 8, 9.5, 10, 11, 12)
PARTS = tuple(f"{STREAM}:{day:g}" for day in STARTS)


def pooling(inputs: Inputs, most: int, *, cold: bool, bound: bool) -> Inputs:
    """Return the same with a warm pool of at most that size."""
    service = replace(inputs.resolved.service, warm_pool=most)
    request = replace(inputs.request, cold_start=cold, with_bound=bound)
    return replace(inputs, request=request, resolved=replace(inputs.resolved, service=service))


def run(part: Part, services: Sequence[str], pools: Sequence[int], *, cold: bool, capped: bool, bound: bool) -> None:
    for service in services:
        inputs = inputs_of(part, service)
        if capped:
            minutes = open_replay(str(DATA / f"{STREAM}.csv.gz")).calm
            inputs = replay_inputs(service, minutes, part[1] * DAY_S, with_bound=False)
        recorder = Recorder(inputs.history.step_s)
        Simulation(inputs, "mark", recorder).run()
        for most in pools:
            pooled = pooling(inputs, most, cold=cold, bound=bound)
            result = Simulation(pooled, "mark", Replayed(recorder.forecasts)).run()
            done = result.requests
            assert done.total == done.instances + done.functions + done.rejected
            assert result.slo_result.attainment is not None
            print(
                f"{part[0]:28} {part[1]:6g}  {service:13} pool {most:3}",
                f"{result.bill.total:8.2f} $ {result.slo_result.attainment:8.2%}",
                f"disks {result.bill.other:5.2f} $, {result.fleet.launched:4} launched",
                f"regret {result.regret:.2f}" if bound and result.regret is not None else "",
                flush=True,
            )


def main(given: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--services", default="nasnet,opennmt-ende")
    parser.add_argument("--pools", default="0,8,16")
    parser.add_argument("--parts", default=",".join(PARTS), metavar="TRACE:DAY,...")
    for flag in ("--cold", "--capped", "--bound"):
        parser.add_argument(flag, action="store_true")
    args = parser.parse_args(given)
    for part in args.parts.split(","):
        trace, _, day = part.partition(":")
        pools = [int(text) for text in args.pools.split(",")]
        those = args.services.split(",")
        run((trace, float(day)), those, pools, cold=args.cold, capped=args.capped, bound=args.bound)


if __name__ == "__main__":
    main()
