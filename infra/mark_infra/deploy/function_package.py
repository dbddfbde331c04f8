"""The contents of a function, and whether they fit in a zip or need an image."""

from __future__ import annotations

import importlib.util
from collections.abc import Mapping
from enum import StrEnum
from pathlib import Path

from mark.domain.errors import BadInput
from mark.models.files import walk
from mark_infra.deploy.artifacts import size_of

MOST_ZIP_BYTES = 250 * 1024**2  # Lambda's limit, unpacked
# Lambda's limit of an image is 10 GB, all layers unpacked. Its base image has 0.6 GB, and bytecode is added.
MOST_IMAGE_BYTES = 9 * 10**9

Files = Mapping[str, Path | bytes]


class PackageForm(StrEnum):
    """The form in which a function is sent."""

    ZIP = "zip"
    IMAGE = "image"


def package_form(service: str, unpacked_bytes: int) -> PackageForm:
    """Return the form: a zip if it fits, because it needs no build program and starts sooner.

    Raises BadInput for contents that fit neither.
    """
    if unpacked_bytes <= MOST_ZIP_BYTES:
        return PackageForm.ZIP
    if unpacked_bytes <= MOST_IMAGE_BYTES:
        return PackageForm.IMAGE
    raise BadInput(
        'too large for a function: Lambda takes images of 10 GB; function = "none" does without',
        f"{service}, the function's package",
        f"{unpacked_bytes / 1e9:.1f} GB",
    )


def function_contents(files: Files, libraries: Path) -> dict[str, Path | bytes]:
    """Return the function's files by name: mark's model side, the service's files under `service/`, and `libraries`."""
    contents: dict[str, Path | bytes] = {f"service/{name}": content for name, content in files.items()}
    for package in ("mark", "mark_lambda"):
        spec = importlib.util.find_spec(package)
        assert spec is not None
        assert spec.origin is not None
        home = Path(spec.origin).parent
        contents |= {
            f"{package}/{name}": path
            for path, name in walk(home, home)
            if path.suffix in (".py", ".csv", ".toml")  # a service without code answers by its profiles
        }
    return contents | {name: path for path, name in walk(libraries, libraries)}


def with_bytecode(contents: Files, bytecode: Files) -> dict[str, Path | bytes]:
    """Return `contents` with `bytecode`, or alone if both are too large for a zip."""
    both = {**contents, **bytecode}
    return both if size_of(both) <= MOST_ZIP_BYTES else dict(contents)
