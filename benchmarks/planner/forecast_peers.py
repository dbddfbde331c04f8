"""statsforecast's AutoARIMA, AutoETS and MSTL on one series; run by forecasts.py with another Python.

    python forecast_peers.py SERIES ORIGINS OUT STEP_S HORIZON

SERIES has one rate on each line from step 0 on, with gaps filled; ORIGINS has one step on each line. OUT gets
`peer,origin,target,quantile,rate`, where origin and target are steps. statsforecast 2.1.1 needs a pandas below 3, so it
has a separate environment.

Each peer gets the most history that it can use in seconds a fit. It is estimated again once a day on minutes and once a
week on half hours; in between, its estimate is applied to the newest history (`forward`).

- AutoARIMA: on minutes the last 3 days, without a season, since a season of a day has 1,440 states and on 7 days the
  search alone takes minutes; on half hours the last 14 days with the season of a day, of order 1 at most.
- AutoETS: the last 7 days of minutes or 28 of half hours; without a season, since its seasons end at 24 steps.
- MSTL: the same history; hour and day on minutes, day and week on half hours; the trend by AutoETS, its default. Its
  smoother uses every tenth point, because each forecast of minutes takes ten seconds otherwise.

Quantiles are the ends of the central intervals of 10 to 90 %, the median is the mean, and rates are clipped at zero.
"""

from __future__ import annotations

import sys
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from statsforecast.models import MSTL, AutoARIMA, AutoETS

DAY_S = 86400
INTERVALS = list(range(10, 100, 10))  # percent
JUMPS = dict.fromkeys(("seasonal_jump", "trend_jump", "low_pass_jump"), 10)


def peers(day: int) -> tuple[int, dict[str, tuple[int, Callable[[], Any]]]]:
    """Return the steps between two fits and, by name, the steps of history and the constructor.

    `day` is the number of steps a day.
    """
    if day == 1440:
        return day, {
            "AutoARIMA": (3 * day, lambda: AutoARIMA(approximation=True)),
            "AutoETS": (7 * day, AutoETS),
            "MSTL": (7 * day, lambda: MSTL([60, day], stl_kwargs=JUMPS)),
        }
    return 7 * day, {
        "AutoARIMA": (14 * day, lambda: AutoARIMA(season_length=day, max_P=1, max_Q=1, approximation=True)),
        "AutoETS": (28 * day, AutoETS),
        "MSTL": (28 * day, lambda: MSTL([day, 7 * day])),
    }


def main(series: str, origins_file: str, out: str, step_s: str, horizon: str) -> None:
    warnings.simplefilter("ignore")  # of convergence, dozens a fit
    rates, origins = np.loadtxt(series), np.loadtxt(origins_file, dtype=int, ndmin=1).tolist()
    every, makers = peers(round(DAY_S / float(step_s)))
    with Path(out).open("w") as file:
        for name, (length, make) in makers.items():
            fitted: Any = None
            fitted_at = 0
            for origin in origins:
                history = rates[max(0, origin - length) : origin]
                if fitted is None or origin - fitted_at >= every:
                    fitted, fitted_at = make().fit(history), origin
                    answer = fitted.predict(int(horizon), level=INTERVALS)
                else:
                    answer = fitted.forward(history, int(horizon), level=INTERVALS)
                file.write(rows(name, origin, quantiles(answer)))


def quantiles(answer: dict[str, Any]) -> np.ndarray:
    """Return quantiles of shape (19, horizon), at 0.05, 0.10, ... 0.95."""
    below = [np.asarray(answer[f"lo-{percent}"]) for percent in reversed(INTERVALS)]
    above = [np.asarray(answer[f"hi-{percent}"]) for percent in INTERVALS]
    return np.maximum(0.0, np.stack([*below, np.asarray(answer["mean"]), *above]))


def rows(name: str, origin: int, rates: np.ndarray) -> str:
    return "".join(
        f"{name},{origin},{origin + h},{(q + 1) / 20:.2f},{rates[q, h]:.7g}\n"
        for h in range(rates.shape[1])
        for q in range(rates.shape[0])
    )


if __name__ == "__main__":
    main(*sys.argv[1:])
