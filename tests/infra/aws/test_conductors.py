"""The instances that are conductors."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from mark_infra.aws.conductors import LOOK_S, Conductors

from mark.domain.errors import CloudError


class Described:
    """A gate that describes instances and notes the requests."""

    def __init__(self) -> None:
        self.instances = {"i-1": "10.0.0.1"}
        self.asked: list[Any] = []
        self.fails = False

    def client(self, service: str) -> Any:
        assert service == "ec2"
        return self

    def describe_instances(self) -> None:
        """Never called: `pages` gets its arguments."""

    def pages(self, method: Any, *, Filters: list[dict[str, Any]]) -> Iterator[Any]:
        self.asked.append({one["Name"]: one["Values"] for one in Filters})
        if self.fails:
            raise CloudError("no answer")
        for id, at in self.instances.items():
            yield {"Reservations": [{"Instances": [{"InstanceId": id, "PrivateIpAddress": at}]}]}


def test_conductors_are_looked_up_once_a_minute() -> None:
    """Only running instances of their group count. A failed look is repeated at the next call."""
    gate, now_s = Described(), [5.0]
    conductors = Conductors(gate, "mark-two-conductors", monotonic=lambda: now_s[0])  # type: ignore[arg-type]
    gate.fails = True
    with pytest.raises(CloudError):
        conductors.addresses()
    gate.fails = False
    assert conductors.addresses() == {"i-1": "10.0.0.1"}
    wanted = {"tag:aws:autoscaling:groupName": ["mark-two-conductors"], "instance-state-name": ["running"]}
    assert gate.asked == [wanted, wanted]
    gate.instances = {"i-2": "10.0.0.2", "i-3": "10.0.0.3"}
    now_s[0] += 0.5 * LOOK_S
    assert conductors.addresses() == {"i-1": "10.0.0.1"}
    now_s[0] += 0.5 * LOOK_S
    assert conductors.addresses() == gate.instances
    assert len(gate.asked) == 3


def test_known_conductors_are_used_while_ec2_does_not_answer() -> None:
    """Their queries are counted, and they hear prices. A failed look is repeated at the next call."""
    gate, now_s = Described(), [5.0]
    conductors = Conductors(gate, "mark-two-conductors", monotonic=lambda: now_s[0])  # type: ignore[arg-type]
    conductors.addresses()
    gate.fails, gate.instances = True, {"i-2": "10.0.0.2"}
    now_s[0] += LOOK_S
    assert conductors.addresses() == {"i-1": "10.0.0.1"}
    gate.fails = False
    assert conductors.addresses() == {"i-2": "10.0.0.2"}
