"""Fig. 7 of the MArk paper, reproduced: boxes of latency by model and way of serving."""

from __future__ import annotations

import html
from functools import partial
from typing import TYPE_CHECKING

import numpy as np

from mark.simulation.result import SimulationResult
from mark.studies.report.figure_style import COLOURS, faint, new_figure, styled
from mark.studies.report.report import Plot, Report, formatted
from mark.studies.report.takeaway import listed, overflow_share
from mark.studies.report.words import duration, milliseconds, percent, usd
from mark_papers.paper.replay import ASSUMED
from mark_papers.paper_pages.kept_promises import promises
from mark_papers.paper_pages.shared import RT_MAX_LINE, TICKS_MS, FigureTable, asked, figure_report

if TYPE_CHECKING:
    from plotly.graph_objects import Figure

    from mark_papers.paper.fig7 import Fig7, Fig7Row

SHARES = {"p1": 0.01, "p25": 0.25, "p50": 0.5, "p75": 0.75, "p99": 0.99}
# MArk paper, section 5.2: the largest reduction of latency against SageMaker; the kind of latency is not stated.
PAPER_REDUCTION = {"mark": 0.57, "mark-spot": 0.60}
_HEADS = ("run", *formatted("bill", "in time", "mean ms", "p25", "p50", "p75", "p99", "by funct."))
_LEAD = (
    "Half of the answers lie in the box, its line is the median, the dashed one the mean, and whiskers reach from 1 to "
    "99 % of the answers. The dotted line is RT_max. Logarithmic."
)


def latency_at_ms(result: SimulationResult, share: float) -> float:
    """Return the latency that `share` of the answers do not exceed (to 0.1 %); NaN without answers."""
    within = np.flatnonzero(result.ccdf_share <= 1.0 - share + 1e-12)
    return float(result.ccdf_ms[within[0]]) if len(within) else np.nan


def fig7_report(found: Fig7) -> Report:
    data = {
        "schema": 1,
        "figure": "fig7",
        "trace": found.trace,
        "start_s": found.start_s,
        "rows": [
            {
                "model": row.model,
                "runs": {
                    name: {**run.as_json(), "box_ms": {key: latency_at_ms(run, share) for key, share in SHARES.items()}}
                    for name, run in row.runs.items()
                },
            }
            for row in found.rows
        ],
        "paper_reduction": PAPER_REDUCTION,
        "notes": list(ASSUMED),
    }
    plot = Plot("Latency", partial(box_figure, found), _LEAD)
    return figure_report("Fig. 7", data, _headline(found), plot, _HEADS, _tables(found), takeaways(found))


def box_figure(found: Fig7) -> Figure:
    """Return a figure with a panel for each model and a box for each run."""
    models = [html.escape(row.model) for row in found.rows]
    figure = new_figure(1, len(models), subplot_titles=models, horizontal_spacing=0.05)
    for column, row in enumerate(found.rows, 1):
        for place, (name, run) in enumerate(row.runs.items()):
            low, q1, median, q3, high = ([latency_at_ms(run, share)] for share in SHARES.values())
            figure.add_box(
                x=[html.escape(name)],
                legendgroup=html.escape(name),
                showlegend=column == 1,
                lowerfence=low,
                q1=q1,
                median=median,
                q3=q3,
                upperfence=high,
                mean=[run.latency_ms.mean],
                line={"color": COLOURS[place], "width": 1.5},
                fillcolor=faint(COLOURS[place], 0.2),
                name=html.escape(name),
                row=1,
                col=column,
            )
        rt_max_ms = next(iter(row.runs.values())).slo.rt_max_s * 1e3
        figure.add_hline(y=rt_max_ms, line=RT_MAX_LINE, row=1, col=column)
    figure.update_xaxes(showticklabels=False)
    figure.update_yaxes(type="log", tickvals=TICKS_MS)
    figure.update_yaxes(title_text="latency, ms", col=1)
    figure.update_annotations(font_size=12.5)
    return styled(figure, 400)


def takeaways(found: Fig7) -> list[str]:
    """Tell which policies kept the promise, and how our latencies compare with SageMaker's."""
    names = dict.fromkeys(name for row in found.rows for name in row.runs)
    lines = promises({name: {row.model: row.runs[name] for row in found.rows} for name in names})
    for name, paper in PAPER_REDUCTION.items():
        less = {row.model: reduction(row, name) for row in found.rows}
        lower = {model: share for model, share in less.items() if share is not None and share > 0.0}
        where = f"up to {percent(max(lower.values()), 0)}" if lower else "nowhere"
        line = f"The median with {name} is {where} below SageMaker's (the paper: up to {percent(paper, 0)})"
        if lower and len(lower) < len(less):
            higher = listed([model for model in less if model not in lower])
            line += f"; not for {higher}, whose requests wait on fuller or slower instances"
        lines.append(line + ".")
    return lines


def reduction(row: Fig7Row, name: str) -> float | None:
    """Return 1 - median / SageMaker's median; None if one of them answered no request."""
    ours, theirs = row.runs[name].latency_ms.p50, row.runs["sagemaker"].latency_ms.p50
    return None if ours is None or theirs is None else 1.0 - ours / theirs


def _headline(found: Fig7) -> str:
    length_s = next((run.trace.duration_s for row in found.rows for run in row.runs.values()), 0.0)
    return (
        f"Fig. 7 of the paper: {found.trace}, {duration(length_s)} from day {found.start_s / 86400.0:g}, minutes capped"
    )


def _tables(found: Fig7) -> list[FigureTable]:
    return [(asked(row.model, next(iter(row.runs.values())).slo), _cells(row)) for row in found.rows]


def _cells(row: Fig7Row) -> list[list[str]]:
    return [
        [
            name,
            usd(run.bill.total),
            percent(run.slo_result.attainment, 2),
            milliseconds(run.latency_ms.mean),
            *(milliseconds(latency_at_ms(run, SHARES[key])) for key in ("p25", "p50", "p75", "p99")),
            percent(overflow_share(run)),
        ]
        for name, run in row.runs.items()
    ]
