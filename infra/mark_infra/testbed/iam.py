"""IAM's decisions about an action on a resource, from policies and the request's context.

Pure, as AWS documents it ("Policy evaluation logic", "IAM JSON policy elements"): a denial wins, and an action that no
policy allows is denied. Reading a policy raises an error for unknown elements and operators, instead of ignoring them.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from functools import lru_cache
from typing import Any

from mark.domain.errors import BadInput

_ELEMENTS = frozenset(("Sid", "Effect", "Action", "NotAction", "Resource", "NotResource", "Condition"))
_ARN_PARTS = 6


class IamDecision(Enum):
    """The policies' decision about a call."""

    ALLOWED = "allowed"
    DENIED = "explicit deny"  # even if another policy allows it
    NOT_ALLOWED = "no policy allows it"


@dataclass(frozen=True, slots=True)
class IamCall:
    """One right that a request needs. `context`: values by condition key; keys ignore case, as in IAM."""

    action: str
    resource: str = "*"
    context: Mapping[str, str | Sequence[str]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class _Test:
    """One key of a condition."""

    operator: str
    key: str
    values: tuple[str, ...]
    if_exists: bool
    of_all: bool | None  # ForAllValues: true, ForAnyValue: false, otherwise None


@dataclass(frozen=True, slots=True)
class _Statement:
    allows: bool
    actions: tuple[str, ...]
    other_actions: bool  # NotAction
    resources: tuple[str, ...]
    other_resources: bool  # NotResource
    tests: tuple[_Test, ...]


class IamPolicy:
    """A policy of an identity, or of an organisation (SCP). Raises BadInput for unknown elements and operators."""

    def __init__(self, document: str | Mapping[str, Any], name: str = "policy") -> None:
        if isinstance(document, str):
            try:
                document = json.loads(document)
            except ValueError:
                raise BadInput("is no JSON", name) from None
        said = document.get("Statement") if isinstance(document, Mapping) else None
        if isinstance(said, Mapping):
            said = [said]
        if not isinstance(said, list) or not said:
            raise BadInput("has no statement", name)
        self.name = name
        self._statements = tuple(_statement(one, name) for one in said)

    def decide(self, call: IamCall) -> IamDecision:
        """Return the decision of this policy alone."""
        context = {key.lower(): _several(values) for key, values in call.context.items()}
        found = [one.allows for one in self._statements if _holds(one, call, context)]
        if not found:
            return IamDecision.NOT_ALLOWED
        return IamDecision.ALLOWED if all(found) else IamDecision.DENIED


def decide(policies: Iterable[IamPolicy], call: IamCall, limits: Iterable[IamPolicy] = ()) -> IamDecision:
    """Return the decision for an identity with these policies.

    `limits` are the SCPs of one level of an organisation. If given, at least one of them must allow the call, too; they
    give no rights.
    """
    several = tuple(limits)
    if several and (said := _together(several, call)) is not IamDecision.ALLOWED:
        return said
    return _together(policies, call)


def _together(policies: Iterable[IamPolicy], call: IamCall) -> IamDecision:
    """Return the decision of all policies: a denial wins over a permission."""
    found = {policy.decide(call) for policy in policies}
    for said in (IamDecision.DENIED, IamDecision.ALLOWED):
        if said in found:
            return said
    return IamDecision.NOT_ALLOWED


def _statement(said: Any, name: str) -> _Statement:
    if not isinstance(said, Mapping) or not set(said) <= _ELEMENTS:
        raise BadInput("has an element that is not known", name, sorted(set(said) - _ELEMENTS) if said else said)
    if said.get("Effect") not in ("Allow", "Deny"):
        raise BadInput("must be Allow or Deny", f"{name} Effect", said.get("Effect"))
    for one in ("Action", "Resource"):
        if (one in said) == (f"Not{one}" in said):
            raise BadInput(f"needs either {one} or Not{one}", name, said.get("Sid"))
    tests = []
    for operator, keys in said.get("Condition", {}).items():
        kind, of_all, if_exists = operator, None, False
        if ":" in kind:
            prefix, kind = kind.split(":", 1)
            if prefix not in ("ForAllValues", "ForAnyValue"):
                raise BadInput("is no condition operator", name, operator)
            of_all = prefix == "ForAllValues"
        if kind.endswith("IfExists"):
            kind, if_exists = kind.removesuffix("IfExists"), True
        if kind not in _OPERATORS and kind != "Null":
            raise BadInput("is no condition operator that is known here", name, operator)
        tests += [_Test(kind, key.lower(), _several(values), if_exists, of_all) for key, values in keys.items()]
    return _Statement(
        said["Effect"] == "Allow",
        tuple(one.lower() for one in _several(said.get("Action", said.get("NotAction")))),
        "NotAction" in said,
        _several(said.get("Resource", said.get("NotResource"))),
        "NotResource" in said,
        tuple(tests),
    )


def _holds(statement: _Statement, call: IamCall, context: Mapping[str, tuple[str, ...]]) -> bool:
    action = call.action.lower()
    if any(_like(action, one) for one in statement.actions) == statement.other_actions:
        return False
    named = any(_names(one, call.resource, context) for one in statement.resources)
    return named != statement.other_resources and all(_passes(one, context) for one in statement.tests)


def _names(pattern: str, resource: str, context: Mapping[str, tuple[str, ...]]) -> bool:
    filled = _filled(pattern, context)
    return filled is not None and _arn_like(resource, filled)


def _passes(test: _Test, context: Mapping[str, tuple[str, ...]]) -> bool:
    there = context.get(test.key, ())
    if test.operator == "Null":
        return (not there) == (test.values[0].lower() == "true")
    if not there:
        if test.if_exists or test.of_all is True:
            return True
        return _OPERATORS[test.operator][1] and test.of_all is None
    matches, negated = _OPERATORS[test.operator]
    wanted = [one for one in (_filled(value, context) for value in test.values) if one is not None]
    hits = [any(matches(value, one) for one in wanted) != negated for value in there]
    return any(hits) if test.of_all is False or (test.of_all is None and not negated) else all(hits)


def _filled(text: str, context: Mapping[str, tuple[str, ...]]) -> str | None:
    """Return the text with its policy variables (`${aws:PrincipalTag/x}`) filled; None if one has no single value."""
    missing = False

    def value(found: re.Match[str]) -> str:
        nonlocal missing
        if found[1] in ("*", "?", "$"):  # the character itself; a pattern cannot tell, but our policies have none
            return found[1]
        values = context.get(found[1].lower(), ())
        missing = missing or len(values) != 1
        return values[0] if len(values) == 1 else ""

    filled = re.sub(r"\$\{([^}]*)\}", value, text) if "${" in text else text
    return None if missing else filled


@lru_cache(maxsize=4096)
def _pattern(text: str) -> re.Pattern[str]:
    return re.compile("".join({"*": ".*", "?": "."}.get(c, re.escape(c)) for c in text), re.DOTALL)


def _like(value: str, pattern: str) -> bool:
    return _pattern(pattern).fullmatch(value) is not None


def _arn_like(value: str, pattern: str) -> bool:
    """Compare part by part, because a star in one part of an ARN does not match the next.

    The last part may have colons.
    """
    parts, patterns = value.split(":", _ARN_PARTS - 1), pattern.split(":", _ARN_PARTS - 1)
    if pattern == "*":
        return True
    return len(parts) == len(patterns) == _ARN_PARTS and all(map(_like, parts, patterns))


def _number(compare: Callable[[float, float], bool]) -> Callable[[str, str], bool]:
    def compared(value: str, wanted: str) -> bool:
        try:
            return compare(float(value), float(wanted))
        except ValueError:
            return False

    return compared


# Whether a request's value matches one of the policy's, and whether the operator is negated.
_OPERATORS: dict[str, tuple[Callable[[str, str], bool], bool]] = {
    "StringEquals": (str.__eq__, False),
    "StringNotEquals": (str.__eq__, True),
    "StringEqualsIgnoreCase": (lambda value, wanted: value.lower() == wanted.lower(), False),
    "StringNotEqualsIgnoreCase": (lambda value, wanted: value.lower() == wanted.lower(), True),
    "StringLike": (_like, False),
    "StringNotLike": (_like, True),
    "ArnEquals": (_arn_like, False),
    "ArnLike": (_arn_like, False),
    "ArnNotEquals": (_arn_like, True),
    "ArnNotLike": (_arn_like, True),
    "Bool": (lambda value, wanted: value.lower() == wanted.lower(), False),
    "NumericEquals": (_number(lambda a, b: a == b), False),
    "NumericNotEquals": (_number(lambda a, b: a == b), True),
    "NumericLessThan": (_number(lambda a, b: a < b), False),
    "NumericLessThanEquals": (_number(lambda a, b: a <= b), False),
    "NumericGreaterThan": (_number(lambda a, b: a > b), False),
    "NumericGreaterThanEquals": (_number(lambda a, b: a >= b), False),
}


def _several(values: Any) -> tuple[str, ...]:
    several = values if isinstance(values, (list, tuple)) else (values,)
    return tuple(str(one).lower() if isinstance(one, bool) else str(one) for one in several)
