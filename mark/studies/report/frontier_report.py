"""Dollars against the promise, shown as a table, as JSON, and as a page with two plots."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

from mark.domain.slo import CONFIDENCE
from mark.studies.frontier import nines
from mark.studies.report.figure_style import COLOURS, new_figure, styled
from mark.studies.report.report import DataTable, Head, Marked, Plot, Report
from mark.studies.report.takeaway import listed, notes
from mark.studies.report.words import count, dollars, duration, milliseconds, number, per_month, percent, usd

if TYPE_CHECKING:
    from plotly.graph_objects import Figure

    from mark.domain.slo import Slo
    from mark.simulation.result import SimulationResult
    from mark.studies.frontier import Frontier, FrontierPoint, StricterStep

_HEADS: tuple[Head, ...] = (
    *("promise", ("bill", usd), ("$ a month", dollars), ("bound", usd), ("regret", number)),
    *(("in time %", percent), ("p50", milliseconds), ("p99 ms", milliseconds)),
)
_OWN = "* "
_CHANCE = "every point is one run of its own: small differences are chance, and other seeds (--seed) show how small"
_OWN_COLOUR = "#111827"
_SYMBOLS = ("circle", "square", "diamond", "triangle-up", "triangle-down", "pentagon", "hexagon", "star")
_STEP_HEADS = ("one number stricter", ("$ a month per 10 ms", str), ("per nine", str))


def frontier_report(found: Frontier) -> Report:
    steps = DataTable(_STEP_HEADS, _steps(found), "One number stricter", _STEPS_LEAD)
    return Report(
        _json(found),
        _headline(found),
        [
            Plot("Dollars over RT_max", partial(rt_max_figure, found), _LEAD),
            Plot("Dollars over nines", partial(nines_figure, found), "The same points. 99 % are two nines."),
            DataTable(_HEADS, [_cells(found, point) for point in found.points], "Points"),
            *([steps] if steps.rows else []),
        ],
        takeaways(found),
        _notes(found),
        read="" if found.any_result is None else found.any_result.trace.read,
        subject="dollars against the promise",
    )


_STEPS_LEAD = (
    "From one measured promise to the next, along either number of the service's own, in proportion. A dash: one of "
    "the two was not kept."
)
_LEAD = (
    "Bills a month, and dotted the bound below which no policy gets. Hollow: the promise was missed. Promises "
    "that no offer can keep are left out. The ring is the service's own promise."
)


def rt_max_figure(found: Frontier) -> Figure:
    """Return a line for each attainment, and its bound below."""
    figure = _figure(found, lambda slo: (slo.attainment, slo.confidence), lambda slo: slo.rt_max_s * 1e3, _percent)
    figure.update_xaxes(title_text="RT_max, ms", tickvals=sorted({point.slo.rt_max_s * 1e3 for point in found.points}))
    return figure


def nines_figure(found: Frontier) -> Figure:
    """Return a line for each RT_max, and its bound below."""
    figure = _figure(
        found, lambda slo: (slo.rt_max_s, slo.confidence), lambda slo: nines(slo.attainment), _milliseconds
    )
    shares = sorted({point.slo.attainment for point in found.points})
    figure.update_xaxes(
        title_text="SL_min, by its nines",
        tickvals=[nines(share) for share in shares],
        ticktext=list(map(_share, shares)),
    )
    return figure


def takeaways(found: Frontier) -> list[str]:
    """Return the costs of the service's promise, the next 10 ms and the next nine, and whether another promise pays."""
    own = found.own_point
    lines = [_own(own)]
    if own.kept is not None:
        lines += _stricter(found)
    lines += _not_worse(found)
    return lines


def _own(own: FrontierPoint) -> str:
    result, promise = own.result, _promise(own.slo)
    if result is None:
        return f"No offer can keep the service's own promise, {promise}."
    if own.kept is None:
        return "No requests arrived in this part of the trace."
    month = dollars(_month(result, result.bill.total))
    of_bound = f", {number(own.regret)} times the bound" if own.regret is not None else ""
    if own.kept:
        return f"{promise}, the service's own promise, costs {month} a month{of_bound}."
    attained = percent(result.slo_result.attainment, 2)
    return f"{promise}, the service's own promise, was missed: {attained} in time, for {month} a month."


def _stricter(found: Frontier) -> list[str]:
    """Return the costs of the next 10 ms and the next nine."""
    own = found.own_point
    return [
        _step_words(own, "The next 10 ms", found.next_10_ms(own), _milliseconds),
        _step_words(own, "The next nine", found.next_nine(own), _percent),
    ]


def _step_words(own: FrontierPoint, what: str, step: StricterStep | None, shown: Callable[[Slo], str]) -> str:
    if step is None:
        return f"{what}: nothing stricter was measured."
    span = f"from {shown(own.slo)} to {shown(step.to)}"
    if step.usd is None:
        return f"{what}: no price {span}, because {step.reason}."
    return f"{what}: {_priced(own, step.usd)} (in proportion, {span})."


def _priced(point: FrontierPoint, more_usd: float) -> str:
    assert point.result is not None
    month = _month(point.result, more_usd)
    if month is None or abs(month) < 0.005:
        return "no dollar more"
    return f"{dollars(abs(month))} a month {'more' if month > 0.0 else 'less'}"


def _not_worse(found: Frontier) -> list[str]:
    own, cheapest = found.own_point, found.cheapest_not_worse()
    if own.result is None or own.kept is None:
        return []
    if cheapest is None:
        return ["No run kept the service's own promise or a stricter one."]
    assert cheapest.result is not None
    if cheapest.slo == own.slo:
        return ["It is the cheapest point that is not worse: no stricter promise that was kept costs less."]
    month = dollars(_month(cheapest.result, cheapest.result.bill.total))
    if not own.kept:
        return [f"Cheapest point that is not worse: {_promise(cheapest.slo)}, kept for {month} a month."]
    less = _priced(own, cheapest.result.bill.total - own.result.bill.total)
    return [f"Cheapest point that is not worse: {_promise(cheapest.slo)} for {month} a month, {less}."]


def _figure(
    found: Frontier,
    line_of: Callable[[Slo], tuple[float, ...]],
    place_of: Callable[[Slo], float],
    named: Callable[[Slo], str],
) -> Figure:
    figure = new_figure()
    for i, line in enumerate(sorted({line_of(point.slo) for point in found.points})):
        points = sorted(
            (p for p in found.points if line_of(p.slo) == line and p.result is not None), key=lambda p: place_of(p.slo)
        )
        if not points:
            continue
        slo = points[0].slo
        colour, name, symbol = COLOURS[i % len(COLOURS)], f"{named(slo)}{_sure(slo)}", _SYMBOLS[i % len(_SYMBOLS)]
        figure.add_scatter(
            x=[place_of(point.slo) for point in points],
            y=[_point_month(point, point.usd) for point in points],
            name=name,
            line={"color": colour},
            marker={"symbol": [symbol if p.kept else f"{symbol}-open" for p in points], "size": 9, "color": colour},
            mode="lines+markers",
            hovertemplate="$%{y:,.2f} a month",
        )
        figure.add_scatter(
            x=[place_of(point.slo) for point in points],
            y=[_point_month(point, point.bound_usd) for point in points],
            name=f"{name}, bound",
            line={"color": colour, "dash": "dot", "width": 1.2},
            mode="lines",
            showlegend=False,
            hovertemplate="$%{y:,.2f} a month",
        )
    own = found.own_point
    if own.result is not None:
        figure.add_scatter(
            x=[place_of(own.slo)],
            y=[_point_month(own, own.usd)],
            name="the service's own promise",
            marker={"symbol": "circle-open", "size": 17, "color": _OWN_COLOUR, "line": {"width": 2}},
            mode="markers",
            hoverinfo="skip",
        )
    figure.update_yaxes(title_text="$ a month", rangemode="tozero")
    return styled(figure, 420)


def _steps(found: Frontier) -> list[list[str]]:
    """Return the cost of each step along either number of the promise, the other held; from loose to strict."""
    own = found.own
    rows = []
    for point in sorted(found.points, key=lambda point: -point.slo.rt_max_s):
        if replace(point.slo, rt_max_s=own.rt_max_s) == own and (step := found.next_10_ms(point)) is not None:
            span = f"{_percent(own)}: {_milliseconds(point.slo)} to {_milliseconds(step.to)}"
            rows.append([span, _signed(found, step.usd), ""])
    for point in found.points:
        if replace(point.slo, attainment=own.attainment) == own and (step := found.next_nine(point)) is not None:
            span = f"{_milliseconds(own)}: {_percent(point.slo)} to {_percent(step.to)}"
            rows.append([span, "", _signed(found, step.usd)])
    return rows


def _signed(found: Frontier, amount_usd: float | None) -> str:
    """Return dollars a month with their sign."""
    shared = found.any_result
    month = None if shared is None or amount_usd is None else _month(shared, amount_usd)
    if month is None:
        return "-"
    return "0" if abs(month) < 0.005 else f"{'-' if month < 0.0 else '+'}{dollars(abs(month))}"


def _cells(found: Frontier, point: FrontierPoint) -> list[Any]:
    is_own = point.slo == found.own
    promise = Marked((_OWN if is_own else "") + _promise(point.slo), "strong" if is_own else "")
    result = point.result
    if result is None:
        return [promise, None, None, None, None, Marked("infeasible", "missed"), None, None]
    share = percent(result.slo_result.attainment, 2).removesuffix(" %")
    outcomes = {True: Marked(f"{share} ok", "ok"), False: Marked(f"{share} MISSED", "missed"), None: "-"}
    times = result.latency_ms
    month = _point_month(point, point.usd)
    return [promise, point.usd, month, point.bound_usd, point.regret, outcomes[point.kept], times.p50, times.p99]


def _notes(found: Frontier) -> list[str]:
    lines = ["* the service's own promise"]
    why = dict.fromkeys(point.infeasible for point in found.points if point.infeasible)
    lines += [f"infeasible: {reason}" for reason in why]
    beaten: dict[str, list[str]] = {}
    for point in found.points:
        cheaper = found.beaten_by(point)
        if point.kept and cheaper is not None:
            beaten.setdefault(_promise(cheaper.slo), []).append(_promise(point.slo))
    lines += [f"{winner} is stricter and costs less than {listed(promises)}" for winner, promises in beaten.items()]
    lines.append(_CHANCE)
    shared = found.any_result
    # Only notes that hold for all runs; notes of single runs stand in their JSON.
    return lines + ([] if shared is None else _common(found, shared))


def _common(found: Frontier, shared: SimulationResult) -> list[str]:
    every = [set(notes({"": point.result})) for point in found.points if point.result is not None]
    return [note for note in notes({"": shared}) if all(note in one for one in every)]


def _headline(found: Frontier) -> str:
    result = found.any_result
    if result is None:
        return f"{found.service}: no offer can keep any of these {len(found.points)} promises"
    trace = result.trace
    return (
        f"{result.service}, {result.policy} on {trace.name}: {count(trace.requests)} requests in "
        f"{duration(trace.duration_s)}{f'; prices of {result.priced}' if result.priced else ''}"
    )


def _promise(slo: Slo) -> str:
    return f"{_percent(slo)} in {_milliseconds(slo)}{_sure(slo)}"


def _sure(slo: Slo) -> str:
    """Return the confidence, unless it is the usual one."""
    return "" if slo.confidence == CONFIDENCE else f", {_share(slo.confidence)} sure"


def _percent(slo: Slo) -> str:
    return _share(slo.attainment)


def _share(share: float) -> str:
    """Return the share with all its digits: 99.8 %, 80 %."""
    return f"{100.0 * share:.10g} %"


def _milliseconds(slo: Slo) -> str:
    return f"{slo.rt_max_s * 1e3:,.6g} ms"


def _month(result: SimulationResult, amount_usd: float) -> float | None:
    return per_month(amount_usd, result.trace.duration_s)


def _point_month(point: FrontierPoint, amount_usd: float | None) -> float | None:
    return None if point.result is None or amount_usd is None else _month(point.result, amount_usd)


def _json(found: Frontier) -> dict[str, Any]:
    """Return the stable JSON; nothing in it depends on the machine."""
    shared, cheapest = found.any_result, found.cheapest_not_worse()
    return {
        "schema": 1,
        "service": found.service,
        "policy": found.policy,
        "seed": found.seed,
        "trace": None if shared is None else shared.as_json()["trace"],
        "own": _slo_json(found.own),
        "points": [_point_json(found, point) for point in found.points],
        "next_10_ms": _step_json(found, found.next_10_ms(found.own_point)),
        "next_nine": _step_json(found, found.next_nine(found.own_point)),
        "cheapest_not_worse": None if cheapest is None else _slo_json(cheapest.slo),
    }


def _slo_json(slo: Slo) -> dict[str, Any]:
    return {
        "rt_max_ms": slo.rt_max_s * 1e3,
        "target": slo.attainment,
        "nines": round(nines(slo.attainment), 9),
        "confidence": slo.confidence,
    }


def _point_json(found: Frontier, point: FrontierPoint) -> dict[str, Any]:
    cheaper = found.beaten_by(point)
    run = None if point.result is None else point.result.as_json()
    if run is not None:
        del run["speed"]  # the rest is the same on every machine
    return {
        **_slo_json(point.slo),
        "own": point.slo == found.own,
        "infeasible": point.infeasible or None,
        "kept": point.kept,
        "usd": point.usd,
        "usd_per_month": _point_month(point, point.usd),
        "bound_usd": point.bound_usd,
        "regret": point.regret,
        "beaten_by": None if cheaper is None else _slo_json(cheaper.slo),
        "next_10_ms": _step_json(found, found.next_10_ms(point)),
        "next_nine": _step_json(found, found.next_nine(point)),
        "run": run,
    }


def _step_json(found: Frontier, step: StricterStep | None) -> dict[str, Any] | None:
    if step is None:
        return None
    shared = found.any_result
    month = None if shared is None or step.usd is None else _month(shared, step.usd)
    return {"to": _slo_json(step.to), "usd": step.usd, "usd_per_month": month, "reason": step.reason or None}
