"""InferLine's planner (SoCC '20, Figs. 5 and 9) beside coarse-grained planning and ours.

Each plans on 120 s of gamma arrivals and is evaluated on another 300 s of the same kind, as in its section 6.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable
from dataclasses import dataclass

from mark.domain.pipeline import Pipeline
from mark.domain.slo import Slo
from mark.planning.graphs.black_box import coarse_plan
from mark.planning.graphs.configure import configure
from mark.planning.graphs.estimate import Choices, QuerySample, estimate
from mark.planning.graphs.inferline import inferline_plan
from mark_papers.inferline.pipelines import PIPELINES, gamma_queries, options_of

ATTAINMENT = 0.99
PLANNED_S, JUDGED_S = 120.0, 300.0
# Fig. 5: 150 ms; the thesis names Image Processing and Video Monitoring. Fig. 9: Social Media, whose SLOs it draws.
FIG5_PIPELINES, FIG5_SLO_MS, FIG5_RATES = ("image", "video"), (150.0,), (50.0, 150.0, 300.0)
FIG9_PIPELINES, FIG9_SLO_MS, FIG9_RATES = ("social",), (150.0, 300.0, 500.0), (50.0, 150.0, 300.0)
CVS = (1.0, 4.0)
COARSE_OVER_INFERLINE = 7.6  # the paper: "up to a 7.6x reduction in cost"


@dataclass(frozen=True, slots=True)
class PlannedLoad:
    """One pipeline and load: each planner's price in USD/h, and the share of new queries that miss the SLO."""

    pipeline: str
    rate: float  # queries/s
    slo_ms: float
    cv: float
    usd_per_hour: dict[str, float]
    miss_share: dict[str, float]


@dataclass(frozen=True, slots=True)
class PlannerComparison:
    """The results of Fig. 5 or Fig. 9."""

    figure: str
    rows: tuple[PlannedLoad, ...]


def run_inferline_fig5(
    *,
    pipelines: tuple[str, ...] = FIG5_PIPELINES,
    rates: tuple[float, ...] = FIG5_RATES,
    seed: int = 0,
    progress: Callable[[float], None] | None = None,
) -> PlannerComparison:
    """Compare planners on the two pipelines of Fig. 5 at several rates, CV 1 and 4, within 150 ms."""
    return _compared("inferline-fig5", pipelines, rates, FIG5_SLO_MS, seed, progress)


def run_inferline_fig9(
    *,
    rates: tuple[float, ...] = FIG9_RATES,
    slos_ms: tuple[float, ...] = FIG9_SLO_MS,
    seed: int = 0,
    progress: Callable[[float], None] | None = None,
) -> PlannerComparison:
    """Compare planners on the pipeline of Fig. 9 at several rates and SLOs, CV 1 and 4."""
    return _compared("inferline-fig9", FIG9_PIPELINES, rates, slos_ms, seed, progress)


def _compared(
    figure: str,
    pipelines: tuple[str, ...],
    rates: tuple[float, ...],
    slos_ms: tuple[float, ...],
    seed: int,
    progress: Callable[[float], None] | None,
) -> PlannerComparison:
    asked = list(itertools.product(pipelines, rates, slos_ms, CVS))
    rows = []
    for name, rate, slo_ms, cv in asked:
        rows.append(_row(name, rate, slo_ms, cv, seed))
        if progress is not None:
            progress(len(rows) / len(asked))
    return PlannerComparison(figure, tuple(rows))


def _row(name: str, rate: float, slo_ms: float, cv: float, seed: int) -> PlannedLoad:
    pipeline, law = PIPELINES[name]
    options, slo = options_of(pipeline), Slo(slo_ms / 1e3, ATTAINMENT)
    sample = gamma_queries(law, rate, cv, PLANNED_S, seed)
    new = gamma_queries(law, rate, cv, JUDGED_S, seed + 1_000_000)
    plans = {
        "coarse-peak": coarse_plan(pipeline, sample, options, slo, by="peak"),
        "coarse-mean": coarse_plan(pipeline, sample, options, slo, by="mean"),
        "inferline": inferline_plan(pipeline, sample, options, slo)[0],
        "mark": configure(pipeline, sample, options, slo, seed=seed).choices,
    }
    judged = {planner: _judged(pipeline, new, slo, choices) for planner, choices in plans.items()}
    return PlannedLoad(
        name,
        rate,
        slo_ms,
        cv,
        {planner: usd for planner, (usd, _) in judged.items()},
        {planner: missed for planner, (_, missed) in judged.items()},
    )


def _judged(pipeline: Pipeline, new: QuerySample, slo: Slo, choices: Choices) -> tuple[float, float]:
    seen = estimate(pipeline, new, choices)
    return seen.usd_per_hour, seen.miss_share(slo.rt_max_s)
