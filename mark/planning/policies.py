"""All policies, by name."""

from __future__ import annotations

from mark.domain.errors import BadInput
from mark.domain.load import Load
from mark.domain.service import Deployment
from mark.planning.as_is import as_is
from mark.planning.fixed import fixed
from mark.planning.mark import Mark
from mark.planning.mark_paper import MarkPaper
from mark.planning.port import Policy
from mark.planning.reactive import reactive
from mark.planning.static import static
from mark.planning.target_tracking import target_tracking

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


def make_policy(name: str, deployment: Deployment, evaluated: Load) -> Policy:
    """The policy of that name with the deployment it plans for. `evaluated` is the expected load of the evaluated part.

    Raises BadInput for an unknown name and for a policy this service or catalogue cannot have.
    """
    match name:
        case "mark" | "oracle":
            return Policy(Mark(name, deployment), deployment, bouncers=True)
        case "greedy":
            return Policy(Mark(name, deployment, how="fast"), deployment, bouncers=True)
        case "ilp":
            return Policy(Mark(name, deployment, how="ilp"), deployment, bouncers=True)
        case "mark-paper":
            return Policy(MarkPaper(deployment), deployment, bouncers=True)
        case "target-tracking" | "target-tracking-best":
            return target_tracking(name, deployment, evaluated)
        case "reactive":
            return Policy(reactive(deployment, evaluated), deployment, bouncers=True)
        case "static-peak" | "static-mean":
            return Policy(static(name, deployment, evaluated), deployment, bouncers=True)
        case "as-is":
            return as_is(deployment, evaluated)
        case _ if name.startswith(FIXED):
            return fixed(name, deployment)
        case _:
            raise BadInput(f"unknown (known: {', '.join(POLICY_NAMES)}, {FIXED}INSTANCE=COUNT)", "policy", name)


def wants_perfect_forecast(name: str) -> bool:
    """Is this policy to be given the truth as its forecast?"""
    return name == "oracle"
