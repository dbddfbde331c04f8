"""Fig. 9 of the MArk paper, reproduced: latency and share in time through surges and interruptions."""

from __future__ import annotations

import html
import math
from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from mark.control.ports import WINDOW_S
from mark.studies.report.figure_style import COLOURS, new_figure, styled
from mark.studies.report.report import Marked, Part, Plot, Report, formatted
from mark.studies.report.takeaway import overflow_share
from mark.studies.report.words import duration, milliseconds, percent, usd
from mark_papers.paper.fig9 import (
    DURATION_S,
    HISTORY_S,
    STANDBY,
    STORM_INSTANCE,
    STORM_MODEL,
    STORM_RPS,
    SURGE_MODEL,
    SURGE_RPS,
)
from mark_papers.paper_pages.kept_promises import promises
from mark_papers.paper_pages.shared import titled

if TYPE_CHECKING:
    from plotly.graph_objects import Figure

    from mark_papers.paper.fig9 import Fig9, Panel, WindowSeries

SHOWN_RT_MAX = 5.0  # latencies up to this many times RT_max are shown
_HEADS = ("run", "bill", "in time", "after", "missed s", "mean ms", "worst", "by funct.")
_STORM_HEADS = ("run", "bill", "in time", "after", "missed s", "mean ms", "worst", "lost", "resumed")
_SURGES = f"{SURGE_MODEL} at {SURGE_RPS:g} requests/s, which grow within two minutes from minute 11 and stay"
_STORMS = (
    f"{STORM_MODEL} at {STORM_RPS:g} requests/s on {STORM_INSTANCE}, spot; interrupted at minute 7, with two minutes' "
    f"notice; stopped {STANDBY} stand by"
)
_LEAD = (
    "By 5 s windows of arrival: mean latency (logarithmic, up to 5 x RT_max) and share in time; below, by the minute, "
    "the ready capacity. Vertical: when it happens; horizontal: RT_max, the promised share and the load."
)
_NOTES = (
    "after: share in time of the requests that arrived after it began; missed s: seconds, in windows of 5, below the "
    "promised share; mean ms: before it; worst: the highest mean of a window",
    "mark-not-reactive: neither SLO monitor nor envelope; sagemaker over-provisions by two, as in the paper, "
    "sagemaker-factor-1 does not",
    "mark-standby-each: as many standbys as spot instances will be lost, as in the paper; mark plans their number",
    "the paper gives curves, no numbers: the load but for the surge, its shape, and a spot market that is whole again "
    "a minute later are our choice",
)


def fig9_report(found: Fig9) -> Report:
    data = {
        "schema": 1,
        "figure": "fig9",
        "window_s": WINDOW_S,
        "surges": [_panel_json(panel) for panel in found.surges],
        "storms": [_panel_json(panel) for panel in found.storms],
        "notes": list(_NOTES),
    }
    parts: list[Part] = []
    for title, heads, panels in _groups(found):
        parts += [Marked(title, "strong"), Plot(title, partial(panels_figure, panels), _LEAD)]
        for panel in panels:
            parts += titled(panel.title, (heads[0], *formatted(*heads[1:])), _cells(panel, heads))
    length = f"{duration(DURATION_S)} each, after {duration(HISTORY_S)} of history at the same rate"
    return Report(data, length, parts, takeaways(found), _NOTES, subject="Fig. 9 of the MArk paper")


def panels_figure(panels: Sequence[Panel]) -> Figure:
    """Return a figure with a column for each panel: mean latency, share in time, capacity; a colour for each run."""
    figure = new_figure(
        3,
        len(panels),
        column_titles=[html.escape(panel.title) for panel in panels],
        shared_xaxes=True,
        shared_yaxes=True,
        row_heights=[0.5, 0.25, 0.25],
        horizontal_spacing=0.03,
        vertical_spacing=0.05,
    )
    for column, panel in enumerate(panels, 1):
        for place, run in enumerate(panel.lines):
            windows = (np.arange(len(run.arrived)) + 0.5) * WINDOW_S / 60.0
            held = run.result.timeline
            curves = [(windows, run.mean_ms), (windows, run.in_time), (held.t_s / 60.0, held.capacity_rps)]
            for row, (minutes, values) in enumerate(curves, 1):
                figure.add_scatter(
                    x=minutes,
                    y=values,
                    name=html.escape(run.name),
                    legendgroup=html.escape(run.name),
                    showlegend=row == column == 1,
                    mode="lines",
                    line={"color": COLOURS[place], "width": 1.5, "shape": "hv" if row == 3 else "linear"},
                    row=row,
                    col=column,
                )
        slo, load = panel.lines[0].result.slo, panel.lines[0].result.timeline
        dotted = {"color": "#dc2626", "width": 1.2, "dash": "dot"}
        figure.add_hline(y=slo.rt_max_s * 1e3, line=dotted, row=1, col=column)
        figure.add_hline(y=slo.attainment, line=dotted, row=2, col=column)
        figure.add_scatter(
            x=load.t_s / 60.0, y=load.arrival_rps, name="load", line=dotted, showlegend=False, row=3, col=column
        )
        figure.add_vline(x=panel.at_s / 60.0, line={"color": "#94a3b8", "width": 1.2, "dash": "dash"}, col=column)
    runs = [run for panel in panels for run in panel.lines]
    least_ms = min(float(np.nanmin(run.mean_ms)) for run in runs)
    most_ms = SHOWN_RT_MAX * runs[0].result.slo.rt_max_s * 1e3
    marks = [step * 10**power for power in range(7) for step in (1, 2, 5)]
    shown = [math.log10(0.9 * least_ms), math.log10(most_ms)]
    figure.update_xaxes(title_text="minutes", row=3)
    figure.update_yaxes(type="log", tickvals=marks, range=shown, row=1)
    figure.update_yaxes(range=[0.0, 1.05], tickformat=".0%", row=2)
    most_rps = max(float(run.result.timeline.capacity_rps.max()) for run in runs)
    figure.update_yaxes(range=[0.0, 1.05 * most_rps], row=3)
    for row, title in enumerate(("mean latency, ms", "in time", "requests/s"), 1):
        figure.update_yaxes(title_text=title, row=row, col=1)
    figure.update_annotations(font_size=12.5)
    return styled(figure, 640)


def takeaways(found: Fig9) -> list[str]:
    """Tell which policies kept the promise over the run, and whether every request was answered."""
    lines = []
    for what, panels in (("Surges", found.surges), ("Interruptions", found.storms)):
        names = [run.name for run in panels[0].lines] if panels else []
        runs = {name: {panel.title: panel.lines[i].result for panel in panels} for i, name in enumerate(names)}
        lines += [f"{what}: {line}" for line in promises(runs)]
    rejected = sum(run.result.requests.rejected for panel in (*found.surges, *found.storms) for run in panel.lines)
    lines.append(f"{rejected:,} requests were left unanswered." if rejected else "No request was left unanswered.")
    return lines


def _groups(found: Fig9) -> list[tuple[str, tuple[str, ...], tuple[Panel, ...]]]:
    """Return title, heads and panels of the experiments that were run."""
    groups = [
        (f"Fig. 9a-c of the paper, surges: {_SURGES}", _HEADS, found.surges),
        (f"Fig. 9d of the paper, interruptions: {_STORMS}", _STORM_HEADS, found.storms),
    ]
    return [group for group in groups if group[2]]


def _cells(panel: Panel, heads: Sequence[str]) -> list[list[str]]:
    return [[_shown(panel, run)[head] for head in heads] for run in panel.lines]


def _shown(panel: Panel, run: WindowSeries) -> dict[str, str]:
    found = _figures(panel, run)
    return {
        "run": run.name,
        "bill": usd(run.result.bill.total),
        "in time": percent(run.result.slo_result.attainment, 2),
        "after": percent(found["in_time_after"], 2),
        "missed s": f"{found['missed_s']:.0f}",
        "mean ms": milliseconds(found["mean_before_ms"]),
        "worst": milliseconds(found["worst_mean_ms"]),
        "by funct.": percent(overflow_share(run.result)),
        "lost": str(run.result.fleet.interrupted),
        "resumed": str(found["resumed"]),
    }


def _figures(panel: Panel, run: WindowSeries) -> dict[str, float]:
    """Return the figures of a run before and after `panel.at_s`."""
    at = round(panel.at_s / WINDOW_S)
    return {
        "in_time_after": run.share_in_time(at),
        "missed_s": run.missed_s,
        "mean_before_ms": float(np.average(np.nan_to_num(run.mean_ms[:at]), weights=run.arrived[:at])),
        "worst_mean_ms": float(np.nanmax(run.mean_ms[at:])),
        "resumed": sum(decision.verb == "resume" and decision.outcome == "done" for decision in run.result.decisions),
    }


def _panel_json(panel: Panel) -> dict[str, Any]:
    return {
        "title": panel.title,
        "at_s": panel.at_s,
        "runs": {
            run.name: {
                **run.result.as_json(),
                **_figures(panel, run),
                "windows": {
                    "arrived": run.arrived.tolist(),
                    "in_time": run.in_time.tolist(),
                    "mean_ms": run.mean_ms.tolist(),
                    "p98_ms": run.p98_ms.tolist(),
                },
            }
            for run in panel.lines
        },
    }
