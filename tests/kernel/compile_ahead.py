"""Compile the kernel's functions into the cache before several processes want them: `make kernel`.

One process compiles all, because numba types and lowers a function that several others inline once for each process.
"""

from __future__ import annotations

import gc
import os
import sys

import numpy as np

from mark.cli.main import main
from mark.domain.load import Load
from mark.domain.pipeline import ALL
from mark.kernel import hedging
from mark.kernel.accounting import Accounting
from mark.kernel.central_queues import PipelineQueries, PipelineSimulation
from mark.kernel.hedged_stage import HedgedStage
from mark.planning.solver.local_search import fast
from mark.traffic.forecast.predictor_registry import make_predictor
from tests.kernel.reference import candidate
from tests.planning.solver.programs import cloud

# A simulation with its plans and bounds, a pipeline, and a service without a function.
RUNS = (
    "traces/diurnal_day_5s.csv.gz --service inception-v3-2026 --duration 600",
    "synthetic:poisson?rate=9 --service examples/pipeline/social.toml --duration 60 --no-bound",
    "synthetic:gamma?rate=9&cv=2 --service examples/insurance/noisy.toml --duration 600",
)


def simulate() -> None:
    for run in RUNS:
        code = main(["simulate", *run.split(), "--json", os.devnull])
        if code != 0:
            sys.exit(code)


def hedge() -> None:
    """Call the functions of a fleet with second copies, and those of a gateway that learns."""
    stage = HedgedStage([candidate([0.1, 0.15])], hedge_after_s=0.05, accounts=Accounting(rt_max_s=1.0, end_s=10.0))
    stage.add(0, 0, 0.0)
    stage.advance(np.array([1.0, 1.01]), 0, 1.02)
    state, copies, out = stage._st, stage._copies, stage._out
    hedging.close(state, copies, 0, 1.02)
    hedging.flush(state, copies, out, 0)
    hedging.lose(state, copies, 0)
    stage._start_open(state, out, 0, 1.02)
    stage._run_learn(state, out, 1.02)


def plan() -> None:
    """Plan a fleet of many offers, and simulate one query of a pipeline."""
    fast(cloud(0))
    queries = PipelineQueries.of(np.zeros(1), np.ones((1, 1), dtype=np.int64))
    PipelineSimulation(queries, [()], [ALL], [np.ones(2)]).advance()


def forecast() -> None:
    """Fit the default predictor to ten hours, the least history that all its members learn from."""
    rps = np.random.default_rng(0).random(600)
    predictor = make_predictor("auto", 0)
    predictor.fit(Load(0.0, 60.0, rps, 2.0 * rps))
    predictor.predict(60)


if __name__ == "__main__":
    gc.disable()  # numba keeps most of the objects that it makes
    simulate()
    hedge()
    plan()
    forecast()
