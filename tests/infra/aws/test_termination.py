"""Instances are terminated although EC2 refuses a whole call for one of them."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import pytest
from mark_infra.aws.gate import Gate
from mark_infra.aws.termination import in_turn, terminate

from mark.domain.errors import CloudError, NotFoundError


class Ec2Gate:
    """A gate to an EC2 that knows some instances, and refuses a call that names another one."""

    def __init__(self, *known: str) -> None:
        self.known = set(known)

    def client(self, name: str) -> Any:
        assert name == "ec2"
        return SimpleNamespace(terminate_instances=None)

    def call(self, method: None, InstanceIds: list[str]) -> None:
        if not self.known.issuperset(InstanceIds):
            raise NotFoundError("InvalidInstanceID.NotFound")
        self.known -= set(InstanceIds)


@pytest.mark.parametrize("gone", [[], ["i-3"], ["i-1", "i-3"]])
def test_known_instances_are_terminated_beside_some_that_are_gone(gone: list[str]) -> None:
    ids = ["i-1", "i-2", "i-3"]
    gate = Ec2Gate(*(id for id in ids if id not in gone), "i-other")
    terminate(cast("Gate", gate), ids)
    assert gate.known == {"i-other"}


def test_work_in_turn_raises_the_last_error_after_all_others_are_done() -> None:
    done: list[str] = []

    def work(ids: list[str]) -> None:
        if "i-2" in ids:
            raise NotFoundError("i-2")
        done.extend(ids)

    with pytest.raises(NotFoundError, match="i-2"):
        in_turn(["i-1", "i-2", "i-3"], work)
    assert done == ["i-1", "i-3"]


def test_an_error_that_concerns_no_single_instance_is_raised_at_once() -> None:
    calls: list[list[str]] = []

    def work(ids: list[str]) -> None:
        calls.append(ids)
        raise CloudError("EC2 does not answer")

    with pytest.raises(CloudError, match="does not answer"):
        in_turn(["i-1", "i-2"], work)
    assert calls == [["i-1", "i-2"]]
