"""The minimum of a SageMaker variant, on moto."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from mark_infra.aws.gate import Gate
from mark_infra.aws.scalable_minimum import ScalableMinimum, endpoint_and_variant
from mark_infra.aws.site import Site

from mark.control.memory_store import MemoryStore
from mark.domain.errors import BadInput, NotFoundError
from tests.infra.conftest import MotoServer

NAME = {
    "ServiceNamespace": "sagemaker",
    "ResourceId": "endpoint/rank/variant/all",
    "ScalableDimension": "sagemaker:variant:DesiredInstanceCount",
}


class Variant:
    """A scalable target with a minimum of 2 and a maximum of 10, and the object that keeps its minimum."""

    def __init__(self, moto: MotoServer) -> None:
        moto.reset()
        self.client = moto.client("application-autoscaling")
        self.client.register_scalable_target(**NAME, MinCapacity=2, MaxCapacity=10)
        self.store = MemoryStore()
        self.gate = Gate(Site("mark", "us-east-1", "dynamodb:none"), options=moto.options)
        self.minimum = ScalableMinimum(self.gate, "rank", "all")

    def keep(self, replicas: int | None) -> tuple[int, int]:
        """Keep a minimum and return MinCapacity and MaxCapacity afterwards."""
        self.minimum.keep(replicas, self.store)
        return self.capacity()

    def capacity(self) -> tuple[int, int]:
        (target,) = self.client.describe_scalable_targets(ServiceNamespace="sagemaker")["ScalableTargets"]
        return target["MinCapacity"], target["MaxCapacity"]


@pytest.fixture
def variant(moto: MotoServer) -> Variant:
    return Variant(moto)


@pytest.mark.parametrize(("replicas", "least"), [(5, 5), (1, 2), (0, 2), (99, 10), (None, 2)])
def test_minimum_stays_between_the_owners_minimum_and_maximum(
    variant: Variant, replicas: int | None, least: int
) -> None:
    assert variant.keep(replicas) == (least, 10)


def test_minimum_is_the_owners_again_without_a_floor(variant: Variant) -> None:
    assert variant.keep(7) == (7, 10)
    assert variant.keep(None) == (2, 10)


def test_crash_does_not_forget_the_owners_minimum(variant: Variant) -> None:
    variant.keep(7)
    variant.minimum = ScalableMinimum(variant.gate, "rank", "all")
    assert variant.keep(4) == (4, 10)
    assert variant.keep(None) == (2, 10)


def test_crash_before_the_change_does_not_forget_the_owners_minimum(variant: Variant) -> None:
    variant.keep(7)
    called: Callable[..., Any] = variant.gate.call

    class Cut(Exception):
        pass

    def cut(method: Callable[..., Any], **arguments: Any) -> Any:
        if "MinCapacity" in arguments:
            raise Cut
        return called(method, **arguments)

    variant.gate.call = cut
    with pytest.raises(Cut):
        variant.keep(9)
    variant.gate.call = called
    assert variant.keep(None) == (2, 10)


def test_minimum_that_the_owner_sets_meanwhile_is_the_owners(variant: Variant) -> None:
    variant.keep(7)
    variant.client.register_scalable_target(**NAME, MinCapacity=3)
    assert variant.keep(5) == (5, 10)
    assert variant.keep(None) == (3, 10)


def test_owners_minimum_may_equal_the_last_floor(variant: Variant) -> None:
    variant.keep(7)
    variant.keep(None)
    variant.client.register_scalable_target(**NAME, MinCapacity=7)
    assert variant.keep(None) == (7, 10)


def test_variant_that_nothing_scales_is_refused(variant: Variant) -> None:
    other = ScalableMinimum(variant.gate, "other", "all")
    with pytest.raises(NotFoundError, match="endpoint/other/variant/all has no scalable target"):
        other.keep(3, variant.store)


@pytest.mark.parametrize("text", ["sagemaker:rank", "rank/all", "sagemaker:/all", "sagemaker:a/b/c", "ecs:a/b"])
def test_act_names_an_endpoint_and_a_variant(text: str) -> None:
    with pytest.raises(BadInput, match="must be sagemaker:ENDPOINT/VARIANT"):
        endpoint_and_variant(text)
    assert endpoint_and_variant("sagemaker:rank/all") == ("rank", "all")
