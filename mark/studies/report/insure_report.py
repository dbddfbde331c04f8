"""The cost of protection against slow instances, and trained parity models, as tables, as JSON, and as a page."""

from __future__ import annotations

import math
from functools import partial
from typing import TYPE_CHECKING, Any

from mark.domain.offer import instance_of
from mark.domain.time import MINUTE_S
from mark.studies.insure import FEWEST_PERIODS, HEDGE, INSTANCES, NONE, PARITY, REPLICATE, most_instances
from mark.studies.report.figure_style import COLOURS, new_figure, styled
from mark.studies.report.report import DataTable, Head, Marked, Plot, Report
from mark.studies.report.takeaway import listed
from mark.studies.report.words import count, dollars, duration, milliseconds, per_month, percent, percent_2

if TYPE_CHECKING:
    from collections.abc import Mapping

    from plotly.graph_objects import Figure

    from mark.domain.faults import Faults
    from mark.models.parity_training import ParityTraining
    from mark.studies.insure import Insurance, InsuredFleet, OtherShare

_HEADS: tuple[Head, ...] = (
    *("option", ("settings", str), ("instances", str), ("$ a month", dollars), ("in time %", str)),
    *(("degraded", percent_2), ("p99.9 ms", milliseconds)),
)
_WITH_ACCURACY: tuple[Head, ...] = (*_HEADS, ("accuracy", percent_2))
_NAMES = {
    NONE: "The fleet without protection",
    INSTANCES: "More instances",
    HEDGE: "Hedging",
    PARITY: "Parity models",
    REPLICATE: "Replication",
}
_MEASURE = (
    "no faults are known, so every instance has its usual speed here. A running service measures them: save "
    "/metrics of its instances into one file, and give it with --faults"
)


def insure_report(found: Insurance) -> Report:
    told = takeaways(found)
    advised = found.advised
    data = {
        "schema": 1,
        "service": found.service,
        "slo": {"rt_max_ms": found.slo.rt_max_s * 1e3, "target": found.slo.attainment},
        "faults": faults_words(found.faults),
        "offer": found.offer,
        "request_ms": found.request_s * 1e3,
        "requests": found.requests,
        "trace": {"read": found.read},
        "duration_s": found.duration_s,
        "options": [_fleet_json(found, one) for one in found.options],
        "others": [
            {
                "slow_share": other.slow_share,
                "options": [_fleet_json(found, one) for one in other.options],
                "same_advice": found.agrees(other),
            }
            for other in found.others
        ],
        "advice": {"option": None if advised is None else advised.option, "why": " ".join(told)},
    }
    options = DataTable(_heads(found), [_cells(found, one) for one in found.options], "Options")
    bars = Plot("Dollars a month", partial(month_figure, found), "Hollow: the promise is not kept.")
    return Report(
        data,
        _headline(found),
        [bars, options],
        told,
        _notes(found),
        read=found.read,
        subject="protection against slow instances",
    )


def month_figure(found: Insurance) -> Figure:
    """Return a bar for each option: the instances, and on top of them the second fleet with its conductors."""
    figure = new_figure()
    names = [one.option for one in found.options]
    months = [_month(found, one) or 0.0 for one in found.options]
    fills = [COLOURS[0] if one.able else "rgba(0,0,0,0)" for one in found.options]
    figure.add_bar(
        x=names,
        y=months,
        marker={"color": fills, "line": {"color": COLOURS[0], "width": 1.5}},
        hovertemplate="$%{y:,.2f} a month<extra></extra>",
        showlegend=False,
    )
    figure.update_yaxes(title_text="$ a month", rangemode="tozero")
    return styled(figure, 340)


def takeaways(found: Insurance) -> list[str]:
    """Return the option to buy, why the others are worse, and how much the choice depends on the faults."""
    advised, promise = found.advised, _promise(found)
    if advised is None:
        best = max(found.options, key=lambda one: one.attainment)
        return [
            f"No option keeps {promise}; closest is {_bought(found, best)} with {percent(best.attainment, 2)}.",
            "Ask for less (slo_ms, slo_attainment), or for instances that are slow less often.",
            *_too_short(found, best),
        ]
    first = f"Buy {_bought(found, advised)}: {percent(advised.attainment, 2)} are in time, and {promise} are promised."
    if advised.option == NONE:
        first = f"Buy no protection: {_bought(found, advised)} keeps {promise} with {percent(advised.attainment, 2)}."
    lines = [first, *_others_words(found, advised)]
    if advised.option == HEDGE:
        after_ms = advised.settings["hedge_after_ms"]
        lines.append(
            f"Set [insurance] hedge_after_ms = {after_ms:g}, or the same delay where requests are sent from: Envoy's "
            f"hedge_policy with a per_try_timeout of {after_ms:g} ms, gRPC's hedgingPolicy."
        )
    lines += _too_short(found, advised)
    if found.others:
        lines.append(_hangs_on(found))
    return lines


def faults_words(faults: Faults) -> str:
    """Return the faults in a phrase, empty without faults."""
    said = []
    if faults.slows:
        longer = [f"x {faults.slow_factor:g}"] if faults.slow_factor > 1.0 else []
        longer += [f"+ {faults.slow_add_s * 1e3:g} ms"] if faults.slow_add_s > 0.0 else []
        group = f", {faults.host_group} at a time" if faults.host_group > 1 else ""
        said.append(
            f"slow {percent(faults.slow_share)} of the time ({' '.join(longer)}, for {faults.slow_s:g} s{group})"
        )
    if faults.hangs:
        said.append(f"{faults.hangs_per_hour:g} hangs of {faults.hang_s:g} s an hour")
    return listed(said)


def _too_short(found: Insurance, fleet: InsuredFleet) -> list[str]:
    """Return a warning if the part has too few faults of this fleet, as a list of one line; else an empty list."""
    periods = found.fault_periods(fleet)
    if not found.faults.any or periods >= FEWEST_PERIODS:
        return []
    least = duration(math.ceil(found.duration_s * FEWEST_PERIODS / periods / MINUTE_S) * MINUTE_S)
    return [
        f"The part is too short to rely on this: its instances are slow or hang {periods:.2g} times in it. Simulate at "
        f"least {least} (--duration, or a longer trace)."
    ]


def _others_words(found: Insurance, advised: InsuredFleet) -> list[str]:
    never, others = [], []
    for one in found.options:
        if one.option in (NONE, advised.option) or (one.option, _fleet(one)) == (INSTANCES, _fleet(advised)):
            continue
        if one.able:
            more = (_month(found, one) or 0.0) - (_month(found, advised) or 0.0)
            said = f"{dollars(more)} a month more" if more >= 0.005 else "at the same price"
            others.append(f"{_NAMES[one.option].lower()} ({_fleet(one)}, {said})")
        elif one.worse and one.keeps:
            never.append(f"{_NAMES[one.option].lower()} only with a longer tail than without")
        else:
            never.append(f"{_NAMES[one.option].lower()} ({percent(one.attainment, 2)} at best)")
    lines = [f"Other fleets that keep the promise: {listed(others)}."] if others else []
    calm = found.of(NONE)
    if never and calm is not None:
        lines.append(f"With up to {most_instances(calm.instances)} instances these do not keep it: {listed(never)}.")
    return lines


def _hangs_on(found: Insurance) -> str:
    """Return whether other shares of slow time change the advice."""
    said = [_other_words(found, other) for other in found.others]
    return _sentence("; ".join(said))


def _other_words(found: Insurance, other: OtherShare) -> str:
    share = f"if instances are slow {percent(other.slow_share)} of the time" if found.faults.slows else ""
    share = share or f"with {other.times:g} times as many hangs"
    advised = other.advised
    if advised is None:
        return f"{share}, neither of the two cheapest options keeps the promise"
    if found.agrees(other):
        return f"{share}, the advice stays ({_fleet(advised)})"
    return f"{share}, {_NAMES[advised.option].lower()} would be cheapest ({_fleet(advised)})"


def _sentence(words: str) -> str:
    return f"{words[:1].upper()}{words[1:]}."


def _notes(found: Insurance) -> list[str]:
    lines = []
    if found.leaves_out_crashes:
        lines.append("crashes are left out, because nothing replaces an instance in these runs; mark simulate has them")
    elif not found.faults.any:
        lines.append(_MEASURE)
    if found.of(HEDGE) is None:
        why = 'an ALB sends no second copies; mark\'s gateway does (routing = "least-completion")'
        short = (
            f"RT_max leaves no time for a second copy of a request that takes {milliseconds(found.request_s * 1e3)} ms"
        )
        lines.append(f"hedge is left out: {why if found.routing == 'alb' else short}")
    for one in found.options:
        if one.in_doubt(found.slo):
            lines.append(
                f"{one.option}: {percent(one.attainment, 2)} +- {percent(one.half_interval, 2)} lies too close to the "
                "promise to be sure; simulate a longer part, or other seeds (--seed)"
            )
        if one.worse:
            lines.append(f"{one.option}: more late requests or a longer tail than the same instances without it")
    lines.append("fixed fleets, found by simulation; nothing is refused, and no autoscaler or function helps")
    if found.of(PARITY) is not None:
        lines.append(
            "parity and replicate: dollars with 2 conductors and their balancer; reconstructions count as right"
        )
    if found.priced:
        lines.append(f"prices of {found.priced}")
    return lines


def _headline(found: Insurance) -> str:
    faults = faults_words(found.faults) or "no instance is slow"
    return (
        f"{found.service} on {instance_of(found.offer)}, {milliseconds(found.request_s * 1e3)} ms a request: "
        f"{count(found.requests)} requests in {duration(found.duration_s)}; {faults}"
    )


def _promise(found: Insurance) -> str:
    return f"{100.0 * found.slo.attainment:.10g} % within {found.slo.rt_max_s * 1e3:,.6g} ms"


def _heads(found: Insurance) -> tuple[Head, ...]:
    return _HEADS if all(one.accuracy is None for one in found.options) else _WITH_ACCURACY


def _cells(found: Insurance, one: InsuredFleet) -> list[Any]:
    kept = "ok" if one.able else "WORSE" if one.worse else "MISSED"
    cells = [
        Marked(one.option, "strong" if one == found.advised else ""),
        *(_settings(one), _count(one), _month(found, one)),
        Marked(f"{percent(one.attainment, 2).removesuffix(' %')} {kept}", "ok" if one.able else "missed"),
        *(one.degraded if one.option == PARITY else "", one.p999_s * 1e3),
    ]
    return cells if _heads(found) is _HEADS else [*cells, "" if one.accuracy is None else one.accuracy]


def _settings(one: InsuredFleet) -> str:
    if one.option == HEDGE:
        return f"{one.settings['hedge_after_ms']:g} ms"
    return f"k = {one.settings['k']}" if one.option == PARITY else ""


def _count(one: InsuredFleet) -> str:
    return f"{one.instances} + {one.parity_instances}" if one.parity_instances else str(one.instances)


def _fleet(one: InsuredFleet) -> str:
    settings = f", {_settings(one)}" if _settings(one) else ""
    return f"{_count(one)} instance{'' if _count(one) == '1' else 's'}{settings}"


def _bought(found: Insurance, one: InsuredFleet) -> str:
    name = {NONE: "a fleet", INSTANCES: "more instances", HEDGE: "hedging", PARITY: "parity models"}
    month = dollars(_month(found, one))
    return f"{name.get(one.option, 'replication')} ({_fleet(one)}, {month} a month)"


def _month(found: Insurance, one: InsuredFleet) -> float | None:
    return per_month(one.usd, found.duration_s)


def _fleet_json(found: Insurance, one: InsuredFleet) -> dict[str, Any]:
    return {
        "option": one.option,
        "settings": dict(one.settings),
        "instances": one.instances,
        "parity_instances": one.parity_instances,
        "usd_per_month": _month(found, one),
        "attainment": one.attainment,
        "half_interval_95": one.half_interval,
        "keeps": one.able,
        "worse": one.worse,
        "degraded": one.degraded,
        "accuracy": one.accuracy,
        "parity_busy": one.parity_busy,
        "p999_ms": one.p999_s * 1e3,
    }


def training_report(found: ParityTraining, written: Mapping[str, Any], folder: str) -> Report:
    """Return the trained models; `written` is the content of parity.json."""
    data = {
        "schema": 1,
        "available_accuracy": found.available_accuracy,
        "codes": [
            {
                "code": one.code.name,
                "k": one.code.k,
                "degraded_accuracy": one.degraded_accuracy,
                "train_s": one.train_s,
            }
            for one in found.codes
        ],
        "chosen": dict(written),
    }
    best = found.chosen
    rows = [
        (
            Marked(one.code.name, "strong" if one is best else ""),
            *(one.code.k, found.available_accuracy, one.degraded_accuracy, one.train_s),
        )
        for one in found.codes
    ]
    said = (
        f"{folder} has the parity models of {best.code.name} with k = {best.code.k}: write [insurance] parity = "
        f'"{folder}" into the service file.'
    )
    notes = ["A_a: accuracy of the model's own answers; A_d: of reconstructions of one missing answer of a group"]
    if not found.labelled:
        notes.append("the data has no labels (y): the model's own answers count as right")
    heads = ("code", ("k", str), ("A_a", percent), ("A_d", percent), ("seconds", "{:,.1f}".format))
    return Report(data, parts=[DataTable(heads, rows)], sentences=[said], notes=notes)
