"""The clairvoyant bound of a part: its drawn arrivals against everything that may be bought."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from mark.cloud.billing.extras import extras_usd
from mark.planning.bounds.certificate import BoundCertificate, certify_blocks
from mark.planning.bounds.lower_bound import Bound, BoundProblem, bin_width_s, build_problem
from mark.planning.bounds.whole_bound import highest_bound
from mark.simulation.inputs import Inputs, open_inputs
from mark.simulation.request import RunRequest


def bound_problem(inputs: Inputs, fine_counts: NDArray[np.int64], fine_s: float) -> BoundProblem:
    """Return the clairvoyant problem of a part: its drawn arrivals, and all offers of the service."""
    bins = int(np.ceil(inputs.duration_s / fine_s))
    return build_problem(
        inputs.resolved,
        fine_counts[:bins],
        end_s=inputs.duration_s,
        bin_s=fine_s,
        warm_start=not inputs.request.cold_start,
        spot=inputs.spot,
        spot_first_hour_free=inputs.request.spot_first_hour_free,
    )


@dataclass(frozen=True, slots=True)
class BoundedPart:
    """The bounds of a part with no late request and with a share of (1 - SL_min), and the range of the trace."""

    at_zero: Bound
    within_slo: Bound
    requests: int
    read: str
    certificate: BoundCertificate | None = None


def bound(request: RunRequest, *, certify: bool = False) -> BoundedPart:
    """Return the lower bounds of a part, with the certificate of the second one if `certify` is set.

    Raises BadInput.
    """
    inputs = open_inputs(request)
    problem, total = drawn_problem(inputs)
    late = (1.0 - inputs.service.slo.attainment) * total
    at_zero, within_slo = (
        with_extras(highest_bound(problem, each, with_plan=True), inputs, total) for each in (0.0, late)
    )
    certificate = certify_blocks(problem, late) if certify else None
    return BoundedPart(at_zero, within_slo, total, inputs.trace.read, certificate)


def drawn_problem(inputs: Inputs) -> tuple[BoundProblem, int]:
    """Return the problem of a part without simulating it, and the number of its requests."""
    request, fine_s = inputs.request, bin_width_s(inputs.service.slo)
    counts = np.zeros(int(np.ceil(inputs.duration_s / fine_s)) + 1, dtype=np.int64)
    for times, _ in inputs.trace.chunks(inputs.start_s, inputs.end_s, request.scale, request.seed):
        if len(times):
            places = (times / fine_s).astype(np.int64)
            counts[places[0] : places[-1] + 1] += np.bincount(places - places[0])
    return bound_problem(inputs, counts, fine_s), int(counts.sum())


def with_extras(bound: Bound, inputs: Inputs, requests: int) -> Bound:
    """Add the costs that every policy has beside instances and functions: the balancer, and its data transfer."""
    if bound.usd is None or not inputs.resolved.catalog.bills_extras:
        return bound
    service = inputs.service
    usd = extras_usd(inputs.duration_s, requests, service.request_kb, service.response_kb)
    note = f"includes the ${usd:.2f} for balancer and moved data, as every bill does"

    def more(dollars: float | None) -> float | None:
        return None if dollars is None else dollars + usd

    return replace(
        bound,
        usd=bound.usd + usd,
        fluid_usd=more(bound.fluid_usd),
        whole_usd=more(bound.whole_usd),
        feasible_usd=more(bound.feasible_usd),
        note="; ".join(filter(None, (bound.note, note))),
    )
