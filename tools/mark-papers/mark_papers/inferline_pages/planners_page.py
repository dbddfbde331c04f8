"""Figs. 5 and 9 of InferLine with our planners: their price, and the share of new traffic that they miss."""

from __future__ import annotations

import html
from dataclasses import asdict
from functools import partial
from typing import TYPE_CHECKING

from mark.studies.report.figure_style import COLOURS, new_figure, styled
from mark.studies.report.report import Head, Plot, Report, formatted
from mark.studies.report.words import percent, usd
from mark_papers.inferline.planners import COARSE_OVER_INFERLINE
from mark_papers.paper_pages.shared import titled

if TYPE_CHECKING:
    from plotly.graph_objects import Figure

    from mark_papers.inferline.planners import PlannedLoad, PlannerComparison

_PROMISED = 0.01
PROFILES = (
    "profiles, lineages and prices are made up in the style of the paper's, which prints hardly any: ratios compare, "
    "dollars do not"
)
_NOTES = (
    PROFILES,
    "planned on 120 s of gamma arrivals, judged on another 300 s; 1 % may miss; CV is sigma / mu of the gaps (the "
    "text of 2018 has sigma^2 / mu^2)",
    "a unit of coarse-* has one replica of every stage; peak: in windows of one SLO",
)


def planners_report(found: PlannerComparison) -> Report:
    data = {
        "schema": 1,
        "figure": found.figure,
        "paper": {"coarse_over_inferline_at_most": COARSE_OVER_INFERLINE},
        "coarse_over_inferline_at_most": _most(found),
        "rows": [asdict(row) for row in found.rows],
        "notes": list(_NOTES),
    }
    lead = "Dollars per hour by planner; the same order as in the table."
    return Report(
        data,
        _headline(found),
        [
            Plot("Cost", partial(planners_figure, found), lead),
            *titled("dollars per hour, and queries missed", _heads(found), _cells(found)),
        ],
        planner_takeaways(found),
        _NOTES,
        subject=f"{_name(found)} of the InferLine paper",
    )


def planners_figure(found: PlannerComparison) -> Figure:
    """Return a bar chart with a group for each load and a colour for each planner."""
    figure = new_figure()
    for place, planner in enumerate(found.rows[0].usd_per_hour):
        figure.add_bar(
            x=[html.escape(_load(row)) for row in found.rows],
            y=[row.usd_per_hour[planner] for row in found.rows],
            name=html.escape(planner),
            marker={"color": COLOURS[place]},
        )
    figure.update_yaxes(title_text="$/h", type="log")
    return styled(figure, 420)


def planner_takeaways(found: PlannerComparison) -> list[str]:
    """Compare the paper's ratio with ours, and tell which planners keep the promise on new traffic."""
    lines = [
        f"Coarse-grained for the peak costs up to {_most(found):.1f} times InferLine's plan; the paper: up to "
        f"{COARSE_OVER_INFERLINE}."
    ]
    for planner in found.rows[0].usd_per_hour:
        late = [row.miss_share[planner] for row in found.rows]
        broken = sum(share > _PROMISED for share in late)
        lines.append(
            f"{planner} misses more than 1 % of new queries in {broken} of {len(late)} cases, at most "
            f"{percent(max(late), 2)}."
        )
    ratios = [row.usd_per_hour["mark"] / row.usd_per_hour["inferline"] for row in found.rows]
    lines.append(f"mark pays {min(ratios):.2f} to {max(ratios):.2f} times the bill of InferLine's planner.")
    return lines


def _most(found: PlannerComparison) -> float:
    return max(row.usd_per_hour["coarse-peak"] / row.usd_per_hour["inferline"] for row in found.rows)


def _name(found: PlannerComparison) -> str:
    return f"Fig. {found.figure.removeprefix('inferline-fig')}"


def _headline(found: PlannerComparison) -> str:
    return f"{_name(found)} of the paper (InferLine): planners on a load that stays as it is"


def _load(row: PlannedLoad) -> str:
    return f"{row.pipeline} {row.rate:g}/s {row.slo_ms:g} ms CV {row.cv:g}"


def _heads(found: PlannerComparison) -> tuple[Head, ...]:
    return ("load", *formatted(*found.rows[0].usd_per_hour))


def _cells(found: PlannerComparison) -> list[list[str]]:
    return [
        [_load(row), *(f"{usd(row.usd_per_hour[one])} {percent(row.miss_share[one])}" for one in row.usd_per_hour)]
        for row in found.rows
    ]
