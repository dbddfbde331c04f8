"""Sensitivity of the results to a worse profile, boot, function or spot market; each answer is a run."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

from mark.planning.policies.policy_registry import policy_entry
from mark.simulation.request import RunRequest, Sensitivity
from mark.simulation.result import SimulationResult
from mark.studies.report.takeaway import is_oracle, verdict

VARIATIONS = (
    ("capacity -15 %", Sensitivity(capacity=0.85)),
    ("boot +60 s", Sensitivity(boot_add_s=60.0)),
    ("function latency x 1.5", Sensitivity(function_latency=1.5)),
    ("interruptions x 5", Sensitivity(interruptions=5.0)),
)


@dataclass(frozen=True, slots=True)
class VariationOutcome:
    """One policy under one variation; `change` is its bill over the original one, less 1 (None: that was 0).

    `verdict` is that of `takeaway.verdict`.
    """

    policy: str
    bill_usd: float
    change: float | None
    attainment: float | None
    verdict: str


@dataclass(frozen=True, slots=True)
class Variation:
    """The outcomes of one variation, and the policies that now rank just ahead of one they were behind.

    Policies that keep the SLO rank before those that miss it, then by bill. `overtakes` has the policies ahead, and the
    one behind.
    """

    label: str
    outcomes: tuple[VariationOutcome, ...]
    overtakes: tuple[tuple[tuple[str, ...], str], ...] = ()  # empty: the order is as before


def sensitivity(
    requests: Mapping[str, RunRequest],
    base: Mapping[str, SimulationResult],
    run: Callable[[Sequence[RunRequest]], list[SimulationResult]],
) -> list[Variation]:
    """Run every policy again, without its bound, under each variation.

    `oracle` is left out, because nobody can run a policy that knows all arrivals. Interruptions vary only if spot was
    bought, because AWS takes back nothing else, and the latency of functions only if one was called or kept warm. A
    policy without forecasts weighs none of these, so it runs again only if its own run had a spot instance, a function
    call or a launch to which the change applies. `requests` and `base` hold requests and results by policy name. Errors
    of `run` pass through.
    """
    requests = {name: request for name, request in requests.items() if not is_oracle(name)}
    base = {name: base[name] for name in requests}
    if not requests:
        return []
    buys_spot = any(map(_buys_spot, base.values()))
    calls = any(map(_calls, base.values()))
    variations = [
        (label, change)
        for label, change in VARIATIONS
        if (buys_spot or change.interruptions == 1.0) and (calls or change.function_latency == 1.0)
    ]

    def differs(name: str, change: Sensitivity) -> bool:
        own = base[name]
        return (
            policy_entry(requests[name].policy).forecasts
            or change.capacity != 1.0
            or (change.boot_add_s > 0.0 and own.fleet.launched > 0)
            or (change.function_latency != 1.0 and _calls(own))
            or (change.interruptions != 1.0 and _buys_spot(own))
        )

    changed = [
        replace(request, sensitivity=change, with_bound=False, explain=False)
        for _, change in variations
        for name, request in requests.items()
        if differs(name, change)
    ]
    results = iter(run(changed))
    return [
        variation(label, base, {name: next(results) if differs(name, change) else base[name] for name in requests})
        for label, change in variations
    ]


def _buys_spot(result: SimulationResult) -> bool:
    return result.bill.spot > 0.0


def _calls(result: SimulationResult) -> bool:
    return bool(result.functions.calls or result.functions.pings)


def variation(label: str, base: Mapping[str, SimulationResult], results: Mapping[str, SimulationResult]) -> Variation:
    outcomes = tuple(
        VariationOutcome(
            name,
            result.bill.total,
            result.bill.total / base[name].bill.total - 1.0 if base[name].bill.total > 0.0 else None,
            result.slo_result.attainment,
            verdict(result),
        )
        for name, result in results.items()
    )
    before, now = _order(base), _order(results)
    places = [before.index(name) for name in now]
    ahead = (tuple(_just_ahead(now, places, at)) for at in range(len(now)))
    return Variation(label, outcomes, tuple((names, now[at]) for at, names in enumerate(ahead) if names))


def _just_ahead(now: Sequence[str], places: Sequence[int], at: int) -> list[str]:
    """Return the policies that stand together before the one at `at`, and were all behind it."""
    first = at
    while first > 0 and places[first - 1] > places[at]:
        first -= 1
    return list(now[first:at])


def _order(results: Mapping[str, SimulationResult]) -> list[str]:
    return sorted(results, key=lambda name: (results[name].kept is False, results[name].bill.total, name))
