"""A function as a container image: its contents, its name, and the program that builds and pushes it.

The program is the user's own: docker, podman or finch.
"""

from __future__ import annotations

import hashlib
import json
import os
import platform
import re
import shutil
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from mark.domain.errors import BadInput, MarkError
from mark_infra.deploy.artifacts import FUNCTION_PYTHON, size_of
from mark_infra.deploy.bytecode import TASK_ROOT

HANDLER = "mark_lambda.overflow.handler"  # the same as terraform/modules/overflow has for zips
PROGRAMS = ("docker", "podman", "finch")
_BASE = f"public.ecr.aws/lambda/python:{FUNCTION_PYTHON}"
_PLATFORMS = {"x86_64": "linux/amd64", "aarch64": "linux/arm64"}
_MACHINES = {"AMD64": "x86_64", "arm64": "aarch64"}  # names of Windows and macOS
_PACKAGE = "package"  # folder in the build context
_LAYOUT = 1  # raise it when images of the same files must be rebuilt


@dataclass(frozen=True, slots=True)
class FunctionImage:
    """The image of a service's function; its tag is a hash of its contents."""

    service: str
    repository: str
    tag: str
    machine: str  # x86_64 or aarch64
    contents: Mapping[str, Path | bytes]


def function_image(site: str, service: str, contents: Mapping[str, Path | bytes], machine: str) -> FunctionImage:
    """Return the image with these files."""
    return FunctionImage(service, repository_of(site, service), _tag(contents, machine), machine, contents)


def repository_of(site: str, service: str) -> str:
    """Return the name of the repository in ECR: words of lower-case letters and digits, joined by dashes."""
    slug = re.sub(r"[^a-z0-9]", "-", service.lower())
    word = re.sub(r"-+", "-", slug).strip("-")
    # Two services may differ only in the removed characters.
    end = "" if word == slug else f"-{hashlib.sha256(slug.encode()).hexdigest()[:8]}"
    return f"mark/{site}/{word}{end}"


def dockerfile(machine: str, here: str) -> str:
    """Return the Dockerfile that builds the image for `machine`, on a computer whose processor is `here`.

    Modules are compiled in an image for `here`, because the program may be unable to run another processor's code.
    Bytecode is the same for all processors. Modules for another Python are skipped.
    """
    compile_all = f"python3 -m compileall -q -j 0 --invalidation-mode unchecked-hash {TASK_ROOT} || true"
    return (
        f"FROM --platform={_PLATFORMS[here]} {_BASE} AS compiled\n"
        f"COPY {_PACKAGE}/ {TASK_ROOT}/\n"
        f"RUN {compile_all}\n"
        f"FROM --platform={_PLATFORMS[machine]} {_BASE}\n"
        f"COPY --from=compiled {TASK_ROOT}/ {TASK_ROOT}/\n"
        f'CMD ["{HANDLER}"]\n'
    )


def write_context(image: FunctionImage, folder: Path) -> None:
    """Fill `folder` with the Dockerfile and the files, readable for Lambda's user.

    Raises MarkError if the files no longer match the image's tag.
    """
    for name, content in image.contents.items():
        to = folder / _PACKAGE / name
        to.parent.mkdir(parents=True, exist_ok=True)
        to.write_bytes(content) if isinstance(content, bytes) else shutil.copyfile(content, to)
        to.chmod(_mode(content))
    for inside in (folder / _PACKAGE).rglob("*"):
        if inside.is_dir():
            inside.chmod(0o755)
    (folder / _PACKAGE).chmod(0o755)
    written = {name: folder / _PACKAGE / name for name in image.contents}
    if _tag(written, image.machine) != image.tag:
        raise MarkError(f"{image.service}: files have changed since they were looked at: deploy again")
    here = _MACHINES.get(platform.machine(), platform.machine())
    text = dockerfile(image.machine, here if here in _PLATFORMS else image.machine)
    (folder / "Dockerfile").write_text(text, encoding="utf-8")


class ImageBuilder:
    """The program that builds images, by its name or path. Raises MarkError with the program's last line."""

    def __init__(self, program: str) -> None:
        self._program = program
        # Lambda takes a plain image, not an index with an attestation beside it.
        self._environment = {**os.environ, "BUILDX_NO_DEFAULT_ATTESTATIONS": "1"}

    def build(self, folder: Path, machine: str, reference: str) -> None:
        """Build the image of a folder with a Dockerfile, under the name `reference`."""
        self._run("build", "--platform", _PLATFORMS[machine], "--tag", reference, str(folder))

    def push(self, reference: str, machine: str, password: str) -> None:
        """Push the image to its registry, then log out. The password is on no command line."""
        registry = reference.partition("/")[0]
        self._run("login", "--username", "AWS", "--password-stdin", registry, entered=password)
        try:
            # finch pushes the host's platform by default; the others push the existing one.
            which = ["--platform", _PLATFORMS[machine]] if Path(self._program).name == "finch" else []
            self._run("push", *which, reference)
        finally:
            self._run("logout", registry)

    def answers(self) -> str:
        """Return why the program cannot build, for example a stopped daemon or virtual machine; "" if it can."""
        try:
            self._run("info")
        except MarkError as error:
            return str(error)
        return ""

    def _run(self, command: str, *arguments: str, entered: str = "") -> None:
        process = subprocess.run(
            [self._program, command, *arguments],
            input=entered,
            capture_output=True,
            text=True,
            env=self._environment,
        )
        if process.returncode != 0:
            said = [line.strip() for line in (process.stderr or process.stdout).splitlines() if line.strip()]
            raise MarkError(f"{Path(self._program).name} {command}: {(said or ['failed'])[-1][:400]}")


def image_builder(image: FunctionImage) -> ImageBuilder:
    """Return the first program on the PATH that can build. Raises BadInput if none can."""
    why = []
    for name in PROGRAMS:
        if (path := shutil.which(name)) is not None:
            builder = ImageBuilder(path)
            if not (silent := builder.answers()):
                return builder
            why.append(silent)
    absent = "; ".join(why) or f"none of {', '.join(PROGRAMS)} is installed"
    raise BadInput(
        f"more than a zip holds (250 MiB), and an image of it cannot be built: {absent}. Without an image the service "
        "has no function, and refuses requests that its instances cannot answer in time: if you "
        'want that, function = "none"',
        f"{image.service}, the function's package",
        f"{size_of(image.contents) / 1024**2:.0f} MiB",
    )


def _tag(contents: Mapping[str, Path | bytes], machine: str) -> str:
    files = {name: [_mode(content), _sha256(content)] for name, content in sorted(contents.items())}
    said = json.dumps([_LAYOUT, _BASE, HANDLER, machine, files])
    return hashlib.sha256(said.encode()).hexdigest()[:32]


def _mode(content: Path | bytes) -> int:
    return 0o755 if isinstance(content, Path) and content.stat().st_mode & 0o100 else 0o644


def _sha256(content: Path | bytes) -> str:
    if isinstance(content, bytes):
        return hashlib.sha256(content).hexdigest()
    with content.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
