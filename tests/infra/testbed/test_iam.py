"""IAM's decisions about an action on a resource, by the rules that AWS documents."""

from __future__ import annotations

from typing import Any

import pytest
from mark_infra.testbed.iam import IamCall, IamDecision, IamPolicy, decide

from mark.domain.errors import BadInput

INSTANCE = "arn:aws:ec2:us-east-1:123456789012:instance/i-1"


def policy(*statements: dict[str, Any]) -> IamPolicy:
    full = [{"Effect": "Allow", "Action": "ec2:*", **one} for one in statements]
    filled = [one if "NotResource" in one else {"Resource": "*", **one} for one in full]
    return IamPolicy({"Version": "2012-10-17", "Statement": [_without(one) for one in filled]})


def _without(statement: dict[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in statement.items() if value is not None}


def allows(one: IamPolicy, action: str = "ec2:StopInstances", resource: str = INSTANCE, **context: Any) -> bool:
    return decide([one], IamCall(action, resource, context)) is IamDecision.ALLOWED


def condition(operator: str, values: Any, key: str = "k") -> IamPolicy:
    return policy({"Condition": {operator: {key: values}}})


def test_what_nothing_allows_is_denied() -> None:
    assert decide([], IamCall("ec2:StopInstances")) is IamDecision.NOT_ALLOWED
    assert decide([policy({"Action": "sqs:*"})], IamCall("ec2:StopInstances")) is IamDecision.NOT_ALLOWED


def test_a_denial_wins_whatever_allows() -> None:
    deny = {"Effect": "Deny", "Action": "ec2:StopInstances"}
    for policies in ([policy({}, deny)], [policy(deny), policy({})], [policy({}), policy(deny)]):
        assert decide(policies, IamCall("ec2:StopInstances")) is IamDecision.DENIED
        assert decide(policies, IamCall("ec2:StartInstances")) is IamDecision.ALLOWED


def test_limits_of_the_organisation_allow_nothing_themselves() -> None:
    everything, no_stop = policy({"Action": "*"}), policy({"Action": "*"}, {"Effect": "Deny", "Action": "ec2:Stop*"})
    call = IamCall("ec2:StopInstances")
    assert decide([], call, [everything]) is IamDecision.NOT_ALLOWED
    assert decide([everything], call, [everything]) is IamDecision.ALLOWED
    assert decide([everything], call, [everything, no_stop]) is IamDecision.DENIED
    assert decide([everything], call, [policy({"Action": "sqs:*"})]) is IamDecision.NOT_ALLOWED


def test_limits_of_one_level_allow_together() -> None:
    everything, call = policy({"Action": "*"}), IamCall("ec2:StopInstances")
    some, other = policy({"Action": "ec2:*"}), policy({"Action": "sqs:*"})
    for limits in ([some, other], [other, some]):
        assert decide([everything], call, limits) is IamDecision.ALLOWED
    no_stop = policy({"Effect": "Deny", "Action": "ec2:Stop*"})
    for limits in ([some, no_stop], [no_stop, some]):
        assert decide([everything], call, limits) is IamDecision.DENIED


@pytest.mark.parametrize(
    ("pattern", "action", "fits"),
    [
        ("ec2:StopInstances", "ec2:StopInstances", True),
        ("EC2:stopinstances", "ec2:StopInstances", True),  # actions ignore case
        ("ec2:Stop*", "ec2:StopInstances", True),
        ("ec2:*Instances", "ec2:StopInstances", True),
        ("ec2:St?pInstances", "ec2:StopInstances", True),
        ("*", "ec2:StopInstances", True),
        ("ec2:Stop", "ec2:StopInstances", False),
        ("ec2:Stop?", "ec2:StopInstances", False),
        ("e.2:*", "ec2:StopInstances", False),
        ("ec2:[S]*", "ec2:StopInstances", False),
    ],
)
def test_actions_fit_their_patterns(pattern: str, action: str, fits: bool) -> None:
    assert allows(policy({"Action": pattern}), action) is fits
    assert allows(policy({"Action": ["sqs:*", pattern]}), action) is fits
    assert allows(policy({"Action": None, "NotAction": pattern}), action) is not fits


@pytest.mark.parametrize(
    ("pattern", "resource", "fits"),
    [
        (INSTANCE, INSTANCE, True),
        ("arn:aws:ec2:us-east-1:123456789012:instance/*", INSTANCE, True),
        ("arn:aws:ec2:*:*:instance/*", INSTANCE, True),
        ("arn:aws:ec2:*:instance/*", INSTANCE, False),  # a star does not cross into the next part
        ("arn:*", INSTANCE, False),
        ("arn:aws:ec2:us-east-1:123456789012:instance/I-1", INSTANCE, False),
        ("arn:aws:ec2:us-east-1:123456789012:instance/i-?", INSTANCE, True),
        ("arn:aws:ec2:us-east-1:123456789012:instance/i-", INSTANCE, False),
        ("arn:aws:logs:r:a:log-group:/mark/x:*", "arn:aws:logs:r:a:log-group:/mark/x:log-stream:s", True),
        ("arn:aws:s3:::bucket/a/*", "arn:aws:s3:::bucket/a/b/c", True),
        ("arn:aws:s3:::bucket/a/*", "*", False),  # the call names no resource
        ("*", "*", True),
    ],
)
def test_resources_fit_their_patterns(pattern: str, resource: str, fits: bool) -> None:
    assert allows(policy({"Resource": pattern}), "ec2:X", resource) is fits
    assert allows(policy({"NotResource": pattern}), "ec2:X", resource) is not fits


@pytest.mark.parametrize(
    ("operator", "wanted", "value", "fits"),
    [
        ("StringEquals", "a", "a", True),
        ("StringEquals", ["b", "a"], "a", True),
        ("StringEquals", "A", "a", False),
        ("StringEquals", "a*", "ab", False),
        ("StringNotEquals", "a", "a", False),
        ("StringNotEquals", ["a", "b"], "c", True),
        ("StringEqualsIgnoreCase", "A", "a", True),
        ("StringNotEqualsIgnoreCase", "A", "a", False),
        ("StringLike", "a*c", "abc", True),
        ("StringLike", "a?c", "abbc", False),
        ("StringNotLike", "a*c", "abc", False),
        ("ArnLike", "arn:aws:iam::*:role/mark/*", "arn:aws:iam::1:role/mark/x", True),
        ("ArnEquals", "arn:aws:iam::*:role/mark/*", "arn:aws:iam::1:role/other", False),
        ("ArnNotLike", "arn:aws:iam::*:role/*", "arn:aws:iam::1:role/x", False),
        ("ArnNotEquals", "arn:aws:iam::*:role/*", "arn:aws:iam::1:user/x", True),
        ("Bool", "true", "True", True),
        ("Bool", True, "false", False),
        ("NumericEquals", "5", "5.0", True),
        ("NumericNotEquals", 5, "5", False),
        ("NumericLessThan", 5, "4", True),
        ("NumericLessThanEquals", 5, "5", True),
        ("NumericGreaterThan", 5, "5", False),
        ("NumericGreaterThanEquals", 5, "5", True),
        ("NumericEquals", 5, "many", False),
        ("Null", "false", "a", True),
        ("Null", "true", "a", False),
    ],
)
def test_conditions_compare_what_is_there(operator: str, wanted: Any, value: str, fits: bool) -> None:
    assert allows(condition(operator, wanted), k=value) is fits


@pytest.mark.parametrize(
    ("operator", "fits"),
    [
        ("StringEquals", False),
        ("StringNotEquals", True),
        ("StringEqualsIfExists", True),
        ("ArnLikeIfExists", True),
        ("NumericLessThan", False),
        ("Bool", False),
        ("ForAllValues:StringEquals", True),
        ("ForAnyValue:StringEquals", False),
        ("ForAnyValue:StringNotEquals", False),
    ],
)
def test_conditions_on_what_is_not_there(operator: str, fits: bool) -> None:
    assert allows(condition(operator, "a")) is fits


def test_a_key_that_is_not_there_is_null() -> None:
    assert allows(condition("Null", "true"))
    assert not allows(condition("Null", "false"))


def test_sets_of_values_are_compared_as_asked() -> None:
    both, one, none = ("a", "b"), ("a", "c"), ("c", "d")
    every, some = condition("ForAllValues:StringEquals", ["a", "b"]), condition("ForAnyValue:StringEquals", ["a", "b"])
    assert [allows(every, k=values) for values in (both, one, none)] == [True, False, False]
    assert [allows(some, k=values) for values in (both, one, none)] == [True, True, False]


def test_keys_of_conditions_know_no_case() -> None:
    assert allows(
        condition("StringEquals", "mark", "aws:ResourceTag/mark:site"), **{"AWS:resourcetag/mark:site": "mark"}
    )


def test_all_conditions_of_a_statement_must_hold() -> None:
    both = policy({"Condition": {"StringEquals": {"a": "1", "b": "2"}, "Bool": {"c": "true"}}})
    assert allows(both, a="1", b="2", c="true")
    for missing in "abc":
        assert not allows(
            both, **{key: value for key, value in {"a": "1", "b": "2", "c": "true"}.items() if key != missing}
        )


def test_a_denial_whose_condition_fails_denies_nothing() -> None:
    deny = {"Effect": "Deny", "Condition": {"StringEquals": {"ec2:InstanceMarketType": "spot"}}}
    one = policy({}, deny)
    assert allows(one)
    assert not allows(one, **{"ec2:InstanceMarketType": "spot"})


def test_variables_stand_for_what_the_request_says() -> None:
    tagged = condition("StringEquals", "${aws:PrincipalTag/site}", "aws:ResourceTag/site")
    assert allows(tagged, **{"aws:PrincipalTag/site": "m", "aws:ResourceTag/site": "m"})
    assert not allows(tagged, **{"aws:PrincipalTag/site": "m", "aws:ResourceTag/site": "n"})
    assert not allows(tagged, **{"aws:ResourceTag/site": "m"})
    own = policy({"Resource": "arn:aws:ec2:us-east-1:123456789012:instance/${ec2:x}"})
    assert allows(own, **{"ec2:x": "i-1"})
    assert not allows(own)


@pytest.mark.parametrize(
    "document",
    [
        "no json",
        {},
        {"Statement": []},
        {"Statement": {"Effect": "Perhaps", "Action": "*", "Resource": "*"}},
        {"Statement": {"Effect": "Allow", "Action": "*"}},
        {"Statement": {"Effect": "Allow", "Resource": "*"}},
        {"Statement": {"Effect": "Allow", "Action": "*", "NotAction": "a:b", "Resource": "*"}},
        {"Statement": {"Effect": "Allow", "Action": "*", "Resource": "*", "Principal": "*"}},
        {"Statement": {"Effect": "Allow", "Action": "*", "Resource": "*", "Condition": {"IpAddress": {"k": "1"}}}},
        {"Statement": {"Effect": "Allow", "Action": "*", "Resource": "*", "Condition": {"Some:Bool": {"k": "1"}}}},
    ],
)
def test_what_is_not_understood_is_refused(document: Any) -> None:
    with pytest.raises(BadInput):
        IamPolicy(document)


def test_one_statement_needs_no_list() -> None:
    one = IamPolicy('{"Statement": {"Effect": "Allow", "Action": "ec2:*", "Resource": "*"}}')
    assert allows(one)
