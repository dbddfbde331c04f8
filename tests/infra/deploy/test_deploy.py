"""What is sent to AWS, and what is refused before anything is."""

from __future__ import annotations

from pathlib import Path

import pytest
from mark_infra.deploy.deploy import DeployTarget, destroy, environment_of, image_of, plan, shipment

from mark.domain.errors import BadInput, MarkError
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
[overflow]
function = "lambda:1024"
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
    assert environment_of(sent.service)["MARK_MODEL"].startswith("mark.profiling.replay:Replay?model=inception-v3")


def test_a_model_that_would_not_be_there_is_refused(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match=r"no requirements\.txt brings it"):
        shipment(service(tmp_path, code="other.py"))
    (tmp_path / "requirements.txt").write_text("echo\n")
    shipment(str(tmp_path / "my.toml"))


def test_images_follow_the_processors(tmp_path: Path) -> None:
    def image(*instances: str) -> tuple[str, int]:
        return image_of(shipment(service(tmp_path, *instances)).deployment)

    assert image("c5.large")[0].endswith("default-x86_64")
    assert image("c7g.large")[0].endswith("default-arm64")
    assert "nvidia" in image("g5.xlarge", "g4dn.xlarge", "c5.large")[0]
    with pytest.raises(BadInput, match=r"choose one kind.*c7g\.large, c5\.large"):
        image("c5.large", "c7g.large")


def test_the_function_has_the_version_with_the_most_weight(tmp_path: Path) -> None:
    file = Path(service(tmp_path))
    versions = (
        '[service.versions]\n"1" = { model = "echo:A", weight = 0.2 }\n"2" = { model = "echo:B", weight = 0.8 }\n'
    )
    file.write_text(file.read_text() + versions)
    found = environment_of(shipment(str(file)).service)
    assert (found["MARK_MODEL"], found["MARK_VERSION"], found["MARK_NAME"]) == ("echo:B", "2", "echo")


@pytest.mark.parametrize(
    ("target", "said"),
    [
        (DeployTarget(name="Mark", region="eu-west-1"), "name: .*: Mark"),
        (DeployTarget(name="a" * 21, region="eu-west-1"), "20 small letters"),
        (DeployTarget(region=""), "region: "),
        (DeployTarget(region="Frankfurt"), "region: "),
        (DeployTarget(region="eu-west-1"), "clients: .*in clear"),
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
