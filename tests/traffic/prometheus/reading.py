"""The port MetricsReader over series in memory, without a server."""

from __future__ import annotations

import numpy as np

from mark.traffic.prometheus.answers import PromAnswer, PromSeries
from tests.prometheus import Stored, evaluate


class MemoryReader:
    """Answers from `series`. `undefined` and `warnings` go into each answer."""

    def __init__(self) -> None:
        self.series: list[Stored] = []
        self.undefined, self.warnings = 0, ()

    def add(self, name: str, times_s: np.ndarray, values: np.ndarray, **labels: str) -> None:
        self.series.append(Stored({"__name__": name, **labels}, times_s, values))

    def query(self, promql: str, at_s: float) -> PromAnswer:
        return self.query_range(promql, at_s, at_s, 60.0)

    def query_range(self, promql: str, start_s: float, end_s: float, step_s: float) -> PromAnswer:
        at = np.array([start_s + step_s * place for place in range(int((end_s - start_s) / step_s + 1e-9) + 1)])
        found = []
        for key, values in evaluate(promql, self.series, at).items():
            known = ~np.isnan(values)
            found.append(PromSeries(dict(key), at[known], values[known]))
        return PromAnswer(tuple(found), self.warnings, self.undefined)
