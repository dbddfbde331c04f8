"""The report's figures as plain data in plotly's words (traces and layout), ready for JSON.

A figure is {"x": shared x values or None, "data": [...], "layout": {...}}: the x values of a timeline are written once,
and the page's script hands them to every trace. Colours and fonts belong to the page.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mark.domain.arrays import FloatArray
from mark.simulation.result import SimulationResult, Timeline
from mark.studies.report.figure_style import COLOURS, DASHES
from mark.studies.report.takeaway import MARKETS, market_name

MOST_POINTS = 5000

MARKET_COLOURS = dict(zip(MARKETS, (COLOURS[i] for i in (0, 2, 7, 1, 3, 8)), strict=True))
_LABEL = 0.075  # of the axis: a line of text, also in the lower figures on paper

Figure = dict[str, Any]


def load_figure(result: SimulationResult) -> Figure:
    """Return arrivals and overflow (each point's highest minute) against the capacity of ready instances (mean)."""
    line, size = result.timeline, result.unit.size
    x, axis, per_point = _time_axis(line)
    data = [
        _line(
            "arrivals",
            _binned(line.arrival_rps * size, per_point, np.nanmax),
            COLOURS[0],
            fill="tozeroy",
            fillcolor="rgba(0,97,168,.14)",
        ),
        _line(
            "capacity of ready instances",
            _binned(line.capacity_rps * size, per_point, np.nanmean),
            COLOURS[2],
            shape="hv",
            dash=DASHES[1],
        ),
        _line(
            "answered by functions",
            _binned(line.overflow_rps * size, per_point, np.nanmax),
            COLOURS[1],
            dash=DASHES[2],
        ),
    ]
    return {"x": x, "data": data, "layout": _layout(axis, f"{result.unit.name}/s", unified=True)}


def fleet_figure(result: SimulationResult) -> Figure:
    """Return ready instances by offer, stacked; offers that never ran are left out."""
    line = result.timeline
    x, axis, per_point = _time_axis(line)
    used = [name for name, ready in line.instances.items() if np.any(np.nan_to_num(ready) > 0.0)]
    data = [
        _line(
            name,
            _binned(line.instances[name], per_point, np.nanmean),
            COLOURS[i % len(COLOURS)],
            shape="hv",
            stackgroup="fleet",
        )
        for i, name in enumerate(used)
    ]
    return {"x": x, "data": data, "layout": _layout(axis, "ready instances", unified=True)}


def bill_figure(result: SimulationResult) -> Figure:
    """Return dollars spent so far by market, stacked; markets without spending are left out."""
    line = result.timeline
    x, axis, per_point = _time_axis(line)
    data = [
        _line(
            market_name(name),
            _binned(line.spent_usd[name], per_point, _last),
            MARKET_COLOURS.get(name, COLOURS[-1]),
            stackgroup="bill",
        )
        for name in sorted(line.spent_usd, key=lambda n: MARKETS.index(n) if n in MARKETS else len(MARKETS))
        if np.any(np.nan_to_num(line.spent_usd[name]) > 0.0)
    ]
    return {"x": x, "data": data, "layout": _layout(axis, "$ so far", unified=True)}


def bills_figure(results: Mapping[str, SimulationResult]) -> Figure:
    """Return dollars spent so far, one line a policy, with its name at its end."""
    data, axis = [], "hours"
    for i, (name, result) in enumerate(results.items()):
        x, axis, per_point = _time_axis(result.timeline)
        spent = sum(result.timeline.spent_usd.values(), np.zeros(len(result.timeline.t_s)))
        data.append(_of_policy(i, name, _binned(spent, per_point, _last)) | {"x": x})
    layout = _layout(axis, "$ so far", unified=True)
    ends = [next((y for y in reversed(line["y"]) if y is not None), 0.0) for line in data]
    top = 1.05 * max(ends, default=0.0)
    if top <= 0.0:
        return {"x": None, "data": data, "layout": layout}
    layout["yaxis"]["range"] = [0.0, top]
    labels = [
        {"text": line["name"], "color": line["line"]["color"], "y": y, "end": end}
        for line, y, end in zip(data, spread(ends, _LABEL * top, top), ends, strict=True)
    ]
    return {"x": None, "data": data, "layout": layout, "labels": labels}


def spread(ends: Sequence[float], apart: float, top: float) -> list[float]:
    """Return places for labels, close to `ends` but `apart` from each other, in order, between 0 and `top`."""
    order = sorted(range(len(ends)), key=lambda i: (ends[i], -i))
    places = [0.0] * len(ends)
    lowest = 0.0
    for i in order:
        places[i] = max(lowest, ends[i])
        lowest = places[i] + apart
    highest = top
    for i in reversed(order):
        places[i] = min(highest, places[i])
        highest = places[i] - apart
    return places


def latency_figure(results: Mapping[str, SimulationResult]) -> Figure:
    """Return the share of answers slower than x, both axes logarithmic, with RT_max and the share that may be late."""
    data = []
    for i, (name, result) in enumerate(results.items()):
        seen = (result.ccdf_share > 0.0) & (result.ccdf_ms > 0.0)  # a logarithmic axis lacks zero
        ms, share = result.ccdf_ms[seen], result.ccdf_share[seen]
        picked = np.unique(np.linspace(0, max(0, len(ms) - 1), min(len(ms), 1000)).astype(np.int64))
        data.append(
            _of_policy(i, name, _plain(share[picked]))
            | {"x": _plain(ms[picked]), "hovertemplate": "%{y:.3%} slower than %{x:,.0f} ms"}
        )
    slo = next(iter(results.values())).slo
    rt_max_ms, late = slo.rt_max_s * 1e3, 1.0 - slo.attainment
    layout = _layout("latency, ms", "share of answers slower", unified=False)
    layout["xaxis"] |= {"type": "log"}
    layout["yaxis"] |= {"type": "log", "tickformat": ".2~p"}
    dashed = {"type": "line", "line": {"color": "#dc2626", "width": 1.5, "dash": "dash"}}
    dotted = {"type": "line", "line": {"color": "#94a3b8", "width": 1.5, "dash": "dot"}}
    layout["shapes"] = [
        dashed | {"xref": "x", "x0": rt_max_ms, "x1": rt_max_ms, "yref": "paper", "y0": 0, "y1": 1},
        dotted | {"xref": "paper", "x0": 0, "x1": 1, "yref": "y", "y0": late, "y1": late},
    ]
    # Annotations on a logarithmic axis are placed by the logarithm, shapes by the value.
    note = {"showarrow": False, "bgcolor": "#ffffff"}
    layout["annotations"] = [
        note
        | {
            "xref": "x",
            "x": math.log10(rt_max_ms),
            "yref": "paper",
            "y": 1,
            "yanchor": "top",
            "xanchor": "left",
            "text": f" RT_max {rt_max_ms:,.0f} ms",
            "font": {"color": "#dc2626"},
        },
        note
        | {
            "xref": "paper",
            "x": 0,
            "yref": "y",
            "y": math.log10(late),
            "xanchor": "left",
            "yanchor": "bottom",
            "text": f"{100.0 * late:.3g} % may be late",
            "font": {"color": "#64748b"},
        },
    ]
    return {"x": None, "data": data, "layout": layout}


def _time_axis(line: Timeline) -> tuple[list[float | None], str, int]:
    """Return x values, the axis title and how many minutes make one point."""
    per_point = max(1, math.ceil(len(line.t_s) / MOST_POINTS))
    end_s = float(line.t_s[-1]) if len(line.t_s) else 0.0
    unit_s, unit = (
        (60.0, "minutes") if end_s < 7200.0 else (3600.0, "hours") if end_s < 3 * 86400.0 else (86400.0, "days")
    )
    title = f"{unit} from the start" + (f" (one point = {per_point} min)" if per_point > 1 else "")
    return _plain(line.t_s[::per_point] / unit_s, digits=7), title, per_point


def _binned(values: FloatArray, per_point: int, reduce: Callable[..., Any]) -> list[float | None]:
    """Return one value for every `per_point` minutes; NaN (a gap) only if all of them are NaN."""
    if per_point > 1:
        padded = np.full(math.ceil(len(values) / per_point) * per_point, np.nan)
        padded[: len(values)] = values
        rows = padded.reshape(-1, per_point)
        blank = np.all(np.isnan(rows), axis=1)
        values = np.where(blank, np.nan, reduce(np.where(blank[:, None], 0.0, rows), axis=1))
    return _plain(values)


def _last(rows: NDArray[np.float64], axis: int) -> NDArray[np.float64]:
    """Return the highest value of each row, which is the last one for cumulative values."""
    return np.asarray(np.nanmax(rows, axis=axis))


def _plain(values: FloatArray, digits: int = 5) -> list[float | None]:
    """Return numbers for JSON: `digits` significant ones, because megabytes matter here, and NaN as null."""
    return [float(f"{v:.{digits}g}") if math.isfinite(v) else None for v in values.tolist()]


def _of_policy(place: int, name: str, y: list[float | None]) -> dict[str, Any]:
    """Return a policy's line, with one colour and one dash in every figure of a page."""
    return _line(name, y, COLOURS[place % len(COLOURS)], dash=DASHES[place % len(DASHES)])


def _line(
    name: str, y: list[float | None], colour: str, shape: str = "linear", dash: str = "solid", **more: Any
) -> dict[str, Any]:
    shown = name.replace("<", "\u2039").replace(">", "\u203a")  # plotly reads <b>, <a href> and the like in names
    trace: dict[str, Any] = {"type": "scatter", "mode": "lines", "name": shown, "y": y}
    trace["line"] = {"color": colour, "width": 1 if "stackgroup" in more else 2, "shape": shape, "dash": dash}
    return trace | more


def _layout(x_title: str, y_title: str, unified: bool) -> dict[str, Any]:
    return {
        "xaxis": {"title": {"text": x_title}},
        "yaxis": {"title": {"text": y_title}, "rangemode": "tozero"},
        "hovermode": "x unified" if unified else "closest",
    }
