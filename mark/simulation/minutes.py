"""Fleet and bill minute by minute, for the report."""

from __future__ import annotations

import numpy as np

from mark.domain.arrays import FloatArray
from mark.domain.fleet import Phase
from mark.domain.service import ResolvedService
from mark.kernel.stage import StageSimulation
from mark.simulation.result import Timeline
from mark.simulation.world.simulated_cloud import SimulatedCloud


class Minutes:
    """Samples fleet and bill once a minute, for the report."""

    def __init__(self, resolved: ResolvedService) -> None:
        self._capacity = {o.name: c.capacity_rps for o, c in zip(resolved.offers, resolved.candidates, strict=True)}
        self._t_s: list[float] = []
        self._ready: list[dict[str, int]] = []
        self._paid: list[int] = []
        self._spent: list[dict[str, float]] = []

    def sample(self, now_s: float, cloud: SimulatedCloud) -> None:
        self._t_s.append(now_s)
        fleet = cloud.fleet()
        self._ready.append(dict(fleet.ready()))
        self._paid.append(sum(instance.phase is not Phase.STOPPED for instance in fleet.instances))
        self._spent.append(cloud.spent_usd(now_s))

    def paid(self) -> FloatArray:
        """Return the number of paid instances, including booting ones, at each sample but the last."""
        return np.array(self._paid[:-1], dtype=np.float64)

    def timeline(self, stage: StageSimulation, end_s: float, other_usd: float) -> Timeline:
        rows = len(self._t_s) - 1  # the last sample only closes the bill
        total, good, by_function = (counts[:rows].astype(np.float64) for counts in stage.accounts.minutes())
        width = np.minimum(60.0, end_s - np.array(self._t_s[:rows]))
        offers = sorted({name for ready in self._ready for name in ready})
        instances = {name: np.array([float(r.get(name, 0)) for r in self._ready[:rows]]) for name in offers}
        markets = sorted({name for spent in self._spent for name in spent})
        spent_usd = {name: np.array([s.get(name, 0.0) for s in self._spent[1:]]) for name in markets}
        # Costs of balancer, addresses and data are known only at the end: spread them over time. Disks are metered.
        ends_s = np.append(self._t_s[1:rows], end_s)
        spent_usd["other"] = spent_usd["other"] + (other_usd - spent_usd["other"][-1]) * ends_s / end_s
        with np.errstate(invalid="ignore"):
            attainment = np.where(total > 0, good / total, np.nan)
        # Spread the bill of functions over the minutes by their calls; the cost of pings alone over time.
        function_usd = stage.function_usd()
        if function_usd > 0.0:
            calls = by_function if by_function.any() else width
            spent_usd["functions"] = function_usd * np.cumsum(calls) / calls.sum()
        return Timeline(
            t_s=np.array(self._t_s[:rows]),
            arrival_rps=total / width,
            capacity_rps=np.sum([n * self._capacity[name] for name, n in instances.items()], axis=0)
            if instances
            else np.zeros(rows),
            overflow_rps=by_function / width,
            attainment=attainment,
            instances=instances,
            spent_usd=spent_usd,
        )
