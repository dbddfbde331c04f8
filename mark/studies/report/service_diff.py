"""The monthly cost of a change of a service: as a table, as JSON, and as Markdown for a pull request."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import TYPE_CHECKING

from mark.studies.report.report import DataTable, Report, formatted
from mark.studies.report.takeaway import bill_parts, overflow_share
from mark.studies.report.words import dollars, duration, exact_percent, milliseconds, number, per_month, percent

if TYPE_CHECKING:
    from mark.simulation.result import SimulationResult
    from mark.studies.service_diff import ServiceDiff

_MARKDOWN = re.compile(r"([\\|*_<>`])")  # characters that Markdown would interpret
_HEADS = ("", "before", "after", "change")
_TIE_USD = 0.01  # a month


def service_diff_report(diff: ServiceDiff) -> Report:
    data = {
        "schema": 1,
        "usd_per_month": {
            "before": _month(diff.before),
            "after": _month(diff.after),
            "change": per_month(diff.usd, diff.before.trace.duration_s),
        },
        "change_share": _share(diff),
        "changed": {name: {"before": old, "after": new} for name, (old, new) in diff.changed.items()},
        "before": diff.before.as_json(),
        "after": diff.after.as_json(),
    }
    return Report(
        data,
        parts=[DataTable((_HEADS[0], *formatted(*_HEADS[1:])), _rows(diff))],
        sentences=[_verdict(diff), *_promise(diff)],
        is_told_first=True,
        notes=[*_changed(diff), _basis(diff)],
        read=diff.before.trace.read,
    )


def service_diff_markdown(diff: ServiceDiff) -> str:
    """Return a comment for a pull request: the verdict, a table, the changed settings, and the basis."""
    lines = [f"### {_verdict(diff)}", ""]
    lines += [line for read in [diff.before.trace.read] if read for line in (f"<sub>{_escaped(read)}</sub>", "")]
    lines += [line for sentence in _promise(diff) for line in (sentence, "")]
    lines += [f"| {' | '.join(_HEADS)} |", "|---|---:|---:|---:|"]
    lines += [f"| {' | '.join(row)} |" for row in _rows(diff)]
    lines += ["", *(f"- {_code(line)}" for line in _changed(diff)), "", f"<sub>{_escaped(_basis(diff))}</sub>"]
    return "\n".join(lines) + "\n"


def _verdict(diff: ServiceDiff) -> str:
    month, share = per_month(diff.usd, diff.before.trace.duration_s) or 0.0, _share(diff)
    if abs(month) < _TIE_USD:
        return "This change costs nothing and saves nothing"
    word = "saves" if diff.usd < 0.0 else "costs"
    more = "" if diff.usd < 0.0 else " more"
    return f"This change {word} {dollars(abs(month))} a month{more}" + (
        f" ({100.0 * share:+z.0f} %)" if share is not None else ""
    )


def _promise(diff: ServiceDiff) -> list[str]:
    """Return whether the promise is kept, unless both versions keep it: a change that breaks it saves nothing."""
    said = {True: "keeps its promise", False: "misses its promise", None: "has no request to keep a promise for"}
    before, after = diff.before.kept, diff.after.kept
    if before is after is True:
        return []
    if before == after:
        return [f"Before and after, the service {said[after]}."]
    return [f"Before, the service {said[before]}; after, it {said[after]}."]


def _rows(diff: ServiceDiff) -> list[tuple[str, str, str, str]]:
    before, after = diff.before, diff.after
    parts = bill_parts(before, after)

    def money(old: float, new: float) -> tuple[str, str, str]:
        month = [per_month(amount, before.trace.duration_s) or 0.0 for amount in (old, new, abs(new - old))]
        sign = "" if abs(new - old) < 1e-12 else "-" if new < old else "+"
        return dollars(month[0]), dollars(month[1]), sign + dollars(month[2])

    rows = [("$ a month", *money(before.bill.total, after.bill.total))]
    if len(parts) > 1:
        rows += [(f"of which {part}", *money(old, new)) for part, (old, new) in parts.items()]
    facts: dict[str, Callable[[SimulationResult], str]] = {
        "promise": lambda r: f"{exact_percent(r.slo.attainment)} in {number(r.slo.rt_max_s * 1e3, 0)} ms",
        "in time": lambda r: percent(r.slo_result.attainment, 2),
        "worst minute": lambda r: percent(r.slo_result.worst_minute_attainment),
        "p50 ms": lambda r: milliseconds(r.latency_ms.p50),
        "p98 ms": lambda r: milliseconds(r.latency_ms.p98),
        "by functions": lambda r: percent(overflow_share(r)),
        "rejected": lambda r: f"{r.requests.rejected:,}",
        "instances, mean": _instances,
    }
    return rows + [(name, said(before), said(after), "") for name, said in facts.items()]


def _instances(result: SimulationResult) -> str:
    hours = result.trace.duration_s / 3600.0
    return number(sum(result.fleet.instance_hours.values()) / hours) if hours > 0.0 else "-"


def _changed(diff: ServiceDiff) -> list[str]:
    if not diff.changed:
        return ["no setting differs"]
    return [f"{name}: {_value(old)} → {_value(new)}" for name, (old, new) in diff.changed.items()]


def _basis(diff: ServiceDiff) -> str:
    trace = diff.before.trace
    prices = " and ".join(dict.fromkeys(filter(None, (diff.before.priced, diff.after.priced))))
    return (
        f"{diff.before.policy} on {trace.name}: {trace.requests:,} requests in {duration(trace.duration_s)}, "
        f"extrapolated to a month of 730 h; prices of {prices}; seed {diff.before.seed}"
    )


def _value(value: object) -> str:
    if value is None or value == "":
        return "none"
    return f"{value:g}" if isinstance(value, float) else str(value)


def _code(line: str) -> str:
    """Return the line with the setting's name as code."""
    name, colon, rest = line.partition(": ")
    return f"`{name}`: {_escaped(rest)}" if colon else line


def _escaped(words: str) -> str:
    return _MARKDOWN.sub(r"\\\1", words)


def _month(result: SimulationResult) -> float | None:
    return per_month(result.bill.total, result.trace.duration_s)


def _share(diff: ServiceDiff) -> float | None:
    return diff.usd / diff.before.bill.total if diff.before.bill.total > 0.0 else None
