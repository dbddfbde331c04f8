"""A function on its way to AWS: as a zip, or as an image that is pushed after the deployment is confirmed."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from mark.domain.errors import MarkError
from mark_infra.deploy.artifacts import FUNCTION_PYTHON, size_of, zip_archive
from mark_infra.deploy.bytecode import bytecode, interpreter
from mark_infra.deploy.function_image import FunctionImage, function_image, image_builder, write_context
from mark_infra.deploy.function_package import PackageForm, package_form, with_bytecode
from mark_infra.deploy.image_repositories import ImageRepositories
from mark_infra.deploy.quotas import function_name


@dataclass(frozen=True, slots=True)
class SentFunction:
    """A function's zip, or its image's address in ECR: by digest, or by tag until it is pushed."""

    file: Path | None = None
    image_uri: str | None = None
    image_gb: float = 0.0  # unpacked
    to_push: FunctionImage | None = None


def send(
    service: str,
    contents: Mapping[str, Path | bytes],
    machine: str,
    built: Path,
    repositories: ImageRepositories,
    say: Callable[[str], None],
) -> SentFunction:
    """Build the zip in the folder `built`, or look the image up in ECR without changing anything.

    Raises BadInput if an image is needed and cannot be built here, CloudError.
    """
    size = size_of(contents)
    if package_form(service, size) is PackageForm.ZIP:
        return SentFunction(_zipped(service, contents, built, say))
    image = function_image(repositories.site, service, contents, machine)
    address = repositories.address(image.repository)
    digest = repositories.digest(image.repository, image.tag)
    if digest is not None:
        return SentFunction(image_uri=f"{address}@{digest}", image_gb=size / 1e9)
    image_builder(image)  # fail before the deployment is confirmed
    say(f"{service}: its function is too large for a zip ({size / 1024**2:.0f} MiB), and will be an image")
    return SentFunction(image_uri=f"{address}:{image.tag}", image_gb=size / 1e9, to_push=image)


def push(image: FunctionImage, repositories: ImageRepositories, built: Path, say: Callable[[str], None]) -> str:
    """Build the image and push it; return its address by digest. Raises MarkError."""
    address = repositories.address(image.repository)
    reference = f"{address}:{image.tag}"
    builder = image_builder(image)
    repositories.make(image.repository)
    repositories.keep_serving(image.repository, function_name(repositories.site, image.service))
    with tempfile.TemporaryDirectory(dir=built) as folder:
        write_context(image, Path(folder))
        say(f"{image.service}: building the image of its function")
        builder.build(Path(folder), image.machine, reference)
    say(f"{image.service}: pushing it to {address}")
    builder.push(reference, image.machine, repositories.password())
    digest = repositories.digest(image.repository, image.tag)
    if digest is None:
        raise MarkError(f"{reference} is not there, though it was pushed")
    return f"{address}@{digest}"


def _zipped(service: str, contents: Mapping[str, Path | bytes], built: Path, say: Callable[[str], None]) -> Path:
    python = interpreter(FUNCTION_PYTHON)
    if python is None:
        say(f"{service}: its function starts slower, as bytecode for it needs a python{FUNCTION_PYTHON} here")
    else:
        contents = with_bytecode(contents, bytecode(contents, python, FUNCTION_PYTHON, built / "bytecode"))
    return zip_archive(contents, built / f"{service}.zip")
