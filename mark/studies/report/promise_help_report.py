"""The chance that a promise is kept, in words, and the changes that would help."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from mark.domain.promise_help import HelpKind, PromiseHelp
from mark.domain.promise_outlook import PromiseOutlook
from mark.domain.slo import Slo
from mark.domain.time import DAY_S
from mark.studies.report.report import DataTable, Prose
from mark.studies.report.words import duration, exact_percent, percent, percent_0, usd

if TYPE_CHECKING:
    from mark.simulation.result import SimulationResult
    from mark.studies.promise_outlook import RunOutlook

_NONE = "No change that was tried helps: more instances, other types, functions, up to 4 x RT_max."


def stated_words(results: Mapping[str, SimulationResult]) -> list[str]:
    """Return the least confidence that plans stated and the windows kept, for the first policy that states one."""
    for name, result in results.items():
        run, slo = result.promise, result.slo
        if run.least_confidence is None:
            continue
        kept = f"{run.kept(slo)} of {len(run.windows)} {window(slo)}s kept it"
        if len(run.windows) == 1:
            length = duration(min(slo.window_s, result.trace.duration_s))
            kept = f"this run of {length} {'kept' if run.kept(slo) else 'missed'} it"
        return [
            f"{name} planned with a probability of at least {percent(run.least_confidence, 0)} that a {window(slo)} "
            f"keeps the promise (slo_confidence asks for {exact_percent(slo.confidence, 0)}); {kept}."
        ]
    return []


def outlook_parts(outlook: PromiseOutlook, by: str = "") -> list[Prose | DataTable]:
    """Return a sentence, and a table of helpful changes if the promise cannot be kept at its confidence.

    `by` is the time that it is judged by, unless that is the time before now.
    """
    title = "How likely is the promise?"
    if outlook.can_be_had or not outlook.helps:
        none = [] if outlook.can_be_had else [Prose([_NONE])]
        return [Prose([outlook_words(outlook, by)], title), *none]
    heads = ("the changes that would help most", ("kept with", percent_0), ("$/h", usd), ("against\nnow", str))
    rows = [
        (help_words(one), one.confidence, cost, "" if cost is None else f"{cost - outlook.usd_per_hour:+z.2f}")
        for one in outlook.helps
        for cost in [one.usd_per_hour]
    ]
    return [Prose([outlook_words(outlook, by)], title), DataTable(heads, rows, "Changes that would help most")]


def outlook_words(outlook: PromiseOutlook, by: str = "") -> str:
    """Return whether the promise can be kept at its confidence, and for how many dollars."""
    slo = outlook.slo
    promise = (
        f"{exact_percent(slo.attainment, 2)} of the requests of each {window(slo)} within {slo.rt_max_s * 1e3:g} ms"
    )
    likely = f"a probability of at most {percent(outlook.confidence, 0)}"
    asked = exact_percent(slo.confidence, 0)
    if outlook.can_be_had:
        likely = f"a probability of {asked}, as slo_confidence asks"
    wanted = "" if outlook.can_be_had else f"; slo_confidence asks for {asked}"
    cost = f", for about {usd(outlook.usd_per_hour)}/h on average with {outlook.offer} alone"
    if not by and 0.0 < outlook.seen_s < min(slo.window_s, DAY_S):
        # a few hours of a night say little about the day after it
        alike = f"If the whole {window(slo)} is like the last {duration(outlook.seen_s)}"
        more = f"A past of at least {duration(2.0 * min(slo.window_s, DAY_S))} would show a whole {window(slo)}."
        return f"Promise: {promise}. {alike}, it can be kept with {likely}{cost}{wanted}. {more}"
    by = by or (f"the last {duration(outlook.seen_s)}" if outlook.seen_s else "the forecast alone")
    if outlook.can_be_had and not outlook.seen_s:
        cost = ""  # the plan states its own cost, which is not that of the forecast alone
    return f"Promise: {promise}. It can be kept with {likely}{cost} (judged by {by}){wanted}."


def judged_by(run: RunOutlook) -> str:
    """Return the time that a run's outlook is judged by, as a noun."""
    seen_s = run.outlook.seen_s
    span = "the day" if abs(seen_s - DAY_S) < 1.0 else duration(seen_s)
    return f"{span} from {duration(run.from_s) if run.from_s > 0.0 else 'the start'} on"


def window(slo: Slo) -> str:
    """Return the window of a promise, as a noun."""
    return "day" if slo.window_s == DAY_S else f"{duration(slo.window_s)} window"


def help_words(one: PromiseHelp) -> str:
    """Return the change as the user would write it."""
    match one.kind:
        case HelpKind.RT_MAX:
            assert one.rt_max_s is not None
            assert one.longer_s is not None
            return f"slo_ms = {one.rt_max_s * 1e3:g} (RT_max + {one.longer_s * 1e3:.3g} ms)"
        case HelpKind.ATTAINMENT:
            return f"slo_attainment = {one.attainment:g}"
        case HelpKind.TYPE:
            return f"instances = [{one.instance}]"
        case HelpKind.FUNCTION:
            return f"[overflow] function = {one.instance}"
        case HelpKind.WARM_POOL:
            return f"[fleet] warm_pool = {one.instances}"
        case HelpKind.LIMITS:
            return f"limits for {one.instances} instances (max_instances, max_usd_per_hour)"
        case HelpKind.MORE_INSTANCES:
            return f"always {one.instances} more than planned"


def tail_words(helps: Sequence[PromiseHelp]) -> str:
    """Return helpful changes for an error that no type can keep the promise; "" without a change."""
    if not helps:
        return ""
    return "; these changes would help: " + ", or ".join(f"{help_words(one)}{_each(one)}" for one in helps)


def _each(one: PromiseHelp) -> str:
    if one.usd_per_hour is None:
        return ""
    of = f" of {one.instance}" if one.kind is not HelpKind.TYPE else ""
    return f" at {usd(one.usd_per_hour)}/h an instance{of}"
