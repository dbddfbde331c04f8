"""What is sent to AWS, and what is refused before anything is."""

from __future__ import annotations

import json
import tarfile
import tomllib
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import boto3
import pytest
from mark_infra.aws.platforms import PLATFORMS
from mark_infra.deploy.artifacts import archive
from mark_infra.deploy.boots import PlatformBoot, ServiceBoots, image_parameter, platforms_of
from mark_infra.deploy.deploy import (
    DeployTarget,
    PackedService,
    Shipment,
    _as_found,
    _check_archive,
    _check_imports,
    _checked,
    _of_these,
    _Packer,
    _with_instances,
    _with_stage_instances,
    classes_of,
    destroy,
    environment_of,
    libraries_of,
    plan,
    say_who_is_told,
    shipment,
    shipments,
)
from mark_infra.deploy.limits import check_said
from mark_infra.deploy.offerings import without
from mark_infra.deploy.sent_function import SentFunction
from mark_infra.deploy.terraform import ResourceChange
from mark_infra.deploy.wheelhouse import PackagesWanted, Wheelhouse

from mark.config.service_file import load_service
from mark.domain.errors import BadInput, Infeasible, MarkError
from mark.launch.server import ServerOptions, serving_of
from mark.models.registry_place import open_registry, pinned
from mark.models.registry_unpacked import check
from mark.sdk.service import Service

SERVICE = """
[service]
name = "echo"
model = "echo:Echo"
slo_ms = 600
slo_attainment = 0.98
profile = "{profile}"   # measured
[fleet]
instances = {instances}
max_instances = 20
max_usd_per_hour = 10.0
[overflow]
function = "lambda:1024"
max_usd_per_hour = 2.0
"""
TYPES = ("c5.large", "c7g.large", "g5.xlarge", "g4dn.xlarge", "lambda:1024")
PROFILE = "model,instance,batch,latency_ms\n" + "".join(f"echo:Echo,{name},1,20\n" for name in TYPES)


def service(folder: Path, *instances: str, profile: str = "profile.csv", code: str = "echo.py") -> str:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "my.toml").write_text(SERVICE.format(instances=list(instances) or ["c5.large"], profile=profile))
    (folder / profile).write_text(PROFILE)
    (folder / code).write_text("")
    return str(folder / "my.toml")


def test_a_folder_is_sent_with_its_service(tmp_path: Path) -> None:
    sent = shipment(service(tmp_path))
    assert sorted(sent.files) == ["echo.py", "my.toml", "profile.csv", "service.toml"]
    assert isinstance(sent.files["service.toml"], bytes)


def test_a_profile_from_elsewhere_comes_along(tmp_path: Path) -> None:
    sent = shipment(service(tmp_path / "a", profile="../profile.csv"))
    text = sent.files["service.toml"]
    assert isinstance(text, bytes)
    assert b'profile = "profile-profile.csv"' in text
    assert sent.files["profile-profile.csv"] == tmp_path / "profile.csv"


def test_a_shipped_service_is_its_file_alone() -> None:
    sent = shipment("inception-v3")
    assert list(sent.files) == ["service.toml"]
    assert environment_of(sent.service, "lambda:1024") == {
        "MARK_MODEL": "mark.profiling.replay:Replay?model=inception-v3&instance=lambda:1024",
        "MARK_MODEL_PATH": "service",
        "MARK_NAME": "inception-v3",
        "MARK_VERSION": "1",
    }


def test_a_model_that_would_not_be_there_is_refused(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match=r"no requirements\.txt brings it"):
        shipment(service(tmp_path, code="other.py"))
    (tmp_path / "requirements.txt").write_text("echo\n")
    shipment(str(tmp_path / "my.toml"))


def test_a_model_that_could_not_be_imported_is_refused(tmp_path: Path) -> None:
    sent = shipment(service(tmp_path))
    (tmp_path / "echo.py").write_text("import mark\nimport pandas\n")
    with pytest.raises(BadInput, match=r"^echo\.py: .* in requirements\.txt: pandas$"):
        _check_imports(sent, {"mark"})
    _check_imports(sent, {"mark", "pandas"})


@pytest.mark.parametrize(
    ("model", "library"),
    [("sklearn:m.joblib", "scikit-learn"), ("onnx:m.onnx?threads=1", "onnxruntime"), ("torch:m.pt", "torch")],
)
def test_a_model_that_is_a_file_brings_its_library(tmp_path: Path, model: str, library: str) -> None:
    """Nothing else on an instance does: it has what serving needs, and no solver, whose libraries these may be."""
    file = Path(service(tmp_path))
    assert libraries_of(shipment(str(file))) == ()
    (tmp_path / model.partition(":")[2].partition("?")[0]).write_text("weights")
    (tmp_path / "profile.csv").write_text(PROFILE.replace("echo:Echo", model))
    file.write_text(file.read_text().replace("echo:Echo", model))
    assert libraries_of(shipment(str(file))) == (library,)


def test_the_function_has_the_version_with_the_most_weight(tmp_path: Path) -> None:
    file = Path(service(tmp_path))
    versions = (
        '[service.versions]\n"1" = { model = "echo:A", weight = 0.2 }\n"2" = { model = "echo:B", weight = 0.8 }\n'
    )
    file.write_text(file.read_text() + versions)
    found = environment_of(shipment(str(file)).service, "lambda:1024")
    assert (found["MARK_MODEL"], found["MARK_VERSION"], found["MARK_NAME"]) == ("echo:B", "2", "echo")


@pytest.mark.parametrize(
    ("target", "said"),
    [
        (DeployTarget(name="Mark", region="eu-west-1"), "name: .*: Mark"),
        (DeployTarget(name="a" * 21, region="eu-west-1"), "20 small letters"),
        (DeployTarget(name="internal-models", region="eu-west-1"), "load balancers of this name are refused"),
        (DeployTarget(region=""), "region: "),
        (DeployTarget(region="Frankfurt"), "region: "),
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


def test_target_groups_are_as_many_as_classes_of_capacity() -> None:
    """A GPU does three times what the largest of the others does."""
    assert classes_of(shipment("lstm-ptb").deployment) == 1
    deployment = shipment("inception-v3").deployment
    assert classes_of(deployment) == 3
    assert classes_of(replace(deployment, offers=(), candidates=())) == 1


def test_a_feedback_log_must_be_where_bouncers_may_write(tmp_path: Path) -> None:
    """Else no instance would ever be ready."""
    file = Path(service(tmp_path))
    whole = file.read_text()
    target = DeployTarget(region="eu-west-1", clients=("10.0.0.0/8",), state=tmp_path / "s")
    file.write_text(whole + '\n[feedback]\nlog = "feedback"\n')
    with pytest.raises(BadInput, match=r"\[feedback\] log: must be below /var/lib/mark, .*: .*feedback$"):
        plan([shipment(str(file))], target, lambda _: None)


def test_missing_limits_are_refused(tmp_path: Path) -> None:
    """With what they could cost: 500 c5.large, or 20 and all functions that an account may run."""
    whole = Path(service(tmp_path)).read_text()
    target = DeployTarget(region="eu-west-1", clients=("10.0.0.0/8",), state=tmp_path / "s")
    fleet, overflow = "max_instances = 20\nmax_usd_per_hour = 10.0\n", "max_usd_per_hour = 2.0\n"
    function_usd = 1000 * 3600.0 * (1.66667e-5 + 0.2e-6 / 0.02)  # of calls of 20 ms
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


@pytest.mark.parametrize(
    "text",
    [
        SERVICE.format(instances=["c5.*", "p[23].*"], profile="p.csv"),
        SERVICE.format(instances="[\n  'c5.*',  # [all]\n  \"p2.xlarge\",\n]", profile="p.csv"),
        SERVICE.format(instances="[]", profile="p.csv").replace("instances = []\n", ""),
        '[service]\nname = "x"\n',
    ],
)
def test_a_file_names_the_types_that_are_left(text: str) -> None:
    before, after = (tomllib.loads(one) for one in (text, _with_instances(text, ["c5.large", "c5.xlarge"])))
    assert after.pop("fleet") == {**before.pop("fleet", {}), "instances": ["c5.large", "c5.xlarge"]}
    assert after == before


def test_what_is_sent_names_the_types_that_are_left(tmp_path: Path) -> None:
    """And what arrives is what was checked here."""
    sent = shipment("inception-v3")
    said: list[str] = []
    left = _of_these(sent, without(sent.deployment, {"p2.xlarge": "gone"}, said.append))
    assert said == ["inception-v3: left out p2.xlarge (gone)"]
    assert [platform.name for platform in platforms_of(left.deployment)] == ["x86_64"]
    _check_archive(archive(left.files, tmp_path / "sent.tar.gz"), left)
    with pytest.raises(MarkError, match="what would be sent"):
        _check_archive(archive(sent.files, tmp_path / "other.tar.gz"), left)


def test_each_platform_has_packages_and_a_disk_of_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The first one's where they always were; wheels without GPU code are for types without GPUs."""
    built, gib = tmp_path / "s" / "artifacts", 1024**3
    asked: list[tuple[str, bool, str | None, str]] = []

    def wheels(wanted: PackagesWanted, own: Path, pins: Path, to: Path) -> Wheelhouse:
        asked.append((wanted.machine, wanted.gpus, wanted.cpu_index, to.relative_to(built).as_posix()))
        size = 3 * gib if wanted.gpus else 2**20
        return Wheelhouse(to.parent / "wheels.tar", size, size, frozenset({"mark"}))

    monkeypatch.setattr("mark_infra.deploy.deploy.wheelhouse", wheels)
    file = Path(service(tmp_path / "service", "c5.large", "c7g.large", "g5.xlarge"))
    file.write_text(file.read_text().replace("lambda:1024", "none"))
    sent, nothing = shipment(str(file)), cast(Any, None)
    before = {"services": {"echo": {"parameter": image_parameter(PLATFORMS["x86_64-gpu"]), "id": "ami-gpu"}}}
    for had, first, folders in (
        ({}, "x86_64", ["wheels", "arm64/wheels", "x86_64-gpu/wheels"]),
        (before, "x86_64-gpu", ["x86_64/wheels", "arm64/wheels", "wheels"]),
    ):
        asked.clear()
        target = DeployTarget(state=tmp_path / "s", cpu_index="https://cpu")
        packer = _Packer(target, nothing, nothing, Path("own"), Path("pins"), had, nothing)
        images = packer.images([sent]).services["echo"]
        made = packer.archives([sent])[sent.folder]
        packed = packer.pack(sent, images, made)
        assert [folder for *_, folder in asked] == folders
        assert [what for *what, _ in asked] == [
            ["x86_64", False, "https://cpu"],
            ["aarch64", False, "https://cpu"],
            ["x86_64", True, None],
        ]
        said = packed.described(str, {})
        every = {said["platform"]: said, **said["more_platforms"]}
        assert said["platform"] == first
        assert {name: one["disk_gb"] for name, one in every.items()} == {"x86_64": 8, "arm64": 8, "x86_64-gpu": 88}
        assert every["x86_64-gpu"]["image_id"] == ("ami-gpu" if had else None)
        cost = packed.cost()
        assert (cost.disk_gib, cost.other_disks_gib["x86_64-gpu"]) == (8.0, 88.0)
    with pytest.raises(BadInput, match="echo needs a disk of 88 GiB"):
        replace(packer, target=replace(target, max_disk_gib=80)).pack(sent, images, made)


class Terraforms:
    """Stands in for `Terraform`: what it would find credentials by is what is of interest; then it gives up."""

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
    """What Terraform finds credentials by; `region` of the site first."""
    target = DeployTarget(clients=("10.0.0.0/8",), state=folder / "s", **where)
    checked, _ = _checked(target)
    with pytest.raises(MarkError) as given:
        plan([shipment("inception-v3")], target, lambda _: None)
    return checked.region, json.loads(str(given.value))


@pytest.mark.usefixtures("configuration")
def test_terraform_has_the_same_profile(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """By its name, so that Terraform renews what expires; the region is the profile's unless another is said."""
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


@pytest.mark.parametrize("aside", [False, True])
def test_what_a_registry_has_is_sent_along(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, aside: bool) -> None:
    """As the service's model, or among its versions; where it arrives no registry is asked."""
    monkeypatch.setenv("MARK_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.setenv("MARK_REGISTRY", str(tmp_path / "registry"))
    (tmp_path / "far").mkdir()
    for name, text in (("m.py", "x = 1\n"), ("requirements.txt", "onnxruntime\n")):
        (tmp_path / "far" / name).write_text(text)
    files = {path.name: path for path in (tmp_path / "far").iterdir()}
    registry = open_registry()
    version = registry.register("m", "m:M", files, profile=("echo:Echo", PROFILE.encode()))
    registry.promote("m", version.short, "production")
    file = Path(service(tmp_path / "service"))
    text = file.read_text()
    if aside:
        text += '[service.versions]\n"1" = { model = "echo:Echo", weight = 0.4 }\n'
        text += '"2" = { model = "registry:m@production", weight = 0.6 }\n'
    else:
        text = text.replace("echo:Echo", "registry:m@production")
    file.write_text(text)
    sent = shipment(str(file))
    assert f"versions/{version.id}/files/m.py" in sent.files
    assert libraries_of(sent) == ()
    assert sent.files["requirements.txt"] == b"onnxruntime\n"
    assert environment_of(sent.service, "lambda:1024")["MARK_MODEL"] == f"version:versions/{version.id}"
    there = tmp_path / "there"
    with tarfile.open(archive(sent.files, tmp_path / "sent.tar.gz")) as tar:
        tar.extraction_filter = getattr(tarfile, "data_filter", None)
        tar.extractall(there)
    monkeypatch.setenv("MARK_REGISTRY", str(tmp_path / "nowhere"))
    arrived = serving_of(ServerOptions(service=""), pinned(load_service(str(there / "service.toml"))))
    name = "2" if aside else version.id[:12]
    assert arrived.versions.references[name] == f"version:versions/{version.id}"
    assert check(arrived.search / "versions" / version.id).id == version.id
    _check_archive(tmp_path / "sent.tar.gz", sent)


def test_one_reference_may_be_the_beginning_of_another(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MARK_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.setenv("MARK_REGISTRY", str(tmp_path / "registry"))
    registry, ids = open_registry(), []
    for number, alias in enumerate(("prod", "prod-eu")):
        (tmp_path / "m.py").write_text(f"x = {number}\n")
        profile = ("echo:Echo", PROFILE.encode())
        ids.append(registry.register("m", "m:M", {"m.py": tmp_path / "m.py"}, profile=profile))
        registry.promote("m", ids[-1].short, alias)
    file = Path(service(tmp_path / "service"))
    versions = '\n[service.versions]\n"1" = { model = "registry:m@prod", weight = 0.4 }\n'
    file.write_text(file.read_text() + versions + "\"2\" = { model = 'registry:m@prod-eu', weight = 0.6 }\n")
    sent = shipment(str(file))
    for version in ids:
        assert f'model = "version:versions/{version.id}",'.encode() in sent.files["service.toml"]


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
    """A variable alone would leave out what protects a real account."""
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


PIPELINE = """
[service]
name = "two"
slo_ms = 600
slo_attainment = 0.98
pipeline = "driver:run"
profile = "../profile.csv"
[fleet]
instances = ["c5.large", "g5.xlarge"]
max_instances = 20
max_usd_per_hour = 10.0
[overflow]
max_usd_per_hour = 2.0
[stage.first]
model = "echo:Echo"
slo_ms = 200
function = "lambda:1024"
[stage.second]   # the larger one
model = "echo:Echo"
instances = [
  "g4dn.xlarge",  # cheap
  "c5.large",
]
slo_ms = 400
"""


def pipeline(folder: Path, text: str = PIPELINE) -> str:
    (folder / "two").mkdir(exist_ok=True)
    (folder / "profile.csv").write_text(PROFILE)
    (folder / "two" / "my.toml").write_text(text)
    for name in ("echo.py", "driver.py"):
        (folder / "two" / name).write_text("")
    return str(folder / "two" / "my.toml")


def test_each_stage_is_a_service_with_its_pipelines_files(tmp_path: Path) -> None:
    first, second = sent = shipments(pipeline(tmp_path))
    assert [(one.service.name, one.service.stage, one.folder) for one in sent] == [
        ("two-first", "first", "two"),
        ("two-second", "second", "two"),
    ]
    assert first.files is second.files
    assert sorted(first.files) == ["driver.py", "echo.py", "my.toml", "profile-profile.csv", "service.toml"]
    assert first.deployment.function is not None
    assert (first.deployment.function.offer.name, second.deployment.function) == ("lambda:1024", None)
    assert first.service.limits_unsaid == ()
    _check_archive(archive(first.files, tmp_path / "two.tar.gz"), *sent)
    assert [one.service.name for one in shipments("inception-v3")] == ["inception-v3"]


ON_BOTH = """model,instance,batch,latency_ms,workers
echo:Echo,c5.large,1,20,2
echo:Echo,c5.xlarge,1,20,4
"""
TOGETHER = (
    PIPELINE.replace('function = "lambda:1024"\n', "")
    .replace('pipeline = "driver:run"\n', "")
    .replace('  "g4dn.xlarge",  # cheap\n', '  "c5.xlarge",\n')
    + '[packs]\ntogether = [["first", "second"]]\n'
)


def bought_together(folder: Path) -> Shipment:
    file = pipeline(folder, TOGETHER)
    (folder / "profile.csv").write_text(ON_BOTH)
    (sent,) = shipments(file)
    return sent


def test_stages_that_are_bought_together_are_one_service(tmp_path: Path) -> None:
    """On the types that both may have; what arrives is what was checked here."""
    sent = bought_together(tmp_path)
    assert (sent.service.name, sent.service.together, sent.folder) == ("two-first-second", ("first", "second"), "two")
    assert [offer.instance for offer in sent.deployment.offers] == ["c5.large"]
    assert dict(sent.deployment.skipped)["c5.xlarge"] == "none of the types that first may have"
    _check_archive(archive(sent.files, tmp_path / "two.tar.gz"), sent)
    packages = Wheelhouse(tmp_path / "wheels.tar", 1, 1, frozenset())
    boots = ServiceBoots("x86_64", {"x86_64": PlatformBoot(PLATFORMS["x86_64"], None, packages, 8, 600)})
    described = PackedService(sent, tmp_path / "two.tar.gz", boots, None).described(lambda path: path.name, {})
    assert (described["pipeline"], described["stage"], described["together"]) == ("two", "", ["first", "second"])
    assert described["slo_ms"] == 400.0


def test_types_that_are_gone_leave_every_section_that_shares(tmp_path: Path) -> None:
    sent = bought_together(tmp_path)
    left = replace(
        sent.deployment, service=replace(sent.service, instances=("c5.large",)), skipped=(("c5.xlarge", "gone"),)
    )
    text = _as_found([sent], [left])[0].files["service.toml"]
    assert isinstance(text, bytes)
    stages = tomllib.loads(text.decode())["stage"]
    assert [stages[name]["instances"] for name in ("first", "second")] == [["c5.large"]] * 2


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ('model = "echo:Echo"\nslo', 'model = "gone:Echo"\nslo', r"no requirements\.txt brings it: gone:Echo$"),
        (
            '["c5.large", "g5.xlarge"]',
            '["c5.large"]\nmarkets = ["burstable"]',
            "no instance type for all|no offer meets",
        ),
    ],
)
def test_stages_together_that_do_not_fit_are_one_line(tmp_path: Path, old: str, new: str, said: str) -> None:
    assert old in TOGETHER
    file = pipeline(tmp_path, TOGETHER.replace(old, new, 1))
    (tmp_path / "profile.csv").write_text(ON_BOTH)
    with pytest.raises((BadInput, Infeasible), match=said):
        shipments(file)


def test_a_stages_function_is_described_and_billed_as_a_services(tmp_path: Path) -> None:
    """It answers to the stage's name, within the stage's part of what functions may cost."""
    both = PIPELINE.replace("slo_ms = 400\n", 'slo_ms = 400\nfunction = "lambda:1024"\n')
    packages = Wheelhouse(tmp_path / "wheels.tar", 1, 1, frozenset())
    boots = ServiceBoots("x86_64", {"x86_64": PlatformBoot(PLATFORMS["x86_64"], None, packages, 8, 600)})
    sent = SentFunction(tmp_path / "two-first.zip")
    for text, usd_per_hour in ((PIPELINE, 2.0), (both, 1.0)):
        first = shipments(pipeline(tmp_path, text))[0]
        packed = PackedService(first, tmp_path / "two.tar.gz", boots, sent)
        described = packed.described(lambda path: path.name, {"two-first": 7})
        assert (described["pipeline"], described["stage"]) == ("two", "first")
        assert described["function"] == {
            "zip": "two-first.zip",
            "image_uri": None,
            "architecture": "x86_64",
            "memory_mb": 1024,
            "environment": {
                "MARK_MODEL": "echo:Echo",
                "MARK_MODEL_PATH": "service",
                "MARK_NAME": "first",
                "MARK_VERSION": "1",
            },
            "max_usd_per_hour": usd_per_hour,
            "reserved_concurrency": 7,
        }
        assert (packed.cost().function, packed.cost().max_function_usd_per_hour) == ("lambda:1024", usd_per_hour)


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ("slo_ms = 400\n", "", r"\[stage.second\] slo_ms: must be said of each stage"),
        ("driver:run", "other:run", r"no requirements\.txt brings it: other:run$"),
        ('model = "echo:Echo"\nslo', 'model = "gone:Echo"\nslo', r"no requirements\.txt brings it: gone:Echo$"),
        ('"two"', f'"{"t" * 60}"', "more than 63 characters"),
        ("[fleet]", "[conductors]\ncount = 1\n[fleet]", r"\[conductors\] count: must lie between 2 and"),
        ("[fleet]", "[conductors]\ncount = 101\n[fleet]", r"\[conductors\] count: must be 100 at most: 101"),
    ],
)
def test_a_pipeline_that_does_not_fit_is_one_line(tmp_path: Path, old: str, new: str, said: str) -> None:
    assert old in PIPELINE
    with pytest.raises(BadInput, match=said):
        shipments(pipeline(tmp_path, PIPELINE.replace(old, new, 1)))


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


def test_a_stages_types_that_are_gone_leave_its_section(tmp_path: Path) -> None:
    """Each stage's own, and no other's; what arrives is what was checked here."""
    sent = shipments(pipeline(tmp_path))
    left = [without(one.deployment, {"g5.xlarge": "gone", "g4dn.xlarge": "gone"}, lambda _: None) for one in sent]
    found = _as_found(sent, left)
    text = found[0].files["service.toml"]
    assert isinstance(text, bytes)
    tables = tomllib.loads(text.decode())
    assert [tables["stage"][name].pop("instances") for name in ("first", "second")] == [["c5.large"]] * 2
    before = tomllib.loads(PIPELINE)
    del before["stage"]["second"]["instances"]
    assert tables == {**before, "service": {**before["service"], "profile": "profile-profile.csv"}}
    _check_archive(archive(found[0].files, tmp_path / "two.tar.gz"), *found)
    other = _with_stage_instances(text.decode(), "second", ["g4dn.xlarge"]).encode()
    packed = archive({**found[0].files, "service.toml": other}, tmp_path / "two.tar.gz")
    with pytest.raises(MarkError, match="two-second: what would be sent"):
        _check_archive(packed, *found)
