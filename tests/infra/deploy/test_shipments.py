"""The files that are sent for a service, and for a pipeline."""

from __future__ import annotations

import json
import tarfile
import tomllib
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from mark_infra.aws.platforms import PLATFORMS
from mark_infra.deploy.artifacts import archive
from mark_infra.deploy.boots import PlatformBoot, ServiceBoots, platforms_of
from mark_infra.deploy.offerings import without
from mark_infra.deploy.packed_services import PackedService
from mark_infra.deploy.shipments import (
    Shipment,
    _item_table,
    _of_these,
    _with_instances,
    _with_stage_instances,
    as_found,
    check_archive,
    environment_of,
    libraries_of,
    models_of,
    shipment,
    shipments,
)
from mark_infra.deploy.wheelhouse import Wheelhouse

from mark.config.pipeline_file import load_pipeline
from mark.config.service_file import load_service
from mark.domain.errors import BadInput, Infeasible, MarkError
from mark.launch.server import ServerOptions, serving_of
from mark.models.registry_place import open_registry, pinned
from mark.models.registry_unpacked import check
from tests.infra.deploy.service_files import CODE, PIPELINE, PROFILE, SERVICE, pipeline, service
from tests.samples import first


def test_a_folder_is_sent_with_its_service(tmp_path: Path) -> None:
    sent = shipment(service(tmp_path))
    assert sorted(sent.files) == ["echo.py", "profile.csv", "service.toml"]
    assert isinstance(sent.files["service.toml"], bytes)


def unneeded(folder: Path) -> None:
    """Write files that lie beside a model which does not open them."""
    for name in ("access.log", "traffic.csv", ".env", "test_echo.py", "keys.pem", "notes.md", "tests/test_all.py"):
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).write_text("x")


def test_a_model_is_sent_with_the_files_that_it_opens(tmp_path: Path) -> None:
    """These are its modules, its weights and the wheels of its packages; no log, trace, key or test."""
    file = Path(service(tmp_path))
    unneeded(tmp_path)
    (tmp_path / "weights").mkdir()
    (tmp_path / "weights" / "a.bin").write_bytes(b"1")
    (tmp_path / "weights" / "old.bin").write_bytes(b"0")
    (tmp_path / "helper.py").write_text("x = 1\n")
    (tmp_path / "echo.py").write_text(f"import helper\n{CODE}W = open('weights/a.bin').read()\n")
    for name, text in (("requirements.txt", "-r more.txt\n--find-links=./wheels\n"), ("more.txt", "numpy\n")):
        (tmp_path / name).write_text(text)
    (tmp_path / "wheels").mkdir()
    (tmp_path / "wheels" / "own-1-py3-none-any.whl").write_bytes(b"")
    sent = shipment(str(file))
    assert sorted(sent.files) == [
        *("echo.py", "helper.py", "more.txt", "profile.csv", "requirements.txt", "service.toml", "weights/a.bin"),
        "wheels/own-1-py3-none-any.whl",
    ]
    assert sent.kept_back == ["access.log", "keys.pem"]


def test_a_service_file_may_name_what_is_sent(tmp_path: Path) -> None:
    """Then no model is loaded, because its libraries may be missing here."""
    file = Path(service(tmp_path))
    unneeded(tmp_path)
    (tmp_path / "echo.py").write_text("import not_here\n")
    with pytest.raises(BadInput, match=r"does not load: .*not_here.* name the files to send: \[service\] files"):
        shipment(str(file))
    text = file.read_text()
    file.write_text(text.replace("slo_ms", 'files = ["*.py", "notes.*"]\nslo_ms'))
    assert sorted(shipment(str(file)).files) == [
        *("echo.py", "notes.md", "profile.csv", "service.toml", "test_echo.py", "tests/test_all.py")
    ]
    file.write_text(text.replace("slo_ms", 'files = ["echo.py", "access.log"]\nslo_ms'))
    with pytest.raises(BadInput, match=r"my.toml files: no file of the service's folder .* matches it: access.log"):
        shipment(str(file))


def test_a_model_that_opens_a_possible_secret_is_refused(tmp_path: Path) -> None:
    file = Path(service(tmp_path))
    unneeded(tmp_path)
    (tmp_path / "echo.py").write_text(f"{CODE}K = open('keys.pem').read()\n")
    with pytest.raises(BadInput, match=r"opens a file that is never sent, .*: rename it: keys.pem"):
        shipment(str(file))


def test_a_profile_from_elsewhere_comes_along(tmp_path: Path) -> None:
    sent = shipment(service(tmp_path / "a", profile="../profile.csv"))
    text = sent.files["service.toml"]
    assert isinstance(text, bytes)
    assert b'profile = "profile-profile.csv"' in text
    assert sent.files["profile-profile.csv"] == tmp_path / "profile.csv"


def test_a_shipped_service_is_its_file_alone() -> None:
    sent = shipment("inception-v3")
    assert list(sent.files) == ["service.toml"]
    assert environment_of(sent, "lambda:1024") == {
        "MARK_MODEL": "mark.profiling.replay:Replay?model=inception-v3&instance=lambda:1024",
        "MARK_MODEL_PATH": "service",
        "MARK_NAME": "inception-v3",
        "MARK_VERSION": "1",
    }


@pytest.mark.parametrize(
    ("folder", "profile", "name"),
    [
        (".", "profile.csv", "profile.csv"),
        (".", "a/profile.csv", "a/profile.csv"),
        ("b", "../profile.csv", "profile-profile.csv"),
    ],
)
def test_a_function_replays_the_profile_where_it_is_sent(tmp_path: Path, folder: str, profile: str, name: str) -> None:
    """The profile lies below the service's folder, or elsewhere."""
    file = Path(service(tmp_path / folder, profile=profile))
    (file.parent / profile).write_text(PROFILE.replace("echo:Echo", "words"))
    file.write_text(file.read_text().replace("echo:Echo", "words"))
    sent = shipment(str(file))
    assert name in sent.files
    replayed = "mark.profiling.replay:Replay?model=words&instance=lambda:1024&profile=service/"
    assert environment_of(sent, "lambda:1024")["MARK_MODEL"] == replayed + name


def test_a_model_that_would_not_be_there_is_refused(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match=r"no requirements\.txt brings it"):
        shipment(service(tmp_path, code="other.py"))
    (tmp_path / "requirements.txt").write_text("echo\n")
    sent = shipment(str(tmp_path / "my.toml"), opened=lambda *_: set())
    assert sorted(sent.files) == ["profile.csv", "requirements.txt", "service.toml"]


@pytest.mark.parametrize(
    ("model", "library"),
    first(1, [("onnx:m.onnx?threads=1", "onnxruntime"), ("sklearn:m.joblib", "scikit-learn"), ("torch:m.pt", "torch")]),
)
def test_a_model_that_is_a_file_brings_its_library(tmp_path: Path, model: str, library: str) -> None:
    """An instance has the packages of serving but no solver, which could bring these libraries."""
    file = Path(service(tmp_path))
    assert libraries_of(shipment(str(file))) == ()
    (tmp_path / model.partition(":")[2].partition("?")[0]).write_text("weights")
    (tmp_path / "profile.csv").write_text(PROFILE.replace("echo:Echo", model))
    file.write_text(file.read_text().replace("echo:Echo", model))
    sent = shipment(str(file), opened=lambda _, __, files: {path for path in files if path.name.startswith("m.")})
    assert libraries_of(sent) == (library,)
    assert model.partition(":")[2].partition("?")[0] in sent.files


@pytest.mark.slow
def test_the_function_has_the_version_with_the_most_weight(tmp_path: Path) -> None:
    file = Path(service(tmp_path))
    versions = (
        '[service.versions]\n"1" = { model = "echo:A", weight = 0.2 }\n"2" = { model = "echo:B", weight = 0.8 }\n'
    )
    file.write_text(file.read_text() + versions)
    found = environment_of(shipment(str(file)), "lambda:1024")
    assert (found["MARK_MODEL"], found["MARK_VERSION"], found["MARK_NAME"]) == ("echo:B", "2", "echo")


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
    """The instance gets the file that was checked here."""
    sent = shipment("inception-v3")
    said: list[str] = []
    left = _of_these(sent, without(sent.deployment, {"p2.xlarge": "gone"}, said.append))
    assert said == ["inception-v3: left out p2.xlarge (gone)"]
    assert [platform.name for platform in platforms_of(left.deployment)] == ["x86_64"]
    check_archive(archive(left.files, tmp_path / "sent.tar.gz"), left)
    with pytest.raises(MarkError, match="the files to send differ"):
        check_archive(archive(sent.files, tmp_path / "other.tar.gz"), left)


@pytest.mark.parametrize("aside", [False, True])
def test_what_a_registry_has_is_sent_along(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, aside: bool) -> None:
    """It is the service's model or one of its versions; the instance asks no registry."""
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
    assert environment_of(sent, "lambda:1024")["MARK_MODEL"] == f"version:versions/{version.id}"
    there = tmp_path / "there"
    with tarfile.open(archive(sent.files, tmp_path / "sent.tar.gz")) as tar:
        tar.extraction_filter = getattr(tarfile, "data_filter", None)
        tar.extractall(there)
    monkeypatch.setenv("MARK_REGISTRY", str(tmp_path / "nowhere"))
    arrived = serving_of(ServerOptions(service=""), pinned(load_service(str(there / "service.toml"))))
    name = "2" if aside else version.id[:12]
    assert arrived.versions.references[name] == f"version:versions/{version.id}"
    assert check(arrived.search / "versions" / version.id).id == version.id
    check_archive(tmp_path / "sent.tar.gz", sent)


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


@pytest.mark.slow
def test_each_stage_is_a_service_with_its_pipelines_files(tmp_path: Path) -> None:
    first, second = sent = shipments(pipeline(tmp_path))
    assert [(one.service.name, one.service.stage, one.folder) for one in sent] == [
        ("two-first", "first", "two"),
        ("two-second", "second", "two"),
    ]
    assert first.files is second.files
    assert sorted(first.files) == ["driver.py", "echo.py", "profile-profile.csv", "service.toml"]
    assert first.deployment.function is not None
    assert (first.deployment.function.offer.name, second.deployment.function) == ("lambda:1024", None)
    assert first.service.limits_unsaid == ()
    check_archive(archive(first.files, tmp_path / "two.tar.gz"), *sent)
    assert [one.service.name for one in shipments("inception-v3")] == ["inception-v3"]


PERSONAL = '[conductors]\ncount = 2\n[feedback]\nlog = "feedback"\n[personal]\ntable = "{}"\n[fleet]'


def test_table_of_personal_heads_is_sent_with_its_pipeline(tmp_path: Path) -> None:
    path = Path(pipeline(tmp_path, PIPELINE.replace("[fleet]", PERSONAL.format("data/items.npz"), 1)))
    found = _item_table(load_pipeline(str(path)), path.parent)
    assert found == {"data/items.npz": path.parent / "data" / "items.npz"}
    (tmp_path / "without").mkdir()
    assert _item_table(load_pipeline(pipeline(tmp_path / "without")), path.parent) == {}


def test_table_in_a_registry_is_sent_as_a_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """All servers of a site serve this version until the next deployment, and need no registry."""
    monkeypatch.setenv("MARK_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.setenv("MARK_REGISTRY", str(tmp_path / "registry"))
    table = tmp_path / "items.npz"
    np.savez(table, ids=np.array(["a", "b"]), vectors=np.eye(2))
    version = open_registry().register("items", "table:items.npz", {"items.npz": table})
    open_registry().promote("items", version.short, "production")
    (tmp_path / "service").mkdir()
    text = PIPELINE.replace("[fleet]", PERSONAL.format("registry:items@production"), 1)
    sent = shipments(pipeline(tmp_path / "service", text))
    with tarfile.open(archive(sent[0].files, tmp_path / "sent.tar.gz")) as tar:
        tar.extraction_filter = getattr(tarfile, "data_filter", None)
        tar.extractall(tmp_path / "there")
    check_archive(tmp_path / "sent.tar.gz", *sent)
    arrived = load_pipeline(str(tmp_path / "there" / "service.toml"))
    assert arrived.personal is not None
    assert Path(arrived.personal.table).read_bytes() == table.read_bytes()


INSURED = """
[service]
name = "two"
model = "echo:A"
slo_ms = 600
slo_attainment = 0.98
profile = "../profile.csv"
[fleet]
instances = ["c5.large"]
max_instances = 20
max_usd_per_hour = 10.0
[insurance]
parity = "{parity}"
"""


def insured(folder: Path, parity: str) -> str:
    path = pipeline(folder, INSURED.format(parity=parity))
    (folder / "profile.csv").write_text(PROFILE.replace("echo:Echo", "echo:A"))
    home = folder / "two" / parity
    home.mkdir(exist_ok=True)
    said = {"schema": 1, "code": "sum", "k": 2, "models": ["echo:B"], "input": {"shape": [3]}, "output": {"shape": [4]}}
    (home / "parity.json").write_text(json.dumps(said))
    return path


@pytest.mark.slow
def test_service_with_parity_models_is_sent_with_them(tmp_path: Path) -> None:
    model, parity = sent = shipments(insured(tmp_path, "parity/"))
    assert [one.service.stage for one in sent] == ["model", "parity"]
    assert "parity/parity.json" in model.files
    assert "echo.py" in model.files
    assert [reference for reference, _ in models_of(parity)] == ["echo:B"]
    assert [reference for reference, _ in models_of(model)] == ["echo:A"]
    check_archive(archive(model.files, tmp_path / "two.tar.gz"), *sent)


def test_parity_models_beside_the_folder_are_not_sent(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match=r"\[insurance\] parity: is not in the service's folder"):
        shipments(insured(tmp_path, "../parity"))


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ("slo_ms = 400\n", "", r"\[stage.second\] slo_ms: must be said of each stage"),
        ("driver:run", "other:run", r"no requirements\.txt brings it: other:run$"),
        ('model = "echo:Echo"\nslo', 'model = "gone:Echo"\nslo', r"no requirements\.txt brings it: gone:Echo$"),
        ('"two"', f'"{"t" * 60}"', "more than 63 characters"),
        ("[fleet]", "[conductors]\ncount = 1\n[fleet]", r"\[conductors\] count: must be 2 to 100, or 0.*: 1$"),
        ("[fleet]", "[conductors]\ncount = 101\n[fleet]", r"\[conductors\] count: must be 2 to 100, or 0.*: 101$"),
        ("[fleet]", PERSONAL.format("../items.npz"), r"\[personal\] table: is not in the service's folder"),
    ],
)
def test_a_pipeline_that_does_not_fit_is_one_line(tmp_path: Path, old: str, new: str, said: str) -> None:
    assert old in PIPELINE
    with pytest.raises(BadInput, match=said):
        shipments(pipeline(tmp_path, PIPELINE.replace(old, new, 1)))


@pytest.mark.slow
def test_a_stages_types_that_are_gone_leave_its_section(tmp_path: Path) -> None:
    """Only that stage's section changes; the instance gets the file that was checked here."""
    sent = shipments(pipeline(tmp_path))
    left = [without(one.deployment, {"g5.xlarge": "gone", "g4dn.xlarge": "gone"}, lambda _: None) for one in sent]
    found = as_found(sent, left)
    text = found[0].files["service.toml"]
    assert isinstance(text, bytes)
    tables = tomllib.loads(text.decode())
    assert [tables["stage"][name].pop("instances") for name in ("first", "second")] == [["c5.large"]] * 2
    before = tomllib.loads(PIPELINE)
    del before["stage"]["second"]["instances"]
    assert tables == {**before, "service": {**before["service"], "profile": "profile-profile.csv"}}
    check_archive(archive(found[0].files, tmp_path / "two.tar.gz"), *found)
    other = _with_stage_instances(text.decode(), "second", ["g4dn.xlarge"]).encode()
    packed = archive({**found[0].files, "service.toml": other}, tmp_path / "two.tar.gz")
    with pytest.raises(MarkError, match="two-second: the files to send differ"):
        check_archive(packed, *found)


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
    """It has the types that both may use; the instance gets the file that was checked here."""
    sent = bought_together(tmp_path)
    assert (sent.service.name, sent.service.together, sent.folder) == ("two-first-second", ("first", "second"), "two")
    assert [offer.instance for offer in sent.deployment.offers] == ["c5.large"]
    assert dict(sent.deployment.skipped)["c5.xlarge"] == "none of the types that first may have"
    check_archive(archive(sent.files, tmp_path / "two.tar.gz"), sent)
    packages = Wheelhouse(tmp_path / "wheels.tar", 1, 1, frozenset())
    boots = ServiceBoots("x86_64", {"x86_64": PlatformBoot(PLATFORMS["x86_64"], None, packages, 8, 600)})
    described = PackedService(sent, tmp_path / "two.tar.gz", boots, None).described(lambda path: path.name, {})
    assert (described["pipeline"], described["stage"], described["together"]) == ("two", "", ["first", "second"])
    assert described["slo_ms"] == 400.0


@pytest.mark.slow
def test_types_that_are_gone_leave_every_section_that_shares(tmp_path: Path) -> None:
    sent = bought_together(tmp_path)
    left = replace(
        sent.deployment, service=replace(sent.service, instances=("c5.large",)), skipped=(("c5.xlarge", "gone"),)
    )
    text = as_found([sent], [left])[0].files["service.toml"]
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


WHOLE = (
    PIPELINE.replace('function = "lambda:1024"\n', "")
    .replace("slo_ms = 200\n", "")
    .replace("slo_ms = 400\n", "")
    .replace("[fleet]", "[conductors]\ncount = 0\n[fleet]")
    .replace("[overflow]\nmax_usd_per_hour = 2.0\n", "")
)
SELECTS = WHOLE.replace('pipeline = "driver:run"\n', "").replace("[conductors]\ncount = 0\n", "")


def sent_whole(folder: Path, text: str) -> Shipment:
    file = pipeline(folder, text)
    (folder / "profile.csv").write_text(ON_BOTH)
    (sent,) = shipments(file)
    return sent


def test_whole_pipeline_is_sent_as_a_service_by_itself(tmp_path: Path) -> None:
    sent = sent_whole(tmp_path, SELECTS + '[selection]\npolicy = "split"\n')
    assert (sent.service.name, sent.folder, sent.pipeline) == ("two", "two", None)
    assert [offer.instance for offer in sent.deployment.offers] == ["c5.large"]
    assert sent.deployment.function is None
    assert sorted(sent.files) == ["echo.py", "profile-profile.csv", "service.toml"]
    check_archive(archive(sent.files, tmp_path / "two.tar.gz"), sent)
    packages = Wheelhouse(tmp_path / "wheels.tar", 1, 1, frozenset())
    boots = ServiceBoots("x86_64", {"x86_64": PlatformBoot(PLATFORMS["x86_64"], None, packages, 8, 600)})
    described = PackedService(sent, tmp_path / "two.tar.gz", boots, None).described(lambda path: path.name, {})
    assert not {"pipeline", "stage", "together", "function"} & set(described)
    assert (described["slo_ms"], described["archive"]) == (600.0, "two.tar.gz")


def test_instances_that_serve_the_whole_have_all_models_and_the_driver(tmp_path: Path) -> None:
    (tmp_path / "two").mkdir()
    (tmp_path / "two" / "l.csv").write_text("queries,first,second\n1,1,1\n")
    text = WHOLE.replace('profile = "../', 'lineage = "l.csv"\nprofile = "../')
    sent = sent_whole(tmp_path, text)
    assert list(models_of(sent)) == [("echo:Echo", ""), ("echo:Echo", ""), ("driver:run", "")]
    assert sorted(sent.files) == ["driver.py", "echo.py", "l.csv", "profile-profile.csv", "service.toml"]


def test_types_that_are_gone_leave_every_stage_of_a_whole_pipeline(tmp_path: Path) -> None:
    sent = sent_whole(tmp_path, SELECTS + '[selection]\npolicy = "split"\n')
    left = replace(
        sent.deployment, service=replace(sent.service, instances=("c5.large",)), skipped=(("g5.xlarge", "gone"),)
    )
    (found,) = as_found([sent], [left])
    text = found.files["service.toml"]
    assert isinstance(text, bytes)
    stages = tomllib.loads(text.decode())["stage"]
    assert [stages[name]["instances"] for name in ("first", "second")] == [["c5.large"]] * 2
    assert found.deployment is left
