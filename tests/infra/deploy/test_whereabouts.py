"""A site stays in its region and account: a command for another one is refused before it changes anything."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import boto3
import pytest
from mark_infra.aws.gate import Gate
from mark_infra.aws.site import Site
from mark_infra.deploy.deploy import destroy, plan, site_keys, site_releases
from mark_infra.deploy.remembered import VARIABLES, bucket_region
from mark_infra.deploy.shipments import shipments
from mark_infra.deploy.target import DeployTarget
from mark_infra.deploy.terraform import ResourceChange
from mark_infra.deploy.whereabouts import Whereabouts, check_name_is_free, of_arns, of_resources, remembered

from mark.domain.errors import BadInput, CloudError, MarkError
from tests.infra.conftest import ACCOUNT, REGION, MotoServer
from tests.infra.deploy.service_files import service

TABLE = f"arn:aws:dynamodb:{REGION}:{ACCOUNT}:table/mark-state"
ROLE = f"arn:aws:iam::{ACCOUNT}:role/mark-controller"
OTHER_REGION, OTHER_ACCOUNT = "eu-west-1", "111111111111"
SITE_FILE = f"""
[site]
name = "mark"
region = "{REGION}"
store = "dynamodb:mark-state"
[services.echo]
launch_template = "lt-1"
subnets = {{ "{REGION}a" = "subnet-1" }}
target_groups = ["arn:aws:elasticloadbalancing:{REGION}:{ACCOUNT}:targetgroup/mark-echo/1"]
"""


@dataclass
class FakeTerraform:
    """A stand-in for the program: a state, and the commands that it got."""

    state: dict[str, dict[str, Any]] = field(default_factory=dict)
    done: list[str] = field(default_factory=list)

    def __call__(self, *_: Any) -> FakeTerraform:
        return self

    def give(self, name: str, value: str) -> None:
        pass

    def init(self) -> None:
        self.done.append("init")

    def resources(self) -> Mapping[str, Mapping[str, Any]]:
        return self.state

    def outputs(self) -> dict[str, Any]:
        return {}

    def plan(self, *, destroy: bool = False, targets: Sequence[str] = ()) -> list[ResourceChange]:
        self.done.append("plan")
        return [ResourceChange(name, name.partition(".")[0], "delete") for name in self.state]

    def apply(self, count: int, progress: object) -> None:
        self.done.append("apply")
        self.state.clear()


def in_state(arn: str = TABLE, role: str = ROLE) -> dict[str, dict[str, Any]]:
    return {
        "module.state.aws_dynamodb_table.this": {"arn": arn},
        "module.controller.aws_iam_role.this": {"arn": role, "name": role.rpartition("/")[2]},
        "module.controller.data.aws_ami.this": {"arn": "arn:aws:ec2:ap-south-1:137112412989:image/ami-1"},
    }


@pytest.fixture
def aws(moto: MotoServer, monkeypatch: pytest.MonkeyPatch) -> MotoServer:
    moto.reset()
    monkeypatch.setenv("AWS_ENDPOINT_URL", moto.url)
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.setenv(name, "test")
    for name in ("AWS_REGION", "AWS_DEFAULT_REGION", "AWS_PROFILE"):
        monkeypatch.delenv(name, raising=False)
    return moto


@pytest.fixture
def terraform(monkeypatch: pytest.MonkeyPatch) -> FakeTerraform:
    fake = FakeTerraform(in_state())
    monkeypatch.setattr("mark_infra.deploy.deploy.Terraform", fake)
    return fake


def deployed(folder: Path, *, site_file: bool = True) -> DeployTarget:
    """Make the state folder of a site in REGION."""
    (folder / VARIABLES).parent.mkdir(parents=True)
    (folder / VARIABLES).write_text(json.dumps({"region": REGION, "services": {}}))
    if site_file:
        (folder / "site.toml").write_text(SITE_FILE)
    return DeployTarget(name="mark", region=REGION, state=folder, clients=("10.0.0.0/8",), emulated=True)


def fleet(aws: MotoServer, region: str = REGION) -> list[str]:
    """Launch three instances of the site's fleet; return their ids."""
    made = client(aws, "ec2", region).run_instances(
        ImageId="ami-12c6146b", MinCount=3, MaxCount=3, InstanceType="c5.large",
        TagSpecifications=[{"ResourceType": "instance", "Tags": [{"Key": "mark:site", "Value": "mark"}]}],
    )  # fmt: skip
    return [one["InstanceId"] for one in made["Instances"]]


def states(aws: MotoServer, region: str = REGION) -> set[str]:
    answer = client(aws, "ec2", region).describe_instances()
    return {one["State"]["Name"] for r in answer["Reservations"] for one in r["Instances"]}


def client(aws: MotoServer, name: str, region: str) -> Any:
    return boto3.client(name, **{**aws.options, "region_name": region})


@pytest.mark.parametrize("site_file", [True, False])
def test_destroy_refuses_another_region(
    aws: MotoServer, terraform: FakeTerraform, tmp_path: Path, site_file: bool
) -> None:
    """A site whose deployment was interrupted has no site file, so its state tells."""
    target = deployed(tmp_path / "s", site_file=site_file)
    fleet(aws)
    with pytest.raises(BadInput, match=rf"region: site mark is in {REGION}, account {ACCOUNT}: .*: {OTHER_REGION}$"):
        destroy(replace(target, region=OTHER_REGION), lambda _: None)
    assert terraform.done == ["init"]
    assert states(aws) == {"running"}


def test_destroy_refuses_another_account(aws: MotoServer, terraform: FakeTerraform, tmp_path: Path) -> None:
    target = deployed(tmp_path / "s")
    fleet(aws)
    assume = aws.client("sts").assume_role(RoleArn=f"arn:aws:iam::{OTHER_ACCOUNT}:role/x", RoleSessionName="other")
    keys = assume["Credentials"]
    session = boto3.Session(keys["AccessKeyId"], keys["SecretAccessKey"], keys["SessionToken"], region_name=REGION)
    with pytest.raises(BadInput, match=rf"account: site mark is in {REGION}, account {ACCOUNT}: .*: {OTHER_ACCOUNT}$"):
        destroy(replace(target, session=session), lambda _: None)
    assert terraform.done == ["init"]
    assert states(aws) == {"running"}


def test_destroy_of_a_gone_site_ends_no_namesake_elsewhere(
    aws: MotoServer, terraform: FakeTerraform, tmp_path: Path
) -> None:
    """The command is repeated in another region, which has another site of the same name."""
    target = deployed(tmp_path / "s")
    terraform.state.clear()
    fleet(aws, OTHER_REGION)
    with pytest.raises(BadInput, match=f"site mark is in {REGION}"):
        destroy(replace(target, region=OTHER_REGION), lambda _: None)
    assert states(aws, OTHER_REGION) == {"running"}


def test_destroy_without_a_region_takes_the_sites(
    aws: MotoServer, terraform: FakeTerraform, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("mark_infra.deploy.deploy.leftovers", lambda *_: [])
    target = deployed(tmp_path / "s")
    fleet(aws)
    # A dry run for another region left such variables.
    assert destroy(replace(target, region=""), lambda _: None) == []
    assert terraform.done == ["init", "plan", "apply"]
    assert states(aws) == {"terminated"}


@pytest.mark.usefixtures("terraform")
def test_strays_end_although_an_image_cannot_be_removed(
    aws: MotoServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refused(gate: Gate, site: str) -> None:
        raise CloudError(f"snapshots of {site} are in use")

    monkeypatch.setattr("mark_infra.deploy.deploy.remove_images", refused)
    client(aws, "logs", REGION).create_log_group(logGroupName="/mark/mark/a", tags={"mark:site": "mark"})
    with pytest.raises(CloudError, match="snapshots of mark are in use"):
        destroy(deployed(tmp_path / "s"), lambda _: None)
    assert client(aws, "logs", REGION).describe_log_groups()["logGroups"] == []


def test_variables_of_another_region_are_not_what_terraform_ends(
    aws: MotoServer, terraform: FakeTerraform, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A dry run for another region may have left them."""
    monkeypatch.setattr("mark_infra.deploy.deploy.leftovers", lambda *_: [])
    target = deployed(tmp_path / "s")
    (target.folder / VARIABLES).write_text(json.dumps({"region": OTHER_REGION, "services": {}}))
    assert destroy(target, lambda _: None) == []
    assert json.loads((target.folder / VARIABLES).read_text())["region"] == REGION


def test_a_plan_for_another_region_or_account_is_refused(
    aws: MotoServer, terraform: FakeTerraform, tmp_path: Path
) -> None:
    """The plan would forget the first site and rewrite the rights of its controller."""
    target = deployed(tmp_path / "s")
    sent = shipments(service(tmp_path / "mine"))
    before = (target.folder / VARIABLES).read_text()
    with pytest.raises(BadInput, match=f"site mark is in {REGION}.*: {OTHER_REGION}$"):
        plan(sent, replace(target, region=OTHER_REGION), lambda _: None)
    terraform.state["module.state.aws_dynamodb_table.this"]["arn"] = TABLE.replace(ACCOUNT, OTHER_ACCOUNT)
    terraform.state["module.controller.aws_iam_role.this"]["arn"] = ROLE.replace(ACCOUNT, OTHER_ACCOUNT)
    with pytest.raises(BadInput, match=f"account: site mark is in {REGION}, account {OTHER_ACCOUNT}.*: {ACCOUNT}$"):
        plan(sent, target, lambda _: None)
    assert terraform.done == ["init", "init"]
    assert (target.folder / VARIABLES).read_text() == before


def test_files_that_are_sent_are_said_first(aws: MotoServer, terraform: FakeTerraform, tmp_path: Path) -> None:
    """The list comes before anything is built or sent, with the files that are never sent."""
    target = deployed(tmp_path / "s")
    file = service(tmp_path / "mine")
    for name in ("access.log", "notes.md"):
        (tmp_path / "mine" / name).write_text("192.0.2.1")
    sent = shipments(file)
    said: list[str] = []
    with pytest.raises(BadInput, match=f"site mark is in {REGION}"):
        plan(sent, replace(target, region=OTHER_REGION), said.append)
    size = sum(len(one) if isinstance(one, bytes) else one.stat().st_size for one in sent[0].files.values())
    assert said[:2] == [
        f"echo: sends 3 files, {size:,} bytes: echo.py, profile.csv, service.toml",
        "echo: never sent, as logs or possible secrets: access.log",
    ]


def test_a_second_region_with_the_same_name_is_refused(
    aws: MotoServer, terraform: FakeTerraform, tmp_path: Path
) -> None:
    """Its state is separate, but roles belong to the account, and the first site has them."""
    aws.client("iam").create_role(RoleName="mark-controller", AssumeRolePolicyDocument="{}")
    terraform.state.clear()
    target = DeployTarget(
        name="mark", region=OTHER_REGION, state=tmp_path / "second", clients=("10.0.0.0/8",), emulated=True
    )
    with pytest.raises(BadInput, match=f"name: the account has a site of this name already.*{ROLE}.*: mark$"):
        plan(shipments(service(tmp_path)), target, lambda _: None)
    assert terraform.done == ["init"]
    assert not (target.folder / VARIABLES).exists()


def test_a_sites_own_role_is_no_namesake(aws: MotoServer) -> None:
    gate = Gate(Site("mark", REGION, "sqlite:none"), options=aws.options)
    check_name_is_free("mark", {}, gate)
    aws.client("iam").create_role(RoleName="mark-controller", AssumeRolePolicyDocument="{}")
    check_name_is_free("mark", in_state(), gate)
    check_name_is_free("mark-2", {}, gate)
    with pytest.raises(BadInput, match="already"):
        check_name_is_free("mark", in_state(role=ROLE.replace("mark-controller", "mark-2-controller")), gate)


def test_keys_and_releases_of_another_place_are_refused(aws: MotoServer, tmp_path: Path) -> None:
    """Keys would be made or deleted where no instance reads them."""
    target = deployed(tmp_path / "s")
    for ask in (site_keys, site_releases):
        with pytest.raises(BadInput, match=f"site mark is in {REGION}"):
            ask(replace(target, region=OTHER_REGION))
    (target.folder / "site.toml").write_text(SITE_FILE.replace(ACCOUNT, OTHER_ACCOUNT))
    for ask in (site_keys, site_releases):
        with pytest.raises(BadInput, match=f"account {OTHER_ACCOUNT}.*: {ACCOUNT}$"):
            ask(replace(target, region=""))


def test_an_account_without_credentials_is_told(tmp_path: Path, aws: MotoServer) -> None:
    with pytest.raises(MarkError, match="nothing was deployed from here"):
        site_releases(DeployTarget(name="mark", region=REGION, state=tmp_path))


def test_arns_tell_regions_and_accounts() -> None:
    assert of_arns(["", "none", "arn:aws:s3:::bucket"]) == Whereabouts()
    assert of_resources(in_state()) == Whereabouts(frozenset([REGION]), frozenset([ACCOUNT]))
    bucket = {"arn": "arn:aws:s3:::mark-artifacts-1", "bucket": "mark-artifacts-1", "region": REGION}
    alone = of_resources({"module.state.aws_s3_bucket.artifacts": bucket})
    assert alone == Whereabouts(frozenset([REGION]), frozenset())
    assert of_arns([f"x arn:aws-cn:ssm:cn-north-1:{ACCOUNT}:parameter/a, {ROLE}"]) == Whereabouts(
        frozenset(["cn-north-1"]), frozenset([ACCOUNT])
    )


def test_files_that_cannot_be_read_say_nothing(tmp_path: Path) -> None:
    assert remembered(tmp_path / "absent") == Whereabouts()
    target = deployed(tmp_path / "s")
    assert remembered(target.folder) == Whereabouts(frozenset([REGION]), frozenset([ACCOUNT]))
    (target.folder / VARIABLES).write_text("[]")
    assert remembered(target.folder) == Whereabouts(frozenset([REGION]), frozenset([ACCOUNT]))
    (target.folder / "site.toml").write_bytes(b"\xff")
    assert remembered(target.folder) == Whereabouts()
    Whereabouts().check("mark", OTHER_REGION, OTHER_ACCOUNT)


def test_a_state_bucket_may_be_in_another_region(aws: MotoServer) -> None:
    client(aws, "s3", OTHER_REGION).create_bucket(
        Bucket="states", CreateBucketConfiguration={"LocationConstraint": OTHER_REGION}
    )
    gate = Gate(Site("mark", REGION, "sqlite:none"), options=aws.options)
    assert bucket_region(gate, "states") == OTHER_REGION
