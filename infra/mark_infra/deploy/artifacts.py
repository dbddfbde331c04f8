"""Files from which instances and functions boot: archives, and the libraries that a function imports.

The same input gives the same bytes at any place and time, so that deploying again changes nothing.
"""

from __future__ import annotations

import gzip
import hashlib
import io
import json
import shutil
import tarfile
import tempfile
import zipfile
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import IO, Any

from mark.domain.errors import BadInput
from mark_infra.deploy.pip_program import for_linux, pins_beside, run_pip, without_hashes

FUNCTION_PYTHON = "3.12"  # terraform/modules/overflow
_MODEL_SIDE = ("numpy", "orjson")  # imported by mark.models
_EPOCH = (1980, 1, 1, 0, 0, 0)  # the earliest time in a zip


def archive(files: Mapping[str, Path | bytes], to: Path) -> Path:
    """Write a .tar of files by name, compressed if `to` ends in .gz."""
    to.parent.mkdir(parents=True, exist_ok=True)
    with (
        open(to, "wb") as raw,
        _packed(raw, to.suffix) as packed,
        tarfile.open(fileobj=packed, mode="w", format=tarfile.PAX_FORMAT) as tar,
    ):
        for name, content in sorted(files.items()):
            info = tarfile.TarInfo(name)
            info.mode = 0o644
            if isinstance(content, bytes):
                info.size = len(content)
                tar.addfile(info, io.BytesIO(content))
            else:
                info.size = content.stat().st_size
                with open(content, "rb") as file:
                    tar.addfile(info, file)
    return to


def zip_archive(files: Mapping[str, Path | bytes], to: Path) -> Path:
    """Write a .zip of files by name."""
    with zipfile.ZipFile(to, "w", zipfile.ZIP_DEFLATED) as zipped:
        for name, content in sorted(files.items()):
            info = zipfile.ZipInfo(name, _EPOCH)
            info.external_attr = 0o644 << 16
            info.compress_type = zipfile.ZIP_DEFLATED
            zipped.writestr(info, content if isinstance(content, bytes) else content.read_bytes())
    return to


def size_of(files: Mapping[str, Path | bytes]) -> int:
    """Return the total unpacked size in bytes."""
    return sum(len(one) if isinstance(one, bytes) else one.stat().st_size for one in files.values())


def libraries(
    files: Mapping[str, Path | bytes],
    kinds: Sequence[str],
    cache: Path,
    pins: Path,
    cpu_index: str | None = None,
    machine: str = "x86_64",
) -> Path:
    """Return a folder with the function's libraries for Lambda, kept in `cache` because fetching takes a minute.

    `kinds` are libraries of models that are files; the service's requirements.txt has its model's other needs. `pins`
    is a constraints file, `cpu_index` has wheels without GPU code, `machine` is x86_64 or aarch64. Raises BadInput for
    GPU libraries, because functions have no GPUs, and MarkError for libraries that cannot be fetched.
    """
    requirements = bytes_of(files, "requirements.txt")
    folder = cache / libraries_name(requirements, pins, cpu_index, kinds, machine)
    if folder.is_dir():
        return folder
    cache.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=cache) as work:
        file, own = Path(work, "requirements.txt"), Path(work, "constraints.txt")
        needs, _ = without_hashes(requirements.decode("utf-8-sig"))
        file.write_text("\n".join([*_MODEL_SIDE, *kinds, needs]), encoding="utf-8")
        own.write_text(pins_beside(pins.read_text(encoding="utf-8"), needs), encoding="utf-8")
        run_pip(
            *("install", "--no-compile", "--target", str(Path(work, "there"))),
            *for_linux(FUNCTION_PYTHON, machine),
            *([f"--extra-index-url={cpu_index}"] if cpu_index else []),
            *("-c", str(own), "-r", str(file)),
        )
        _check_gpus(Path(work, "there"))
        shutil.rmtree(Path(work, "there", "bin"), ignore_errors=True)
        try:
            Path(work, "there").rename(folder)
        except OSError:
            if not folder.is_dir():  # otherwise another process was quicker
                raise
    return folder


def _check_gpus(libraries: Path) -> None:
    found = sorted(path.name.removesuffix(".dist-info") for path in libraries.glob("nvidia_*.dist-info"))
    if found:
        what = "brings libraries for GPUs, which no function has: say where wheels without are, `cpu_index`, or "
        more = f" and {len(found) - 1} more" if found[1:] else ""
        raise BadInput(f'{what}function = "none"', "requirements.txt, for the function", f"{found[0]}{more}")


def libraries_name(
    requirements: bytes,
    pins: Path,
    cpu_index: str | None = None,
    kinds: Sequence[str] = (),
    machine: str = "x86_64",
) -> str:
    """Return the folder's name in the cache."""
    try:
        text = requirements.decode("utf-8-sig")
    except UnicodeDecodeError:
        raise BadInput("is not UTF-8", "requirements.txt") from None
    said = [_MODEL_SIDE, *kinds, text, pins.read_text(encoding="utf-8"), FUNCTION_PYTHON, cpu_index, machine]
    return hashlib.sha256(json.dumps(said).encode()).hexdigest()[:16]


def bytes_of(files: Mapping[str, Path | bytes], name: str) -> bytes:
    """Return the content of a file, or b"" if it is missing."""
    content = files.get(name, b"")
    return content if isinstance(content, bytes) else content.read_bytes()


def _packed(raw: IO[bytes], suffix: str) -> AbstractContextManager[Any]:
    if suffix != ".gz":
        return nullcontext(raw)
    return gzip.GzipFile(filename="", mode="wb", fileobj=raw, mtime=0, compresslevel=6)
