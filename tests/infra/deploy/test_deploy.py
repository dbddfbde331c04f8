"""Errors before anything is sent, and the variables of Terraform."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import boto3
import pytest
from mark_infra.aws.site import Site, dump_site
from mark_infra.deploy.deploy import Planned, check_kinds, classes_of, destroy, plan, say_who_is_told
from mark_infra.deploy.image_repositories import ImageRepositories
from mark_infra.deploy.limits import check_said
from mark_infra.deploy.remembered import VARIABLES
from mark_infra.deploy.shipments import (
    shipment,
    shipments,
)
from mark_infra.deploy.target import DeployTarget, checked
from mark_infra.deploy.terraform import ResourceChange

from mark.domain.errors import BadInput, MarkError
from mark.sdk.service import Service
from tests.infra.deploy.service_files import PIPELINE, pipeline, service
from tests.infra.deploy.stubbed import REGION, StubbedSession


@pytest.mark.parametrize(
    ("target", "said"),
    [
        (DeployTarget(name="Mark", region="eu-west-1"), "name: .*: Mark"),
        (DeployTarget(name="a" * 21, region="eu-west-1"), "20 small letters"),
        (DeployTarget(name="internal-models", region="eu-west-1"), "load balancers of this name are refused"),
        (DeployTarget(region=""), "region: "),
        (DeployTarget(region="Frankfurt"), "region: is no name of a region, as eu-west-1: Frankfurt"),
        (DeployTarget(region="eu-west-1", clients=("office",)), "clients: must be networks of IPv4, as .*: office"),
        (DeployTarget(region="eu-west-1"), "clients: .*in clear"),
        (DeployTarget(region="eu-west-1", clients=("192.0.2.0/24",), budget_usd=100.0), "budget_usd: .*alarm_email"),
        (DeployTarget(region="eu-west-1", clients=("192.0.2.0/24",), grpc_port=50051), "grpc_port: .*by HTTPS only"),
    ],
)
def test_bad_targets_are_refused_before_anything_is_asked(
    target: DeployTarget, said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    for name in ("AWS_REGION", "AWS_DEFAULT_REGION"):
        monkeypatch.delenv(name, raising=False)
    with pytest.raises(BadInput, match=said):
        plan([shipment("inception-v3")], target, lambda _: None)


@pytest.mark.parametrize(
    ("email", "action", "said"),
    [
        (None, "create", ["no address for alarms: they are only seen in CloudWatch's console"]),
        ("a@b.c", "create", ["AWS will ask a@b.c by mail to confirm the address, and sends no alarm before that"]),
        ("a@b.c", "update", []),
    ],
)
def test_whom_alarms_reach_is_said(email: str | None, action: str, said: list[str]) -> None:
    heard: list[str] = []
    say_who_is_told([ResourceChange("x", "aws_sns_topic_subscription", action)], email, heard.append)
    assert heard == said


def test_deployment_succeeds_although_old_repositories_stay(tmp_path: Path) -> None:
    """The next deployment removes them; the caller needs the address and the keys of this one."""
    target = DeployTarget(region=REGION, state=tmp_path)
    (tmp_path / VARIABLES).parent.mkdir(parents=True, exist_ok=True)
    (tmp_path / VARIABLES).write_text('{"services": {}}')
    site = dump_site(Site("mark", REGION, f"sqlite:{tmp_path / 'state.db'}"))
    outputs = {"site_toml": site, "address": "http://mark", "addresses": {}, "cname": {}}
    session = StubbedSession()
    session.answers("ec2", "describe_images", {"Images": []})
    session.refuses("ecr", "describe_repositories", "ServerException")
    said: list[str] = []
    planned = Planned(
        [], [], target, SimpleNamespace(outputs=lambda: outputs), session.gate(),  # type: ignore[arg-type]
        ImageRepositories(session.gate(), "mark", REGION, "123456789012"), said.append,
    )  # fmt: skip
    assert planned.apply().address == "http://mark"
    assert said == ["repositories that nothing uses any more are left for the next time: ServerException: no"]
    assert session.all_asked()


def test_target_groups_are_as_many_as_classes_of_capacity() -> None:
    """A GPU does three times as much as the largest of the other types."""
    assert classes_of(shipment("lstm-ptb").deployment) == 1
    deployment = shipment("inception-v3").deployment
    assert classes_of(deployment) == 3
    assert classes_of(replace(deployment, offers=(), candidates=())) == 1


def test_a_feedback_log_must_be_where_bouncers_may_write(tmp_path: Path) -> None:
    """Otherwise no instance would ever be ready."""
    file = Path(service(tmp_path))
    whole = file.read_text()
    target = DeployTarget(region="eu-west-1", clients=("10.0.0.0/8",), state=tmp_path / "s")
    file.write_text(whole + '\n[feedback]\nlog = "feedback"\n')
    with pytest.raises(BadInput, match=r"\[feedback\] log: must be below /var/lib/mark, .*: .*feedback$"):
        plan([shipment(str(file))], target, lambda _: None)


def test_missing_limits_are_refused(tmp_path: Path) -> None:
    """The message has the cost at stake: of 500 c5.large, or of 20 and all functions that an account may run."""
    whole = Path(service(tmp_path)).read_text()
    target = DeployTarget(region="eu-west-1", clients=("10.0.0.0/8",), state=tmp_path / "s")
    fleet, overflow = "max_instances = 20\nmax_usd_per_hour = 10.0\n", "max_usd_per_hour = 2.0\n"
    function_usd = 1000 * 3600.0 * (1.66667e-5 + 0.2e-6 / 0.02)  # with calls of 20 ms
    for text, unsaid, usd in (
        (whole.replace(fleet, ""), r"\[fleet\] max_instances and \[fleet\] max_usd_per_hour", 500 * 0.085 + 2.0),
        (whole.replace(overflow, ""), r"\[overflow\] max_usd_per_hour", 20 * 0.085 + function_usd),
    ):
        (tmp_path / "my.toml").write_text(text)
        dollars = rf"\${usd * 730.0:,.0f}"
        with pytest.raises(BadInput, match=rf"my\.toml: say {unsaid}: by default it may cost {dollars} a month$"):
            plan([shipment(str(tmp_path / "my.toml"))], target, lambda _: None)
    (tmp_path / "my.toml").write_text(whole.replace(overflow, "").replace("lambda:1024", "none"))
    check_said(shipment(str(tmp_path / "my.toml")).deployment)


class Terraforms:
    """A stand-in for `Terraform` that keeps the settings by which Terraform would find credentials, then gives up."""

    def __init__(self, _: Path, credentials: Callable[[], Mapping[str, str]] | None, say: object) -> None:
        raise MarkError(json.dumps(None if credentials is None else dict(credentials())))


@pytest.fixture
def configuration(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("AWS_REGION", "AWS_DEFAULT_REGION", "AWS_PROFILE", "AWS_DEFAULT_PROFILE"):
        monkeypatch.delenv(name, raising=False)
    config = tmp_path / "config"
    config.write_text("[profile work]\nregion = eu-west-3\naws_access_key_id = AKIAWORK\naws_secret_access_key = s\n")
    monkeypatch.setenv("AWS_CONFIG_FILE", str(config))
    monkeypatch.setattr("mark_infra.deploy.deploy.Terraform", Terraforms)


def told(folder: Path, **where: Any) -> Any:
    """Return the settings by which Terraform finds credentials, the site's region first."""
    target = DeployTarget(clients=("10.0.0.0/8",), state=folder / "s", **where)
    ready, _ = checked(target)
    with pytest.raises(MarkError) as given:
        plan([shipment("inception-v3")], target, lambda _: None)
    return ready.region, json.loads(str(given.value))


@pytest.mark.usefixtures("configuration")
def test_terraform_has_the_same_profile(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Terraform gets its name, so that it renews expiring keys; the region is the profile's unless another one is
    given."""
    assert told(tmp_path, profile="work") == ("eu-west-3", {"AWS_PROFILE": "work"})
    assert told(tmp_path, profile="work", region="eu-west-1")[0] == "eu-west-1"
    monkeypatch.setenv("AWS_PROFILE", "work")
    assert told(tmp_path) == ("eu-west-3", None)
    monkeypatch.setenv("AWS_REGION", "eu-west-2")
    assert told(tmp_path)[0] == "eu-west-2"


@pytest.mark.usefixtures("configuration")
def test_terraform_has_a_sessions_keys(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_REGION", "eu-west-2")
    session = boto3.Session("AKIAMINE", "s3cret", "token", region_name="eu-north-1")
    region, keys = told(tmp_path, session=session)
    assert region == "eu-north-1"
    assert keys == {"AWS_ACCESS_KEY_ID": "AKIAMINE", "AWS_SECRET_ACCESS_KEY": "s3cret", "AWS_SESSION_TOKEN": "token"}
    assert "s3cret" not in repr(DeployTarget(session=session))


@pytest.mark.usefixtures("configuration")
def test_a_profile_and_a_session_are_one_too_many(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match="give one of the two: work"):
        told(tmp_path, profile="work", session=boto3.Session())
    with pytest.raises(BadInput, match="AWS profile: is not in AWS's configuration: absent"):
        told(tmp_path, profile="absent")


def test_names_that_aws_writes_alike(tmp_path: Path) -> None:
    one = shipment(service(tmp_path))
    with pytest.raises(BadInput, match="two services with one name"):
        plan([one, one], DeployTarget(region="eu-west-1", clients=("10.0.0.0/8",)), lambda _: None)


def test_without_terraform_one_line_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    target = DeployTarget(region="eu-west-1", clients=("10.0.0.0/8",), state=tmp_path / "s")
    with pytest.raises(BadInput, match="terraform: is not installed"):
        plan([shipment("inception-v3")], target, lambda _: None)


def test_nothing_deployed_is_nothing_to_destroy(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match="nothing was deployed from here"):
        destroy(DeployTarget(region="eu-west-1", state=tmp_path), lambda _: None)


def test_from_python_the_same(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(MarkError, match="not installed"):
        Service(service(tmp_path)).deploy(region="eu-west-1", clients=("10.0.0.0/8",), state=tmp_path / "s")


@pytest.mark.parametrize(
    ("endpoint", "emulated", "said"),
    [
        ("http://127.0.0.1:9", False, "requests would not go to AWS: .*127.0.0.1:9"),
        (None, True, "must be where the emulator is"),
    ],
)
def test_an_emulator_is_asked_for_explicitly(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, endpoint: str | None, emulated: bool, said: str
) -> None:
    """A variable alone would skip checks that protect a real account."""
    monkeypatch.delenv("AWS_ENDPOINT_URL", raising=False)
    if endpoint is not None:
        monkeypatch.setenv("AWS_ENDPOINT_URL", endpoint)
    target = DeployTarget(region="eu-west-1", clients=("10.0.0.0/8",), state=tmp_path, emulated=emulated)
    with pytest.raises(BadInput, match=said):
        plan([shipment("inception-v3")], target, lambda _: None)
    with pytest.raises(BadInput, match=said):
        destroy(target, lambda _: None)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.usefixtures("configuration")
def test_the_folder_is_kept_out_of_git(tmp_path: Path) -> None:
    """It holds keys, and lies in the user's project."""
    told(tmp_path, region="eu-west-1")
    assert (tmp_path / "s" / ".gitignore").read_text() == "*\n"


def test_a_pipelines_limits_and_names_are_checked(tmp_path: Path) -> None:
    target = DeployTarget(region="eu-west-1", clients=("10.0.0.0/8",), state=tmp_path / "s")
    unsaid = shipments(pipeline(tmp_path, PIPELINE.replace("max_instances = 20\n", "")))
    with pytest.raises(BadInput, match=r"my\.toml: say \[fleet\] max_instances: by default"):
        plan(unsaid, target, lambda _: None)
    unsaid = shipments(pipeline(tmp_path, PIPELINE.replace("[overflow]\nmax_usd_per_hour = 2.0\n", "")))
    with pytest.raises(BadInput, match=r"my\.toml: say \[overflow\] max_usd_per_hour: by default"):
        plan(unsaid, target, lambda _: None)
    both = [*shipments(pipeline(tmp_path)), *shipments("inception-v3")]
    named = replace(both[-1], deployment=replace(both[-1].deployment, service=replace(both[-1].service, name="two")))
    with pytest.raises(BadInput, match="two services with one name"):
        plan([*both[:-1], named], target, lambda _: None)
    log = shipments(pipeline(tmp_path, PIPELINE + '[feedback]\nlog = "here"\n'))
    with pytest.raises(BadInput, match=r"\[feedback\] log: must be below /var/lib/mark"):
        plan(log, target, lambda _: None)


def test_conductors_neither_come_nor_go_under_one_name(tmp_path: Path) -> None:
    sent = shipments(pipeline(tmp_path))
    config = sent[0].pipeline
    assert config is not None
    whole = [replace(sent[0], pipeline=None, whole=replace(config, conductors=0))]
    there = {
        "fleet": 'module.fleet["two"].aws_lb_target_group.this',
        "conductors": 'module.conductors["two"].aws_lb.this',
    }
    check_kinds(sent, [there["conductors"], 'module.fleet["two-first"].aws_launch_template.this'])
    check_kinds(whole, [there["fleet"], 'module.conductors["two.b"].aws_lb.this'])
    with pytest.raises(
        BadInput, match=r"\[conductors\] count: two is deployed without conductors: .* another name.*: 2$"
    ):
        check_kinds(sent, [there["fleet"]])
    with pytest.raises(BadInput, match=r"\[conductors\] count: two is deployed with conductors: .* another name.*: 0$"):
        check_kinds(whole, [there["conductors"]])
