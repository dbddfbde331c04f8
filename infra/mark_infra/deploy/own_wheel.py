"""Build the wheel of the running mark-serving, from the checkout or from the installed files."""

from __future__ import annotations

import base64
import csv
import hashlib
import importlib.util
import io
from importlib import metadata
from pathlib import Path

from mark.domain.errors import MarkError
from mark_infra.deploy.artifacts import zip_archive
from mark_infra.deploy.checkout import checkout
from mark_infra.deploy.pip_program import run_pip


def wheel(to: Path) -> Path:
    """Write the wheel into the folder `to`, which then has no other wheel of mark-serving."""
    to.mkdir(parents=True, exist_ok=True)
    for old in to.glob("mark_serving-*.whl"):
        old.unlink()
    root = checkout()
    if root is None:
        return installed_wheel(metadata.distribution("mark-serving"), to)
    isolation = ["--no-build-isolation"] if importlib.util.find_spec("hatchling") is not None else []
    run_pip("wheel", "--no-deps", *isolation, "--wheel-dir", str(to), str(root))
    (made,) = to.glob("mark_serving-*.whl")
    return made


def installed_wheel(distribution: metadata.Distribution, to: Path) -> Path:
    """Build the wheel of an installed distribution from the files in its RECORD, as they are on disk now.

    So even an installation from a wheel that no index has can be deployed. Raises MarkError if RECORD or one of its
    files is missing.
    """
    name, version = distribution.name.replace("-", "_"), distribution.version
    listed = distribution.files
    if listed is None:
        raise MarkError(f"{name} was installed without a list of its files (RECORD): install it with pip")
    contents: dict[str, bytes] = {}
    for file in listed:
        # Scripts lie outside of the package folder; pip creates them again from the entry points.
        if file.suffix == ".pyc" or ".." in file.parts or _is_installers(file):
            continue
        try:
            contents[file.as_posix()] = file.read_binary()
        except OSError:
            raise MarkError(f"{file} of the installed {name} is gone: install it again") from None
    (home,) = {path.partition("/")[0] for path in contents if path.endswith(".dist-info/METADATA")}
    lines = contents[f"{home}/WHEEL"].decode().splitlines()
    tags = [line.partition(":")[2].strip().split("-") for line in lines if line.startswith("Tag:")]
    # A wheel may have several tags; its file name joins their parts.
    tag = "-".join(".".join(sorted(set(parts))) for parts in zip(*tags, strict=True))
    contents[f"{home}/RECORD"] = _record(contents, f"{home}/RECORD")
    return zip_archive(contents, to / f"{name}-{version}-{tag}.whl")


def _is_installers(file: metadata.PackagePath) -> bool:
    """Return whether an installer added the file, which would be wrong elsewhere."""
    return file.parent.suffix == ".dist-info" and file.name in ("RECORD", "INSTALLER", "REQUESTED", "direct_url.json")


def _record(contents: dict[str, bytes], own: str) -> bytes:
    text = io.StringIO()
    lines = csv.writer(text, lineterminator="\n")
    for path, content in sorted(contents.items()):
        digest = base64.urlsafe_b64encode(hashlib.sha256(content).digest()).rstrip(b"=").decode()
        lines.writerow((path, f"sha256={digest}", len(content)))
    lines.writerow((own, "", ""))
    return text.getvalue().encode()
