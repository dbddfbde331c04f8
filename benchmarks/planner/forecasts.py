"""Forecasts side by side with statsforecast's AutoARIMA, AutoETS and MSTL, on five families of real traffic.

    python benchmarks/planner/forecasts.py [--peer-python .venv-peers/bin/python] [--families nasa,...]
            [--predictors auto,...]
                                   [--every-s 11100] [--duration-s S] [--json FILE]

All predictors forecast the same hour from the same origins, one every 185 minutes in the second half of each trace (so
that each minute of the hour has its turn). All have the same past; the peers use only its last days, for the reasons in
forecast_peers.py. The benchmark prints the CRPS, its ratio to seasonal-naive's, and the coverage of the 90 % interval,
and asserts that each predictor made all forecasts. It needs the traces in MARK_DATA or ../shared/data. Without
--peer-python it compares only our predictors.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import tempfile
import time
from dataclasses import replace
from pathlib import Path

import numpy as np

from mark.domain.arrays import FloatArray
from mark.domain.load import LEVELS
from mark.traffic.forecast.backtest import Split, backtest, split
from mark.traffic.forecast.predictor_registry import make_predictor
from mark.traffic.forecast.scores import Tally
from mark.traffic.traces import open_trace

DATA = Path(os.environ.get("MARK_DATA", Path(__file__).parents[2].parent / "shared" / "data")) / "traces"
BASELINE = "seasonal-naive"
PEERS = 3
FAMILIES = {
    "twitter_stream": "twitter_stream_2021_d00_14_60s",
    "worldcup98": "worldcup98_apr30_jun30_60s",
    "twitter_prod": "twitter_prod_d0_6_60s",
    "nasa": "nasa_1995_07_60s",
    "nyc_taxi": "nyc_taxi_d000_143_1800s",
}


def thinned(family: str, every_s: float, duration_s: float | None) -> Split:
    """Return the second half of the family's trace, or `duration_s` of it, with an origin only every `every_s`."""
    cut = split(open_trace(str(DATA / f"{FAMILIES[family]}.csv.gz")), duration_s=duration_s)
    step = max(1, round(every_s / (cut.load.step_s * cut.origins.step)))
    return replace(cut, origins=cut.origins[::step])


def ours(cut: Split, names: list[str]) -> dict[str, tuple[float, float]]:
    """Return CRPS and coverage of the 90 % interval, by predictor."""
    found = backtest(cut, {name: make_predictor(name, 0) for name in names})
    for name, score in found.scores.items():
        assert sum(score.made_by.values()) == len(cut.origins), (name, score.made_by)
    return {name: (score.crps, score.coverage_90) for name, score in found.scores.items()}


def peers(cut: Split, python: str) -> dict[str, tuple[float, float]]:
    """Return the same for the peers, which run with another Python and answer in a file."""
    steps, rates = cut.steps, cut.load.mean_rps
    with tempfile.TemporaryDirectory() as folder:
        series, origins, out = (str(Path(folder) / name) for name in ("series.csv", "origins.csv", "out.csv"))
        np.savetxt(series, filled(rates[: cut.origins[-1]]))
        np.savetxt(origins, np.array(cut.origins), fmt="%d")
        script = Path(__file__).with_name("forecast_peers.py")
        numbers = [f"{cut.load.step_s:g}", str(steps)]
        subprocess.run([python, str(script), series, origins, out, *numbers], check=True)
        lines = [line.split(",") for line in Path(out).read_text().splitlines()]
    per_peer = len(cut.origins) * steps * len(LEVELS)
    assert len(lines) == PEERS * per_peer, (len(lines), per_peer)
    scores = {}
    for begin in range(0, len(lines), per_peer):
        mine = lines[begin : begin + per_peer]
        assert [int(line[1]) for line in mine[:: steps * len(LEVELS)]] == list(cut.origins)
        said = np.array([float(line[4]) for line in mine]).reshape(len(cut.origins), steps, len(LEVELS))
        tally = Tally(steps)
        for origin, quantiles in zip(cut.origins, said, strict=True):
            truth = rates[origin : origin + steps]
            tally.add(quantiles.T, truth, quantiles.T, truth)
        scores[mine[0][0]] = (tally.crps, tally.coverage_90)
    return scores


def filled(rates: FloatArray) -> FloatArray:
    """Return rates with gaps on a line between their neighbours, because the peers know no missing values."""
    steps, known = np.arange(len(rates)), np.isfinite(rates)
    return np.interp(steps, steps[known], rates[known])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--peer-python", metavar="PATH", help="Python with statsforecast")
    parser.add_argument("--families", default=",".join(FAMILIES), metavar="A,B")
    parser.add_argument("--predictors", default=f"{BASELINE},auto", metavar="A,B")
    parser.add_argument("--every-s", type=float, default=11_100.0, metavar="S", help="seconds between origins")
    parser.add_argument("--duration-s", type=float, metavar="S", help="seconds of each trace to judge")
    parser.add_argument("--json", metavar="FILE")
    args = parser.parse_args()
    names = list(dict.fromkeys([BASELINE, *args.predictors.split(",")]))
    table = {}
    print("family          origins  predictor         CRPS   / naive   in 90 %")
    for family in args.families.split(","):
        began = time.perf_counter()
        cut = thinned(family, args.every_s, args.duration_s)
        rows = ours(cut, names)
        if args.peer_python:
            rows |= peers(cut, args.peer_python)
        for predictor, (crps, coverage) in rows.items():
            against = crps / rows[BASELINE][0]
            row = f"{family:15s} {len(cut.origins):7d}  {predictor:15s}"
            print(f"{row} {crps:8.4g} {against:9.3f} {100 * coverage:8.1f} %")
        print(f"{family:15s} took {time.perf_counter() - began:.0f} s", flush=True)
        table[family] = {
            predictor: {"crps": crps, "coverage_90": coverage} for predictor, (crps, coverage) in rows.items()
        }
    if args.json:
        Path(args.json).write_text(json.dumps(table, indent=2) + "\n")


if __name__ == "__main__":
    main()
