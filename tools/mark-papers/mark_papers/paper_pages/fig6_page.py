"""Fig. 6 of the MArk paper, reproduced: forecasts of both kinds of traffic, and their error by horizon."""

from __future__ import annotations

import html
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from mark.domain.load import Forecast
from mark.domain.time import HOUR_S
from mark.studies.report.figure_style import COLOURS, new_figure, styled
from mark.studies.report.forecast import fan_lines, truth_line
from mark.studies.report.report import Plot, Report, formatted
from mark.studies.report.takeaway import listed
from mark.studies.report.words import duration, number, percent
from mark.traffic.forecast.fallback import NAME as LAST_VALUE
from mark_papers.paper.fig6 import HORIZON_S, MODEL
from mark_papers.paper_pages.shared import FigureTable, figure_report

if TYPE_CHECKING:
    from plotly.graph_objects import Figure

    from mark.traffic.forecast.backtest import Backtest
    from mark_papers.paper.fig6 import Fig6

LEVELS_SHOWN = (0.05, 0.25, 0.5, 0.75, 0.95)
_SHOWN_S = (60.0, 300.0, 900.0, 1800.0, 3600.0)
_HEADS = ("predictor", *formatted(*(duration(s) for s in _SHOWN_S), "CRPS", "in 50 %", "in 90 %"))
_LEAD = (
    f"A forecast every {duration(HORIZON_S)}, for the time until the next: the median (dashed), the central intervals "
    "of 50 % (darker) and 90 % (lighter), and the actual load as a thin solid line. Times are from the first forecast."
)
_NOTES = (
    "by horizon: mean absolute error of the median so far ahead; it and CRPS, of all 60 minutes, are shares of the "
    "mean rate; in 50 and 90 %: the share of the actual load that lies in these central intervals, which ought to be "
    "that",
    f"scored are forecasts at every 5 minutes; {LAST_VALUE} repeats the newest minute",
    f"the traffic is {MODEL}'s of fig8; MMPP: two rates, 1 to 4, that change at random every 300 s on average",
    "the paper trains on five months of Twitter and on 24 h of MMPP, and gives pictures, no numbers",
)


def fig6_report(found: Fig6) -> Report:
    data = {
        "schema": 1,
        "figure": "fig6",
        "trace": found.trace,
        "model": MODEL,
        **{kind: _kind_json(of_kind) for kind, of_kind in (("stream", found.stream), ("mmpp", found.mmpp))},
        "notes": [*found.notes, *_NOTES],
    }
    plot = Plot("Forecasts over the actual load", partial(fans_figure, found), _LEAD)
    return figure_report("Fig. 6", data, _headline(found), plot, _HEADS, _tables(found), takeaways(found))


def fans_figure(found: Fig6) -> Figure:
    """Return a figure with a row for each predictor and a column for each kind of traffic."""
    kinds, names = _kinds(found), _drawn(found.stream)
    figure = new_figure(
        len(names),
        len(kinds),
        shared_xaxes=True,
        shared_yaxes="columns",
        column_titles=[html.escape(kind) for kind in kinds],
        row_titles=[html.escape(name) for name in names],
        horizontal_spacing=0.06,
        vertical_spacing=0.07,
    )
    for row, name in enumerate(names, 1):
        for column, of_kind in enumerate(kinds.values(), 1):
            split = of_kind.split
            for place, forecast in enumerate(of_kind.fans[name]):
                hours = _hours(of_kind, forecast.origin_s, forecast.steps)
                first = row == column == 1 and place == 0
                for line in fan_lines(forecast, hours, COLOURS[row - 1], legend=first):
                    figure.add_trace(line, row=row, col=column)
            rates = _came(of_kind)
            came = truth_line(_hours(of_kind, split.start_s, len(rates)), rates, legend=row == column == 1)
            figure.add_trace(came, row=row, col=column)
    figure.update_xaxes(title_text="hours", row=len(names))
    figure.update_yaxes(rangemode="tozero")
    figure.update_yaxes(title_text="requests/s", col=1)
    figure.update_annotations(font_size=12.5)
    return styled(figure, 80 + 280 * len(names))


def takeaways(found: Fig6) -> list[str]:
    """State every predictor's errors on both kinds of traffic: of its median at the longest horizon, and overall."""

    def told(value: Callable[[Backtest, str], float]) -> str:
        each = (
            f"{listed([f'{percent(value(of_kind, name))} ({name})' for name in of_kind.scores])} on {kind}"
            for kind, of_kind in _kinds(found).items()
        )
        return "; ".join(each)

    medians = told(lambda of_kind, name: _errors(of_kind, name)[-1])
    return [
        f"{duration(_SHOWN_S[-1])} ahead the median is off by, of the mean rate: {medians}.",
        f"All quantiles, by CRPS: {told(_crps)}.",
    ]


def _kinds(found: Fig6) -> dict[str, Backtest]:
    return {"the stream": found.stream, "MMPP": found.mmpp}


def _drawn(of_kind: Backtest) -> list[str]:
    return [name for name in of_kind.scores if name != LAST_VALUE]


def _came(of_kind: Backtest) -> Any:
    """Return the rates from the first origin until the end of the last drawn forecast."""
    split = of_kind.split
    last = of_kind.fans[next(iter(of_kind.fans))][-1]
    steps = round((last.origin_s - split.start_s) / split.load.step_s) + last.steps
    return split.load.mean_rps[split.train : split.train + steps]


def _hours(of_kind: Backtest, from_s: float, steps: int) -> Any:
    """Return the middles of steps in hours from the first origin on."""
    split = of_kind.split
    return (from_s - split.start_s + (np.arange(steps) + 0.5) * split.load.step_s) / HOUR_S


def _mean_rps(of_kind: Backtest) -> float:
    return float(np.nanmean(of_kind.split.load.mean_rps[of_kind.split.train :]))


def _errors(of_kind: Backtest, name: str) -> list[float]:
    """Return the errors of the median at the shown horizons, as shares of the mean rate."""
    rows = {row["horizon_s"]: row["median_error"] for row in of_kind.scores[name].by_horizon}
    return [rows[horizon_s] / _mean_rps(of_kind) for horizon_s in _SHOWN_S]


def _crps(of_kind: Backtest, name: str) -> float:
    """Return the CRPS over all horizons, as a share of the mean rate."""
    return of_kind.scores[name].crps / _mean_rps(of_kind)


def _headline(found: Fig6) -> str:
    parts = (
        f"{kind} after {duration(of_kind.split.train_s)} of history, {len(of_kind.split.origins)} forecasts"
        for kind, of_kind in ((f"{found.trace}, minutes capped,", found.stream), ("MMPP", found.mmpp))
    )
    return f"Fig. 6 of the paper: {'; '.join(parts)}"


def _tables(found: Fig6) -> list[FigureTable]:
    return [
        (f"Error by horizon on {kind}, mean rate {number(_mean_rps(of_kind), 1)} requests/s", _cells(of_kind))
        for kind, of_kind in _kinds(found).items()
    ]


def _cells(of_kind: Backtest) -> list[list[str]]:
    return [
        [
            name,
            *(percent(error) for error in _errors(of_kind, name)),
            percent(_crps(of_kind, name)),
            percent(score.coverage_50),
            percent(score.coverage_90),
        ]
        for name, score in of_kind.scores.items()
    ]


def _kind_json(of_kind: Backtest) -> dict[str, Any]:
    snapshots = {name: [_snapshot(forecast) for forecast in of_kind.fans[name]] for name in _drawn(of_kind)}
    return {
        **of_kind.as_json(),
        "mean_rps": _mean_rps(of_kind),
        "came_rps": _came(of_kind).tolist(),
        "snapshots": snapshots,
    }


def _snapshot(forecast: Forecast) -> dict[str, Any]:
    rates = {f"{level:g}": forecast.mean_at(level).tolist() for level in LEVELS_SHOWN}
    return {"origin_s": forecast.origin_s, "rate_rps": rates}
