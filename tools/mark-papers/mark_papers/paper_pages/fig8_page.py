"""Fig. 8 of the MArk paper, reproduced: the share of answers slower than a time, on two kinds of traffic."""

from __future__ import annotations

import html
import math
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from mark.simulation.result import SimulationResult
from mark.studies.report.figure_style import COLOURS, new_figure, styled
from mark.studies.report.report import Plot, Report, formatted
from mark.studies.report.takeaway import overflow_share
from mark.studies.report.words import duration, milliseconds, percent, usd
from mark_papers.paper.fig8 import POLICIES
from mark_papers.paper.replay import ASSUMED
from mark_papers.paper_pages.kept_promises import promises
from mark_papers.paper_pages.shared import RT_MAX_LINE, TICKS_MS, FigureTable, asked, figure_report

if TYPE_CHECKING:
    from plotly.graph_objects import Figure

    from mark_papers.paper.fig8 import Fig8, Fig8Row

MOST_POINTS = 400  # of a curve
SHOWN_RT_MAX = 5.0  # latencies up to this many times RT_max are shown
_HEADS = ("run", "on", *formatted("requests/s", "bill", "in time", "p50 ms", "p98", "p99", "by funct."))
_LEAD = (
    "Share of the answers slower than a time; solid on the stream, dashed on MMPP. A curve that crosses the vertical "
    "line, RT_max, below the horizontal one keeps the promise. Both axes are logarithmic, and end at 5 x RT_max."
)
_NOTES = (
    "the paper draws SageMaker on MMPP for Inception-v3 only",
    "MMPP: two rates, 1 to 4, that change at random every 300 s on average; 24 h to learn from",
)


def fig8_report(found: Fig8) -> Report:
    data = {
        "schema": 1,
        "figure": "fig8",
        "trace": found.trace,
        "start_s": found.start_s,
        "rows": [
            {
                "model": row.model,
                **{on: {name: _run_json(run) for name, run in runs.items()} for on, runs in _kinds(row).items()},
            }
            for row in found.rows
        ],
        "notes": [*_NOTES, *ASSUMED],
    }
    plot = Plot("Slower than", partial(ccdf_figure, found), _LEAD)
    return figure_report("Fig. 8", data, _headline(found), plot, _HEADS, _tables(found), takeaways(found))


def ccdf_figure(found: Fig8) -> Figure:
    """Return a figure with a panel for each model; a colour for each policy, solid on the stream and dashed on MMPP."""
    titles = [html.escape(row.model) for row in found.rows]
    lines = (len(titles) + 1) // 2
    figure = new_figure(lines, 2, subplot_titles=titles, horizontal_spacing=0.07, vertical_spacing=0.24 / lines)
    for panel, row in enumerate(found.rows):
        at = {"row": panel // 2 + 1, "col": panel % 2 + 1}
        for on, dash in (("stream", "solid"), ("mmpp", "dash")):
            for place, (name, run) in enumerate(_kinds(row)[on].items()):
                ms, share = ccdf(run)
                figure.add_scatter(
                    x=ms,
                    y=share,
                    name=html.escape(f"{name}, {_on(on)}"),
                    legendgroup=f"{name}, {on}",
                    showlegend=panel == 0,
                    mode="lines",
                    line={"color": COLOURS[place], "dash": dash, "width": 1.8},
                    **at,
                )
        slo = row.stream["mark"].slo
        first_ms = min(run.ccdf_ms[0] for runs in _kinds(row).values() for run in runs.values() if len(run.ccdf_ms))
        shown = [math.log10(0.9 * first_ms), math.log10(SHOWN_RT_MAX * slo.rt_max_s * 1e3)]
        figure.update_xaxes(type="log", tickvals=TICKS_MS, range=shown, **at)
        figure.add_vline(x=slo.rt_max_s * 1e3, line=RT_MAX_LINE, **at)
        figure.add_hline(y=1.0 - slo.attainment, line={"color": "#94a3b8", "width": 1.2, "dash": "dot"}, **at)
    figure.update_xaxes(title_text="latency, ms", row=lines)
    figure.update_yaxes(type="log", dtick=1, tickformat="~%", range=[-5.0, 0.0])
    figure.update_yaxes(title_text="share of answers slower", col=1)
    figure.update_annotations(font_size=12.5)
    return styled(figure, 80 + 340 * lines)


def ccdf(run: SimulationResult) -> tuple[list[float], list[float]]:
    """Return at most `MOST_POINTS` of the curve: milliseconds, and the share slower.

    Zero shares are left out, because the axis is logarithmic.
    """
    seen = np.flatnonzero(run.ccdf_share > 0.0)
    # Evenly by the logarithm of the share, like the axis.
    marks = np.geomspace(1.0, 1e-7, MOST_POINTS)
    picked = np.unique(np.searchsorted(-run.ccdf_share[seen], -marks).clip(0, max(0, len(seen) - 1)))
    places = seen[picked] if len(seen) else seen
    return run.ccdf_ms[places].tolist(), run.ccdf_share[places].tolist()


def takeaways(found: Fig8) -> list[str]:
    """Tell which policy kept the promise on which traffic."""
    return promises(
        {
            name: {f"{r.model} on {_on(on)}": runs[name] for r in found.rows for on, runs in _kinds(r).items()}
            for name in POLICIES
        }
    )


def _kinds(row: Fig8Row) -> dict[str, dict[str, SimulationResult]]:
    return {"stream": row.stream, "mmpp": row.mmpp}


def _on(kind: str) -> str:
    return "MMPP" if kind == "mmpp" else "the stream"


def _run_json(run: SimulationResult) -> dict[str, Any]:
    ms, share = ccdf(run)
    return {**run.as_json(), "ccdf": {"latency_ms": ms, "share_slower": share}}


def _headline(found: Fig8) -> str:
    runs = next(((row.stream["mark"], row.mmpp["mark"]) for row in found.rows), None)
    if runs is None:
        return "Fig. 8 of the paper"
    stream_s, mmpp_s = (run.trace.duration_s for run in runs)
    day = found.start_s / 86400.0
    return (
        f"Fig. 8 of the paper: {found.trace}, {duration(stream_s)} from day {day:g}, minutes capped; "
        f"MMPP, {duration(mmpp_s)}"
    )


def _tables(found: Fig8) -> list[FigureTable]:
    return [(asked(row.model, row.stream["mark"].slo), _cells(row)) for row in found.rows]


def _cells(row: Fig8Row) -> list[list[str]]:
    return [
        [
            name,
            _on(on).removeprefix("the "),
            f"{run.requests.total / run.trace.duration_s:.1f}",
            usd(run.bill.total),
            percent(run.slo_result.attainment, 2),
            *(milliseconds(value) for value in (run.latency_ms.p50, run.latency_ms.p98, run.latency_ms.p99)),
            percent(overflow_share(run)),
        ]
        for on, runs in _kinds(row).items()
        for name, run in runs.items()
    ]
