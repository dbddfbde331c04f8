"""Changing loads, similar to InferLine's experiments (SoCC '20, sections 6 and 7).

CV is sigma / mu of the gaps. InferLine's text of 2018 has sigma^2 / mu^2, so its CV of 4 may be 2 here.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from mark.domain.pipeline import Lineage
from mark.planning.graphs.estimate import QuerySample
from mark.traffic.traces.synthetic import read_synthetic

# The paper's: 60 rates, each for 30 s, the highest 300 queries/s; planning uses the first quarter.
POINTS, POINT_S, PEAK_RATE, PLANNED_SHARE = 60, 30.0, 300.0, 0.25
# The rates of its two traces are not printed. These have the described shapes, as knots of (point, share of the peak):
# a calm load with one big spike; one that grows, has a sudden spike, and falls quickly after 1,000 s.
AUTOSCALE_LIKE = {
    "big spike": (
        (0, 0.38), (14, 0.42), (31, 0.40), (32, 0.70), (33, 1.0), (35, 0.95), (37, 0.45), (45, 0.42), (59, 0.35),
    ),
    "rise and fall": ((0, 0.35), (14, 0.45), (27, 0.65), (28, 1.0), (29, 0.68), (47, 0.85), (50, 0.30), (59, 0.20)),
}  # fmt: skip
_WANDERING = 0.03  # of each rate, as a standard deviation


@dataclass(frozen=True, eq=False, slots=True)
class ChangingLoad:
    """Queries in the order of their arrival: those before `begin_s` for planning, the later ones to be served."""

    name: str
    queries: QuerySample
    begin_s: float
    end_s: float

    @property
    def sample(self) -> QuerySample:
        return self._between(0.0, self.begin_s)

    @property
    def served(self) -> QuerySample:
        return self._between(self.begin_s, self.end_s)

    def _between(self, begin_s: float, end_s: float) -> QuerySample:
        first, last = np.searchsorted(self.queries.arrivals_s, (begin_s, end_s))
        return QuerySample(self.queries.arrivals_s[first:last], self.queries.calls[first:last])


def autoscale_like(name: str, law: Lineage, seed: int) -> ChangingLoad:
    """Return one of `AUTOSCALE_LIKE`: half an hour, with gaps of CV 1 as in the paper."""
    points, shares = zip(*AUTOSCALE_LIKE[name], strict=True)
    rng = np.random.default_rng([seed, 6])
    rates = np.interp(np.arange(POINTS), points, shares) * rng.normal(1.0, _WANDERING, POINTS)
    rates *= PEAK_RATE / rates.max()
    arrivals_s = np.concatenate(
        [POINT_S * n + np.sort(rng.uniform(0.0, POINT_S, rng.poisson(POINT_S * rate))) for n, rate in enumerate(rates)]
    )
    end_s = POINTS * POINT_S
    return ChangingLoad(name, QuerySample(arrivals_s, law.drawn(len(arrivals_s), rng)), PLANNED_SHARE * end_s, end_s)


def transition(
    name: str,
    law: Lineage,
    *,
    rates: tuple[float, float],
    cvs: tuple[float, float] = (1.0, 1.0),
    transition_s: float,
    seed: int,
    planned_s: float = 300.0,
    before_s: float = 120.0,
    served_s: float = 720.0,
) -> ChangingLoad:
    """Return a load that goes from one rate (queries/s) and CV to another, linearly within `transition_s`.

    The transition begins `before_s` after serving does.
    """
    at_s, end_s = planned_s + before_s, planned_s + served_s
    spec = (
        f"synthetic:gamma?rate={rates[0]:g}&rate2={rates[1]:g}&cv={cvs[0]:g}&cv2={cvs[1]:g}"
        f"&transition_at_s={at_s:g}&transition_s={transition_s:g}"
    )
    trace = read_synthetic(spec, end_s, seed)
    arrivals_s = np.concatenate([times_s for times_s, _ in trace.chunks(0.0, end_s, 1.0, seed)])
    calls = law.drawn(len(arrivals_s), np.random.default_rng([seed, 7]))
    return ChangingLoad(name, QuerySample(arrivals_s, calls), planned_s, end_s)
