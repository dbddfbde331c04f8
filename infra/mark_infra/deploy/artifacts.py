"""Files from which instances and functions boot: the wheel of mark, the service's folder, the function's package.

The same input makes the same bytes, wherever and whenever it is built, so that deploying again changes nothing.
"""

from __future__ import annotations

import gzip
import hashlib
import importlib.util
import io
import json
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile
import zipfile
from collections.abc import Mapping
from importlib import metadata
from pathlib import Path

from mark.domain.errors import BadInput, MarkError
from mark.domain.version import VERSION
from mark.models.files import walk

FUNCTION_PYTHON = "3.12"  # terraform/modules/overflow
MOST_FUNCTION_BYTES = 250 * 1024 * 1024  # unpacked, Lambda's limit for a zip
_MODEL_SIDE = ("numpy", "orjson")  # what mark.models imports
_EPOCH = (1980, 1, 1, 0, 0, 0)  # the earliest that a zip can say


def wheel(to: Path) -> Path:
    """The wheel of mark-serving as it is here: built from the checkout, or fetched in this version."""
    to.mkdir(parents=True, exist_ok=True)
    for old in to.glob("mark_serving-*.whl"):
        old.unlink()
    root = checkout()
    if root is not None:
        isolation = ["--no-build-isolation"] if importlib.util.find_spec("hatchling") is not None else []
        _pip("wheel", "--no-deps", *isolation, "--wheel-dir", str(to), str(root))
    else:
        _pip("download", "--no-deps", "--only-binary=:all:", "--dest", str(to), f"mark-serving=={VERSION}")
    (made,) = to.glob("mark_serving-*.whl")
    return made


def constraints(to: Path) -> Path:
    """Versions of everything that mark stands on: the checkout's, or those installed here."""
    root = checkout()
    if root is not None:
        text = (root / "constraints.txt").read_text(encoding="utf-8")
    else:
        # A local version (2.6.0+cpu) is in no index.
        there = {d.name.lower(): d.version.partition("+")[0] for d in metadata.distributions()}
        text = "".join(f"{name}=={there[name]}\n" for name in sorted(there) if name != "mark-serving")
    to.mkdir(parents=True, exist_ok=True)
    (to / "constraints.txt").write_text(text, encoding="utf-8")
    return to / "constraints.txt"


def terraform_modules() -> Path:
    """The folder with modules and the complete example: in the package, or in the checkout beside it."""
    shipped = Path(__file__).parents[1] / "terraform"
    root = checkout()
    if not shipped.is_dir() and root is not None:
        shipped = root / "terraform"
    if not shipped.is_dir():
        raise MarkError("this installation has no terraform modules")
    return shipped


def checkout() -> Path | None:
    """The source tree that is imported; None: an installed package."""
    root = Path(__file__).parents[3]
    return root if (root / "pyproject.toml").is_file() and (root / "constraints.txt").is_file() else None


def archive(files: Mapping[str, Path | bytes], to: Path) -> Path:
    """A .tar.gz of files by name."""
    to.parent.mkdir(parents=True, exist_ok=True)
    with (
        open(to, "wb") as raw,
        gzip.GzipFile(filename="", mode="wb", fileobj=raw, mtime=0, compresslevel=6) as packed,
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


def function_package(files: Mapping[str, Path | bytes], libraries: Path, to: Path) -> Path:
    """The function's .zip: mark's model side, the service's files under `service/`, and `libraries`.

    Raises BadInput for what is larger than Lambda takes.
    """
    contents: dict[str, Path | bytes] = {f"service/{name}": content for name, content in files.items()}
    for package in ("mark", "mark_lambda"):
        spec = importlib.util.find_spec(package)
        assert spec is not None
        assert spec.origin is not None
        home = Path(spec.origin).parent
        contents |= {
            f"{package}/{name}": path
            for path, name in walk(home, home)
            if path.suffix in (".py", ".csv", ".toml")  # profiles, too: a service without code answers by them
        }
    contents |= {name: path for path, name in walk(libraries, libraries)}
    size = sum(len(content) if isinstance(content, bytes) else content.stat().st_size for content in contents.values())
    if size > MOST_FUNCTION_BYTES:
        raise BadInput(
            'too large for a function, Lambda takes 250 MiB: a smaller runtime (ONNX, say), or function = "none"',
            "the function's package",
            f"{size / 1024**2:.0f} MiB",
        )
    with zipfile.ZipFile(to, "w", zipfile.ZIP_DEFLATED) as zipped:
        for name, content in sorted(contents.items()):
            info = zipfile.ZipInfo(name, _EPOCH)
            info.external_attr = 0o644 << 16
            info.compress_type = zipfile.ZIP_DEFLATED
            zipped.writestr(info, content if isinstance(content, bytes) else content.read_bytes())
    return to


def libraries(files: Mapping[str, Path | bytes], cache: Path, pins: Path) -> Path:
    """A folder with what the function imports, fetched for Lambda; kept in `cache`, because that takes a minute.

    `pins` is a constraints file; the service's requirements.txt says what its model needs. Raises MarkError where a
    package cannot be had.
    """
    asked = files.get("requirements.txt", b"")
    requirements = asked if isinstance(asked, bytes) else asked.read_bytes()
    folder = cache / libraries_name(requirements, pins)
    if folder.is_dir():
        return folder
    cache.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=cache) as work:
        file = Path(work, "requirements.txt")
        file.write_bytes("\n".join([*_MODEL_SIDE, ""]).encode() + requirements)
        platforms = [f"--platform=manylinux{tag}_x86_64" for tag in ("_2_34", "_2_28", "_2_27", "_2_17", "2014")]
        _pip(
            *("install", "--no-compile", "--only-binary=:all:", "--implementation=cp"),
            *(f"--python-version={FUNCTION_PYTHON}", *platforms, "--target", str(Path(work, "there"))),
            *("-c", str(pins), "-r", str(file)),
        )
        shutil.rmtree(Path(work, "there", "bin"), ignore_errors=True)
        try:
            Path(work, "there").rename(folder)
        except OSError:
            if not folder.is_dir():  # else another process was quicker
                raise
    return folder


def libraries_name(requirements: bytes, pins: Path) -> str:
    """Of the folder in the cache."""
    try:
        text = requirements.decode("utf-8-sig")
    except UnicodeDecodeError:
        raise BadInput("is not UTF-8", "requirements.txt") from None
    said = json.dumps([_MODEL_SIDE, text, pins.read_text(encoding="utf-8"), FUNCTION_PYTHON])
    return hashlib.sha256(said.encode()).hexdigest()[:16]


def _pip(*arguments: str) -> None:
    command = [sys.executable, "-m", "pip", "--quiet", "--disable-pip-version-check", "--no-input", *arguments]
    process = subprocess.run(command, capture_output=True, text=True)
    if process.returncode != 0:
        said = re.findall(r"^ERROR: (.*)$", process.stderr, re.MULTILINE) or process.stderr.splitlines() or ["failed"]
        raise MarkError(f"pip {arguments[0]}: {said[-1][:400]}")
