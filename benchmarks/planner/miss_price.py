"""The price of a miss (mark/planning/demand/promise_price.py) on real traffic, with other constants beside its own.

The constants include those of the fixed fleet of hindsight (mark/planning/policies/hindsight.py); MARGIN=0 turns that
fleet off.

    python benchmarks/planner/miss_price.py fit [--set PRIOR_HOURS=2,NEAR=0.2 --set MARGIN=0 ...]
    python benchmarks/planner/miss_price.py judge
    python benchmarks/planner/miss_price.py beyond
    python benchmarks/planner/miss_price.py known

`beyond` prints how often the load of a minute exceeds the p95 that was forecast a minute before, and the mean excess of
these minutes as a share of the distance from the median to the p95. That share is 0.43 for an exponential distribution
and 0.24 for a normal one. `known` runs the windows of the raw stream again, with the load of the next 0, 2, 3 and 5
minutes known for certain.

The services are NASNet and OpenNMT-ende, whose functions are slower than RT_max. Policy `mark` runs with forecasts by
`auto`, on demand, seed 0. Each setting has one row with dollars and the share in time; the first row has the constants
as they are. Forecasts do not depend on purchases, so the forecasts of a part are made once. The traffic is real, from
MARK_DATA or ../shared/data. A part takes about a minute for its forecasts, and a run 5 to 15 s.
"""

from __future__ import annotations

import argparse
import math
import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
from mark_papers.paper.replay import open_replay, replay_inputs

from mark.domain.arrays import FloatArray
from mark.domain.load import Forecast, Load
from mark.domain.time import DAY_S, STEP_S
from mark.planning.demand import promise_price
from mark.planning.policies import hindsight
from mark.simulation.inputs import Inputs, open_inputs
from mark.simulation.request import RunRequest
from mark.simulation.run import Simulation
from mark.traffic.forecast.predictor_registry import make_predictor

SERVICES = ("nasnet", "opennmt-ende")
CONSTANTS = {
    **dict.fromkeys(("PRIOR_HOURS", "BIAS_HOURS", "SPREAD_HOURS", "LEAST_BIAS", "NEAR"), promise_price),
    **dict.fromkeys(("HALF_LIFE_S", "MARGIN"), hindsight),
}
DATA = Path(os.environ.get("MARK_DATA", Path(__file__).parents[2].parent / "shared" / "data")) / "traces"
WORLD_CUP, TWITTER, NASA, TAXI = (
    "worldcup98_apr30_jun30_60s",
    "twitter_prod_d0_6_60s",
    "nasa_1995_07_60s",
    "nyc_taxi_d000_143_1800s",
)
STREAM = "twitter_stream_2021_d00_14_60s"  # parts of 490 minutes at the paper's rate; other traces have days
SCALES = {WORLD_CUP: 0.2, TWITTER: 60.0, NASA: 20.0, TAXI: 15.0}
Part = tuple[str, float]  # trace, day it begins on
FITTED_ON: tuple[Part, ...] = (
    *((STREAM, day) for day in (9, 11.5, 13)),
    (WORLD_CUP, 46),
    (TWITTER, 3),
    (NASA, 15),
    (TAXI, 85),
)
JUDGED_ON: tuple[Part, ...] = (
    *((STREAM, day) for day in (7, 8, 9.5, 10, 11, 12)),
    *((trace, day) for trace, days in ((WORLD_CUP, (40, 52)), (TWITTER, (4, 5)), (NASA, (12, 19))) for day in days),
    (TAXI, 70),
    (TAXI, 101),
)


class Recorder:
    """`auto`, with a memory of its forecasts."""

    def __init__(self, step_s: float) -> None:
        self._auto = make_predictor("auto", 0, step_s)
        self.forecasts: list[Forecast] = []

    @property
    def name(self) -> str:
        return self._auto.name

    def fit(self, history: Load) -> None:
        self._auto.fit(history)

    def update(self, observed: Load) -> None:
        self._auto.update(observed)

    def predict(self, steps: int) -> Forecast:
        self.forecasts.append(self._auto.predict(steps))
        return self.forecasts[-1]


class Replayed:
    """Replays the forecasts of `auto`."""

    name = "auto"

    def __init__(self, forecasts: Sequence[Forecast]) -> None:
        self._forecasts = iter(forecasts)

    def fit(self, history: Load) -> None: ...

    def update(self, observed: Load) -> None: ...

    def predict(self, steps: int) -> Forecast:
        return next(self._forecasts)


def inputs_of(part: Part, service: str) -> Inputs:
    trace, day = part
    file = DATA / f"{trace}.csv.gz"
    if trace == STREAM:
        return replay_inputs(service, open_replay(str(file)).raw, day * DAY_S, with_bound=False)
    request = RunRequest(
        trace=str(file), service=service, scale=SCALES[trace], start_s=day * DAY_S, duration_s=DAY_S, with_bound=False
    )
    return open_inputs(request)


def settings_of(texts: Sequence[str]) -> list[dict[str, float]]:
    as_they_are = {name: getattr(module, name) for name, module in CONSTANTS.items()}
    found = [as_they_are]
    for text in texts:
        changed = {name: float(value) for name, _, value in (pair.partition("=") for pair in text.split(","))}
        if unknown := changed.keys() - as_they_are.keys():
            raise SystemExit(f"no such constant: {', '.join(sorted(unknown))}")
        found.append(as_they_are | changed)
    return found


def replays(part: Part) -> Iterator[tuple[str, Inputs, Sequence[Forecast]]]:
    """Yield each service on a part, and the forecasts of that part, which are made once."""
    recorder: Recorder | None = None
    for service in SERVICES:
        inputs = inputs_of(part, service)
        if recorder is None:
            recorder = Recorder(inputs.history.step_s)
            Simulation(inputs, "mark", recorder).run()
        yield service, inputs, recorder.forecasts


def run(part: Part, settings: Sequence[Mapping[str, float]]) -> None:
    for service, inputs, forecasts in replays(part):
        for setting in settings:
            for name, value in setting.items():
                setattr(CONSTANTS[name], name, value)
            result = Simulation(inputs, "mark", Replayed(forecasts)).run()
            done = result.requests
            assert done.total == done.instances + done.functions + done.rejected
            assert result.slo_result.attainment is not None
            print(
                f"{part[0]:28} {part[1]:6g}  {service:13}",
                f"{result.bill.total:8.2f} $ {result.slo_result.attainment:8.2%} ",
                *(f"{name} {value:g}" for name, value in setting.items()),
                flush=True,
            )


def known(forecast: Forecast, came_rps: FloatArray, steps: int) -> Forecast:
    """Return the forecast with the true load in its next `steps`. Steps without an observation keep the forecast."""
    first = round(forecast.origin_s / STEP_S)
    mean_rps, peak_rps = forecast.mean_rps.copy(), forecast.peak_rps.copy()
    for step, rps in enumerate(came_rps[first : first + steps]):
        if math.isfinite(rps):
            mean_rps[:, step] = peak_rps[:, step] = rps
    return replace(forecast, mean_rps=mean_rps, peak_rps=np.maximum(peak_rps, mean_rps), paths_rps=None)


def run_known(part: Part) -> None:
    for service, inputs, forecasts in replays(part):
        for steps in (0, 2, 3, 5):
            told = [known(forecast, inputs.evaluated.mean_rps, steps) for forecast in forecasts]
            result = Simulation(inputs, "mark", Replayed(told)).run()
            assert result.slo_result.attainment is not None
            print(
                f"{part[0]:28} {part[1]:6g}  {service:13} {steps} minutes known",
                f"{result.bill.total:8.2f} $ {result.slo_result.attainment:8.2%}",
                flush=True,
            )


def beyond_p95(part: Part) -> tuple[float, float]:
    """Return how often the load exceeds a p95 forecast a minute before, and how far, in distances from p50 to p95."""
    inputs = inputs_of(part, SERVICES[0])
    recorder = Recorder(inputs.history.step_s)
    Simulation(inputs, "mark", recorder).run()
    came_rps = inputs.evaluated.mean_rps
    places = []
    for forecast in recorder.forecasts:
        minute = round(forecast.origin_s / STEP_S) + 1
        if minute < len(came_rps) and math.isfinite(came_rps[minute]):
            middle, high = forecast.mean_at(0.5)[1], forecast.mean_at(0.95)[1]
            places.append((came_rps[minute] - middle) / max(high - middle, 1e-9) - 1.0)
    above = [place for place in places if place > 0.0]
    return len(above) / len(places), sum(above) / max(len(above), 1)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("parts", choices=("fit", "judge", "beyond", "known"))
    parser.add_argument("--set", action="append", default=[], metavar="NAME=VALUE,...")
    given = parser.parse_args()
    if given.parts == "beyond":
        for part in (part for part in (*FITTED_ON, *JUDGED_ON) if part[0] != TAXI):
            print(
                f"{part[0]:28} {part[1]:6g}",
                "above p95 {:6.2%}  beyond it {:5.2f}".format(*beyond_p95(part)),
                flush=True,
            )
        return
    settings = settings_of(given.set)  # read before a run changes any constant
    if given.parts == "known":
        for part in sorted(part for part in (*FITTED_ON, *JUDGED_ON) if part[0] == STREAM):
            run_known(part)
        return
    for part in FITTED_ON if given.parts == "fit" else JUDGED_ON:
        run(part, settings)


if __name__ == "__main__":
    main()
