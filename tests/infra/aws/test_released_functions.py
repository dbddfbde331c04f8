"""The alias that the load balancer calls moves between a function's versions, on moto."""

from __future__ import annotations

import io
import json
import zipfile
from collections.abc import Iterator
from typing import Any

import pytest
from mark_infra.aws.gate import Gate
from mark_infra.aws.released_functions import ReleasedFunctions
from mark_infra.aws.site import Site
from mark_infra.aws.warming import LambdaWarming

from mark.domain.errors import NotFoundError
from tests.infra.aws.bench import Place
from tests.infra.aws.test_warming import At, Hanging, wait_for
from tests.infra.conftest import REGION

NAME = "mark_inception-overflow"


def archive(text: str) -> bytes:
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w") as file:
        file.writestr("handler.py", text)
    return packed.getvalue()


@pytest.fixture
def function(place: Place) -> Iterator[Any]:
    """Make two versions of a function; its alias names the first."""
    trust = json.dumps({"Version": "2012-10-17", "Statement": []})
    role = place.server.client("iam").create_role(RoleName=NAME, AssumeRolePolicyDocument=trust)["Role"]["Arn"]
    client = place.server.client("lambda")
    client.create_function(
        FunctionName=NAME, Runtime="python3.12", Role=role, Handler="handler.handler",
        Code={"ZipFile": archive("1")}, Publish=True,
    )  # fmt: skip
    client.update_function_code(FunctionName=NAME, ZipFile=archive("2"), Publish=True)
    client.create_alias(FunctionName=NAME, Name="balancer", FunctionVersion="1")
    yield client
    client.delete_function(FunctionName=NAME)
    place.server.client("iam").delete_role(RoleName=NAME)


class World:
    """Releases a and b have a function each, c has none; `warmed` are the functions asked to be pinged."""

    def __init__(self, place: Place) -> None:
        self.warmed: list[str] = []
        self.warming = LambdaWarming(f"{NAME}:1", 300.0, At(), functions=self._made)
        self.gate = Gate(Site("mark", REGION, "sqlite:unused"), options=place.server.options)

    def functions(self, alias: str | None = "balancer") -> ReleasedFunctions:
        return ReleasedFunctions(self.warming, self.gate, {"a": f"{NAME}:1", "b": f"{NAME}:2"}, alias)

    def _made(self, name: str) -> Hanging:
        self.warmed.append(name)
        return Hanging()


@pytest.fixture
def world(place: Place) -> Iterator[World]:
    made = World(place)
    yield made
    made.warming.close()


def alias_of(function: Any) -> str:
    return str(function.get_alias(FunctionName=NAME, Name="balancer")["FunctionVersion"])


def test_the_alias_moves_to_and_fro(world: World, function: Any) -> None:
    functions = world.functions()
    for release, version in (("b", "2"), ("b", "2"), ("a", "1")):
        assert functions.switch(release)
        assert alias_of(function) == version


def test_what_serves_is_kept_warm(world: World, function: Any) -> None:
    functions = world.functions()
    functions.switch("b")
    functions.warm(1)
    wait_for(lambda: world.warmed == [f"{NAME}:2"])


def test_a_release_without_a_function_moves_nothing(world: World, function: Any) -> None:
    assert not world.functions().switch("c")
    assert alias_of(function) == "1"


def test_without_an_alias_only_the_warmed_version_changes(world: World, function: Any) -> None:
    functions = world.functions(alias=None)
    assert not functions.switch("b")
    functions.warm(1)
    wait_for(lambda: world.warmed == [f"{NAME}:2"])
    assert alias_of(function) == "1"


def test_a_function_that_is_gone_is_said(world: World) -> None:
    with pytest.raises(NotFoundError, match="ResourceNotFound"):
        world.functions().switch("b")
