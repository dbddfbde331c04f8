"""InferLine's tuner (SoCC '20, Figs. 6, 7, 10 to 12) beside coarse-grained tuning and ours.

It also shows the effect of activation times. Each plans on the first part of a load and follows the rest, with a step
each second, through the simulated pipeline.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property, partial

from mark.domain.pipeline import Lineage
from mark.domain.service import FunctionUse
from mark.domain.slo import Slo
from mark.planning.graphs.black_box import CoarseTuner, coarse_plan
from mark.planning.graphs.configure import configure
from mark.planning.graphs.estimate import Choices, QuerySample
from mark.planning.graphs.horizon_tuner import MARGIN, HorizonTuner
from mark.planning.graphs.inferline import inferline_plan
from mark.planning.graphs.load_levels import LoadLevels, load_levels
from mark.planning.graphs.tuned_run import TunedRun, Tuning, run_tuned
from mark.planning.graphs.tuner import STABLE_ACTIVATIONS, InferLineTuner, Tuner
from mark_papers.inferline.least_cost import following_bound
from mark_papers.inferline.pipelines import PIPELINES, functions_of, options_of
from mark_papers.inferline.workloads import AUTOSCALE_LIKE, ChangingLoad, autoscale_like, transition

SLO = Slo(0.150, 0.99)
WIDE_SLO = Slo(0.5, 0.99)  # in which functions could answer for every stage
ACTIVATION_S = 5.0  # the paper's
ACTIVATIONS_S = (5.0, 30.0, 90.0, 180.0)
BRIDGED_FROM_S = 90.0  # s of activation
TRANSITIONS_S = (0.0, 60.0, 240.0)
RISES_TO = (200.0, 250.0, 300.0)  # queries/s, from 150
LEAN = 0.5  # of our margin, for a cheaper variant
# Thesis, Fig. 4.6: dollars, and the share answered in time.
PAPER = {
    "big spike": {"coarse": (36.30, 0.937), "inferline": (8.50, 0.998)},
    "rise and fall": {"coarse": (24.63, 0.758), "inferline": (15.27, 0.993)},
}


@dataclass(frozen=True, slots=True)
class FollowedLoad:
    """One load, and several ways to follow it, by name; for those printed in the paper: (dollars, share in time).

    `bound_usd` is a lower bound on the bill of any of them, with functions; None if not requested or unknown.
    """

    title: str
    activation_s: float
    runs: dict[str, TunedRun]
    paper: dict[str, tuple[float, float]]
    bound_usd: float | None = None
    slo: Slo = SLO


@dataclass(frozen=True, slots=True)
class TunerComparison:
    """The results of one figure, or of the table of activation times; `slo` is the figure's."""

    figure: str
    pipeline: str
    slo: Slo
    loads: tuple[FollowedLoad, ...]


@dataclass(frozen=True, slots=True)
class _Way:
    choices: Choices
    tuner: Tuner | None
    functions: list[FunctionUse | None] | None = None


class Followers:
    """Several ways to follow one load; each plan is made once, on its first use."""

    def __init__(self, pipeline: str, load: ChangingLoad, slo: Slo = SLO, seed: int = 0) -> None:
        self._pipeline, _ = PIPELINES[pipeline]
        self._options = options_of(self._pipeline)
        self._load, self._slo, self._seed = load, slo, seed

    def follow(self, names: Sequence[str], activation_s: float) -> dict[str, TunedRun]:
        """Return one run for each name."""
        return {name: self._run(self._way(name, activation_s), activation_s) for name in names}

    def followed(
        self, names: Sequence[str], activations_s: Sequence[float], *, bounded: bool = False
    ) -> list[FollowedLoad]:
        """Return the load with its runs at each activation.

        `bounded` adds the lower bound for fleets with functions.
        """
        return [
            FollowedLoad(
                self._load.name,
                activation_s,
                self.follow(names, activation_s),
                PAPER.get(self._load.name, {}) if activation_s == ACTIVATION_S else {},
                following_bound(self._pipeline, self._load, self._slo, self.functions, activation_s).usd
                if bounded
                else None,
                self._slo,
            )
            for activation_s in activations_s
        ]

    def _way(self, name: str, activation_s: float) -> _Way:
        stable_s = STABLE_ACTIVATIONS * activation_s
        ways: dict[str, Callable[[], _Way]] = {
            "plan only": lambda: _Way(self.inferline, None),
            "plan of all": lambda: _Way(self._inferline(self._load.served), None),
            "coarse plan": lambda: _Way(self.coarse, None),
            "coarse": lambda: _Way(self.coarse, CoarseTuner.of(self._load.sample, self.coarse)),
            "coarse tuner": lambda: _Way(self.inferline, CoarseTuner.of(self._load.sample, self.inferline)),
            "inferline": lambda: _Way(
                self.inferline, InferLineTuner.of(self._pipeline, self._load.sample, self.inferline, stable_s)
            ),
            "mark": lambda: _Way(self.mark, HorizonTuner(self.levels, activation_s)),
            "mark lean": lambda: _Way(self.mark, HorizonTuner(self.levels, activation_s, LEAN * MARGIN)),
            "mark functions": lambda: _Way(
                self.mark,
                HorizonTuner(
                    self.levels, activation_s, LEAN * MARGIN, tuple(use is not None for use in self.functions)
                ),
                self.functions,
            ),
        }
        return ways[name]()

    def _run(self, way: _Way, activation_s: float) -> TunedRun:
        return run_tuned(
            self._pipeline,
            self._load.queries,
            way.choices,
            Tuning(way.tuner, activation_s),
            begin_s=self._load.begin_s,
            end_s=self._load.end_s,
            slo_s=self._slo.rt_max_s,
            functions=way.functions,
        )

    def _inferline(self, sample: QuerySample) -> Choices:
        return inferline_plan(self._pipeline, sample, self._options, self._slo)[0]

    @cached_property
    def inferline(self) -> Choices:
        return self._inferline(self._load.sample)

    @cached_property
    def coarse(self) -> Choices:
        return coarse_plan(self._pipeline, self._load.sample, self._options, self._slo, by="peak")

    @cached_property
    def mark(self) -> Choices:
        return configure(self._pipeline, self._load.sample, self._options, self._slo, seed=self._seed).choices

    @cached_property
    def functions(self) -> list[FunctionUse | None]:
        return functions_of(self._pipeline, self._slo)

    @cached_property
    def levels(self) -> LoadLevels:
        return load_levels(self._pipeline, self._load.sample, self.mark, self._slo)


_Job = Callable[[], list[FollowedLoad]]


def run_inferline_fig6(
    *, loads: Sequence[str] = tuple(AUTOSCALE_LIKE), seed: int = 0, progress: Callable[[float], None] | None = None
) -> TunerComparison:
    """Compare tuners for Social Media on loads similar to AutoScale's."""
    names = ("coarse", "inferline", "mark")
    jobs = [partial(_followed, "social", autoscale_like(n, _law("social"), seed), names, seed) for n in loads]
    return _compared("inferline-fig6", "social", jobs, progress)


def run_inferline_fig7(
    *, rises_to: Sequence[float] = RISES_TO, seed: int = 0, progress: Callable[[float], None] | None = None
) -> TunerComparison:
    """Compare tuners for Social Media while its rate grows within a minute."""
    names = ("coarse", "coarse tuner", "inferline", "mark")
    jobs = [
        partial(
            _followed,
            "social",
            transition(
                f"150 to {rate:g} queries/s in 60 s", _law("social"), rates=(150.0, rate), transition_s=60.0, seed=seed
            ),
            names,
            seed,
        )
        for rate in rises_to
    ]
    return _compared("inferline-fig7", "social", jobs, progress)


def run_inferline_fig10(
    *,
    transitions_s: Sequence[float] = TRANSITIONS_S,
    seed: int = 0,
    progress: Callable[[float], None] | None = None,
) -> TunerComparison:
    """Compare tuners for Social Media from 150 to 250 queries/s, in different lengths of time."""
    names = ("plan only", "plan of all", "coarse", "inferline", "mark")
    jobs = [
        partial(
            _followed,
            "social",
            transition(
                f"150 to 250 queries/s in {after_s:g} s",
                _law("social"),
                rates=(150.0, 250.0),
                transition_s=after_s,
                seed=seed,
            ),
            names,
            seed,
        )
        for after_s in transitions_s
    ]
    return _compared("inferline-fig10", "social", jobs, progress)


def run_inferline_fig11(
    *,
    transitions_s: Sequence[float] = TRANSITIONS_S,
    seed: int = 0,
    progress: Callable[[float], None] | None = None,
) -> TunerComparison:
    """Compare tuners for Social Media at 150 queries/s, whose CV goes from 1 to 4."""
    names = ("plan only", "inferline", "mark")
    jobs = [partial(_followed, "social", _burstier(after_s, seed), names, seed) for after_s in transitions_s]
    return _compared("inferline-fig11", "social", jobs, progress)


def run_inferline_fig12(*, seed: int = 0, progress: Callable[[float], None] | None = None) -> TunerComparison:
    """Compare runs for Image Processing while its rate grows, to separate the benefits of planner and tuner."""
    names = ("coarse plan", "plan only", "coarse tuner", "inferline", "mark")
    load = transition("150 to 250 queries/s in 60 s", _law("image"), rates=(150.0, 250.0), transition_s=60.0, seed=seed)
    return _compared("inferline-fig12", "image", [partial(_followed, "image", load, names, seed)], progress)


def run_inferline_activation(
    *,
    loads: Sequence[str] = tuple(AUTOSCALE_LIKE),
    activations_s: Sequence[float] = ACTIVATIONS_S,
    seed: int = 0,
    progress: Callable[[float], None] | None = None,
) -> TunerComparison:
    """Follow the loads of Fig. 6, and burstier ones, with slower activation of replicas than in the figures.

    From `BRIDGED_FROM_S` on, also our tuner with functions, beside the bound; and again with an SLO that allows every
    stage a function.
    """
    changing = [*(autoscale_like(name, _law("social"), seed) for name in loads), _burstier(60.0, seed)]
    names, bridged = ("inferline", "mark", "mark lean"), ("inferline", "mark", "mark lean", "mark functions")
    long_s = [one for one in activations_s if one >= BRIDGED_FROM_S]
    short_s = [one for one in activations_s if one < BRIDGED_FROM_S]
    jobs = []
    for load in changing:
        followers, wide = Followers("social", load, seed=seed), Followers("social", load, WIDE_SLO, seed)
        jobs += [
            partial(followers.followed, names, short_s),
            partial(followers.followed, bridged, long_s, bounded=True),
            partial(wide.followed, bridged, long_s, bounded=True),
        ]
    return _compared("inferline-activation", "social", jobs, progress)


def _burstier(transition_s: float, seed: int) -> ChangingLoad:
    return transition(
        f"CV 1 to 4 in {transition_s:g} s",
        _law("social"),
        rates=(150.0, 150.0),
        cvs=(1.0, 4.0),
        transition_s=transition_s,
        seed=seed,
    )


def _followed(pipeline: str, load: ChangingLoad, names: Sequence[str], seed: int) -> list[FollowedLoad]:
    return Followers(pipeline, load, seed=seed).followed(names, (ACTIVATION_S,))


def _compared(
    figure: str, pipeline: str, jobs: Sequence[_Job], progress: Callable[[float], None] | None
) -> TunerComparison:
    found: list[FollowedLoad] = []
    for done, job in enumerate(jobs, 1):
        found += job()
        if progress is not None:
            progress(done / len(jobs))
    return TunerComparison(figure, pipeline, SLO, tuple(found))


def _law(pipeline: str) -> Lineage:
    return PIPELINES[pipeline][1]
