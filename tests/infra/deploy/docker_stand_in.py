"""A program that stands in for docker: it writes down its calls, and looks at the files that it should build."""

from __future__ import annotations

import json
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

_PROGRAM = """import json, os, sys
from pathlib import Path

command, *rest = sys.argv[1:]
call = {{"argv": sys.argv[1:], "entered": "" if sys.stdin.isatty() else sys.stdin.read()}}
call["attested"] = os.environ.get("BUILDX_NO_DEFAULT_ATTESTATIONS") != "1"
if command == "build":
    context = Path(rest[-1])
    call["dockerfile"] = (context / "Dockerfile").read_text()
    files = sorted(path for path in (context / "package").rglob("*") if path.is_file())
    call["files"] = {{str(path.relative_to(context / "package")): oct(path.stat().st_mode & 0o777) for path in files}}
with open({calls!r}, "a") as file:
    file.write(json.dumps(call) + "\\n")
if command == {fails!r}:
    sys.exit("a line before\\n" + {says!r})
if command == "push" and {registry!r}:
    import boto3  # the registry is an emulator that has no way in for images but its API

    _, _, path = rest[-1].partition("/")
    name, _, tag = path.partition(":")
    kind = "application/vnd.oci.image.manifest.v1+json"
    manifest = {{"schemaVersion": 2, "mediaType": kind, "config": {{"digest": tag, "size": 1}}}}
    boto3.client("ecr").put_image(repositoryName=name, imageTag=tag, imageManifest=json.dumps(manifest))
"""


@dataclass(frozen=True)
class DockerStandIn:
    """The stand-in; `bin` is its folder."""

    bin: Path
    log: Path

    def calls(self, command: str = "") -> list[dict[str, Any]]:
        """Return the arguments of its calls of this command, or of all."""
        lines = self.log.read_text().splitlines() if self.log.is_file() else []
        return [one for one in map(json.loads, lines) if command in ("", one["argv"][0])]


def docker_stand_in(
    folder: Path,
    monkeypatch: pytest.MonkeyPatch,
    name: str = "docker",
    *,
    fails: str = "",
    says: str = "no",
    registry: bool = False,
) -> DockerStandIn:
    """Put a stand-in first on the PATH. The command `fails` does; with `registry` pushed images are in the emulator's
    ECR."""
    there = DockerStandIn(folder / "bin", folder / f"{name}.jsonl")
    there.bin.mkdir(parents=True, exist_ok=True)
    program = _PROGRAM.format(calls=str(there.log), fails=fails, says=says, registry=registry)
    source = folder / f"{name}_stand_in.py"
    source.write_text(program)
    # A shell starts it, because the first line of a program takes no path with a space.
    (there.bin / name).write_text(f'#!/bin/sh\nexec "{sys.executable}" "{source}" "$@"\n')
    (there.bin / name).chmod(0o755)
    monkeypatch.setenv("PATH", str(there.bin), prepend=":")
    return there
