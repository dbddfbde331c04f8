"""AWS's limits for one to 60 services, on up to two load balancers; one more service changes nothing of the others.

Rules and target groups are those of their services' places, so that a few services of a site of 60 show that its limits
hold; `tests/infra/deploy/test_places.py` tests the places of more.

`test_two_hundred.py` applies the largest number of services that a site holds.
"""

from __future__ import annotations

import base64
import re
from collections import Counter, defaultdict
from pathlib import Path
from typing import Any

import pytest
from mark_infra.deploy.places import MOST_SERVICES, Place, placed, priority_of

from tests.terraform.conftest import Terraform
from tests.terraform.mocked_site import APPLIED, LONG, REGION, MockedSite, Step, changes, resources

POLICIES = 10_240  # characters of all inline policies of a role
USER_DATA = 16_384  # bytes, before base64
RULES = TARGET_GROUPS = 100  # limits of a load balancer
ALARMS = ("errors", "nobody_ready")  # alarms that sum over a service's target groups
SIZES = (1, 4, 60)


@pytest.fixture
def site(mocked: Terraform, tmp_path: Path) -> MockedSite:
    return MockedSite(mocked, tmp_path)


def names(count: int) -> list[str]:
    return [LONG.format(n) if n % 2 else f"service-{n:03}" for n in range(count)]


def grown() -> list[dict[str, Place]]:
    """Return the places of a growing site; each deployment gets the places of the one before."""
    places: list[dict[str, Place]] = []
    for size in SIZES:
        # Every seventh service has types of three classes.
        classes = {name: 3 if n % 7 == 3 else 1 for n, name in enumerate(names(size))}
        places.append(placed(names(size), places[-1] if places else {}, classes))
    return places


@pytest.mark.slow
def test_every_limit_holds_as_a_site_grows(site: MockedSite) -> None:
    """Sites of one and 4 services are applied, so that all values are known. Some of 60 are planned on top, which must
    not touch the controller's rights."""
    *small, large = grown()
    check_limits(large)
    more = names(60)[4::12]
    sites = [*small, {name: large[name] for name in names(4) + more}]
    steps = [Step(site.services(list(one), dict(one)), apply=len(one) <= 4, default=names(1)[0]) for one in sites]
    *states, plan = site.run(*steps)
    policies, lengths = set(), set()
    for state in states:
        check_policies(state)
        user_data = {at: base64.b64decode(one["user_data"]) for at, one in of(state, "aws_launch_template").items()}
        assert max(map(len, user_data.values())) <= USER_DATA
        policies.add(of(state, "aws_iam_role_policy")["module.controller.aws_iam_role_policy.this"]["policy"])
        lengths.add(len(user_data["module.controller.aws_launch_template.this"]))
    assert len(policies) == 1, "the controller's policy grows with services"
    assert len(lengths) == 1, "the controller's user data grows with services"
    for state, places in zip([*states, plan], sites, strict=True):
        check_balancers(state, places)
    check_policies(plan)
    check_only_added(plan, set(more))


@pytest.mark.acceptance
def test_a_service_more_changes_nothing_of_others(site: MockedSite) -> None:
    """The first is its site's default; then come others, and one whose name sorts before all of them."""
    after = [["c"], ["c", "b", "d"], ["a", "b", "c", "d"]]
    one, more, all_four = (site.services(now) for now in after)
    _, second, _, third = site.run(
        Step(one, default="c"),
        Step(more, default="c", apply=False),
        Step(more, default="c"),
        Step(all_four, default="c", apply=False),
    )
    check_only_added(second, {"b", "d"})
    check_only_added(third, {"a"})
    (rule,) = (rule for at, rule in resources(third, "aws_lb_listener_rule").items() if ".default[" in at)
    assert (rule["priority"], rule["condition"][0]["path_pattern"][0]["values"]) == (50_000, ["/*"])


@pytest.mark.slow
def test_changes_of_one_service_touch_only_their_own(site: MockedSite) -> None:
    """Types of other classes, other zones, gRPC and back: each planned on top of the applied state."""
    zones = [f"{REGION}{letter}" for letter in "abcd"]
    numbers = {zone: number for number, zone in enumerate(zones[:3])}
    one, three = (site.services(["a"], {"a": {"target_groups": count}}) for count in (1, 3))
    state, classes, others, grpc, http = site.run(
        Step(one, default="a"),
        Step(three, default="a", apply=False),
        Step(one, default="a", apply=False, zones=tuple(zones[1:]), zone_numbers=numbers),
        Step(three, grpc_port=50051),
        Step(three, apply=False),
    )
    check_another_class(classes)
    check_other_zones(state, others, zones[3])
    check_grpc(grpc, http)


def check_another_class(plan: dict[str, Any]) -> None:
    """Check that groups are added and no rule changes: the controller decides where rules forward, and is told of
    groups."""
    done = changes(plan)
    done.pop("module.controller.aws_autoscaling_group.this", None)  # changes with the version of its template
    assert done == {
        **{f'module.fleet["a"].aws_lb_target_group.more[{n}]': ["create"] for n in (0, 1)},
        "module.controller.aws_launch_template.this": ["update"],
        'module.controller.aws_s3_object.boot["site.toml"]': ["update"],
        # An alarm sums over the service's groups, so two groups make another expression.
        **{f'module.observability.aws_cloudwatch_metric_alarm.{kind}["a"]': ["update"] for kind in ALARMS},
    }


def check_other_zones(state: dict[str, Any], plan: dict[str, Any], new_zone: str) -> None:
    """Check that no subnet is removed, because instances serve there until the controller has replaced them.

    A balancer sends to its own zones only.
    """
    done = {at: actions for at, actions in changes(plan).items() if at.startswith("module.network")}
    new = ("aws_subnet", "aws_route_table_association")
    assert {at for at, actions in done.items() if actions == ["create"]} == {
        f'module.network.{kind}.{side}["{new_zone}"]' for kind in new for side in ("private", "public")
    }
    # The NAT gateway is in a zone that is left, so another one is made before it goes. (A mocked provider replaces no
    # resource by itself; real subnets stay because their addresses stay.)
    gone = {at: actions for at, actions in done.items() if "delete" in actions}
    assert gone == {"module.network.aws_eip.nat": ["create", "delete"]}
    assert "module.network.aws_nat_gateway.this" in done
    ranges = {at: one["cidr_block"] for at, one in resources(plan, "aws_subnet").items()}
    assert len(set(ranges.values())) == 8
    assert ranges.items() >= {at: one["cidr_block"] for at, one in resources(state, "aws_subnet").items()}.items()


def check_grpc(state: dict[str, Any], plan: dict[str, Any]) -> None:
    """Check that gRPC adds a rule and groups, and that groups can be deleted once no rule names them after the way
    back."""
    assert len(of(state, "aws_lb_target_group")) == 7
    rules = of(state, "aws_lb_listener_rule")
    assert sorted(at.split(".")[-1] for at in rules) == ["grpc[0]", "header", "path"]
    told = of(state, "aws_s3_object")['module.controller.aws_s3_object.boot["site.toml"]']["content"]
    assert 'scheme = "https"' in told
    assert "grpc_groups = [" in told
    assert "grpc_rules = [" in told
    gone = {at for at, actions in changes(plan).items() if actions == ["delete"]}
    assert {at for at in gone if at.startswith("module.fleet")} == {
        'module.fleet["a"].aws_lb_listener_rule.grpc[0]',
        *(f'module.fleet["a"].aws_lb_target_group.grpc[{n}]' for n in range(3)),
    }


@pytest.mark.slow
def test_a_site_that_aws_would_refuse_is_refused(site: MockedSite) -> None:
    two = dict(zip(("x", "y"), [{"balancer": 0, "priority": 7}] * 2, strict=True))
    full = {name: {"balancer": 0, "priority": n + 1} for n, name in enumerate(names(MOST_SERVICES + 1))}
    assert site.run(
        Step(site.services(["x"]), apply=False, site="internal-models", refused="var.site"),
        Step(site.services(["x"]), apply=False, site="internal", refused="var.site"),
        Step(site.services(["x", "y"], two), apply=False, refused="var.services"),
        Step(site.services(["x.y", "x-y"]), apply=False, refused="var.services"),
        Step(site.services(list(full), full), apply=False, refused="var.services"),
        Step(site.services(["x"]), apply=False, default="y", refused="var.default_service"),
    )


@pytest.mark.slow
def test_names_and_priorities_of_services_are_unique(applied: dict[str, Any]) -> None:
    """One service has the controller's name. Terraform computes the same priorities as our code."""
    priorities = {at: rule["priority"] for at, rule in of(applied, "aws_lb_listener_rule").items()}
    for name in APPLIED:
        assert priorities[f'module.fleet["{name}"].aws_lb_listener_rule.path'] == 2 * priority_of(name)
        assert priorities[f'module.fleet["{name}"].aws_lb_listener_rule.header'] == 2 * priority_of(name) + 1
    unique = {
        "aws_iam_role": "name",
        "aws_iam_instance_profile": "name",
        "aws_launch_template": "name",
        "aws_cloudwatch_log_group": "name",
        "aws_cloudwatch_metric_alarm": "alarm_name",
        "aws_lambda_function": "function_name",
        "aws_lb_target_group": "name",
        "aws_s3_object": "key",
    }
    for kind, key in unique.items():
        found = Counter(one[key] for one in of(applied, kind).values())
        assert len(found) > 1, kind
        assert set(found.values()) == {1}, kind


def of(state: dict[str, Any], kind: str) -> dict[str, dict[str, Any]]:
    found = resources(state, kind)
    assert found, kind
    return found


def check_policies(state: dict[str, Any]) -> None:
    """Check the size of each role's policies, which are in the role's module."""
    characters: Counter[str] = Counter()
    for at, one in of(state, "aws_iam_role_policy").items():
        # A plan does not know the text of policies that name resources yet to be made.
        characters[at.rpartition(".aws_iam_role_policy")[0]] += len(one.get("policy") or "")
    assert max(characters.values()) <= POLICIES


def used(places: dict[str, Place]) -> tuple[Counter[int], Counter[int]]:
    """Return the rules and the target groups of each load balancer, without the default service's rule."""
    rules: Counter[int] = Counter()
    groups: Counter[int] = Counter()
    for place in places.values():
        rules[place["balancer"]] += 2
        groups[place["balancer"]] += place["target_groups"] + 1
    return rules, groups


def check_limits(places: dict[str, Place]) -> None:
    rules, groups = used(places)
    assert len(rules) == 2
    assert max(rules.values()) + 1 <= RULES
    assert max(groups.values()) <= TARGET_GROUPS


def check_balancers(state: dict[str, Any], places: dict[str, Place]) -> None:
    assert len(of(state, "aws_lb")) == 1 + max(place["balancer"] for place in places.values())
    rules: Counter[int] = Counter()
    priorities: defaultdict[int, list[int]] = defaultdict(lambda: [50_000])  # the default service's rule
    for at, rule in of(state, "aws_lb_listener_rule").items():
        if at.startswith("module.fleet["):
            balancer = places[at.split('"')[1]]["balancer"]
            rules[balancer] += 1
            priorities[balancer].append(rule["priority"])
    groups = Counter(places[at.split('"')[1]]["balancer"] for at in of(state, "aws_lb_target_group"))
    assert (rules, groups) == used(places)
    for taken in priorities.values():
        assert len(set(taken)) == len(taken)
        assert all(0 < priority <= 50_000 for priority in taken)


def check_only_added(plan: dict[str, Any], new: set[str]) -> None:
    """Check that only the new services' resources are made, and that the controller hears of them."""
    others = {}
    for at, actions in changes(plan).items():
        key = at.split('"')[1].split("/")[-1] if '"' in at else ""
        if not (key in new and actions == ["create"]):
            others[at] = actions
    told = {f'module.controller.aws_s3_object.boot["{file}"]' for file in ("archives", "site.toml")}
    told |= {f"module.controller.{kind}.this" for kind in ("aws_launch_template", "aws_autoscaling_group")}
    of_balancers = re.compile(r"module\.(network\.aws_lb|observability\..*\.(balancer_errors|rejected)\[)")
    grows = {at for at, actions in others.items() if actions == ["create"] and of_balancers.match(at)}
    grows |= {at for at in others if at.startswith("module.state.aws_s3_bucket_policy.")} if grows else set()
    assert {at for at in others if at not in grows} <= told, others
    assert all(others[at] == ["update"] for at in others.keys() & told)
