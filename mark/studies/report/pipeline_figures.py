"""The figures of a planned pipeline: its graph, and each stage's share of milliseconds and dollars."""

from __future__ import annotations

import html
from typing import TYPE_CHECKING

from mark.studies.report.figure_style import COLOURS, new_figure, styled
from mark.studies.report.graph_svg import StageBox, graph_svg
from mark.studies.report.words import count, milliseconds, percent, usd

if TYPE_CHECKING:
    from plotly.graph_objects import Figure

    from mark.planning.graphs.explained_plan import PipelinePlan


GRAPH_LEAD = (
    "For each stage: its instances, its part of the bill, the share of the time in which its workers are busy, and "
    "its time in the mean query and in the slowest 1 % along their critical paths."
)
SPENT_LEAD = (
    "Milliseconds along the critical path of a query, so that they sum to its latency: a stage beside the path costs "
    "a query nothing."
)


def graph_drawing(plan: PipelinePlan) -> str:
    """Return the graph as HTML."""
    return f"<div class=wide>{graph_svg(plan.pipeline, _boxes(plan))}</div>"


def _boxes(plan: PipelinePlan) -> list[StageBox]:
    boxes = []
    for s, (name, choice, seen) in enumerate(
        zip(plan.pipeline.names, plan.found.choices, plan.seen.stages, strict=True)
    ):
        hardware = ", ".join(option.hardware for option, _ in choice.parts)
        of_stage = plan.stage_usd_per_hour[s]
        lines = (
            f"{count(choice.workers)} {'worker' if choice.workers == 1 else 'workers'} on {hardware}",
            f"{usd(of_stage)}/h, {percent(of_stage / plan.found.usd_per_hour, 0)} of the bill",
            f"{percent(seen.utilisation, 0)} busy",
            f"{_ms(plan.path_s[s])} ms, slowest {_ms(plan.slow_path_s[s])} ms",
        )
        boxes.append(StageBox(name, lines, "bottleneck" if s == plan.bottleneck else ""))
    return boxes


def spent_figure(plan: PipelinePlan) -> Figure:
    """Return a bar each for the mean query, the slowest 1 % and the bill, in the colours of the stages."""
    figure = new_figure(2, 1, row_heights=[0.66, 0.34], vertical_spacing=0.3)
    for s, name in enumerate(plan.pipeline.names):
        colour = {"color": COLOURS[s % len(COLOURS)]}
        label, both = html.escape(name), ["slowest 1 %", "mean query"]
        path_ms = [1e3 * float(plan.slow_path_s[s]), 1e3 * float(plan.path_s[s])]
        figure.add_bar(x=path_ms, y=both, name=label, orientation="h", marker=colour, row=1, col=1)
        bill = [plan.stage_usd_per_hour[s]]
        figure.add_bar(x=bill, y=["bill"], name=label, orientation="h", marker=colour, showlegend=False, row=2, col=1)
    figure.add_vline(x=1e3 * plan.slo.rt_max_s, line={"dash": "dash", "width": 1}, row=1, col=1)
    figure.update_layout(barmode="stack", bargap=0.35, legend_traceorder="normal")
    figure.update_xaxes(title="ms; dashed: RT_max", row=1, col=1)
    figure.update_xaxes(title="$ an hour", row=2, col=1)
    figure.update_yaxes(automargin=True)
    return styled(figure, 360)


def _ms(seconds: float) -> str:
    return milliseconds(1e3 * float(seconds))
