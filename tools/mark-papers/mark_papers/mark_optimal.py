"""`mark-optimal`: the integer program that the MArk paper states (section 4.3) but does not solve, every minute.

    minimise    sum_t sum_i [ n[i, t] P_i + O_i max(n[i, t] - n[i, t-1], 0) ]
    subject to  sum_i n[i, t] lambda_i >= F_t,    lambda_i = sup { lambda : W_M/D/c_i(lambda) <= RT_max - T_b }

over the steps from tau on. The first step of its plan is carried out. F, O_i and the cool-down are the paper's system's
(`paper_system`), so that its bill and `mark-paper`'s differ only by the provisioning.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from mark.domain.arrays import FloatArray
from mark.domain.profile import Candidate
from mark.domain.service import ResolvedService
from mark.domain.slo import Slo
from mark.domain.time import STEP_S
from mark.planning.policies.paper_system import Choices, PaperSystem, Provisioned
from mark.planning.policies.policy_registry import PolicyEntry, paper_policy
from mark_papers.paper_program import PaperProgram, solve_paper
from mark_papers.queueing import rate_of_mean_wait, rate_of_wait_within

GAP = 0.01
TIME_BUDGET_S = 2.0  # of the integer program, which only large fleets of many types need


def paper_capacities(candidates: Sequence[Candidate], slo: Slo, *, tail: bool = False) -> FloatArray:
    """Return lambda_i in requests/s, (J,): the highest rate at which M/D/c's wait on one instance is at most RT_max -
    T_b.

    The instance is the paper's black box: c workers, each of which takes D = T_N / N for a request when its batches are
    full. A batch takes T_b = T_N and the service's overhead; if that takes all of RT_max, or leaves less than a
    thousandth of the throughput, the capacity is 0. The mean wait, as in the paper; `tail`: the wait of a share SL_min
    of the requests.
    """
    rates = []
    for each in candidates:
        batch_s, size = float(each.service_s[-1]), each.policy.n_batch
        wait_s = max(0.0, slo.rt_max_s - each.overhead_s - batch_s)
        share = min(slo.attainment, 1.0 - 1e-9)
        request_s = batch_s / size
        rates.append(
            rate_of_wait_within(wait_s, share, request_s, each.workers)
            if tail
            else rate_of_mean_wait(wait_s, request_s, each.workers)
        )
    found = np.array(rates)
    return np.where(found < 1e-3 * np.array([each.capacity_rps for each in candidates]), 0.0, found)


class MarkOptimalPolicy(PaperSystem):
    """The paper's program in the paper's system."""

    name = "mark-optimal"

    def capacities(self, resolved: ResolvedService, offers: tuple[int, ...]) -> Mapping[int, float]:
        rates = paper_capacities(tuple(resolved.candidates[i] for i in offers), resolved.slo)
        return dict(zip(offers, rates.tolist(), strict=True))

    def provision(self, choices: Choices, peak_rps: FloatArray, first: bool) -> Provisioned:
        program = PaperProgram(
            usd_per_step=choices.usd_per_step,
            launch_usd=choices.launch_usd if not first else self._launch_usd,
            capacity_rps=choices.capacity_rps,
            running=choices.running,
            demand_rps=peak_rps,
            max_instances=self._resolved.service.max_instances,
            max_usd_per_step=self.max_usd_per_step,
            first=first,
        )
        found = solve_paper(program, gap=GAP, time_budget_s=TIME_BUDGET_S)
        state = "proven" if found.gap <= GAP else "feasible" if found.finished else "time-out"
        hours = len(peak_rps) * STEP_S / 3600.0
        fleet = f"the cheapest fleet for {hours * 60.0:.0f} min: {found.usd / hours:.2f} $/h"
        reasons = tuple(
            f"{1e3 * usd / (rps * STEP_S):.4f} $ per thousand in {fleet}"
            for usd, rps in zip(choices.usd_per_step, choices.capacity_rps, strict=True)
        )
        return Provisioned(np.asarray(found.counts[:, 0]), reasons, found.limited, f"{found.solver}, {state}")


# The same system with the paper's program, to show the cost of the paper's greedy algorithm.
MARK_OPTIMAL = PolicyEntry(
    paper_policy(MarkOptimalPolicy), forecasts=True, live=True, place=5, predictors=("lstm", "auto")
)
