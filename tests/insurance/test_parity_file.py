"""`parity.json`: reading it, and one clear line for each refusal."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from mark.domain.errors import BadInput
from mark.insurance.parity_file import load_parity

SAID: dict[str, Any] = {
    "schema": 1,
    "code": "sum",
    "k": 3,
    "r": 1,
    "models": ["parity-1.pt2"],
    "input": {"shape": [8, 8], "dtype": "float32"},
    "output": {"shape": [10]},
    "encode_ms": 0.2,
    "decode_ms": 0.01,
    "available_accuracy": 0.95,
    "degraded_accuracy": 0.9,
    "chance": 0.1,
    "model_sha256": "ab" * 32,
}


def _written(folder: Path, text: str) -> Path:
    home = folder / "parity"
    home.mkdir()
    (home / "parity-1.pt2").touch()
    (home / "parity.json").write_text(text)
    return home


def test_parity_file_tells_code_models_shapes_and_accuracies(tmp_path: Path) -> None:
    found = load_parity(_written(tmp_path, json.dumps(SAID)), tmp_path)
    assert (found.code, found.k, found.r, found.models) == ("sum", 3, 1, ("torch:parity/parity-1.pt2",))
    assert (found.input_shape, found.output_shape) == ((8, 8), (10,))
    assert (found.encode_s, found.decode_s) == (0.0002, 0.00001)
    assert (found.available_accuracy, found.degraded_accuracy) == (0.95, 0.9)
    assert found.model_sha256 == "ab" * 32


def test_accuracies_and_times_may_be_unknown(tmp_path: Path) -> None:
    least = {key: SAID[key] for key in ("schema", "code", "k", "models", "input", "output")}
    found = load_parity(_written(tmp_path, json.dumps(least)), tmp_path)
    assert (found.degraded_accuracy, found.encode_s, found.model_sha256) == (None, 0.0, "")


@pytest.mark.parametrize(
    ("said", "reference"),
    [
        ("torch:parity-1.pt2?device=cpu", "torch:parity/parity-1.pt2?device=cpu"),
        ("onnx:parity-1.pt2", "onnx:parity/parity-1.pt2"),
        ("digits:Parity?k=2", "digits:Parity?k=2"),
    ],
)
def test_references_of_files_lie_in_the_folder(tmp_path: Path, said: str, reference: str) -> None:
    found = load_parity(_written(tmp_path, json.dumps(SAID | {"models": [said]})), tmp_path)
    assert found.models == (reference,)


def test_folder_elsewhere_gives_whole_paths(tmp_path: Path) -> None:
    home = _written(tmp_path, json.dumps(SAID))
    assert load_parity(home, tmp_path / "other").models == (f"torch:{home}/parity-1.pt2",)


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"schema": 2}, "schema: this mark reads schema 1: 2"),
        ({"code": "xor"}, "code: must be sum or concat: xor"),
        ({"code": 3}, "code: must be sum or concat: 3"),
        ({"k": 1}, "k: a group has 2 to 8 queries: 1"),
        ({"k": True}, "k: must be a whole number from 2 on: True"),
        ({"r": 3}, "r: must be 1 to 2 for groups of 3: 3"),
        ({"models": []}, "models: must name a model for each parity, so 1"),
        ({"models": "parity-1.pt2"}, "models: must be a list of references"),
        ({"models": ["parity-1"]}, "models: must be a file NAME.pt2, or a reference"),
        ({"models": ["other.pt2"]}, "models: no such file in the folder: other.pt2"),
        ({"input": {"shape": [8, 0]}}, "input: must be"),
        ({"input": {"shape": [1 << 20, 1 << 20]}}, "input: may have 32 axes"),
        ({"input": {"shape": [8], "dtype": "int64"}}, "input dtype: queries are added up"),
        ({"input": {"shape": [8]}, "code": "concat"}, "input: concat puts"),
        ({"output": [10]}, "output: must be"),
        ({"encode_ms": -1}, "encode_ms: must be a number, zero or more: -1"),
        ({"degraded_accuracy": 1.5}, "degraded_accuracy: must be 0 to 1: 1.5"),
        ({"degraded_accuracy": 0.1}, "degraded_accuracy: reconstructions are no better than guessing (0.1)"),
        ({"model_sha256": "abc"}, "model_sha256: must be the 64 hexadecimal digits"),
        ({"kk": 3}, "kk: unknown key"),
    ],
)
def test_parity_file_that_cannot_be_used_names_key_and_value(
    tmp_path: Path, changed: dict[str, Any], message: str
) -> None:
    with pytest.raises(BadInput) as caught:
        load_parity(_written(tmp_path, json.dumps(SAID | changed)), tmp_path)
    assert message in str(caught.value)
    assert "parity.json" in str(caught.value)


@pytest.mark.parametrize(("text", "message"), [("{", "is no JSON"), ("[]", "must be a JSON object"), ("{}", "missing")])
def test_text_that_is_no_parity_file_is_named(tmp_path: Path, text: str, message: str) -> None:
    with pytest.raises(BadInput, match=message):
        load_parity(_written(tmp_path, text), tmp_path)
