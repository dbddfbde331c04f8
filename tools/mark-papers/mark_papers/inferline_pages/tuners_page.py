"""Figs. 6 and 10 to 12 of InferLine with our tuners, and the table of activation times."""

from __future__ import annotations

import html
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from mark.studies.report.figure_style import COLOURS, new_figure, styled
from mark.studies.report.report import Head, Part, Plot, Report, formatted
from mark.studies.report.words import percent, usd
from mark_papers.inferline_pages.planners_page import PROFILES
from mark_papers.paper_pages.shared import titled

if TYPE_CHECKING:
    from plotly.graph_objects import Figure

    from mark.planning.graphs.tuned_run import TunedRun
    from mark_papers.inferline.tuners import FollowedLoad, TunerComparison

WINDOW_S = 10.0
_HEADS = ("run", *formatted("bill", "in time", "paper's bill", "in time", "most $/h", "changes"))
_BOUNDED_HEADS = ("run", *formatted("bill", "in time", "by functions", "x bound", "most $/h", "changes"))
_BRIDGED = "mark functions"
_LEAD = (
    "By windows of 10 s: queries that arrive, the share answered within the SLO, and dollars per hour of the replicas "
    "that are paid for, those that are being activated included."
)
_WAYS = (
    "inferline: its planner and its tuner as printed; mark: ours; mark lean: with half the margin; mark functions: so, "
    "without any where a stage has a function, which answers queries that no replica begins in time; coarse: CG-Peak, "
    "then scaled as a unit to the mean rate; coarse tuner: so is InferLine's plan; plan only: nothing follows; "
    "plan of all: "
    "InferLine's, which knew the load"
)
_BOUND = (
    "x bound: against the least that any fleet could pay, in fractions of replicas, with functions, and knowing all "
    "queries in advance; functions have six vCPUs each, at AWS's list price, and their times are made up"
)
_NOTES = (
    PROFILES,
    "the rates of the paper's traces are not printed: the loads have the shapes that its text tells of, and its "
    "dollars are for its own rates, models and prices",
    _WAYS,
    "a replica is paid from when it was asked for; CV is sigma / mu of the gaps (the text of 2018 has sigma^2 / mu^2)",
)


def tuners_report(found: TunerComparison) -> Report:
    data = {
        "schema": 1,
        "figure": found.figure,
        "pipeline": found.pipeline,
        "slo_ms": found.slo.rt_max_s * 1e3,
        "slo_attainment": found.slo.attainment,
        "window_s": WINDOW_S,
        "loads": [
            {
                "title": load.title,
                "activation_s": load.activation_s,
                "slo_ms": load.slo.rt_max_s * 1e3,
                "runs": {name: _run_json(load, run) for name, run in load.runs.items()},
                "paper": {name: {"usd": dollars, "in_time": share} for name, (dollars, share) in load.paper.items()},
                **({} if load.bound_usd is None else {"bound_usd": load.bound_usd}),
            }
            for load in found.loads
        ],
        "notes": list(_notes(found)),
    }
    parts: list[Part] = []
    for load in found.loads:
        title = _title(found, load)
        parts.append(Plot(title, partial(load_figure, load), _LEAD))
        parts += titled(title, _heads(load), _cells(load), "In figures")
    return Report(data, _headline(found), parts, tuner_takeaways(found), _notes(found), subject=_name(found))


def load_figure(load: FollowedLoad) -> Figure:
    """Return a figure with rows for load, share in time and USD/h, and a colour for each run."""
    figure = new_figure(3, 1, shared_xaxes=True, vertical_spacing=0.06)
    for place, (name, run) in enumerate(load.runs.items()):
        came, late = run.by_window(WINDOW_S, load.slo.rt_max_s)
        minutes = (np.arange(len(came)) + 0.5) * WINDOW_S / 60.0
        paid = (run.step_s - run.begin_s) / 60.0
        line = {"color": COLOURS[place], "width": 1.5}
        if place == 0:
            figure.add_scatter(
                x=minutes, y=came, name="load", mode="lines", line={"color": "#94a3b8", "width": 1.5}, row=1, col=1
            )
        shown = html.escape(name)
        figure.add_scatter(
            x=minutes, y=1.0 - late, name=shown, legendgroup=shown, mode="lines", line=line, row=2, col=1
        )
        figure.add_scatter(
            x=paid,
            y=run.usd_per_hour,
            name=shown,
            legendgroup=shown,
            showlegend=False,
            mode="lines",
            line={**line, "shape": "hv"},
            row=3,
            col=1,
        )
    for row, title in enumerate(("queries/s", "in time", "$/h"), 1):
        figure.update_yaxes(title_text=title, rangemode="tozero", row=row, col=1)
    figure.update_yaxes(range=[0.0, 1.05], tickformat=".0%", row=2)
    figure.update_xaxes(title_text="minutes", row=3)
    return styled(figure, 560)


def tuner_takeaways(found: TunerComparison) -> list[str]:
    """Tell which runs kept the promise on which loads, and our costs against InferLine's."""
    lines = []
    for name in dict.fromkeys(name for load in found.loads for name in load.runs):
        missed = [
            f"{_title(found, load)} ({percent(_in_time(load, load.runs[name]), 2)})"
            for load in found.loads
            if name in load.runs and _in_time(load, load.runs[name]) < load.slo.attainment
        ]
        lines.append(
            f"{name} missed the promise on {', '.join(missed)}."
            if missed
            else f"{name} kept the promise in every case."
        )
    ratios = [load.runs["mark"].usd / load.runs["inferline"].usd for load in found.loads]
    lines.append(f"mark's bill is {min(ratios):.2f} to {max(ratios):.2f} times that of InferLine's planner and tuner.")
    for slo in dict.fromkeys(load.slo for load in found.loads):
        bounded = [
            (load.runs[_BRIDGED].total_usd / load.bound_usd, _in_time(load, load.runs[_BRIDGED]))
            for load in found.loads
            if load.slo == slo and load.bound_usd is not None and _BRIDGED in load.runs
        ]
        if bounded:
            times, shares = zip(*bounded, strict=True)
            lines.append(
                f"Within {slo.rt_max_s * 1e3:g} ms {_BRIDGED} keeps {percent(min(shares), 2)} or more in time, for "
                f"{min(times):.2f} to {max(times):.2f} times the bound."
            )
    return lines


def _heads(load: FollowedLoad) -> tuple[Head, ...]:
    return _HEADS if load.bound_usd is None else _BOUNDED_HEADS


def _notes(found: TunerComparison) -> tuple[str, ...]:
    return _NOTES if all(load.bound_usd is None for load in found.loads) else (*_NOTES, _BOUND)


def _name(found: TunerComparison) -> str:
    figure = found.figure.removeprefix("inferline-")
    return f"Fig. {figure.removeprefix('fig')} of the InferLine paper" if figure != "activation" else "Activation times"


def _headline(found: TunerComparison) -> str:
    asked = f"{percent(found.slo.attainment, 0)} within {found.slo.rt_max_s * 1e3:g} ms asked"
    told = "Fig. {} of the paper (InferLine)".format(found.figure.removeprefix("inferline-fig"))
    if found.figure == "inferline-activation":
        told = "Not a figure of the paper: InferLine with other activation times"
    return f"{told}: {found.pipeline}, {asked}"


def _title(found: TunerComparison, load: FollowedLoad) -> str:
    within = "" if load.slo == found.slo else f", within {load.slo.rt_max_s * 1e3:g} ms"
    return f"{load.title}, activation {load.activation_s:g} s{within}"


def _in_time(load: FollowedLoad, run: TunedRun) -> float:
    return 1.0 - run.miss_share(load.slo.rt_max_s)


def _changes(run: TunedRun) -> int:
    return int(np.abs(np.diff(run.paid, axis=0)).sum())


def _cells(load: FollowedLoad) -> list[list[str]]:
    cells = []
    for name, run in load.runs.items():
        dollars, share = load.paper.get(name, (None, None))
        beside = [usd(dollars), percent(share)]
        if load.bound_usd is not None:
            beside = [usd(run.function_usd), f"{run.total_usd / load.bound_usd:.2f}"]
        cells.append(
            [
                name,
                usd(run.total_usd),
                percent(_in_time(load, run), 2),
                *beside,
                usd(float(run.usd_per_hour.max())),
                str(_changes(run)),
            ]
        )
    return cells


def _run_json(load: FollowedLoad, run: TunedRun) -> dict[str, Any]:
    came, late = run.by_window(WINDOW_S, load.slo.rt_max_s)
    every = max(1, round(WINDOW_S / float(np.diff(run.step_s).mean()))) if len(run.step_s) > 1 else 1
    return {
        "usd": run.total_usd,
        **({"function_usd": run.function_usd} if run.by_function else {}),
        "in_time": _in_time(load, run),
        "queries": len(run.arrivals_s),
        "most_usd_per_hour": float(run.usd_per_hour.max()),
        "changes": _changes(run),
        "windows": {
            "arrived_per_s": came.tolist(),
            "missed": [None if np.isnan(share) else float(share) for share in late],
            "usd_per_hour": run.usd_per_hour[::every].tolist(),
            "paid": run.paid[::every].tolist(),
            "active": run.active[::every].tolist(),
        },
    }
