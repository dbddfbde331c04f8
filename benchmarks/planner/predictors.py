"""The processing time of every predictor: one fit on ten days of minutes, updates of a minute, forecasts of an hour.

    python benchmarks/planner/predictors.py [--predictors auto,mstl] [--json FILE]

The traffic is drawn from `synthetic:diurnal` with flash crowds. Updates come one by one through two days, so that they
include the updates in which a predictor learns again; every fifth update is followed by a forecast. The benchmark
prints the seconds of the fit, and medians and 99th percentiles of updates and forecasts after a warm-up. It asserts how
many calls were made and answered.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import time
from pathlib import Path

import numpy as np

from mark.domain.arrays import FloatArray
from mark.domain.load import Load
from mark.traffic.forecast.predictor_registry import make_predictor, predictor_names
from mark.traffic.traces import drawn_load, open_trace

TRAFFIC = "synthetic:diurnal?rate=20&spikes_per_day=3&bin_s=60"
DAY = 1440
HISTORY, LIVE = 10 * DAY, 2 * DAY
WARM = 20  # calls that are not counted
HORIZON = 60
EVERY = 5


def one_minute(load: Load, at: int) -> Load:
    where = slice(at, at + 1)
    return Load(load.start_s + at * load.step_s, load.step_s, load.mean_rps[where], load.peak_rps[where], load.fine)


def measure(name: str, load: Load) -> dict[str, float]:
    """Return the seconds of the fit and milliseconds of the rest."""
    predictor = make_predictor(name, 0)
    began = time.perf_counter()
    predictor.fit(Load(load.start_s, load.step_s, load.mean_rps[:HISTORY], load.peak_rps[:HISTORY], load.fine))
    fit_s = time.perf_counter() - began
    updates, predictions = [], []
    for at in range(HISTORY, HISTORY + LIVE):
        minute = one_minute(load, at)
        began = time.perf_counter()
        predictor.update(minute)
        updates.append(time.perf_counter() - began)
        if at % EVERY:
            continue
        began = time.perf_counter()
        forecast = predictor.predict(HORIZON)
        predictions.append(time.perf_counter() - began)
        assert (forecast.steps, forecast.origin_s) == (HORIZON, load.start_s + (at + 1) * load.step_s)
    assert (len(updates), len(predictions)) == (LIVE, LIVE // EVERY)

    def at_quantile(seconds: list[float], level: float) -> float:
        counted: FloatArray = np.array(seconds[WARM:])
        return 1e3 * float(np.quantile(counted, level))

    return {
        "fit_s": fit_s,
        "update_ms": at_quantile(updates, 0.5),
        "update_p99_ms": at_quantile(updates, 0.99),
        "slowest_update_ms": at_quantile(updates, 1.0),
        "predict_ms": at_quantile(predictions, 0.5),
        "predict_p99_ms": at_quantile(predictions, 0.99),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--predictors", metavar="NAMES", help="predictors (default: all that are registered)")
    parser.add_argument("--json", metavar="FILE")
    args = parser.parse_args()
    names = args.predictors.split(",") if args.predictors else predictor_names()
    if importlib.util.find_spec("torch") is None:
        names = [name for name in names if not name.startswith("lstm")]
    length_s = (HISTORY + LIVE) * 60.0
    load = drawn_load(open_trace(TRAFFIC, duration_s=length_s), 0.0, length_s)
    assert len(load) == HISTORY + LIVE
    print("predictor           fit s  update ms     99 %   slowest  predict ms     99 %")
    table = {}
    for name in names:
        row = table[name] = measure(name, load)
        print(
            f"{name:16s} {row['fit_s']:8.2f} {row['update_ms']:10.3f} {row['update_p99_ms']:8.3f} "
            f"{row['slowest_update_ms']:9.0f} {row['predict_ms']:11.3f} {row['predict_p99_ms']:8.3f}",
            flush=True,
        )
    if args.json:
        Path(args.json).write_text(json.dumps(table, indent=2) + "\n")


if __name__ == "__main__":
    main()
