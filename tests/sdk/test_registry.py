"""`mark.register`, and services that serve a registered model: real servers, real bytes."""

from __future__ import annotations

import importlib
import os
import subprocess
import sys
from pathlib import Path

import httpx
import pytest

import mark
from mark.domain.errors import BadInput, MarkError
from mark.models.registry import ModelVersion
from mark.profiling.table import load_profiles
from mark.sdk.running import ServeProcess
from tests.samples import first

MODEL = """
import mark

class Answer(mark.Model):
    inputs = [mark.TensorSpec("x", "FP32", (1,))]

    def predict(self, batch):
        with open(__file__.replace("answer.py", "weights.txt")) as file:
            weight = float(file.read())
        return [weight for _ in batch]
"""
ECHO = """
import mark

class Echo(mark.Model):
    inputs = [mark.TensorSpec("x", "FP32", (1,))]

    def predict(self, batch):
        return batch
"""
SERVICE = """
[service]
name = "answer"
model = "{model}"
slo_ms = 2000
slo_attainment = 0.98
[fleet]
catalog = "aws-2026"
instances = ["c7i.*"]
"""
PROFILE = (
    "model,instance,batch,latency_ms\nanswer:Answer,c7i.large,1,{}\nanswer:Answer,c7i.large,8,{}\nother,t2.small,1,5\n"
)
REQUEST = {"inputs": [{"name": "x", "shape": [1, 1], "datatype": "FP32", "data": [0.5]}]}


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("MARK_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.setenv("MARK_REGISTRY", str(tmp_path / "registry"))
    (tmp_path / "model").mkdir()
    monkeypatch.chdir(tmp_path / "model")
    (tmp_path / "model" / "answer.py").write_text(MODEL)
    return tmp_path


def registered(weight: int, latency_ms: float = 10.0) -> ModelVersion:
    Path("weights.txt").write_text(str(weight))
    Path("../profile.csv").write_text(PROFILE.format(latency_ms, latency_ms * 4))
    return mark.register("answer:Answer", "answer", metrics={"auc": weight / 10}, profile="../profile.csv")


def service(folder: Path, model: str = "registry:answer@production", more: str = "") -> mark.Service:
    """Make a service in a separate folder, far from the model's."""
    (folder / "elsewhere").mkdir(exist_ok=True)
    (folder / "elsewhere" / "service.toml").write_text(SERVICE.format(model=model) + more)
    return mark.Service(folder / "elsewhere" / "service.toml")


def answer(server: ServeProcess) -> tuple[float, str]:
    got = httpx.post(f"{server.url}/v2/models/answer/infer", json=REQUEST, trust_env=False, timeout=30.0)
    assert got.status_code == 200, got.text
    return got.json()["outputs"][0]["data"][0], got.json()["model_version"]


def test_a_rolled_back_alias_serves_the_old_bytes(folder: Path) -> None:
    """A server keeps the version that it began with; the next one asks the alias again."""
    old, new = registered(1), registered(2)
    registry = mark.open_registry()
    for version in (old, new):
        registry.promote("answer", version.short, "production")
    with service(folder).running() as server:
        assert answer(server) == (2.0, new.id[:12])
        registry.rollback("answer", "production")
        assert answer(server) == (2.0, new.id[:12])
    Path("weights.txt").write_text("666")  # the registry has a copy
    with service(folder).running() as server:
        assert answer(server) == (1.0, old.id[:12])


@pytest.mark.parametrize("registered", first(1, [True, False]))
def test_a_model_opens_its_files_by_their_names_beside_it(folder: Path, registered: bool) -> None:
    """The registry and the folder itself behave the same, wherever the server is started."""
    Path("answer.py").write_text(MODEL.replace('__file__.replace("answer.py", "weights.txt")', '"weights.txt"'))
    Path("weights.txt").write_text("4")
    if registered:
        mark.register("answer:Answer", "answer", alias="production")
        asked = service(folder)
    else:
        Path("service.toml").write_text(SERVICE.format(model="answer:Answer"))
        asked = mark.Service(Path("service.toml").absolute())
        (folder / "away").mkdir()
        os.chdir(folder / "away")
    with asked.running() as server:
        assert answer(server)[0] == 4.0


def test_a_registry_is_found_beside_the_service_file(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("MARK_REGISTRY")
    Path("weights.txt").write_text("1")
    mark.register("answer:Answer", "answer", alias="production", registry="../elsewhere/.mark-registry")
    with service(folder).running() as server:
        assert answer(server)[0] == 1.0
    with pytest.raises(BadInput, match=r"registry .*/elsewhere/.mark-registry: has no such model, .*: anser"):
        service(folder, "registry:anser@production").plan("synthetic:poisson?rate=2", duration_s=600.0)


@pytest.mark.slow
def test_two_versions_stand_side_by_side(folder: Path) -> None:
    """Versions of one module name run in separate workers; one is named by an alias, the other by its hash."""
    old, new = registered(1), registered(2)
    mark.open_registry().promote("answer", old.short, "production")
    more = '[service.versions]\n"stable" = { model = "registry:answer@production", weight = 0.5 }\n'
    more += f'"canary" = {{ model = "registry:answer@{new.short}", weight = 0.5 }}\n'
    with service(folder, more=more).running() as server:
        seen = {answer(server) for _ in range(60)}
        assert seen == {(1.0, "stable"), (2.0, "canary")}


def test_a_tampered_version_is_not_served(folder: Path) -> None:
    """The cache is checked: a changed file is fetched again, and a damaged registry is an error."""
    version = registered(1)
    mark.open_registry().promote("answer", version.short, "production")
    blob = folder / "registry" / "blobs" / "sha256" / version.content.files["weights.txt"][0]
    blob.chmod(0o644)
    blob.write_text("7")
    with pytest.raises(MarkError, match="the registry is damaged"), service(folder).running():
        pass


@pytest.mark.slow
def test_the_planner_has_the_profile_of_the_version(folder: Path) -> None:
    """The alias decides; the service file has no rows of the model at all."""
    fast, slow = registered(1, 10.0), registered(2, 40.0)
    registry = mark.open_registry()
    bought = {}
    for version in (fast, slow):
        registry.promote("answer", version.short, "production")
        decision = service(folder).plan("synthetic:poisson?rate=2000", predictor="seasonal-naive", duration_s=600.0)
        bought[version.id] = sum(target.count for target in decision.plan.targets)
    assert bought[slow.id] > 2 * bought[fast.id]


@pytest.mark.slow
def test_a_registered_class_says_its_module(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its package is in a separate folder, because files that other tests open in theirs would count."""
    package = folder / "model" / "echoing"
    package.mkdir()
    (package / "__init__.py").touch()
    (package / "models.py").write_text(ECHO)
    monkeypatch.syspath_prepend(folder / "model")
    echo = importlib.import_module("echoing.models").Echo
    try:
        version = mark.register(echo, "echo")
        assert mark.register(echo, "echo", files=["echoing/__init__.py", "echoing/models.py"]) == version
    finally:
        del sys.modules["echoing"], sys.modules["echoing.models"]
    assert version.content.model == "echoing.models:Echo"
    assert sorted(version.content.files) == ["echoing/__init__.py", "echoing/models.py"]


@pytest.mark.slow
def test_a_profile_keeps_the_model_s_rows_alone(folder: Path, tmp_path: Path) -> None:
    """So another model's rows, another order or another notation of numbers make no other version."""
    first = registered(1)
    text = "instance,model,latency_ms,batch,basis\n"
    text += "c7i.large,answer:Answer,40.00,8,measured\nc7i.large,answer:Answer,1e1,1,\n"
    Path("../other.csv").write_text(text)
    again = mark.register("answer:Answer", "answer", metrics={"auc": 0.1}, profile="../other.csv")
    assert again == first
    mark.open_registry().fetch_profile(first, tmp_path / "kept.csv")
    everything = load_profiles("../profile.csv")
    assert load_profiles(str(tmp_path / "kept.csv")) == {"answer:Answer": everything["answer:Answer"]}


def test_a_profile_of_other_models_is_refused(folder: Path) -> None:
    Path("../profile.csv").write_text("model,instance,batch,latency_ms\na,c5.large,1,5\nb,c5.large,1,5\n")
    with pytest.raises(BadInput, match=r"profile.csv: has no rows of answer:Answer, only of a, b"):
        mark.register("answer:Answer", "answer", profile="../profile.csv")


@pytest.mark.slow
def test_what_may_be_a_secret_and_the_registry_stay_out(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The registry may lie in the model's own folder. A secret that the model does not open needs no message."""
    monkeypatch.setenv("MARK_REGISTRY", "kept")
    Path("tls.pem").write_text("x")
    first = registered(1)
    assert registered(1) == first
    assert sorted(first.content.files) == ["answer.py", "weights.txt"]
    assert "left out" not in capsys.readouterr().err


@pytest.mark.slow
def test_a_model_is_measured_from_the_registry(folder: Path) -> None:
    version = registered(1)
    command = [sys.executable, "-m", "mark.cli.main", "profile", f"registry:answer@{version.short}"]
    options = ["--batch", "1", "--seconds", "0.2", "--out", "../measured.csv"]
    subprocess.run([*command, *options], check=True, capture_output=True, timeout=60)
    assert list(load_profiles("../measured.csv")) == [f"registry:answer@{version.short}"]


@pytest.mark.slow
def test_an_alias_can_be_moved_as_a_model_is_registered(folder: Path) -> None:
    Path("weights.txt").write_text("1")
    version = mark.register("answer:Answer", "answer", alias="production")
    assert mark.open_registry().find("answer", "production") == version
    with pytest.raises(BadInput, match="alias: must be 1 to 63 letters"):
        mark.register("answer:Answer", "other", alias="a/b")
    assert mark.open_registry().names() == ["answer"]
