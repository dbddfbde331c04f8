"""Policies by name: ours, and those of packages that register an entry point in the group `mark.policies`.

An entry point names a `PolicyEntry`. Ours are the constants below, registered in pyproject.toml.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from mark.config import plugins
from mark.domain.errors import BadInput
from mark.domain.load import Load
from mark.domain.service import ResolvedService
from mark.planning.planner import Policy
from mark.planning.policies.as_is import as_is
from mark.planning.policies.expected_cost import ExpectedCostPolicy
from mark.planning.policies.fixed import fixed, fixed_for_peak
from mark.planning.policies.mark_paper import MarkPaperPolicy
from mark.planning.policies.names import FIXED
from mark.planning.policies.paper_system import PaperSystem, paper_admission
from mark.planning.policies.reactive import reactive
from mark.planning.policies.static import static
from mark.planning.policies.target_tracking import target_tracking
from mark.traffic.forecast.predictor_registry import make_predictor

GROUP = "mark.policies"
ORACLE = "oracle"

Make = Callable[[str, ResolvedService, Load], Policy]
"""(name, resolved service, expected load of the evaluated part) -> the policy.

Raises BadInput or Infeasible for a policy that this service or catalogue cannot have.
"""


@dataclass(frozen=True, slots=True)
class PolicyEntry:
    """A policy that can be named.

    `forecasts`: whether its planner needs a forecast. `live`: whether a controller can run it, without knowing the load
    to come. Lists show policies by `place`, then by name. `predictors` forecast if no predictor is named: the first
    whose packages are installed.
    """

    make: Make
    forecasts: bool
    live: bool = False
    place: int = 100
    predictors: tuple[str, ...] = ("auto",)


def _expected_cost(how: str) -> Make:
    return lambda name, resolved, _: Policy(ExpectedCostPolicy(name, resolved, how=how), resolved, bouncers=True)


def paper_policy(system: type[PaperSystem]) -> Make:
    """Return the MArk paper's system with its own admission, around one way to provision."""

    def make(_: str, resolved: ResolvedService, __: Load) -> Policy:
        admitted = paper_admission(resolved)
        return Policy(system(admitted), admitted, bouncers=True)

    return make


def _static(name: str, resolved: ResolvedService, evaluated: Load) -> Policy:
    return Policy(static(name, resolved, evaluated), resolved, bouncers=True)


# In the order in which lists show them.

# The least expected dollars over the forecast; the default.
MARK = PolicyEntry(_expected_cost("auto"), forecasts=True, live=True, place=1)
# The same by local search alone: shows how much an integer program would add.
GREEDY = PolicyEntry(_expected_cost("fast"), forecasts=True, live=True, place=2)
# The same with the integer program wherever nothing faster proves the plan within 1 %.
ILP = PolicyEntry(_expected_cost("ilp"), forecasts=True, live=True, place=3)
# The paper's system, which ours has to beat: its greedy as printed, its admission, its LSTM.
MARK_PAPER = PolicyEntry(paper_policy(MarkPaperPolicy), forecasts=True, live=True, place=4, predictors=("lstm", "auto"))
# The paper's baseline: a managed endpoint, over-provisioned by two.
TARGET_TRACKING = PolicyEntry(target_tracking, forecasts=False, place=6)
# Target tracking with the best type and batching: the strongest managed baseline.
TARGET_TRACKING_BEST = PolicyEntry(target_tracking, forecasts=False, place=7)
# A Kubernetes user's autoscaler: utilisation, no forecast.
REACTIVE = PolicyEntry(
    lambda _, resolved, evaluated: Policy(reactive(resolved, evaluated), resolved, bouncers=True),
    forecasts=False,
    place=8,
)
# The choice of careful users: enough for the highest minute, all day.
STATIC_PEAK = PolicyEntry(_static, forecasts=False, place=9)
# The smallest rental: enough for the mean, functions take the rest.
STATIC_MEAN = PolicyEntry(_static, forecasts=False, place=10)
# The cheapest fleet that never changes, which ours has to beat. Simulations look for it (simulation/best_fixed.py).
BEST_FIXED_FLEET = PolicyEntry(fixed_for_peak, forecasts=False, place=11)
# Ours with perfect forecasts: how much better forecasts could still save.
ORACLE_ENTRY = PolicyEntry(_expected_cost("auto"), forecasts=True, place=12)
# A fleet written down by the user
FIXED_FLEET = PolicyEntry(lambda name, resolved, _: fixed(name, resolved), forecasts=False, place=13)
# The user's present policy, to be checked against the invoice.
AS_IS = PolicyEntry(lambda _, resolved, evaluated: as_is(resolved, evaluated), forecasts=False, place=14)


def policy_names(*, live: bool = False) -> tuple[str, ...]:
    """Return the names of policies, in the order of lists; `live`: only those that a controller can run."""
    found = {name: _entry(name) for name in plugins.names(GROUP)}
    ordered = sorted(found, key=lambda name: (found[name].place, name))
    return tuple(_shown(name) for name in ordered if found[name].live or not live)


def policy_entry(name: str) -> PolicyEntry:
    """Return the policy's entry. Raises BadInput for an unknown name (with the known), or one that does not load."""
    registered = _registered(name)
    if registered not in plugins.names(GROUP):
        raise BadInput(f"unknown (known: {', '.join(policy_names())})", "policy", name, known=policy_names())
    return _entry(registered)


def make_policy(name: str, resolved: ResolvedService, evaluated: Load) -> Policy:
    """Return the policy of that name with the resolved service it plans for.

    `evaluated` is the expected load of the evaluated part. Raises BadInput for an unknown name, and BadInput or
    Infeasible for a policy that this service or catalogue cannot have.
    """
    return policy_entry(name).make(name, resolved, evaluated)


def predictor_of(policy: str, named: str | None = None) -> tuple[str, str]:
    """Return the predictor of a policy, and a note if it is second best.

    It is `named`, or else the policy's first predictor whose packages are installed. Raises BadInput for an unknown
    policy.
    """
    if named is not None:
        return named, ""
    note = ""
    *preferred, last = policy_entry(policy).predictors
    for name in preferred:
        try:
            make_predictor(name, 0)
        except BadInput as error:
            note = f"{last} forecasts in place of {name}, which {error.what}"
        else:
            return name, ""
    return last, note


def wants_perfect_forecast(name: str) -> bool:
    """Return whether the policy plans with the true load as its forecast."""
    return name == ORACLE


def _entry(registered: str) -> PolicyEntry:
    found = plugins.load(GROUP, registered, "policy")
    if not isinstance(found, PolicyEntry):
        raise BadInput("its entry point names no PolicyEntry", f"policy {registered}")
    return found


def _registered(name: str) -> str:
    """Return a name's entry point; empty for `fixed` without a fleet."""
    if name.startswith(FIXED):
        return FIXED[:-1]
    return name if name != FIXED[:-1] else ""


def _shown(registered: str) -> str:
    return f"{FIXED}INSTANCE=COUNT" if registered == FIXED[:-1] else registered
