"""The cost of the MArk paper's greedy algorithm beside the program it states (section 4.3), over known loads.

The load is Table 5's replay: 490 minutes, each with its actual highest 5 s rate, raw and with minutes capped (see
`replay`). The optimum is one program over all minutes, with a free first fleet. Algorithm 1 goes minute by minute and
looks as far ahead as `mark-paper` does; its fleets are priced by the same objective. Nothing is simulated.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from time import perf_counter

import numpy as np

from mark.domain.arrays import FloatArray, IntArray
from mark.domain.service import ControlSettings, ResolvedService
from mark.domain.time import STEP_S
from mark.planning.policies.mark_paper import greedy
from mark.planning.policies.paper_system import Choices, Memory, cooled, paper_admission
from mark.planning.resolve import buyable
from mark_papers.mark_optimal import paper_capacities
from mark_papers.paper.replay import ASSUMED, DURATION_S, MODELS, open_replay, replay_inputs
from mark_papers.paper_program import PaperPlan, PaperProgram, paper_cost_usd, solve_paper

TIME_BUDGET_S = 30.0  # of an integer program, if there are too many fleets to enumerate
_NO_COOL_DOWN = ControlSettings(cool_down_s=0.0)


@dataclass(frozen=True, slots=True)
class OptimalRow:
    """One model on one trace; dollars of running and launching, without functions, all with a free first fleet.

    All but `printed_usd` plan an instance for the rate at which its mean wait keeps to RT_max - T_b; that one plans it
    for its highest throughput, as Algorithm 1 is printed.
    """

    model: str
    capped: bool
    optimum: PaperPlan
    tail: PaperPlan  # the optimum if a share SL_min of the requests, and not their mean, waits RT_max - T_b at most
    greedy_usd: float  # Algorithm 1, including its cool-down
    prompt_usd: float  # the same without a cool-down
    printed_usd: float
    seconds: float  # on this machine, for `optimum`
    tail_seconds: float

    @property
    def price_of_greed(self) -> float:
        return self.greedy_usd / self.optimum.usd

    @property
    def price_of_averages(self) -> float:
        return self.tail.usd / self.optimum.usd


@dataclass(frozen=True, slots=True)
class Optimal:
    trace: str
    start_s: float
    minutes: int
    rows: tuple[OptimalRow, ...]
    notes: tuple[str, ...]


def run_optimal(
    trace: str | None = None,
    *,
    start_s: float | None = None,
    duration_s: float = DURATION_S,
    seed: int = 0,
    models: tuple[str, ...] = MODELS,
    progress: Callable[[float], None] | None = None,
) -> Optimal:
    """Solve for every model, on the raw stream first; `trace` as in `open_replay`."""
    replay = open_replay(trace, start_s=start_s, seed=seed)
    jobs = [(model, capped) for capped in (False, True) for model in models]
    rows = []
    for model, capped in jobs:
        part = replay.calm if capped else replay.raw
        inputs = replay_inputs(model, part, replay.start_s, seed=seed, duration_s=duration_s, with_bound=False)
        peak_rps = np.nan_to_num(inputs.drawn().peak_rps)
        rows.append(_row(model, capped, paper_admission(inputs.resolved), peak_rps))
        if progress is not None:
            progress(len(rows) / len(jobs))
    return Optimal(replay.name, replay.start_s, round(duration_s / STEP_S), tuple(rows), ASSUMED[1:])


def _row(model: str, capped: bool, resolved: ResolvedService, peak_rps: FloatArray) -> OptimalRow:
    mean, tail = (paper_program(resolved, peak_rps, tail=tail) for tail in (False, True))
    printed = paper_program(resolved, peak_rps, printed=True)
    control = resolved.service.control
    plans, seconds = [], []
    for program in (mean, tail):
        began_s = perf_counter()
        plans.append(solve_paper(program, time_budget_s=TIME_BUDGET_S, start=rolled(program, _NO_COOL_DOWN)))
        seconds.append(perf_counter() - began_s)
    return OptimalRow(
        model=model,
        capped=capped,
        optimum=plans[0],
        tail=plans[1],
        greedy_usd=paper_cost_usd(mean, rolled(mean, control)),
        prompt_usd=paper_cost_usd(mean, rolled(mean, replace(control, cool_down_s=0.0))),
        printed_usd=paper_cost_usd(printed, rolled(printed, control)),
        seconds=seconds[0],
        tail_seconds=seconds[1],
    )


def paper_program(
    resolved: ResolvedService, peak_rps: FloatArray, *, tail: bool = False, printed: bool = False
) -> PaperProgram:
    """Return the paper's program of a service over known loads (T,), with the offers that can keep the wait.

    `tail` as in `paper_capacities`; `printed`: an instance serves its highest throughput, whatever the wait.
    """
    offers = [resolved.offers[i] for i in buyable(resolved)]
    candidates = tuple(resolved.candidates[i] for i in buyable(resolved))
    capacity_rps = (
        np.array([each.capacity_rps for each in candidates])
        if printed
        else paper_capacities(candidates, resolved.slo, tail=tail)
    )
    able = np.flatnonzero(capacity_rps > 0.0)
    usd_per_s = np.array([offer.usd_per_s for offer in offers])[able]
    return PaperProgram(
        usd_per_step=usd_per_s * STEP_S,
        launch_usd=usd_per_s * resolved.service.control.launch_overhead_s,
        capacity_rps=capacity_rps[able],
        running=np.zeros(len(able), dtype=np.int64),
        demand_rps=peak_rps,
        max_instances=resolved.service.max_instances,
        max_usd_per_step=resolved.service.max_usd_per_hour * STEP_S / 3600.0,
        first=True,
    )


def rolled(program: PaperProgram, control: ControlSettings) -> IntArray:
    """Return the fleets of Algorithm 1, planned for each step in turn from the fleet running before it: (J, T).

    A plan is made tau ahead, so it uses only the part of its horizon after tau, when its launches are ready.
    """
    ahead = max(1, control.horizon_steps - round(control.tau_s / STEP_S))
    plans = max(1, math.ceil(control.cool_down_s / STEP_S))
    launch_usd = np.zeros_like(program.launch_usd) if program.first else program.launch_usd
    memory: Memory = ()
    running = program.running
    counts = np.zeros((len(running), len(program.demand_rps)), dtype=np.int64)
    for t in range(counts.shape[1]):
        choices = Choices(program.capacity_rps, program.usd_per_step, launch_usd, running)
        seen_rps = program.demand_rps[t : t + ahead]
        picked = greedy(choices, seen_rps, program.max_instances, program.max_usd_per_step)
        wanted, lives = _named(picked.counts), _named(running)
        memory = (*memory, wanted)[-plans:]
        kept = cooled(wanted, lives, memory)
        running = np.array([kept.get(name, 0) for name in lives], dtype=np.int64)
        counts[:, t], launch_usd = running, program.launch_usd
    return counts


def _named(counts: IntArray) -> Mapping[str, int]:
    return {str(i): int(n) for i, n in enumerate(counts)}
