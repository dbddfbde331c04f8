"""What warm pools would save: bill and regret of a day where a launch starts a stopped instance (docs/results.md).

    python benchmarks/warm_pool.py [--days twitter_stream_2021_d00_14_1s:7.5,nasa_1995_07_60s:12.5] [--hours 24]

Inception-v3, `mark` with forecasts by `auto`, on demand, seed 0. Three kinds of world: `boots`, every launch boots as
the catalogue says; `resumes`, every launch is a resume; and `pool`, what ends is stopped, and a launch starts a stopped
instance of its type where there is one, from an empty pool. In both of these the planner takes every launch for a
resume, and so does the bound. Forecasts do not depend on what is bought, so those of a day are made once. Real traffic
from MARK_DATA or ../shared/data; two to four minutes a day.
"""

from __future__ import annotations

import argparse
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any
from unittest.mock import patch

from miss_price import DATA, SCALES, Recorder, Replayed
from regret import FAMILIES, STREAM_SCALE

from mark.domain.offer import Delay, Market, Offer
from mark.domain.time import DAY_S, HOUR_S
from mark.planning.market.spot import DISK_USD_PER_HOUR
from mark.simulation import parts
from mark.simulation.inputs import Inputs, open_inputs
from mark.simulation.request import RunRequest
from mark.simulation.run import Simulation
from mark.simulation.world.cloud import SimulatedCloud

DAYS = tuple(f"{trace}:{day}" for trace, days in FAMILIES for day in days)
RESUMES = (Delay(90.0, 120.0), Delay(60.0, 100.0))  # half of a boot, as the catalogue has it of burstables, and a third
STOPPING_S = 60.0  # before a stopped instance can be started again
KEPT_S = 6.0 * HOUR_S  # a resume saves at least the pay of 90 s of booting, which buys a disk for nearly as long


@dataclass(slots=True)
class Pool:
    """When the stopped instances of each type were stopped, oldest first, and what became of them."""

    stopped_s: defaultdict[str, list[float]] = field(default_factory=lambda: defaultdict(list))
    resumed: int = 0
    booted: int = 0
    disk_s: float = 0.0

    def put(self, offer: str, now_s: float) -> None:
        self.stopped_s[offer].append(now_s)

    def take(self, offer: str, now_s: float) -> bool:
        """Is a launch a resume? The one that was stopped last goes first, so that the oldest age and are given up."""
        self.settle(now_s)
        can = [at_s for at_s in self.stopped_s[offer] if now_s - at_s >= STOPPING_S]
        if not can:
            self.booted += 1
            return False
        self.stopped_s[offer].remove(can[-1])
        self.disk_s += now_s - can[-1]
        self.resumed += 1
        return True

    def settle(self, now_s: float) -> None:
        """Give up what was kept for too long."""
        for offer, times_s in self.stopped_s.items():
            kept_s = [at_s for at_s in times_s if now_s - at_s < KEPT_S]
            self.disk_s += (len(times_s) - len(kept_s)) * KEPT_S
            self.stopped_s[offer] = kept_s

    def disk_usd(self, end_s: float) -> float:
        self.settle(end_s)
        left_s = sum(end_s - at_s for times_s in self.stopped_s.values() for at_s in times_s)
        return (self.disk_s + left_s) / HOUR_S * DISK_USD_PER_HOUR


class PooledCloud(SimulatedCloud):
    """A cloud whose offers boot as fast as they resume. What finds no stopped instance takes `boots`, by offer."""

    def __init__(self, *given: Any, pool: Pool, boots: Mapping[str, Delay], **named: Any) -> None:
        super().__init__(*given, **named)
        self._pool, self._boots = pool, boots

    def _boot(self, record: Any) -> None:
        offer: Offer = record.offer
        if offer.market is Market.ON_DEMAND and not self._pool.take(offer.name, self._now_s):
            record.offer = replace(offer, boot=self._boots[offer.name])
        super()._boot(record)

    def _end(self, record: Any, *, taken: bool) -> None:
        if record.offer.market is Market.ON_DEMAND and record.ready_s is not None:
            self._pool.put(record.offer.name, self._now_s)
        super()._end(record, taken=taken)


def with_boots(inputs: Inputs, boot: Delay) -> Inputs:
    offers = tuple(replace(offer, boot=boot) for offer in inputs.resolved.offers)
    return replace(inputs, resolved=replace(inputs.resolved, offers=offers))


def told(name: str, simulation: Simulation, pool: Pool | None = None) -> None:
    result = simulation.run()
    done, bill = result.requests, result.bill.total
    disk_usd = 0.0 if pool is None else pool.disk_usd(result.trace.duration_s)
    print(
        f"{name:10} ${bill + disk_usd:.2f}, functions ${result.bill.functions:.2f}, {done.functions / done.total:.2%},",
        f"{result.slo_result.attainment:.2%} in time, bound ${result.bound_usd or 0.0:.2f},",
        f"boots ${result.fleet.boot_usd:.2f}, {result.fleet.launched} launched",
        "" if pool is None else f"({pool.resumed} resumed), disks ${disk_usd:.2f}",
        flush=True,
    )


def run(trace: str, day: float, hours: float) -> None:
    request = RunRequest(
        trace=str(DATA / f"{trace}.csv.gz"),
        service="inception-v3",
        scale=SCALES.get(trace, STREAM_SCALE),
        start_s=day * DAY_S,
        duration_s=hours * HOUR_S,
    )
    inputs = open_inputs(request)
    print(trace, f"{day:g}", flush=True)
    recorder = Recorder(inputs.history.step_s)
    told("boots", Simulation(inputs, "mark", recorder))
    boots = {offer.name: offer.boot for offer in inputs.resolved.offers}
    for resume in RESUMES:
        faster = with_boots(inputs, resume)
        told(f"resumes {resume.mean_s:g}", Simulation(faster, "mark", Replayed(recorder.forecasts)))
        pool = Pool()

        def pooled(*given: Any, pool: Pool = pool, **named: Any) -> PooledCloud:
            return PooledCloud(*given, pool=pool, boots=boots, **named)

        with patch.object(parts, "SimulatedCloud", pooled):
            simulation = Simulation(faster, "mark", Replayed(recorder.forecasts))
        told(f"pool {resume.mean_s:g}", simulation, pool)


def main(given: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--days", default=",".join(DAYS), metavar="TRACE:DAY,...")
    parser.add_argument("--hours", type=float, default=24.0)
    args = parser.parse_args(given)
    for part in args.days.split(","):
        trace, _, day = part.partition(":")
        run(trace, float(day), args.hours)


if __name__ == "__main__":
    main()
