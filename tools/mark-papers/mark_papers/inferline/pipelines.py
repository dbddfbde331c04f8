"""Four pipelines similar to InferLine's (SoCC '20, Fig. 2), with profiles and unit prices similar to its own.

The paper prints hardly any profiles. These are made up: T(b) = fixed + b x each, in the proportions of its figures (a
ResNet152 with 0.6 queries/s on a vCPU, 50 on a K80 and 190 on a V100). Prices are those of a single vCPU, K80 and V100,
as in its cost model. So dollars can be compared with each other here, but not with the paper's.
"""

from __future__ import annotations

import numpy as np

from mark.domain.catalog.tables import load_catalog
from mark.domain.pipeline import Lineage, Pipeline, PipelineStage
from mark.domain.service import FunctionUse
from mark.domain.slo import Slo
from mark.planning.graphs.critical_paths import longest_path_s
from mark.planning.graphs.estimate import QuerySample, StageOption

USD_PER_HOUR = {"vCPU": 0.05, "K80": 0.70, "V100": 2.90}
LARGEST = 64
# The paper has no functions; these have AWS's list price, and with the largest memory six vCPUs. Their effect on times
# is made up too: they divide the time of an item evenly, but not a batch's fixed time.
FUNCTION, FUNCTION_CATALOG, FUNCTION_VCPUS, COLD_S = "lambda:10240", "aws-2026", 6, 3.0

# ms: fixed time of a batch, and time of each item, by hardware
MODELS = {
    "preprocess": {"vCPU": (1.0, 4.0)},
    "resnet152": {"vCPU": (30.0, 1640.0), "K80": (42.0, 18.5), "V100": (14.0, 4.8)},
    "detect": {"vCPU": (20.0, 900.0), "K80": (30.0, 24.0), "V100": (10.0, 6.5)},
    "vehicles": {"vCPU": (5.0, 160.0), "K80": (12.0, 6.0), "V100": (5.0, 1.6)},
    "people": {"vCPU": (5.0, 160.0), "K80": (12.0, 6.0), "V100": (5.0, 1.6)},
    "plates": {"vCPU": (5.0, 60.0), "K80": (15.0, 8.0), "V100": (7.0, 3.0)},
    "language": {"vCPU": (0.5, 1.5)},
    "translate": {"vCPU": (40.0, 320.0), "K80": (35.0, 9.0), "V100": (16.0, 2.6)},
    "categorise": {"vCPU": (1.0, 6.0), "K80": (4.0, 0.6)},
    "fast": {"vCPU": (3.0, 18.0), "K80": (6.0, 1.0), "V100": (3.0, 0.4)},
    "slow": {"vCPU": (30.0, 1640.0), "K80": (42.0, 18.5), "V100": (14.0, 4.8)},
}


def _pipeline(**after: tuple[str, ...]) -> Pipeline:
    """Return a pipeline of stages named after their models, each with its predecessors."""
    return Pipeline(tuple(PipelineStage(name, name, before) for name, before in after.items()))


def _lineage(pipeline: Pipeline, *patterns: tuple[int, ...]) -> Lineage:
    """Return the lineage of rows (queries, calls of each stage)."""
    rows = np.array(patterns)
    return Lineage(pipeline.names, rows[:, 1:], rows[:, 0])


_IMAGE = _pipeline(preprocess=(), resnet152=("preprocess",))
_VIDEO = _pipeline(detect=(), vehicles=("detect",), people=("detect",), plates=("vehicles",))
_SOCIAL = _pipeline(language=(), translate=("language",), resnet152=(), categorise=("translate", "resnet152"))
_CASCADE = _pipeline(fast=(), slow=("fast",))

PIPELINES: dict[str, tuple[Pipeline, Lineage]] = {
    "image": (_IMAGE, _lineage(_IMAGE, (100, 1, 1))),
    "video": (
        _VIDEO,
        _lineage(
            _VIDEO,
            (35, 1, 0, 0, 0),
            (25, 1, 1, 0, 0),
            (15, 1, 1, 0, 1),
            (15, 1, 0, 1, 0),
            (10, 1, 1, 1, 1),
        ),
    ),
    "social": (
        _SOCIAL,
        _lineage(_SOCIAL, (36, 1, 0, 1, 1), (24, 1, 1, 1, 1), (24, 1, 0, 0, 1), (16, 1, 1, 0, 1)),
    ),
    "cascade": (_CASCADE, _lineage(_CASCADE, (70, 1, 0), (30, 1, 1))),
}


def options_of(pipeline: Pipeline) -> list[list[StageOption]]:
    """Return for each stage the hardware that its model may run on."""
    return [
        [
            StageOption(
                hardware,
                USD_PER_HOUR[hardware],
                np.array([0.0, *(1e-3 * (fixed + each * b) for b in range(1, LARGEST + 1))]),
            )
            for hardware, (fixed, each) in MODELS[stage.model].items()
        ]
        for stage in pipeline.stages
    ]


def functions_of(pipeline: Pipeline, slo: Slo) -> list[FunctionUse | None]:
    """Return each stage's function; None if it would make a query through all stages late, however fast the others are.

    A cold start takes 2.86 s, rounded up, as MArk's appendix implies for Inception-v3.
    """
    offer = load_catalog(FUNCTION_CATALOG).function(FUNCTION)
    least_s = [min(float(one.service_s[1]) for one in options) for options in options_of(pipeline)]
    found: list[FunctionUse | None] = []
    for stage, model in enumerate(one.model for one in pipeline.stages):
        fixed, each = MODELS[model]["vCPU"]
        warm_s = 1e-3 * (fixed + each / FUNCTION_VCPUS)
        whole_s = longest_path_s(pipeline, [*least_s[:stage], warm_s, *least_s[stage + 1 :]])
        in_time = whole_s <= slo.rt_max_s
        found.append(FunctionUse(offer, warm_s, COLD_S, "assumed") if in_time else None)
    return found


def gamma_queries(law: Lineage, rate: float, cv: float, duration_s: float, seed: int) -> QuerySample:
    """Return queries at a constant rate (queries/s); `cv` is sigma / mu of their gaps."""
    rng = np.random.default_rng(seed)
    shape = 1.0 / cv**2
    gaps_s = rng.gamma(shape, 1.0 / (rate * shape), size=int(rate * duration_s * 1.5) + 1000)
    arrivals_s = np.cumsum(gaps_s)
    arrivals_s = arrivals_s[arrivals_s < duration_s]
    return QuerySample(arrivals_s, law.drawn(len(arrivals_s), rng))
