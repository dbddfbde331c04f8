"""Read `parity.json` of a folder of parity models: their code, the model they stand in for, and their accuracy."""

from __future__ import annotations

import json
import math
import re
from pathlib import Path
from typing import Any

from mark.domain.cells import is_file, read_text
from mark.domain.errors import BadInput
from mark.insurance.codes import ParityCode, check_shape
from mark.insurance.insurance_settings import CODES, LEAST_K, MOST_R, ParitySettings

PARITY_FILE = "parity.json"
SCHEMA = 1
_REQUIRED = ("schema", "code", "k", "models", "input", "output")
_OPTIONAL = (
    "r", "encode_ms", "decode_ms", "available_accuracy", "degraded_accuracy", "chance", "model_sha256",
)  # fmt: skip
# Kinds of references that name a file after the colon.
_FILE_KINDS = ("torch", "sklearn", "onnx")
_EXPORTED = ".pt2"
_SHA256 = re.compile(r"[0-9a-f]{64}")
_MOST_AXES, _MOST_NUMBERS = 32, 1 << 28


def load_parity(folder: Path, search: Path) -> ParitySettings:
    """Read the folder's `parity.json`; its models' files are named as seen from `search`. Raises BadInput."""
    path = folder / PARITY_FILE
    if not is_file(path):
        raise BadInput("no such file: `mark insure train` writes it, with the parity models", str(path))
    try:
        read = json.loads(read_text(path))
    except (ValueError, RecursionError) as error:
        raise BadInput(f"is no JSON: {error}", str(path)) from None
    if not isinstance(read, dict):
        raise BadInput("must be a JSON object", str(path), read)
    for key in read:
        if key not in _REQUIRED + _OPTIONAL:
            raise BadInput("unknown key", f"{path} {key}", read[key], known=_REQUIRED + _OPTIONAL)
    for key in _REQUIRED:
        if key not in read:
            raise BadInput("missing", f"{path} {key}")
    if read["schema"] != SCHEMA:
        raise BadInput(f"this mark reads schema {SCHEMA}", f"{path} schema", read["schema"])
    code = parity_code(read["code"], read["k"], read.get("r", 1), str(path))
    shapes = {key: _shape(read[key], f"{path} {key}") for key in ("input", "output")}
    check_shape(code, shapes["input"], f"{path} input")
    if read["input"].get("dtype", "float32") not in ("float32", "float64"):
        what = "queries are added up, so they must be float32 or float64"
        raise BadInput(what, f"{path} input dtype", read["input"]["dtype"])
    accuracies = {key: _share(read, key, path) for key in ("available_accuracy", "degraded_accuracy", "chance")}
    chance, degraded = accuracies.pop("chance"), accuracies["degraded_accuracy"]
    if chance is not None and degraded is not None and degraded <= chance:
        what = f"reconstructions are no better than guessing ({chance:g}): train longer, or with a smaller k"
        raise BadInput(what, f"{path} degraded_accuracy", degraded)
    return ParitySettings(
        code=code.name,
        k=code.k,
        r=code.r,
        models=_models(read["models"], code.r, folder, search, f"{path} models"),
        input_shape=shapes["input"],
        output_shape=shapes["output"],
        encode_s=_time_ms(read, "encode_ms", path) / 1e3,
        decode_s=_time_ms(read, "decode_ms", path) / 1e3,
        file=str(path),
        model_sha256=_sha256(read, path),
        **accuracies,
    )


def parity_code(name: object, k: object, r: object, where: str) -> ParityCode:
    """Return the code with these values from a file. Raises BadInput at `where` and the key."""
    if not isinstance(name, str):
        raise BadInput(f"must be {' or '.join(CODES)}", f"{where} code", name)
    for key, value in (("k", k), ("r", r)):
        if isinstance(value, bool) or not isinstance(value, int):
            least = LEAST_K if key == "k" else 1
            raise BadInput(f"must be a whole number from {least} on", f"{where} {key}", value)
    assert isinstance(k, int)
    assert isinstance(r, int)
    try:
        return ParityCode(name, k, r)
    except BadInput as error:
        raise BadInput(error.what, f"{where} {error.where}", error.value) from None


def _shape(said: Any, where: str) -> tuple[int, ...]:
    """Return the shape of one query or output, without the batch axis. Raises BadInput."""
    shape = said.get("shape") if isinstance(said, dict) else None
    if not isinstance(shape, list) or not all(
        isinstance(size, int) and not isinstance(size, bool) and size > 0 for size in shape
    ):
        raise BadInput('must be {"shape": [...]}, with the sizes of one item without the batch', where, said)
    if len(shape) > _MOST_AXES or math.prod(shape) > _MOST_NUMBERS:
        raise BadInput(f"may have {_MOST_AXES} axes and {_MOST_NUMBERS} numbers at most", where, shape)
    return tuple(shape)


def _models(said: Any, r: int, folder: Path, search: Path, where: str) -> tuple[str, ...]:
    if not isinstance(said, list) or not all(isinstance(one, str) and one.strip() for one in said):
        raise BadInput("must be a list of references", where, said)
    if len(said) != r:
        raise BadInput(f"must name a model for each parity, so {r} (r, at most {MOST_R})", where, said)
    return tuple(_reference(one, folder, search, where) for one in said)


def _reference(said: str, folder: Path, search: Path, where: str) -> str:
    """Return a reference with its file as seen from `search`; `FILE.pt2` means `torch:FILE.pt2`."""
    kind, colon, rest = said.partition(":")
    if not colon and said.endswith(_EXPORTED):
        kind, rest = "torch", said
    elif not colon:
        raise BadInput(f"must be a file NAME{_EXPORTED}, or a reference such as onnx:NAME.onnx", where, said)
    if kind not in _FILE_KINDS:
        return said
    name, mark, query = rest.partition("?")
    if not is_file(folder / name):
        raise BadInput("no such file in the folder", where, name)
    return f"{kind}:{_from(folder / name, search)}{mark}{query}"


def _from(file: Path, search: Path) -> str:
    """Return the path relative to `search` if it lies below it, else the absolute path."""
    try:
        return file.relative_to(search).as_posix()
    except ValueError:
        return str(file.absolute())


def _number(read: dict[str, Any], key: str, path: Path) -> float:
    value = read[key]
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value) or value < 0.0:
        raise BadInput("must be a number, zero or more", f"{path} {key}", value)
    return float(value)


def _time_ms(read: dict[str, Any], key: str, path: Path) -> float:
    return _number(read, key, path) if read.get(key) is not None else 0.0


def _share(read: dict[str, Any], key: str, path: Path) -> float | None:
    if read.get(key) is None:
        return None
    share = _number(read, key, path)
    if share > 1.0:
        raise BadInput("must be 0 to 1", f"{path} {key}", share)
    return share


def _sha256(read: dict[str, Any], path: Path) -> str:
    said = read.get("model_sha256") or ""
    if not isinstance(said, str) or (said and not _SHA256.fullmatch(said)):
        raise BadInput("must be the 64 hexadecimal digits of a SHA-256", f"{path} model_sha256", said)
    return said
