"""What a model consists of."""

from __future__ import annotations

from pathlib import Path

import pytest

from mark.domain.errors import BadInput
from mark.models.files import model_files, shipped_files


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for name in ("m.py", "pack/__init__.py", "pack/deep.py", "weights.bin", "server.key", ".git/x", "store/blob"):
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
        ("onnx:weights.bin", (), ["weights.bin"]),
    ],
)
def test_the_files_of_a_model_are_found(
    folder: Path, reference: str, patterns: tuple[str, ...], expected: list[str]
) -> None:
    within, files, kept_back = model_files(reference, folder, patterns, without=folder / "store")
    assert within == reference
    assert list(files) == expected
    # It says so too of a graph, of which nothing but its own file is kept.
    assert kept_back == ["server.key"]


def test_a_graph_is_named_within_its_own_folder(folder: Path) -> None:
    within, files, _ = model_files(f"torch:{folder}/pack/deep.py?x=y", Path("elsewhere"))
    assert (within, files) == ("torch:deep.py?x=y", {"deep.py": folder / "pack" / "deep.py"})


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
    """Also by the name of a folder; a Python module may be called so."""
    for each in (name, "keys/code.py"):
        (tmp_path / each).parent.mkdir(exist_ok=True)
        (tmp_path / each).write_text("x")
    files, kept_back = shipped_files(tmp_path)
    assert (list(files), kept_back) == (["keys/code.py"], [name])
