"""Resources that must exist before others do so by Terraform's graph, and not because the others take longer."""

from __future__ import annotations

import re
from collections import defaultdict

import pytest

from tests.terraform.conftest import Terraform

EDGE = re.compile(r'^\s*"([^"]+)" -> "([^"]+)";', re.M)
CONTROLLER = "module.controller.aws_autoscaling_group.this"
BALANCER = "module.network.aws_lb.this"


@pytest.fixture(scope="module")
def edges(terraform: Terraform) -> dict[str, set[str]]:
    folder = terraform.home / "examples" / "complete"
    terraform.init(folder)
    done = terraform.run(folder, "graph")
    assert done.returncode == 0, done.stderr
    found: defaultdict[str, set[str]] = defaultdict(set)
    for one, other in EDGE.findall(done.stdout):
        found[one].add(other)
    return found


def waits_for(edges: dict[str, set[str]], one: str) -> set[str]:
    reached: set[str] = set()
    ahead = [one]
    while ahead:
        for other in edges.get(ahead.pop(), set()) - reached:
            reached.add(other)
            ahead.append(other)
    return reached


@pytest.mark.slow
def test_the_controller_finds_its_way_out(edges: dict[str, set[str]]) -> None:
    assert waits_for(edges, CONTROLLER) >= {
        f"module.network.{name}"
        for name in (
            "aws_nat_gateway.this",
            "aws_route.nat",
            "aws_route.internet",
            "aws_route_table_association.private",
            "aws_route_table_association.public",
            "aws_vpc_endpoint.gateway",
            "aws_vpc_security_group_egress_rule.https",
            "aws_vpc_security_group_egress_rule.controller_to_bouncers",
            "aws_vpc_security_group_ingress_rule.bouncer",
        )
    }


@pytest.mark.slow
def test_the_controller_finds_what_it_needs(edges: dict[str, set[str]]) -> None:
    """The controller needs its rights, files and state, the templates that it launches from, and the rights of
    bouncers."""
    assert waits_for(edges, CONTROLLER) >= {
        "module.controller.aws_iam_role_policy.this",
        "module.controller.aws_s3_object.boot",
        "module.state.aws_s3_object.artifact",
        "module.state.aws_dynamodb_table.state",
        "module.state.aws_ssm_parameter.keys",
        "module.events.aws_sqs_queue_policy.notices",
        "module.events.aws_cloudwatch_event_target.notices",
        "module.fleet.aws_iam_role_policy.this",
        "module.fleet.aws_lb_listener_rule.path",
        "module.fleet.aws_lb_listener_rule.header",
        "module.overflow.aws_lambda_function.this",
    }


@pytest.mark.slow
def test_the_balancer_waits_for_the_internet(edges: dict[str, set[str]]) -> None:
    assert waits_for(edges, BALANCER) >= {
        "module.network.aws_internet_gateway.this",
        "module.network.aws_route.internet",
        "module.network.aws_route_table_association.public",
        "module.network.aws_vpc_security_group_egress_rule.balancer_to_bouncers",
    }
