"""Users' selection policies, `module:Class`: load them, build `Class(candidates, settings)`, and check them.

`mark serve` and `mark selection replay` load them here.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from mark.domain.errors import BadInput
from mark.models.loading import imported, in_one_line
from mark.selection.policy import Choice, Query, SelectionPolicy
from mark.selection.settings import SelectionSettings

_METHODS = ("ask", "combine", "settled")


class PolicyFailed(ValueError):
    """The policy of a user raised an error or broke a rule of the port; `what` has the details."""

    def __init__(self, reference: str, what: str) -> None:
        super().__init__(f"{reference}: {what}")
        self.what = what


def load_policy(
    reference: str, search: Path, candidates: Sequence[str], settings: SelectionSettings
) -> SelectionPolicy:
    """Return the policy `module:Class`. Its module is looked up in `search` first. Raises BadInput.

    The policy is checked at every call: its methods raise PolicyFailed if it breaks the port's rules.
    """
    module, _, attribute = reference.partition(":")
    made = imported(module, attribute, search, reference)
    if not isinstance(made, type):
        raise BadInput(f"{attribute} is no class", reference)
    for method in _METHODS:
        if not callable(getattr(made, method, None)):
            what = f"{attribute} has no method {method}: a policy has ask, combine and settled"
            raise BadInput(f"{what} (mark/selection/policy.py)", reference)
    try:
        policy = made(tuple(candidates), settings)
    except BadInput:
        raise
    except Exception as error:
        raise BadInput(f"{attribute}(candidates, settings) failed: {in_one_line(error)}", reference) from error
    return _Checked(policy, reference)


class _Checked:
    """A policy with checked answers, because a wrong answer could cause an endless loop or spoil its learning."""

    def __init__(self, policy: Any, reference: str) -> None:
        self._policy, self._reference = policy, reference

    def ask(self, query: Query) -> Sequence[tuple[int, float]]:
        asked: list[tuple[int, float]] = []
        try:
            for candidate, propensity in self._policy.ask(query):
                asked.append((int(candidate), float(propensity)))
        except Exception as error:
            raise self._failed("ask", in_one_line(error)) from error
        places = [candidate for candidate, _ in asked]
        for candidate, propensity in asked:
            if candidate not in query.open or places.count(candidate) > 1:
                raise self._failed(
                    "ask", f"returned candidate {candidate}, which is not open: {sorted(query.open)} are"
                )
            if not (math.isfinite(propensity) and 0.0 < propensity <= 1.0):
                raise self._failed("ask", f"returned the probability {propensity}, which is not above 0 and 1 at most")
        return asked

    def combine(self, query: Query) -> Choice:
        try:
            choice = self._policy.combine(query)
        except Exception as error:
            raise self._failed("combine", in_one_line(error)) from error
        if not isinstance(choice, Choice):
            raise self._failed("combine", f"returned a {type(choice).__name__} and no mark.selection.policy.Choice")
        if choice.candidate is not None and choice.candidate not in query.replies:
            raise self._failed("combine", f"chose candidate {choice.candidate}, which has not replied")
        return choice

    def settled(self, query: Query) -> bool:
        try:
            return bool(self._policy.settled(query))
        except Exception as error:
            raise self._failed("settled", in_one_line(error)) from error

    def _failed(self, method: str, why: str) -> PolicyFailed:
        return PolicyFailed(self._reference, f"{method}() {why}")


_: type[SelectionPolicy] = _Checked
