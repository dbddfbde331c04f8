"""A planned pipeline as a report: the promise, the bill, and each stage's share of it."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from mark.domain.price_list import usd_per_hour_per_ms
from mark.domain.profile import weakest
from mark.planning.graphs.estimate import usd_per_hour, with_more
from mark.planning.graphs.explained_plan import MOST_HEADROOM
from mark.planning.graphs.promise_judge import CONFIDENCE
from mark.studies.report.graph import drawn
from mark.studies.report.pipeline_figures import GRAPH_LEAD, SPENT_LEAD, graph_drawing, spent_figure
from mark.studies.report.report import DataTable, Marked, Plot, Prose, Report
from mark.studies.report.selection_report import selection_json, selection_sentences
from mark.studies.report.words import (
    HOURS_PER_MONTH,
    count,
    dollars,
    duration,
    grouped,
    milliseconds,
    number,
    number_1,
    percent,
    percent_0,
    percent_2,
    rate,
    usd,
)

if TYPE_CHECKING:
    from mark.domain.price_list import SloPrice
    from mark.planning.graphs.estimate import Choices
    from mark.planning.graphs.explained_plan import PipelinePlan
    from mark.simulation.selected_calls import SelectionRun
    from mark.studies.pipeline_plan import PlannedPipeline


def pipeline_plan_report(planned: PlannedPipeline) -> Report:
    """Return the instances to buy, the shares of dollars and milliseconds, and the costs of alternatives."""
    plan = planned.plan
    graph = zip(drawn(plan.pipeline), plan.pipeline.names, strict=True)
    chosen = _selection_words(planned)
    return Report(
        _json(planned),
        parts=[
            Marked(""),
            *(Marked(f"{left} {name}") for left, name in graph),
            Plot("The graph", partial(graph_drawing, plan), GRAPH_LEAD),
            Plot("Where the milliseconds and the dollars go", partial(spent_figure, plan), SPENT_LEAD),
            _stages(plan),
            *([_packs(plan)] if shares_instances(plan) else []),
            Marked("Where the milliseconds go", "strong"),
            Prose(_promise(planned), "The promise", is_strong=False),
            _milliseconds(plan),
            Marked("Alternatives and their cost", "strong"),
            _alternatives(plan),
            *([Prose(chosen, "The selection")] if chosen else []),
            Prose(_closing(planned), "Limits"),
        ],
        sentences=_headline(planned),
        is_told_first=True,
        notes=planned.notes,
        read=planned.read,
        subject=planned.config.name,
    )


def _json(planned: PlannedPipeline) -> dict[str, Any]:
    """Return the JSON that docs/json.md describes."""
    plan, window = planned.plan, planned.window
    found, latency_s = plan.found, plan.seen.latency_s
    return {
        "schema": 1,
        "service": planned.config.name,
        "slo": {"rt_max_ms": plan.slo.rt_max_s * 1e3, "target": plan.slo.attainment},
        "priced": planned.priced,
        "window": {
            "trace": planned.trace,
            "read": planned.read,
            "searched_from_s": planned.at_s,
            "searched_until_s": planned.until_s,
            "start_s": window.start_s,
            "duration_s": window.duration_s,
            "queries": len(latency_s),
            "queries_per_s": len(latency_s) / window.duration_s,
        },
        "usd_per_hour": found.usd_per_hour,
        "usd_per_month": found.usd_per_hour * HOURS_PER_MONTH,
        "usd_per_million_queries": _per_million(planned),
        **_selection_json(planned),
        "bound_usd_per_hour": None if planned.bound is None else planned.bound.usd_per_hour,
        "fixed_fleet_regret": _fixed_fleet_regret(planned),
        "attainment": 1.0 - found.miss_share,
        "miss_limit": found.miss_limit,
        "confidence": CONFIDENCE,
        "headroom": plan.headroom,
        "latency_ms": {
            "mean": float(latency_s.mean()) * 1e3,
            **{name: plan.seen.quantile_s(share) * 1e3 for name, share in _QUANTILES},
            "max": float(latency_s.max()) * 1e3,
        },
        "stages": [_stage_json(planned, stage) for stage in range(len(plan.pipeline.stages))],
        "packs": [
            {
                "instance": pack.instance,
                "count": pack.count,
                "on_each": [
                    {"stage": name, "workers": workers}
                    for name, workers in zip(plan.pipeline.names, pack.workers, strict=True)
                    if workers
                ],
                "usd_per_hour": pack.usd_per_hour,
            }
            for pack in plan.packs
        ],
        "separate_usd_per_hour": plan.separate_usd_per_hour,
        "bottleneck": plan.pipeline.names[plan.bottleneck],
        "other_slos": [other.as_json(found.usd_per_hour) for other in plan.other_slos],
        "usd_per_hour_per_ms": usd_per_hour_per_ms(plan.other_slos),
        "inferline": plan.inferline
        and {
            "usd_per_hour": plan.inferline.usd_per_hour,
            "miss_limit": plan.inferline.miss_limit,
            "stages": _bought(plan, plan.inferline.choices),
        },
        "search": {"complete": plan.complete, "calls_simulated": found.calls_simulated},
        "skipped": [
            {"stage": stage, "instance": instance, "reason": reason}
            for stage, reasons in planned.skipped.items()
            for instance, reason in reasons.items()
        ],
        "notes": list(planned.notes),
    }


_QUANTILES = (("p50", 0.50), ("p95", 0.95), ("p99", 0.99))


def _selection_json(planned: PlannedPipeline) -> dict[str, Any]:
    if planned.selection is None:
        return {}
    queries = len(planned.plan.sample.arrivals_s)
    return {"selection": selection_json(planned.selection, _window_usd(planned, planned.selection), queries)}


def _selection_words(planned: PlannedPipeline) -> list[str]:
    """Return sentences on the selection in the window; empty without one."""
    run = planned.selection
    return [] if run is None else selection_sentences(run, _window_usd(planned, run))


def _window_usd(planned: PlannedPipeline, run: SelectionRun) -> float:
    """Return the cost of the fleet during the window, and of calls that are paid by the call."""
    return planned.plan.found.usd_per_hour * planned.window.duration_s / 3600.0 + run.call_usd


def _stage_json(planned: PlannedPipeline, s: int) -> dict[str, Any]:
    plan = planned.plan
    stage, seen, less = plan.pipeline.stages[s], plan.seen.stages[s], plan.one_less[s]
    bought = _bought(plan, plan.found.choices)[s]
    return {
        **bought,
        "hardware": ", ".join(option.hardware for option, _ in plan.found.choices[s].parts),
        "replicas": sum(pack.count for pack in plan.packs if pack.workers[s]),
        "usd_per_hour": plan.stage_usd_per_hour[s],
        "model": stage.model,
        "after": list(stage.after),
        "share": planned.lineage.shares[s],
        "calls_per_query": float(plan.sample.calls[:, s].mean()),
        "workers": plan.found.choices[s].workers,
        "bound_usd_per_hour": None if planned.bound is None else planned.bound.stages[s],
        "basis": str(weakest(planned.options[s][option.hardware].basis for option, _ in plan.found.choices[s].parts)),
        "utilisation": seen.utilisation,
        "mean_batch": seen.batch,
        "wait_ms": seen.wait_s * 1e3,
        "service_ms": seen.service_s * 1e3,
        "path_ms": plan.path_s[s] * 1e3,
        "slow_path_ms": plan.slow_path_s[s] * 1e3,
        "one_more": {"headroom": plan.one_more[s]},
        "one_less": None if less is None else {"miss_limit": less},
    }


def _bought(plan: PipelinePlan, choices: Choices) -> list[dict[str, Any]]:
    return [
        {
            "stage": name,
            "hardware": choice.option.hardware,
            "replicas": choice.replicas,
            "batch": choice.batch,
            "usd_per_hour": choice.usd_per_hour,
        }
        for name, choice in zip(plan.pipeline.names, choices, strict=True)
    ]


def _headline(planned: PlannedPipeline) -> list[str]:
    plan, window = planned.plan, planned.window
    queries = len(plan.sample.arrivals_s)
    looked_at = duration(planned.until_s - planned.at_s)
    busiest = f"the busiest {duration(planned.busiest.duration_s)}"
    if window.duration_s < planned.busiest.duration_s:
        busiest = f"the first {duration(window.duration_s)} of {busiest}"
    where = f"{busiest} of {looked_at} from {number(planned.at_s, 0)} s on"
    if window.duration_s >= planned.until_s - planned.at_s:
        where = f"{looked_at} from {number(planned.at_s, 0)} s on"
    return [
        f"{planned.config.name}: {usd(plan.found.usd_per_hour)}/h keeps {100.0 * plan.slo.attainment:g} % of the "
        f"queries within {plan.slo.rt_max_s * 1e3:g} ms",
        f"Planned for {where} ({planned.trace}): {count(queries)} queries from {number(window.start_s, 0)} s, "
        f"{rate(queries / window.duration_s)} a second. It is one fixed fleet for this load; nothing here follows the "
        "traffic when there is less of it.",
    ]


def _stages(plan: PipelinePlan) -> DataTable:
    """Return a row for each stage. If they share instances, counts are workers, and each has its part of dollars."""
    shared = shares_instances(plan)
    of_all = plan.found.usd_per_hour
    counts = [choice.workers if shared else choice.replicas for choice in plan.found.choices]
    heads = (
        *("stage", "on", ("workers" if shared else "count", grouped), ("batch\nup to", grouped)),
        *(("mean", number_1), ("busy", percent_0), ("$/h", usd), ("of the\ndollars", percent_0)),
    )
    rows: list[list[Any]] = []
    for s, (name, choice, seen) in enumerate(
        zip(plan.pipeline.names, plan.found.choices, plan.seen.stages, strict=True)
    ):
        hardware = ", ".join(option.hardware for option, _ in choice.parts)
        of_stage = plan.stage_usd_per_hour[s]
        rows.append(
            [name, hardware, counts[s], choice.batch, seen.batch, seen.utilisation, of_stage, of_stage / of_all]
        )
    return DataTable(heads, [*rows, ["all", "", sum(counts), "", "", "", of_all, ""]], "Stage by stage")


def shares_instances(plan: PipelinePlan) -> bool:
    """Return whether several stages share instances, or may share them."""
    return any(choice.option.placement is not None for choice in plan.found.choices)


def _packs(plan: PipelinePlan) -> DataTable:
    """Return the instances to buy, by the workers on them."""
    rows = []
    for pack in plan.packs:
        on_it = [f"{name} {n:,}" for name, n in zip(plan.pipeline.names, pack.workers, strict=True) if n]
        rows.append([pack.instance, pack.count, pack.usd_per_hour, "each: " + ", ".join(on_it)])
    return DataTable(("buy", ("instances", grouped), ("$/h", usd), ""), rows, "Fleet to buy")


def _promise(planned: PlannedPipeline) -> list[str]:
    plan = planned.plan
    found = plan.found
    late = (
        f"{percent(found.miss_share, 2)} of these queries are late; of new traffic of this kind no more than "
        f"{percent(found.miss_limit, 2)}, with {100.0 * CONFIDENCE:g} % confidence. The promise allows "
        f"{100.0 * (1.0 - plan.slo.attainment):g} %."
    )
    monthly = dollars(found.usd_per_hour * HOURS_PER_MONTH)
    return [
        f"From query to answer: p50 {_ms(plan.seen.quantile_s(0.5))}, p95 {_ms(plan.seen.quantile_s(0.95))}, "
        f"p99 {_ms(plan.seen.quantile_s(0.99))} ms. {late}",
        f"At this load a million queries cost {dollars(_per_million(planned))}, and a month {monthly}.",
    ]


def _milliseconds(plan: PipelinePlan) -> DataTable:
    """Return rows of stages: times of a call, then of a query along its critical path, mean and slowest."""
    less_head = f"one {'worker' if shares_instances(plan) else 'replica'} less:\nlate, at most"
    heads = (
        *("stage", ("calls\na query", number), ("wait\nms", _ms), ("batch\nms", _ms), ("of the\nmean query", _ms)),
        *(("of the\nslowest 1 %", _ms), (less_head, percent_2)),
    )
    rows: list[list[Any]] = []
    for s, (name, seen) in enumerate(zip(plan.pipeline.names, plan.seen.stages, strict=True)):
        less = plan.one_less[s]
        late = "the only one" if less is None else "falls behind" if less == 1.0 else less
        times = (seen.wait_s, seen.service_s, plan.path_s[s], plan.slow_path_s[s])
        rows.append([name, float(plan.sample.calls[:, s].mean()), *times, late])
    rows.append(["all", "", "", "", np.sum(plan.path_s), np.sum(plan.slow_path_s), ""])
    return DataTable(heads, rows, "The milliseconds of a call, and of a query")


def _alternatives(plan: PipelinePlan) -> DataTable:
    """Return the plan, and the costs of stricter and looser promises, separate instances and InferLine's planner."""
    rows: list[list[Any]] = [["this plan", plan.found.usd_per_hour, "", plan.found.miss_limit]]
    rows += [[_within(plan, other), *_costs(plan, other.usd_per_hour), ""] for other in plan.other_slos]
    if plan.separate_usd_per_hour is not None:
        rows.append(["each stage on instances of its own", *_costs(plan, plan.separate_usd_per_hour), ""])
    single = plan.inferline
    costs = ["finds none", "", ""] if single is None else [*_costs(plan, single.usd_per_hour), single.miss_limit]
    rows.append(["InferLine's planner: single moves, one sample", *costs])
    heads = ("", ("$/h", usd), ("against\nplan", str), ("late,\nat most", percent_2))
    return DataTable(heads, rows, "Alternatives and their cost")


def _within(plan: PipelinePlan, other: SloPrice) -> str:
    shift_ms = (other.rt_max_s - plan.slo.rt_max_s) * 1e3
    return f"{abs(shift_ms):.0f} ms {'more' if shift_ms > 0.0 else 'less'}: within {other.rt_max_s * 1e3:g} ms"


def _costs(plan: PipelinePlan, usd_per_hour: float | None) -> tuple[str, str]:
    if usd_per_hour is None:
        return "not possible", ""
    difference = usd_per_hour - plan.found.usd_per_hour
    return usd(usd_per_hour), "same" if abs(difference) < 0.005 else f"{difference:+.2f}"


def _closing(planned: PlannedPipeline) -> list[str]:
    plan = planned.plan
    s = plan.bottleneck
    name, hardware = plan.pipeline.names[s], plan.found.choices[s].option
    same = "(the same arrivals, closer together)"
    unit = "worker" if shares_instances(plan) else "replica"
    more = f"worker more on {hardware.hardware}" if shares_instances(plan) else f"{hardware.hardware} more"
    usd_more = usd_per_hour(with_more(plan.found.choices, s, 1)) - plan.found.usd_per_hour
    if plan.headroom >= MOST_HEADROOM:
        lines = [f"This fleet keeps the promise on {_times(plan.headroom)} this traffic {same}."]
    elif plan.one_more[s] <= plan.headroom:
        lines = [
            f"This fleet keeps the promise on up to {_times(plan.headroom)} this traffic {same}. One {unit} more of "
            f"one stage alone changes nothing; the busiest is {name}."
        ]
    else:
        lines = [
            f"The bottleneck is {name}. This fleet keeps the promise on up to {_times(plan.headroom)} this traffic "
            f"{same}, with one {more} for {name} ({usd(usd_more)}/h) on {_times(plan.one_more[s])}."
        ]
    single, allowed = plan.inferline, 1.0 - plan.slo.attainment
    if single is not None and single.miss_limit > allowed and single.usd_per_hour < plan.found.usd_per_hour:
        lines.append(
            f"InferLine's plan is cheaper because it trusts one sample: of new traffic up to "
            f"{percent(single.miss_limit, 2)} would be late, where {100.0 * allowed:g} % may be."
        )
    regret = _fixed_fleet_regret(planned)
    if planned.bound is not None and regret is not None:
        fleet = "whose workers have the same share" if shares_instances(plan) else "of instances for one stage each"
        least = (
            f"No fixed fleet {fleet} keeps the promise on these queries for less than "
            f"{usd(planned.bound.usd_per_hour)}/h, even if it knows them all in advance"
        )
        lines.append(f"{least}. This plan costs {regret:.2f} times that.")
    if not plan.complete:
        lines.append("A search ended for its bound on work: there may be something cheaper.")
    return lines


def _fixed_fleet_regret(planned: PlannedPipeline) -> float | None:
    """Return dollars over the least of a fixed fleet; a run's regret is over a bound whose fleets change."""
    bound = planned.bound
    return planned.plan.found.usd_per_hour / bound.usd_per_hour if bound is not None and bound.usd_per_hour else None


def _times(headroom: float) -> str:
    return f"{'more than ' if headroom >= MOST_HEADROOM else ''}{headroom:g} times"


def _per_million(planned: PlannedPipeline) -> float:
    per_s = len(planned.plan.sample.arrivals_s) / planned.window.duration_s
    return planned.plan.found.usd_per_hour / 3600.0 / per_s * 1e6


def _ms(seconds: float) -> str:
    return milliseconds(float(seconds) * 1e3)
