"""Profiles, the roles that they assume, and sessions of users, against moto: which caller AWS sees."""

from __future__ import annotations

import asyncio
import logging
import re
import threading
from pathlib import Path
from typing import Any

import boto3
import pytest
from mark_infra.aws.gate import Gate
from mark_infra.aws.lambda_functions import LambdaFunctions
from mark_infra.aws.price_list_api import PRICING_REGION, Prices
from mark_infra.aws.session import async_session, environment_keys, open_session
from mark_infra.aws.site import Site
from mark_infra.aws.teardown import caller

from mark.cli.main import main
from mark.domain.catalog.tables import load_catalog
from mark.domain.errors import BadInput
from tests.infra.conftest import ACCOUNT, REGION, MotoServer
from tests.infra.lambda_endpoint import endpoint
from tests.serving.overflow.test_functions import calls, echo

OTHER = "111122223333"
SITE = Site("mark", REGION, "dynamodb:mark-state")
# A role's keys that last for 15 minutes are due for renewal from the start.
CONFIG = f"""\
[profile plain]
region = eu-west-1
[profile role]
role_arn = arn:aws:iam::{OTHER}:role/deployer
source_profile = plain
duration_seconds = 900
[profile lost]
role_arn = arn:aws:iam::{OTHER}:role/deployer
source_profile = absent
"""
KEYS = """\
[plain]
aws_access_key_id = AKIAPLAIN
aws_secret_access_key = s3cret-of-plain
"""


@pytest.fixture(autouse=True)
def configured(moto: MotoServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Write a folder as `aws configure` does, and name no other caller."""
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN", "AWS_DEFAULT_REGION"):
        monkeypatch.delenv(name, raising=False)
    for name in ("AWS_PROFILE", "AWS_DEFAULT_PROFILE"):
        monkeypatch.delenv(name, raising=False)
    (tmp_path / "config").write_text(CONFIG)
    (tmp_path / "credentials").write_text(KEYS)
    monkeypatch.setenv("AWS_CONFIG_FILE", str(tmp_path / "config"))
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(tmp_path / "credentials"))
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    monkeypatch.setenv("AWS_ENDPOINT_URL", moto.url)
    moto.reset()


def keys_of(gate: Gate) -> list[str]:
    """Return the access keys of three requests by one client."""
    sts, heard = gate.client("sts"), list[str]()

    def signed(request: Any, **_: Any) -> None:
        heard.append(re.findall(rb"Credential=(\w+)/", request.headers["Authorization"])[0].decode())

    sts.meta.events.register("before-send.sts.GetCallerIdentity", signed)
    for _ in range(3):
        gate.call(sts.get_caller_identity)
    return heard


def test_a_profile_is_the_caller() -> None:
    session = open_session("plain")
    assert keys_of(Gate(SITE, session=session)) == ["AKIAPLAIN"] * 3
    assert (caller(Gate(SITE, session=session)), session.region_name) == (ACCOUNT, "eu-west-1")


def test_a_profile_that_is_named_beats_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    """boto3 does the same. Without a named profile the environment's keys are used, and after them AWS_PROFILE."""
    monkeypatch.setenv("AWS_PROFILE", "plain")
    assert keys_of(Gate(SITE, session=open_session()))[0] == "AKIAPLAIN"
    assert keys_of(Gate(SITE))[0] == "AKIAPLAIN"
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "AKIAENVIRONMENT")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "x")
    assert keys_of(Gate(SITE, session=open_session()))[0] == "AKIAENVIRONMENT"
    assert keys_of(Gate(SITE, session=open_session("plain")))[0] == "AKIAPLAIN"


def test_a_role_is_assumed_and_its_keys_renewed() -> None:
    """The profile's configuration names the role; a long-lived client never uses expired keys."""
    gate = Gate(SITE, session=open_session("role", REGION))
    assert caller(gate) == OTHER
    heard = keys_of(gate)
    assert len(set(heard)) == 3
    assert all(key.startswith("ASIA") for key in heard)


def test_gates_with_one_session_share_its_credentials() -> None:
    """So a role is assumed once, and the user enters a code once."""
    session = open_session("plain")
    gates = [Gate(SITE, session=session), Gate(SITE, session=session)]
    first, second = (gate.client("sts")._get_credentials() for gate in gates)
    assert first is second


def test_a_users_own_session_is_used_as_it_is() -> None:
    session = boto3.Session(aws_access_key_id="AKIAMINE", aws_secret_access_key="x", region_name="eu-north-1")
    session.events.register("provide-client-params.sts.GetCallerIdentity", lambda **_: seen.append(1))
    seen: list[int] = []
    gate = Gate(SITE, session=session)
    assert keys_of(gate) == ["AKIAMINE"] * 3
    assert gate.client("sts").meta.region_name == REGION  # the site's region
    assert seen == [1, 1, 1]
    assert "EbsOptimized" in session.client("ec2", REGION).meta.service_model.shape_for("Instance").members


def test_of_ec2s_instances_only_what_is_read_is_parsed() -> None:
    model = Gate(SITE, session=open_session("plain")).client("ec2").meta.service_model
    assert "EbsOptimized" not in model.shape_for("Instance").members
    assert "PrivateIpAddress" in model.shape_for("Instance").members


def test_prices_are_asked_for_with_the_session() -> None:
    """Prices come from their own region, and from the price list's."""
    prices = Prices(load_catalog("aws-2019"), "eu-west-2", session=open_session("plain"))
    found = [gate.client(service) for gate, service in ((prices.ec2_gate, "ec2"), (prices.pricing_gate, "pricing"))]
    assert [client.meta.region_name for client in found] == ["eu-west-2", PRICING_REGION]
    assert {client._get_credentials().access_key for client in found} == {"AKIAPLAIN"}


def test_commands_refuse_an_unknown_profile(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """It takes one line and exit 2 before any call, also if AWS_PROFILE names the profile."""
    refresh = ["catalog", "refresh", "--out", str(tmp_path / "new.csv")]
    assert main([*refresh, "--profile", "absent"]) == 2
    monkeypatch.setenv("AWS_PROFILE", "absent")
    assert main(["trace", "info", "cloudwatch:AWS/ApplicationELB/RequestCount?LoadBalancer=app/a/b"]) == 2
    assert (
        capsys.readouterr().err.splitlines() == ["mark: error: AWS profile: is not in AWS's configuration: absent"] * 2
    )


@pytest.mark.parametrize("named", [True, False], ids=["by name", "by AWS_PROFILE"])
def test_an_unknown_profile_is_bad_input(named: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    if not named:
        monkeypatch.setenv("AWS_PROFILE", "absent")
    with pytest.raises(BadInput, match=r"^AWS profile: is not in AWS's configuration: absent$"):
        open_session("absent" if named else None)


def test_a_role_of_an_absent_profile_is_bad_input() -> None:
    with pytest.raises(BadInput, match=r'^AWS profile: cannot be used .*"absent".*: lost$'):
        open_session("lost")


def test_no_secret_is_logged_or_shown(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    session = open_session("role", REGION)
    gate = Gate(SITE, session=session)
    heard = keys_of(gate)
    secret = session.get_credentials().get_frozen_credentials().secret_key
    shown = caplog.text + repr(session) + repr(gate)
    assert not [word for word in (*heard, secret, "s3cret-of-plain") if word in shown]


def test_keys_for_a_program_without_boto3() -> None:
    """They are a role's keys with their token, and new ones every time that they expire."""
    assert environment_keys(open_session("plain")) == {
        "AWS_ACCESS_KEY_ID": "AKIAPLAIN",
        "AWS_SECRET_ACCESS_KEY": "s3cret-of-plain",
    }
    session = open_session("role", REGION)
    first, second = environment_keys(session), environment_keys(session)
    assert first.keys() == {"AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN"}
    assert first["AWS_ACCESS_KEY_ID"] != second["AWS_ACCESS_KEY_ID"]
    with pytest.raises(BadInput, match="session: has no credentials"):
        environment_keys(boto3.Session())


def test_functions_are_called_with_the_sessions_credentials(monkeypatch: pytest.MonkeyPatch) -> None:
    """Asynchronous calls share the one copy. Other calls go on while a role's keys are renewed."""
    heard: list[tuple[bytes, bytes]] = []
    renewed_by: list[str] = []

    async def main(session: Any) -> None:
        functions = LambdaFunctions("overflow", session=session)
        await functions.open()

        def signed(request: Any, **_: Any) -> None:
            heard.append(re.findall(rb"Credential=(\w+)/\d+/([\w-]+)/", request.headers["Authorization"])[0])

        functions._client.meta.events.register("before-send.lambda.Invoke", signed)
        try:
            for _ in range(2):
                await functions.call(calls(b"one"), 30.0)
        finally:
            await functions.close()

    role = open_session("role", REGION)
    role.events.register("before-send.sts.AssumeRole", lambda **_: renewed_by.append(threading.current_thread().name))
    with endpoint(overflow=echo) as there:
        monkeypatch.setenv("AWS_ENDPOINT_URL_LAMBDA", there.url)
        for session in (open_session("plain"), boto3.Session("AKIAMINE", "x", region_name=REGION), role):
            asyncio.run(main(session))
    assert heard[:4] == [(b"AKIAPLAIN", b"eu-west-1")] * 2 + [(b"AKIAMINE", REGION.encode())] * 2
    (first, _), (second, _) = heard[4:]
    assert first != second
    assert first.startswith(b"ASIA")
    assert len(renewed_by) == 2
    assert "MainThread" not in renewed_by


def test_without_credentials_functions_have_none() -> None:
    async def credentials() -> Any:
        session = await async_session(boto3.Session(region_name=REGION))
        return await session._session.get_credentials()

    assert asyncio.run(credentials()) is None
