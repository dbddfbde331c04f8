"""The files of a model."""

from __future__ import annotations

from pathlib import Path

import pytest

from mark.domain.errors import BadInput
from mark.models.files import model_files, sorted_out


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for name in (
        "m.py",
        "pack/__init__.py",
        "pack/deep.py",
        "weights.bin",
        "server.key",
        "access.log",
        ".env",
        "store/blob",
    ):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text("x")
    return tmp_path


@pytest.mark.parametrize(
    ("reference", "patterns", "expected"),
    [
        ("m:M?size=2", (), ["m.py", "pack/__init__.py", "pack/deep.py", "weights.bin"]),
        ("m:M", ("*.py",), ["m.py", "pack/__init__.py", "pack/deep.py"]),
        ("pack.deep:M", ("pack/*",), ["pack/__init__.py", "pack/deep.py"]),
        ("pack:M", ("pack/*",), ["pack/__init__.py", "pack/deep.py"]),
        ("onnx:weights.bin", (), ["m.py", "pack/__init__.py", "pack/deep.py", "weights.bin"]),
        ("onnx:weights.bin", ("*.bin",), ["weights.bin"]),
    ],
)
def test_the_files_of_a_model_are_found(
    folder: Path, reference: str, patterns: tuple[str, ...], expected: list[str]
) -> None:
    found = model_files(reference, folder, patterns, without=folder / "store")
    assert found.reference == reference
    assert list(found.files) == expected
    assert found.kept_back == ([] if patterns else ["access.log", "server.key"])
    assert found.only({folder / "m.py", folder / "server.key"}).kept_back == ([] if patterns else ["server.key"])


@pytest.mark.parametrize(
    ("patterns", "said"),
    [
        (["m.py", "wieghts.bin"], r"^files: no file of .* that may be kept matches it: wieghts.bin$"),
        (["m.py", "access.log"], r"^files: no file of .* that may be kept matches it: access.log$"),
        (["weights.bin"], r"^files: its own file is not among them: name it, too: m:M$"),
    ],
)
def test_files_that_are_named_must_be_there(folder: Path, patterns: list[str], said: str) -> None:
    with pytest.raises(BadInput, match=said):
        model_files("m:M", folder, patterns)


def test_a_graph_is_named_within_its_own_folder(folder: Path) -> None:
    found = model_files(f"torch:{folder}/pack/deep.py?x=y", Path("elsewhere"))
    assert (found.reference, found.folder) == ("torch:deep.py?x=y", folder / "pack")
    assert found.files["deep.py"] == folder / "pack" / "deep.py"


def test_files_keep_only_those_that_are_opened(folder: Path) -> None:
    found = model_files("m:M", folder)
    assert list(found.only({folder / "m.py", folder / "weights.bin"}).files) == ["m.py", "weights.bin"]


def test_files_refuse_a_link_that_leads_out_of_the_folder(
    folder: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    elsewhere = tmp_path_factory.mktemp("elsewhere") / "passwd"
    elsewhere.write_text("x")
    (folder / "inside.bin").symlink_to(folder / "weights.bin")
    model_files("m:M", folder).checked()
    (folder / "linked.bin").symlink_to(elsewhere)
    with pytest.raises(BadInput, match=r"linked.bin: is a symbolic link to a file outside of the model's folder"):
        model_files("m:M", folder).checked()


@pytest.mark.parametrize(
    ("reference", "said"),
    [
        ("http://x/invocations", "model: has no files of its own that could be kept"),
        ("registry:m@production", "model: has no files of its own"),
        ("inception-v3", "model: has no files of its own"),
        ("onnx:none.onnx", "onnx:none.onnx: no such file"),
        ("other:M", "model: is not among the files of"),
    ],
)
def test_a_model_without_files_is_one_line(folder: Path, reference: str, said: str) -> None:
    with pytest.raises(BadInput) as refused:
        model_files(reference, folder)
    assert str(refused.value).startswith(said)


@pytest.mark.parametrize(
    "name", ["secrets/db.txt", "keys/prod.txt", "credentials/google.json", "passwords.csv", "service-account.json"]
)
def test_what_could_hold_a_secret_stays(tmp_path: Path, name: str) -> None:
    """The name of a folder counts too, but a Python module may have such a name."""
    for each in (name, "keys/code.py"):
        (tmp_path / each).parent.mkdir(exist_ok=True)
        (tmp_path / each).write_text("x")
    files, kept_back = sorted_out(tmp_path)
    assert (list(files), kept_back) == (["keys/code.py"], [name])
