"""A backtest, shown: a table for the terminal, and a page with fans of forecasts against the truth."""

from __future__ import annotations

import html
from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from mark.domain.arrays import FloatArray
from mark.domain.load import Forecast
from mark.studies.report.figure_style import COLOURS, new_figure, styled
from mark.studies.report.report import DataTable, Head, Marked, Plot, Report
from mark.studies.report.takeaway import forecasters
from mark.studies.report.words import duration, milliseconds, number, percent, percent_2, usd

if TYPE_CHECKING:
    from plotly.graph_objects import Figure

    from mark.studies.forecast_dollars import Dollars
    from mark.traffic.forecast.backtest import Backtest

BASELINE = "seasonal-naive"


def backtest_report(found: Backtest, dollars: Dollars | None) -> Report:
    parts: list[DataTable | Plot] = [DataTable(_HEADS, _score_rows(found), "Scores", _SCORES_LEAD), _horizons(found)]
    if dollars is not None:
        parts.append(DataTable(_DOLLAR_HEADS, _dollar_rows(dollars), "In dollars", _DOLLARS_LEAD))
    parts += [
        Plot("Fans against the truth", partial(fans_figure, found), _FANS_LEAD),
        Plot("CRPS by horizon", partial(crps_figure, found), "Requests a second; less is better."),
        Plot("Coverage by horizon", partial(coverage_figure, found), _COVERAGE_LEAD),
    ]
    return Report(
        _json(found, dollars),
        _headline(found),
        parts,
        _takeaway(found),
        _notes(found, dollars),
        read=found.split.read,
        subject="backtest",
    )


def _json(found: Backtest, dollars: Dollars | None) -> dict[str, Any]:
    """Return the JSON, with each predictor's dollars beside its scores if the part was simulated."""
    data = found.as_json()
    if dollars is not None:
        for name, score in data["predictors"].items():
            score.update(dollars.as_json(name))
        data["oracle"] = dollars.oracle_json()
    return data


_SCORES_LEAD = (
    "CRPS and MASE: less is better. In 50 and 90 %: the share of the truth inside these central intervals, which ought "
    "to be just that. Times are medians of wall time, but for the one fit."
)
_DOLLARS_LEAD = "The same part simulated with every predictor; oracle is mark with perfect forecasts."
_FANS_LEAD = (
    "Forecasts at a few origins, evenly spread over the judged part: the median, the central intervals of 50 and 90 %, "
    "and the actual load as a thin line. A column is an origin, a row a predictor."
)
_COVERAGE_LEAD = "Share of the truth inside the 90 % interval (solid) and the 50 % interval (dotted)."


# -- figures -----------------------------------------------------------------------------------------------------------


def fans_figure(found: Backtest) -> Figure:
    """Return a figure with predictors as rows and origins as columns; each panel has the truth and a fan behind it."""
    names = list(found.scores)
    origins = [forecast.origin_s for forecast in found.fans[names[0]]]
    figure = new_figure(
        len(names),
        len(origins),
        shared_xaxes=True,
        shared_yaxes="columns",
        column_titles=[f"{duration(origin_s)} in" for origin_s in origins],
        row_titles=[html.escape(name) for name in names],
        horizontal_spacing=0.05,
        vertical_spacing=min(0.06, 0.5 / len(names)),
    )
    for row, name in enumerate(names, 1):
        for column, forecast in enumerate(found.fans[name], 1):
            for line in _fan(found, forecast, COLOURS[(row - 1) % len(COLOURS)], row == column == 1):
                figure.add_trace(line, row=row, col=column)
    figure.update_xaxes(title_text="minutes from the origin", row=len(names))
    figure.update_yaxes(rangemode="tozero")
    figure.update_annotations(font_size=12.5)  # the titles of rows and columns
    return styled(figure, 60 + 190 * len(names))


def crps_figure(found: Backtest) -> Figure:
    """Return one line for each predictor over the minutes ahead."""
    return _by_horizon(found, [("crps", "solid")], "requests/s")


def coverage_figure(found: Backtest) -> Figure:
    """Return two lines for each predictor, and their ideal values."""
    figure = _by_horizon(found, [("coverage_90", "solid"), ("coverage_50", "dot")], "share inside")
    for share in (0.5, 0.9):
        figure.add_hline(y=share, line={"color": "#94a3b8", "width": 1, "dash": "dash"})
    figure.update_yaxes(tickformat=".0%", range=[0.0, 1.0])
    return figure


def _fan(found: Backtest, forecast: Forecast, colour: str, legend: bool) -> list[dict[str, Any]]:
    split = found.split
    origin = round((forecast.origin_s - split.load.start_s) / split.load.step_s)
    begin, end = max(0, origin - forecast.steps), origin + forecast.steps
    # A step is drawn at its middle.
    minutes = (np.arange(begin, end, dtype=np.float64) + 0.5 - origin) * split.load.step_s / 60.0
    truth = truth_line(minutes, split.load.mean_rps[begin:end], legend=legend)
    return [*fan_lines(forecast, minutes[origin - begin :], colour, legend=legend), truth]


def fan_lines(forecast: Forecast, x: FloatArray, colour: str, *, legend: bool) -> list[dict[str, Any]]:
    """Return the central intervals of 90 and 50 % as bands, and the median, of steps that are drawn at `x`."""

    def band(levels: tuple[float, float], name: str, opacity: float) -> dict[str, Any]:
        low, high = (forecast.mean_at(level) for level in levels)
        there, back = np.concatenate([x, x[::-1]]), np.concatenate([low, high[::-1]])
        # Without its own colour an area has half of its line's, which the page changes on a dark ground.
        area = {"line_color": colour, "line_width": 0, "fill": "toself", "opacity": 2.0 * opacity}
        return _line(there, back, name, legend, hoverinfo="skip", **area)

    return [
        band((0.05, 0.95), "90 %", 0.16),
        band((0.25, 0.75), "50 %", 0.30),
        _line(x, forecast.mean_at(0.5), "median", legend, line_color=colour, line_width=1.6, line_dash="5px,2px"),
    ]


def truth_line(x: FloatArray, rates: FloatArray, *, legend: bool) -> dict[str, Any]:
    return _line(x, rates, "truth", legend, line_color=COLOURS[4], line_width=1.1)


def _line(x: FloatArray, y: FloatArray, name: str, legend: bool, **more: Any) -> dict[str, Any]:
    shared = {"legendgroup": name, "showlegend": legend, "hoverinfo": "x+y+name"}
    return {"type": "scatter", "mode": "lines", "x": x, "y": y, "name": name, **shared, **more}


def _by_horizon(found: Backtest, lines: Sequence[tuple[str, str]], y_title: str) -> Figure:
    figure = new_figure()
    for i, (name, score) in enumerate(found.scores.items()):
        minutes = [row["horizon_s"] / 60.0 for row in score.by_horizon]
        for key, dash in lines:
            figure.add_scatter(
                x=minutes,
                y=[row[key] for row in score.by_horizon],
                name=html.escape(name),
                legendgroup=name,
                showlegend=key == lines[0][0],
                mode="lines+markers" if len(minutes) < 15 else "lines",
                line={"color": COLOURS[i % len(COLOURS)], "dash": dash, "width": 1.8},
            )
    figure.update_xaxes(title_text="minutes from the origin to the end of the step")
    figure.update_yaxes(title_text=y_title, rangemode="tozero")
    return styled(figure, 340)


# -- words and cells ---------------------------------------------------------------------------------------------------


def _rate(rps: float) -> str:
    return milliseconds(rps) if rps >= 1e4 else f"{rps:.4g}" if np.isfinite(rps) else "-"


_HEADS: tuple[Head, ...] = (
    *("predictor", ("CRPS", _rate), ("MASE", number), ("in\n50 %", percent), ("in\n90 %", percent)),
    *(("fit s", number), ("update\nms", number), ("predict\nms", number)),
)
_DOLLAR_HEADS: tuple[Head, ...] = (
    *("policy", ("bill", usd), ("above oracle", usd), ("in time", percent_2), ("regret", number)),
)


def _score_rows(found: Backtest) -> list[list[Any]]:
    best = _best(found)
    return [
        [
            *(Marked(name, "best" if name == best else ""), one.crps, one.mase, one.coverage_50, one.coverage_90),
            *(one.fit_s, one.update_ms, one.predict_ms),
        ]
        for name, one in found.scores.items()
    ]


def _horizons(found: Backtest) -> DataTable:
    """Return CRPS and coverage at the first step, one after a quarter of the horizon, and the last."""
    last = found.split.steps - 1
    steps = sorted({0, (last + 1) // 4 - 1 if last >= 3 else 0, last})
    rows = [
        [
            name,
            *(
                f"{_rate(row['crps'])} ({percent(row['coverage_90'])})"
                for row in map(one.by_horizon.__getitem__, steps)
            ),
        ]
        for name, one in found.scores.items()
    ]
    heads = [(duration((step + 1) * found.split.load.step_s), str) for step in steps]
    return DataTable(("CRPS (in 90 %) at", *heads), rows)


def _dollar_rows(dollars: Dollars) -> list[list[Any]]:
    oracle = dollars.oracle
    rows: list[list[Any]] = []
    for name, result in {**dollars.results, "": oracle}.items():
        above = None if result is oracle else result.bill.total - oracle.bill.total
        policy = f"{result.policy}:{name}" if name else result.policy
        rows.append([policy, result.bill.total, above, result.slo_result.attainment, result.regret])
    return rows


def _headline(found: Backtest) -> str:
    split = found.split
    learned = f"after {duration(split.train_s)} of history" if split.train else "without history"
    ahead = duration(split.steps * split.load.step_s)
    return f"{split.trace}: {len(split.origins):,} forecasts of {ahead} ahead, {learned}"


def _takeaway(found: Backtest) -> list[str]:
    """Return the best predictor, and how much less CRPS it has than the baseline, if that ran too."""
    best = _best(found)
    if best is None:
        return []
    score = found.scores[best]
    covers = f"its 90 % intervals hold {percent(score.coverage_90)} of the truth"
    against = found.scores.get(BASELINE)
    if best == BASELINE or against is None or not against.crps > 0.0:
        return [f"{best} has the lowest CRPS, {_rate(score.crps)} requests/s; {covers}."]
    return [f"{best} has the lowest CRPS, {percent(1.0 - score.crps / against.crps)} below {BASELINE}; {covers}."]


def _best(found: Backtest) -> str | None:
    """Return the predictor with the lowest CRPS, the first of equal ones; None without scores."""
    scored = {name: score.crps for name, score in found.scores.items() if np.isfinite(score.crps)}
    return min(scored, key=scored.__getitem__) if scored else None


def _notes(found: Backtest, dollars: Dollars | None) -> list[str]:
    notes = list(found.split.notes)
    if found.mase_lag == "step":
        notes.append("MASE is over the error of the last value: the history is too short for a day before")
    for name, score in found.scores.items():
        notes += [
            f"{name}: {n:,} forecasts by {by}" for by, n in sorted(score.made_by.items()) if by != score.predictor
        ]
    for name, result in dollars.results.items() if dollars is not None else ():
        if (actual := forecasters(result)) != result.predictor:
            notes.append(f"{name}, in dollars: planned with {actual}")
    return notes
