"""The conclusions: the policies that kept the promise, its cost against others, and the limits of the numbers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, fields
from typing import Any

from mark.domain.bill import Bill
from mark.domain.time import DAY_S, HOUR_S
from mark.planning.policies.names import AS_IS, BEST_FIXED, FIXED
from mark.simulation.result import SimulationResult
from mark.studies.report.report import Mark, Marked
from mark.studies.report.words import (
    count,
    dollars,
    duration,
    exact_percent,
    number,
    per_month,
    percent,
    rate,
    usd,
    usd_apart,
)
from mark.studies.saving_range import saving_range

# SageMaker's policies, the fairest endpoint first: the plain one has one unbatched type.
MANAGED = ("target-tracking-best", "target-tracking")
_WITH_LSTM = ("mark-paper", "mark-optimal")  # the paper's system forecasts with its LSTM
_DARK = 0.5  # of a minute's requests in time: below, users of that minute would not call the promise kept
_TIE = 0.01  # a saving below a hundredth does not justify a moving part
_WHOLE_DAY_S = 0.99 * DAY_S  # the first and last request of a day are not at midnight

MARKETS: tuple[str, ...] = tuple(field.name for field in fields(Bill))
_MARKET_NAMES = {"sagemaker": "SageMaker", "other": "balancer, disks, controller"}


def market_name(field: str) -> str:
    """Return a field of Bill as people write it."""
    return _MARKET_NAMES.get(field) or field.replace("_", "-")


def bill_parts(*results: SimulationResult) -> dict[str, list[float]]:
    """Return the dollars of every bill by part, in which any spent some: by market, and the controller apart."""
    parts = {market_name(market): [getattr(one.bill, market) for one in results] for market in MARKETS}
    others = parts.pop(market_name("other"))
    parts["balancer, disks"] = [usd - one.controller_usd for usd, one in zip(others, results, strict=True)]
    parts["controller"] = [one.controller_usd for one in results]
    return {part: amounts for part, amounts in parts.items() if any(amounts)}


def keeps_every_minute(result: SimulationResult) -> bool:
    """Return whether no minute had most of its requests late or rejected."""
    worst = result.slo_result.worst_minute_attainment
    return worst is None or worst >= _DARK


def verdict(result: SimulationResult) -> str:
    """Return `ok`, `dips` (kept overall, but most requests of a minute were late), `MISSED`; "" without requests."""
    ok = result.kept
    return "" if ok is None else "MISSED" if not ok else "ok" if keeps_every_minute(result) else "dips"


_MARKS: dict[str, Mark] = {"ok": "ok", "dips": "dips", "MISSED": "missed", "": ""}


def verdict_marked(result: SimulationResult) -> Marked:
    """Return the verdict alone."""
    said = verdict(result)
    return Marked(said or "-", _MARKS[said])


def share_marked(share: float | None, said: str) -> Marked:
    """Return a share in time without its unit, and the verdict on it."""
    return Marked("-" if share is None else f"{percent(share, 2).removesuffix(' %')} {said}", _MARKS[said])


def headline(result: SimulationResult) -> str:
    """Return service, trace and prices of a run."""
    trace, unit = result.trace, result.unit
    counted = trace.requests * unit.size
    mean = f", {rate(counted / trace.duration_s)} a second" if trace.duration_s > 0.0 else ""
    of = "" if unit.is_requests else f" ({count(trace.requests)} requests of {unit.size:.4g} on average)"
    return (
        f"{result.service} on {trace.name}: {count(counted)} {unit.name}{of} in {duration(trace.duration_s)}{mean}"
        f"{f'; prices of {result.priced}' if result.priced else ''}"
    )


def lacks_lstm(name: str, result: SimulationResult) -> bool:
    """Return whether this is the paper's system with another forecast than its own, because a package is missing."""
    return name in _WITH_LSTM and bool(result.predictor) and not result.predictor.startswith("lstm")


def row_name(name: str, result: SimulationResult) -> str:
    """Return the name of a row, with an asterisk if the row differs from its name."""
    return f"{name}*" if lacks_lstm(name, result) else name


def footnotes(results: Mapping[str, SimulationResult]) -> list[str]:
    """Return the meanings of a table's marks: the asterisk, `dips`, `MISSED`, and a missing regret."""
    lines = [
        f"{name}*: not the paper's system as printed, since {result.predictor} forecasts in place of its LSTM"
        for name, result in results.items()
        if lacks_lstm(name, result)
    ]
    dips = [
        f"{name} (worst minute {percent(result.slo_result.worst_minute_attainment, 0)} in time, "
        f"{count(result.slo_result.minutes_below_target)} min below the promise)"
        for name, result in results.items()
        if verdict(result) == "dips"
    ]
    if dips:
        lines.append(
            f"dips: the whole run keeps the promise, but in one minute or more most requests were late: {listed(dips)}"
        )
    lines += [
        f"{row_name(name, result)} MISSED: {_misses(name, result)}"
        for name, result in results.items()
        if result.kept is False and result.requests.rejected + result.requests.late
    ]
    why: dict[str, list[str]] = {}
    for name, result in results.items():
        if result.regret is None and result.regret_reason:
            why.setdefault(result.regret_reason, []).append(name)
    return lines + [f"no regret for {listed(names)}: {reason}" for reason, names in why.items()]


def _misses(name: str, result: SimulationResult) -> str:
    """Return how many requests failed which way, and which of the paper's rules has to do with it."""
    asked = result.requests
    ways = ((asked.rejected, "were rejected"), (asked.late, "came late"))
    said = f"of its requests {listed([f'{percent(failed / asked.total)} {way}' for failed, way in ways if failed])}"
    if name.split(":")[0] not in _WITH_LSTM:
        return said
    has_function = asked.functions or result.functions.throttled
    if asked.rejected and not has_function:
        said += "; it passes requests that would be late to a function, and this service has none"
    if asked.late:
        said += "; by the paper's rule it may wait for full batches, which leaves slow answers less time"
    return said


def reference_note(results: Mapping[str, SimulationResult]) -> list[str]:
    """Return a line that names the reference of the column `saves`."""
    name = reference(results)
    if name is None:
        return []
    which = {
        AS_IS: "your present policy",
        BEST_FIXED: "the cheapest fixed fleet without functions that keeps the promise",
    }
    meaning = "the fleet that you named" if name.startswith(FIXED) else "the dearest policy that keeps the promise"
    line = f"saves: the share of the bill of {name} (ref.), {which.get(name, meaning)}"
    oracle = next(filter(is_oracle, results), None)
    return [line if oracle in (None, name) else f"{line}; {oracle} knows the future and cannot be run"]


def listed(names: Sequence[str]) -> str:
    """Return "a, b and c"."""
    return " and ".join(filter(None, (", ".join(names[:-1]), *names[-1:])))


def overflow_share(result: SimulationResult) -> float | None:
    return result.requests.functions / result.requests.total if result.requests.total else None


def forecasters(result: SimulationResult) -> str:
    """Return the predictors behind the plans: one name, or several with their plan counts; "" without forecasts."""
    if set(result.predictors) <= {result.predictor}:
        return result.predictor
    return ", ".join(f"{name} ({plans:,} plans)" for name, plans in result.predictors.items())


def reference(results: Mapping[str, SimulationResult]) -> str | None:
    """Return the policy that savings are measured against: today's, else the best fixed fleet, else the dearest.

    Only policies that keep the promise count, because other bills buy less. None without another such policy.
    """
    able = [name for name, result in results.items() if result.kept is not False]
    if len(results) < 2 or not able:
        return None
    for name in able:
        if name == AS_IS or name.startswith(FIXED):
            return name
    if BEST_FIXED in able:
        return BEST_FIXED
    return max(able, key=lambda name: results[name].bill.total) if len(able) > 1 else None


def saving(result: SimulationResult, against: SimulationResult) -> float | None:
    """Return 1 - bill / bill; negative if it costs more."""
    return 1.0 - result.bill.total / against.bill.total if against.bill.total > 0.0 else None


def saving_shown(result: SimulationResult, against: SimulationResult) -> str:
    """Return the saving with its range, as `32 %; resampling the 24 hours: 27 to 36 %`."""
    share, span = percent(saving(result, against), 0), saving_range(result, against)
    if span is None or percent(span.low, 0) == percent(span.high, 0):
        return share
    low = percent(span.low, 0).removesuffix(" %")
    return f"{share}; resampling the {span.blocks} {span.over}: {low} to {percent(span.high, 0)}"


def savings_json(results: Mapping[str, SimulationResult]) -> dict[str, Any]:
    """Return by policy the saved `share` of the bill of `against`, and its range, if it has one."""
    name = reference(results)
    if name is None:
        return {}
    against, found = results[name], {}
    for policy, result in results.items():
        if policy != name:
            span = saving_range(result, against)
            found[policy] = {
                "against": name,
                "share": saving(result, against),
                "range": None if span is None else asdict(span),
            }
    return found


def saves(result: SimulationResult, against: SimulationResult) -> str:
    """Return the saving for people: a share, or how many times as much, if it costs more than twice as much."""
    return share_shown(saving(result, against))


def share_shown(share: float | None) -> str:
    if share is not None and share <= -1.0:
        return f"costs {1.0 - share:.1f} x"
    shown = percent(share, 0)
    return "0 %" if shown == "-0 %" else shown


def best(results: Mapping[str, SimulationResult]) -> str | None:
    """Return the cheapest policy that kept the SLO and can really run, so no oracle.

    Of policies with the same cost to the cent it is the one with the fewest moving parts.
    """
    cheapest = ties(results)
    return cheapest[0] if cheapest else None


def ties(results: Mapping[str, SimulationResult]) -> list[str]:
    """Return the cheapest policies that kept the SLO, equal in the shown cost.

    Fixed fleets come first, then the policy of today, then `mark`, then the others in their order.
    """
    able = [name for name, result in results.items() if result.kept and not is_oracle(name)]
    if not able:
        return []
    least = usd(min(results[name].bill.total for name in able))
    tied = [name for name in able if usd(results[name].bill.total) == least]
    return sorted(tied, key=_moving_parts)  # a stable sort


def _moving_parts(name: str) -> int:
    if is_fixed(name):
        return 0
    return 1 if name == AS_IS else 2 if name == "mark" else 3


def is_fixed(name: str) -> bool:
    return name == BEST_FIXED or name.startswith(FIXED)


def _shown(name: str, result: SimulationResult) -> str:
    """Return the name, and the instances of a fixed fleet."""
    if name != BEST_FIXED:
        return name
    hours = result.trace.duration_s / HOUR_S
    fleet = [f"{n / hours:.0f} {offer.split('/')[0]}" for offer, n in result.fleet.instance_hours.items()]
    return f"{name} ({', '.join(fleet)} all the time)" if fleet else name


def is_oracle(name: str) -> bool:
    return name.split(":")[0] == "oracle"


def takeaway(
    results: Mapping[str, SimulationResult],
    *,
    spot: SimulationResult | None = None,
    no_spot: SimulationResult | None = None,
) -> list[str]:
    """Return a few sentences in dollars, the most important first.

    `spot` and `no_spot` are `mark` with spot and without it, where `results` are otherwise.
    """
    if not any(result.requests.total for result in results.values()):
        return ["No requests arrived in this part of the trace."]
    winner = best(results)
    sentences = [_winner(winner, results), *_tied(winner, results), *_against(winner, results, spot)]
    sentences += no_spot_words(no_spot, results)
    sentences += _today(results)
    missed = [name for name, result in results.items() if result.kept is False]
    if winner and missed:
        sentences.append(f"Missed the promise: {', '.join(missed)}.")
    if winner:
        sentences += _room_left(winner, results)
    return sentences


def _winner(winner: str | None, results: Mapping[str, SimulationResult]) -> str:
    if winner is None:
        # Perhaps only an oracle kept it; the closest policy that can really run is more helpful.
        able = [name for name in results if not is_oracle(name)] or list(results)
        name = max(able, key=lambda n: results[n].slo_result.attainment or 0.0)
        result = results[name]
        if result.kept:
            return f"{name} keeps the promise for {usd(result.bill.total)}, but no real forecast is perfect."
        return (
            f"No policy here keeps the promise of {exact_percent(result.slo.attainment)} within "
            f"{number(result.slo.rt_max_s * 1e3, 0)} ms; closest is {name} with "
            f"{percent(result.slo_result.attainment, 2)} for {usd(result.bill.total)}."
        )
    result = results[winner]
    return (
        f"{_shown(winner, result)} keeps the promise: {percent(result.slo_result.attainment, 2)} of the requests "
        f"within {number(result.slo.rt_max_s * 1e3, 0)} ms ({exact_percent(result.slo.attainment, 0)} asked) for "
        f"{usd(result.bill.total)}, which is {usd(result.usd_per_million)} per million {result.unit.name}."
    )


def _tied(winner: str | None, results: Mapping[str, SimulationResult]) -> list[str]:
    others = [name for name in ties(results) if name != winner]
    if not others:
        return []
    verb = "costs" if len(others) == 1 else "cost"
    return [f"{listed(others)} {verb} the same as {winner} to the cent."]


def _today(results: Mapping[str, SimulationResult]) -> list[str]:
    """Return a sentence on today's policy if it cannot be the reference, because it misses the promise."""
    result = results.get(AS_IS)
    if result is None or result.kept is not False:
        return []
    month = dollars(per_month(result.bill.total, result.trace.duration_s))
    return [f"{AS_IS} costs {month} a month, and misses the promise: nothing is counted as saved against it."]


def _against(winner: str | None, results: Mapping[str, SimulationResult], spot: SimulationResult | None) -> list[str]:
    """Return the cost per month, and against the reference."""
    if winner is None:
        return []
    result, other_name = results[winner], reference(results)
    length_s = result.trace.duration_s
    month = per_month(result.bill.total, length_s)
    if month is None:
        return []
    pace = f"At this pace (extrapolated from {duration(length_s)}"
    pace += ", a short look)" if length_s < _WHOLE_DAY_S else ")"
    if is_fixed(winner):
        advice = ""
        if _rivals(winner, results):
            advice = " No other policy here keeps the promise for less"
            advice += " without spot." if _is_cheaper(spot, result) else ": run this fixed fleet."
        return [f"{pace} that is {dollars(month)} a month.{advice}"]
    if other_name is None or other_name == winner:
        return [f"{pace} that is {dollars(month)} a month."]
    other = results[other_name]
    other_month, less = per_month(other.bill.total, length_s) or 0.0, saving(result, other)
    other_shown = _shown(other_name, other)
    if other_name == BEST_FIXED and less is not None and less < _TIE:
        return [
            f"{pace} that is {dollars(month)} a month; {other_shown} costs {dollars(other_month)}: "
            "on this traffic a fixed fleet does as well, so run that."
        ]
    if less is None or less <= 0.0:
        return [f"{pace} that is {dollars(month)} a month; {other_shown} costs {dollars(other_month)}."]
    managed = next((name for name in MANAGED if name in results), None)
    beside = ""
    how = {"MISSED": ", which misses the promise", "dips": ", with minutes in which most answers are late"}
    if managed is not None and other_name == BEST_FIXED:
        bill = dollars(per_month(results[managed].bill.total, length_s))
        beside = f"; with {managed} on SageMaker it would be {bill}{how.get(verdict(results[managed]), '')}"
    return [
        f"{pace} that is {dollars(month)} a month instead of {dollars(other_month)} with {other_shown}"
        f"{how.get(verdict(other), '')}: "
        f"{usd_apart(other_month, month, dollars)} a month less ({saving_shown(result, other)}){beside}."
    ]


def _rivals(winner: str, results: Mapping[str, SimulationResult]) -> list[str]:
    """Return the other policies that can really run."""
    return [name for name in results if name != winner and not is_oracle(name)]


def _is_cheaper(other: SimulationResult | None, result: SimulationResult) -> bool:
    return other is not None and other.kept is True and other.bill.total < result.bill.total


def _room_left(winner: str, results: Mapping[str, SimulationResult]) -> list[str]:
    """Return the distance from perfect forecasts and from the proven bound."""
    result = results[winner]
    sentences = []
    oracle = next((r for name, r in results.items() if is_oracle(name)), None)
    if oracle is not None and oracle.kept and oracle.bill.total < result.bill.total:
        sentences.append(
            f"With perfect forecasts it would be {usd(oracle.bill.total)}: better forecasts are worth at most "
            f"{usd_apart(result.bill.total, oracle.bill.total)} here."
        )
    if result.bound_usd is not None and result.regret is not None:
        sentences.append(
            f"No policy can keep this promise for less than {usd(result.bound_usd)} (a proven bound): "
            f"{winner} is at {number(result.regret)} times that."
        )
    return sentences


def spot_words(spot: SimulationResult, results: Mapping[str, SimulationResult]) -> str:
    """Return the bill of the same policy with spot, and its risk; `results` are without spot."""
    own = results.get("mark")
    less = 0.0 if own is None else saving(spot, own) or 0.0
    change = f" ({share_shown(less)} less than without)" if less > 0.0 else ""
    taken = spot.fleet.interrupted
    return (
        f"With spot allowed (--markets on-demand,spot) mark would cost {usd(spot.bill.total)}{change}, with "
        f"{percent(spot.slo_result.attainment, 2)} in time: {verdict(spot) or '-'}. AWS takes spot back when it likes, "
        f"with two minutes' notice; in this run it took {count(taken)} instance{'' if taken == 1 else 's'}."
    )


def no_spot_words(no_spot: SimulationResult | None, results: Mapping[str, SimulationResult]) -> list[str]:
    """Return the bill of `mark` without spot, if it buys spot and the reference does not."""
    if (against := _without_spot(no_spot, results)) is None or no_spot is None:
        return []
    less = saving(no_spot, results[against]) or 0.0
    change = f"{share_shown(abs(less))} {'less' if less >= 0.0 else 'more'} than {against}"
    share = percent(no_spot.slo_result.attainment, 2)
    return [
        f"mark buys spot, and {against} does not. Without spot mark would cost {usd(no_spot.bill.total)}, {change}, "
        f"with {share} in time: {verdict(no_spot) or '-'}."
    ]


def _without_spot(no_spot: SimulationResult | None, results: Mapping[str, SimulationResult]) -> str | None:
    """Return the reference, if `mark` buys spot and the reference does not; otherwise None."""
    against, own = reference(results), results.get("mark")
    if no_spot is None or own is None or against in (None, "mark"):
        return None
    return against if own.bill.spot > 0.0 and results[against].bill.spot == 0.0 else None


def at_a_glance(
    results: Mapping[str, SimulationResult], no_spot: SimulationResult | None = None
) -> list[tuple[str, str]]:
    """Return rows for a budget: the bill as is (or the reference's), the best policy's, the saving, the prices' date.

    Empty if no policy kept the promise. `no_spot` is `mark` without spot.
    """
    winner, other = best(results), reference(results)
    if winner is None:
        return []
    result = results[winner]
    length_s = result.trace.duration_s
    rows = []
    if other is not None and other != winner:
        today = "As is, simulated" if other == AS_IS else "Reference"
        month = dollars(per_month(results[other].bill.total, length_s))
        rows.append((today, f"{month} a month with {_shown(other, results[other])}"))
    if AS_IS in results and results[AS_IS].kept is False:
        month = dollars(per_month(results[AS_IS].bill.total, length_s))
        rows.insert(0, ("As is, simulated", f"{month} a month with {AS_IS}, which misses the promise"))
    best_here = "As is, and best here" if winner == other == AS_IS else "Best here"
    rows.append((best_here, f"{dollars(per_month(result.bill.total, length_s))} a month with {_shown(winner, result)}"))
    if other is not None and other != winner:
        saved = saving_shown(result, results[other])
        if winner == "mark" and no_spot is not None and _without_spot(no_spot, results):
            saved += f"; without spot {saves(no_spot, results[other])}"
        rows.append(("Saves", saved))
    if result.priced:
        rows.append(("Prices", result.priced))
    return rows


def next_steps(results: Mapping[str, SimulationResult], spot: SimulationResult | None = None) -> list[str]:
    """Return the next steps for the user, in order; commands in backquotes. `spot` is `mark` with spot."""
    winner, other = best(results), reference(results)
    if winner is None:
        return [
            "Nothing tried here keeps the promise: ask for less (`slo_ms`, `slo_attainment`), or allow more "
            "(`instances`, `max_instances`, a function that answers in time)."
        ]
    result = results[winner]
    steps = []
    if result.trace.duration_s < _WHOLE_DAY_S:
        steps.append("Run this again on a week of traffic: a part of a day is no month.")
    if result.assumed_share > 0.0 or result.derived_share > 0.0:
        steps.append(
            "Measure your model on the types that are bought, `mark profile MODEL --instance TYPE --out profile.csv`: "
            "the latencies behind this are not all measured."
        )
    less = None if other is None else saving(result, results[other])
    if is_fixed(winner) or (other == BEST_FIXED and less is not None and less < _TIE):
        if not _rivals(winner, results):
            return [*steps, "Compare it with other policies: `mark compare TRACE --service FILE`."]
        if _is_cheaper(spot, result):
            steps.append(
                "Decide whether spot may be bought: `mark compare TRACE --service FILE --markets on-demand,spot`."
            )
        shown = BEST_FIXED if other == BEST_FIXED else winner
        return [*steps, f"Rent {_shown(shown, results[shown])}, and look again when the traffic changes."]
    if winner == AS_IS:
        return [*steps, "Keep your present fleet: nothing tried here keeps the promise for less."]
    return [
        *steps,
        "Lay a month that you have paid beside its simulation: `mark reconcile TRACE --service FILE --bill CUR.csv`.",
        "See the resources and their cost without building them: `mark deploy FILE --dry-run`.",
    ]


def notes(results: Mapping[str, SimulationResult]) -> list[str]:
    """Return every note of the policies once; then the gaps."""
    noted: dict[str, list[str]] = {}
    for name, result in results.items():
        own = list(result.notes)
        if result.bound_note:
            own.append(f"bound: {result.bound_note}")
        if result.assumed_share > 0.0:
            own.append(f"{percent(result.assumed_share)} of the bill rests on assumed profile rows")
        if result.derived_share > 0.0:
            much = "most" if result.derived_share > 0.5 else "a part"
            own.append(f"{much} of the bill rests on derived profile rows, which are not measured (docs/profiles.md)")
        noted[name] = own
    return noted_once(noted)


def noted_once(noted: Mapping[str, Sequence[str]]) -> list[str]:
    """Return every note of the policies once: shared ones plainly, the others with their policies."""
    owners: dict[str, list[str]] = {}
    for name, own in noted.items():
        for note in dict.fromkeys(own):
            owners.setdefault(note, []).append(name)
    return [note if len(names) == len(noted) else f"{', '.join(names)}: {note}" for note, names in owners.items()]
