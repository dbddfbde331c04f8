"""The parts of a simulated run below the controller: arrivals, instances, the cloud and its bill."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial

import numpy as np
from numpy.typing import NDArray

from mark.cloud.billing.extras import extras_usd
from mark.domain.bill import Bill
from mark.domain.ec2_limits import INTERRUPTION_NOTICE_S
from mark.domain.errors import BadInput
from mark.domain.offer import Market
from mark.domain.rules.admission import LATE, late_share, least_probability
from mark.domain.rules.capacity_classes import capacity_classes
from mark.kernel.accounting import Accounting
from mark.kernel.hedged_stage import HedgedStage
from mark.kernel.stage import Admission, StageSimulation
from mark.planning.bounds.lower_bound import bin_width_s
from mark.planning.planner import Policy
from mark.planning.policies.policy_registry import policy_entry
from mark.simulation.inputs import Inputs
from mark.simulation.world.shared_instances import SharedInstances
from mark.simulation.world.simulated_cloud import BillingTerms, Crashes, SimulatedCloud, SimulatedMarket


class Arrivals:
    """Feeds the arrivals of the evaluated part to the kernel, chunk by chunk; for one run."""

    def __init__(self, inputs: Inputs) -> None:
        request = inputs.request
        self._chunks: Iterator[tuple[NDArray[np.float64], float]] = inputs.trace.chunks(
            inputs.start_s, inputs.end_s, request.scale, request.seed
        )
        self._end_s = inputs.duration_s
        self._times: NDArray[np.float64] = np.zeros(0)
        self._next, self._covered_s = 0, 0.0

    def advance(self, stage: StageSimulation, until_s: float) -> None:
        """Simulate the arrivals before `until_s`, which must never decrease."""
        while True:
            self._next = stage.advance(self._times, self._next, until_s)
            if self._covered_s >= min(until_s, self._end_s):
                stage.reach(until_s)
                return
            # The chunk is used up: all its arrivals lie before covered_s, which lies before until_s.
            chunk = next(self._chunks, None)
            if chunk is None:
                self._covered_s = self._end_s
                continue
            self._times, self._covered_s = chunk
            self._next = 0


def stage_of(
    inputs: Inputs,
    policy: Policy,
    *,
    keep: bool = False,
    rt_max_s: float | None = None,
    fault_seed: int | None = None,
) -> StageSimulation:
    """Return an empty data plane for the policy's offers. With `keep` every departure is kept.

    Bouncers promise `rt_max_s`, by default RT_max. `fault_seed` is the seed of the instances' faults, by default that
    of the inputs.
    """
    resolved = policy.resolved
    rt_max_s = resolved.slo.rt_max_s if rt_max_s is None else rt_max_s
    class_of = capacity_classes(
        {o.name: c.capacity_rps for o, c in zip(resolved.offers, resolved.candidates, strict=True)}
    )
    after_s = resolved.service.hedge_after_s
    stage: Callable[..., StageSimulation] = (
        StageSimulation if math.isinf(after_s) else partial(HedgedStage, hedge_after_s=after_s)
    )
    return stage(
        resolved.candidates,
        accounts=Accounting(
            rt_max_s=rt_max_s,
            end_s=inputs.duration_s,
            fine_s=bin_width_s(resolved.slo),
            recent=resolved.service.slo_monitor.window,
        ),
        admission=Admission(
            bouncers=policy.bouncers,
            late=LATE[resolved.service.late],
            least_in_time=least_probability(resolved.slo.attainment),
            late_share=late_share(resolved.slo.attainment),
            horizons_s=[
                min(rt_max_s, INTERRUPTION_NOTICE_S) if offer.market is Market.SPOT else rt_max_s
                for offer in resolved.offers
            ],
        ),
        function=resolved.function if policy.bouncers else None,
        routing=resolved.service.routing,
        classes=[class_of[offer.name] for offer in resolved.offers],
        seed=inputs.request.seed,
        faults=inputs.service.faults,
        fault_seed=fault_seed,
        keep=keep,
    )


def cloud_of(inputs: Inputs, policy: Policy, stage: StageSimulation | SharedInstances) -> SimulatedCloud:
    """Return a cloud without instances, whose instances will serve in `stage`. Shared instances do not crash."""
    resolved = policy.resolved
    return SimulatedCloud(
        resolved.offers,
        stage,
        seed=inputs.request.seed,
        end_s=inputs.duration_s,
        market=SimulatedMarket(
            inputs.spot,
            resolved.catalog.spot_zones,
            {o.instance: o.usd_per_hour for o in resolved.catalog.offers if o.market is Market.ON_DEMAND},
        ),
        terms=BillingTerms(
            inputs.request.spot_first_hour_free,
            bills_disks=resolved.catalog.bills_extras,
            bills_pool=resolved.service.warm_pool > 0,
            committed=resolved.committed,
            committed_usd_per_hour=resolved.committed_usd_per_hour,
        ),
        workers=[c.workers for c in resolved.candidates],
        crashes=Crashes(inputs.service.faults.crashes_per_hour, stage) if isinstance(stage, StageSimulation) else None,
    )


def takes_controller(policy: str) -> bool:
    """Return whether mark's controller carries out the plans of the policy with this name.

    It does not for a fleet that never changes, nor for AWS's and Kubernetes' own autoscalers.
    """
    try:
        entry = policy_entry(policy)
    except BadInput:  # made by hand, without a name
        return False
    return entry.live or entry.forecasts


def bill_of(
    inputs: Inputs,
    policy: Policy,
    stage: StageSimulation | SharedInstances,
    cloud: SimulatedCloud,
    controller_usd: float = 0.0,
) -> Bill:
    """Return the whole bill at the end of the part: instances, functions, the catalogue's extras and the controller."""
    end_s = inputs.duration_s
    bill = cloud.bill(end_s)
    other = bill.other
    if policy.resolved.catalog.bills_extras:
        other += extras_usd(end_s, stage.arrived, inputs.service.request_kb, inputs.service.response_kb)
    return replace(bill, functions=stage.function_usd(), other=other + controller_usd)
