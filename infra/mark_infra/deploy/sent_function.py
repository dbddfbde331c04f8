"""A function on its way to AWS: its zip, or its image, which is pushed once the deployment is agreed to."""

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
    """A zip, or an image by its address in ECR: by its digest, or by its tag while it has to be pushed."""

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
    """Build the zip, in the folder `built`. Where it has to be an image nothing is changed: it is looked up in ECR.

    Raises BadInput where an image is needed and cannot be built here, CloudError.
    """
    size = size_of(contents)
    if package_form(service, size) is PackageForm.ZIP:
        return SentFunction(_zipped(service, contents, built, say))
    image = function_image(repositories.site, service, contents, machine)
    address = repositories.address(image.repository)
    digest = repositories.digest(image.repository, image.tag)
    if digest is not None:
        return SentFunction(image_uri=f"{address}@{digest}", image_gb=size / 1e9)
    image_builder(image)  # that there is one is known before the question is asked
    say(f"{service}: its function is too large for a zip ({size / 1024**2:.0f} MiB), and will be an image")
    return SentFunction(image_uri=f"{address}:{image.tag}", image_gb=size / 1e9, to_push=image)


def push(image: FunctionImage, repositories: ImageRepositories, built: Path, say: Callable[[str], None]) -> str:
    """Build the image and push it; its address by its digest. Raises MarkError."""
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
