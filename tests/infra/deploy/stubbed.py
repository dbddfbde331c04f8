"""A gate whose clients give the test's answers, checked against botocore's own models of AWS."""

from __future__ import annotations

from typing import Any

import boto3
from botocore.stub import Stubber
from mark_infra.aws.gate import Gate
from mark_infra.aws.site import Site

REGION = "eu-west-1"


class StubbedSession:
    """A stand-in for boto3's session. Calls of a service must come in the order of the test's answers."""

    def __init__(self) -> None:
        session = boto3.Session("test", "test", region_name=REGION)
        self._session, self._stubs = session, dict[str, tuple[Any, Stubber]]()

    def client(self, service: str, **_: Any) -> Any:
        return self._of(service)[0]

    def answers(self, service: str, method: str, answer: dict[str, Any], asked: dict[str, Any] | None = None) -> None:
        self._of(service)[1].add_response(method, answer, asked)

    def refuses(self, service: str, method: str, code: str, asked: dict[str, Any] | None = None) -> None:
        self._of(service)[1].add_client_error(method, code, "no", 400, expected_params=asked)

    def all_asked(self) -> bool:
        """Was every prepared answer requested?"""
        for _, stub in self._stubs.values():
            stub.assert_no_pending_responses()
        return True

    def gate(self) -> Gate:
        return Gate(Site("mark", REGION, "sqlite:none"), session=self)

    def _of(self, service: str) -> tuple[Any, Stubber]:
        if service not in self._stubs:
            client = self._session.client(service)
            stub = Stubber(client)
            stub.activate()
            self._stubs[service] = client, stub
        return self._stubs[service]
