"""All policies, by name."""

from __future__ import annotations

from mark.domain.errors import BadInput
from mark.domain.load import Load
from mark.domain.service import ResolvedService
from mark.planning.policies.as_is import as_is
from mark.planning.policies.expected_cost import ExpectedCostPolicy
from mark.planning.policies.fixed import fixed
from mark.planning.policies.mark_paper import MarkPaperPolicy
from mark.planning.policies.reactive import reactive
from mark.planning.policies.static import static
from mark.planning.policies.target_tracking import target_tracking
from mark.planning.port import Policy

POLICY_NAMES = (
    "mark",  # ours: expected dollars over the forecast; the default
    "greedy",  # ours by its fast path alone: what an integer program would add
    "ilp",  # ours, with the integer program wherever nothing faster proves the plan within 1 %
    "mark-paper",  # the paper's greedy, as printed: what ours has to beat
    "target-tracking",  # what the paper compared itself with: a managed endpoint, over-provisioned by two
    "target-tracking-best",  # the same with the best type and batching: the strongest managed baseline
    "reactive",  # what a Kubernetes user has: utilisation, no forecast
    "static-peak",  # what the careful do: enough for the highest minute, all day
    "static-mean",  # the least one can rent: the mean, functions take the rest
    "oracle",  # ours with perfect forecasts: what better forecasts could still save
    "as-is",  # what the user runs today, to be checked against their invoice
)
FIXED = "fixed:"  # and any fleet written down: fixed:c5.xlarge=10,p2.xlarge=2


def make_policy(name: str, resolved: ResolvedService, evaluated: Load) -> Policy:
    """The policy of that name with the resolved service it plans for. `evaluated` is the expected load of the
    evaluated part.

    Raises BadInput for an unknown name and for a policy this service or catalogue cannot have.
    """
    match name:
        case "mark" | "oracle":
            return Policy(ExpectedCostPolicy(name, resolved), resolved, bouncers=True)
        case "greedy":
            return Policy(ExpectedCostPolicy(name, resolved, how="fast"), resolved, bouncers=True)
        case "ilp":
            return Policy(ExpectedCostPolicy(name, resolved, how="ilp"), resolved, bouncers=True)
        case "mark-paper":
            return Policy(MarkPaperPolicy(resolved), resolved, bouncers=True)
        case "target-tracking" | "target-tracking-best":
            return target_tracking(name, resolved, evaluated)
        case "reactive":
            return Policy(reactive(resolved, evaluated), resolved, bouncers=True)
        case "static-peak" | "static-mean":
            return Policy(static(name, resolved, evaluated), resolved, bouncers=True)
        case "as-is":
            return as_is(resolved, evaluated)
        case _ if name.startswith(FIXED):
            return fixed(name, resolved)
        case _:
            raise BadInput(f"unknown (known: {', '.join(POLICY_NAMES)}, {FIXED}INSTANCE=COUNT)", "policy", name)


def wants_perfect_forecast(name: str) -> bool:
    """Is this policy to be given the truth as its forecast?"""
    return name == "oracle"
